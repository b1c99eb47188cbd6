"""A faulty filesystem: `faulty.py BACKING MOUNTPOINT` mounts a directory read-only with FUSE.

Files whose names contain `short` report their full size, and end halfway when they are read. Files
and folders whose names contain `broken` can be seen, but neither read nor listed (EIO). The script
implements the kernel's protocol (include/uapi/linux/fuse.h, version 7.31) on /dev/fuse, so it
needs no library. It ends when the filesystem is unmounted.
"""

import ctypes
import errno
import os
import stat
import struct
import sys

LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS = 1, 2, 3, 5, 14, 15, 17
RELEASE, INIT, OPENDIR, READDIR, RELEASEDIR, BATCH_FORGET = 18, 26, 27, 28, 29, 42
DIRECT_IO = 1  # the kernel forwards every read unchanged, and caches nothing

backing, mountpoint = (os.fsencode(path) for path in sys.argv[1:3])
device = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
if ctypes.CDLL(None, use_errno=True).mount(b"faulty", mountpoint, b"fuse", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))

paths, nodes = {1: backing}, {backing: 1}


def node(path):
    if path not in nodes:
        nodes[path] = len(nodes) + 1
        paths[nodes[path]] = path
    return nodes[path]


def attributes(path):
    s = os.lstat(path)
    seconds = [t // 10**9 for t in (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)]
    rest = [t % 10**9 for t in (s.st_atime_ns, s.st_mtime_ns, s.st_ctime_ns)]
    return struct.pack("<6Q10I", node(path), s.st_size, s.st_blocks, *seconds, *rest,
                       s.st_mode, s.st_nlink, s.st_uid, s.st_gid, 0, 4096, 0)


def readable_size(path):
    size = os.path.getsize(path)
    return size // 2 if b"short" in os.path.basename(path) else size


def entries(path, offset, size):
    names = [b".", b".."] + sorted(os.listdir(path))
    out = b""
    for at, name in enumerate(names[offset:], offset + 1):
        mode = os.lstat(os.path.join(path, name)).st_mode
        entry = struct.pack("<QQII", 1, at, len(name), stat.S_IFMT(mode) >> 12) + name
        entry += bytes(-len(entry) % 8)
        if len(out) + len(entry) > size:
            break
        out += entry
    return out


def respond(opcode, path, body):
    if opcode == INIT:
        return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 0, 0, 1 << 17, 1, 0, 0, *[0] * 8)
    if opcode == LOOKUP:
        child = os.path.join(path, body.rstrip(b"\0"))
        return struct.pack("<4Q2I", node(child), 0, 0, 0, 0, 0) + attributes(child)
    if opcode == GETATTR:
        return struct.pack("<QII", 0, 0, 0) + attributes(path)
    if opcode == READLINK:
        return os.readlink(path)
    if opcode in (OPEN, OPENDIR):
        return struct.pack("<QII", 0, DIRECT_IO if opcode == OPEN else 0, 0)
    if opcode in (READ, READDIR) and b"broken" in os.path.basename(path):
        raise OSError(errno.EIO, "")
    if opcode == READ:
        _, offset, size = struct.unpack_from("<QQI", body)
        with open(path, "rb") as file:
            return os.pread(file.fileno(), max(0, min(size, readable_size(path) - offset)), offset)
    if opcode == READDIR:
        _, offset, size = struct.unpack_from("<QQI", body)
        return entries(path, offset, size)
    if opcode == STATFS:
        return struct.pack("<5Q10I", 0, 0, 0, 0, 0, 4096, 255, 4096, *[0] * 7)
    if opcode in (RELEASE, RELEASEDIR):
        return b""
    raise OSError(errno.ENOSYS, "")


while True:
    try:
        request = os.read(device, 1 << 18)
    except OSError as error:
        if error.errno == errno.ENODEV:  # unmounted
            sys.exit(0)
        continue
    _, opcode, unique, number = struct.unpack_from("<IIQQ", request)
    if opcode in (FORGET, BATCH_FORGET):
        continue
    try:
        code, out = 0, respond(opcode, paths.get(number, backing), request[40:])
    except OSError as error:
        code, out = -(error.errno or errno.EIO), b""
    try:
        os.write(device, struct.pack("<IiQ", 16 + len(out), code, unique) + out)
    except OSError:
        pass  # the reader was interrupted
