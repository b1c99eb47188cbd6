#!/usr/bin/env python3
"""Compares trees independently of the migration's code.

    compare.py make DIR       makes a tree with every kind of entry and many awkward names
    compare.py compare A B    compares contents, metadata, links and holes of two trees
"""
import hashlib
import os
import stat
import sys

def make(root):
    os.makedirs(root, exist_ok=True)
    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    def put(dirfd, name, data=b'x', mode=0o640, mtime=1_600_000_000_123_456_789):
        fd = os.open(name, os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=dirfd)
        os.write(fd, data); os.fchmod(fd, mode); os.close(fd)
        os.utime(name, ns=(mtime, mtime), dir_fd=dirfd)
    for n in ['caf\u00e9'.encode(), 'cafe\u0301'.encode(), b'Case', b'case', b'trailing ', b' leading', b'\xff\xfe\xc3(',
              b'new\nline\x1b\x01', b'x'*255, b'-rf', b'back\\slash', b'a:b*?']:
        put(top, n, n)
    os.mkdir(b'a', dir_fd=top); a = os.open(b'a', os.O_RDONLY, dir_fd=top)
    put(a, b'b', b'below a'); put(top, b'a.txt', b'beside a')
    put(a, b'setuid', b's', 0o4755); put(a, b'readonly', b'r', 0o400); put(a, b'empty', b'')
    put(a, b'old', b'o', mtime=-1_000_000_001)
    os.link(b'b', b'further', src_dir_fd=a, dst_dir_fd=top)
    os.link(b'b', b'again', src_dir_fd=a, dst_dir_fd=a)
    os.symlink(b'no\xffwhere', b'dangling', dir_fd=a); os.symlink(b'..', b'up', dir_fd=a); os.symlink(b'/'+b'y'*3000, b'longlink', dir_fd=a)
    os.utime(b'dangling', ns=(5, 1_500_000_000_000_000_007), dir_fd=a, follow_symlinks=False)
    os.link(b'dangling', b'dangling2', src_dir_fd=a, dst_dir_fd=a, follow_symlinks=False)
    fd = os.open(b'sparse', os.O_CREAT | os.O_RDWR, 0o644, dir_fd=a)
    os.ftruncate(fd, 40 << 20); os.pwrite(fd, b'island', 20 << 20); os.close(fd)
    put(a, b'big', os.urandom(1 << 20) * 70)
    fd = os.open(b'xattrs', os.O_CREAT | os.O_RDWR, 0o644, dir_fd=a)
    os.setxattr(fd, b'user.color', b'blue\0\xff'); os.setxattr(fd, b'user.empty', b''); os.close(fd)
    os.setxattr(a, b'user.folder', b'yes')
    os.mkfifo(b'fifo', dir_fd=a)
    os.mkdir(b'closed', 0o700, dir_fd=top); c = os.open(b'closed', os.O_RDONLY, dir_fd=top); put(c, b'in'); os.fchmod(c, 0o555)
    os.mkdir(b'emptydir', 0o1777, dir_fd=top)
    if os.geteuid() == 0:
        put(a, b'owned', b'o'); os.chown(b'owned', 1234, 5678, dir_fd=a); os.utime(b'owned', ns=(1, 1_600_000_000_000_000_001), dir_fd=a)
    cur = os.dup(top)
    for i in range(30):
        n = bytes([97 + i % 26]) * 250
        os.mkdir(n, dir_fd=cur); nxt = os.open(n, os.O_RDONLY, dir_fd=cur); os.close(cur); cur = nxt
    put(cur, b'bottom', b'deep')
    os.utime(b'a', ns=(1, 1_400_000_000_999_999_999), dir_fd=top)

def describe(root):
    out, inodes = {}, {}
    def walk(fd, path):
        st = os.fstat(fd)
        out[path + b'/'] = meta(st, fd)
        for name in sorted(os.listdir(b'/proc/self/fd/%d' % fd)):
            st = os.stat(name, dir_fd=fd, follow_symlinks=False); p = path + b'/' + name
            if stat.S_ISDIR(st.st_mode):
                sub = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd); walk(sub, p); os.close(sub)
            elif stat.S_ISREG(st.st_mode):
                f = os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd); h = hashlib.sha256()
                while chunk := os.read(f, 1 << 20): h.update(chunk)
                out[p] = meta(st, f) + (st.st_size, h.hexdigest(), inodes.setdefault(st.st_ino, p), st.st_blocks * 512 < st.st_size); os.close(f)
            elif stat.S_ISLNK(st.st_mode):
                out[p] = ('link', os.readlink(name, dir_fd=fd), st.st_mtime_ns, st.st_uid, inodes.setdefault(st.st_ino, p))
            else: out[p] = ('special', st.st_mode, st.st_rdev, st.st_mtime_ns)
    def meta(st, fd):
        x = tuple((n, os.getxattr(fd, n)) for n in sorted(os.listxattr(fd)))
        return (st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, x)
    fd = os.open(root, os.O_RDONLY); sys.setrecursionlimit(100000); walk(fd, b''); return out

if sys.argv[1] == 'make': make(sys.argv[2].encode())
else:
    a, b = describe(sys.argv[2].encode()), describe(sys.argv[3].encode())
    bad = [(k, a.get(k), b.get(k)) for k in sorted(set(a) | set(b)) if a.get(k) != b.get(k)]
    for line in bad[:20]: print(line)
    print(len(a), 'entries,', len(bad), 'differences'); sys.exit(bool(bad) or len(a) < 2)
