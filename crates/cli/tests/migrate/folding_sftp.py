"""An SFTP server (version 3) on standard input and output, to which names that differ in case only
are the same, as servers on Windows and macOS have them. It serves files of this machine, and
supports what an upload needs."""

import os
import struct
import sys

STATUS, HANDLE, DATA, NAMES, ATTRIBUTES, VERSION = 101, 102, 103, 104, 105, 2
OK, END, NO_SUCH_FILE, FAILURE, UNSUPPORTED = 0, 1, 2, 4, 8
handles = {}


def text(value):
    return struct.pack(">I", len(value)) + value


def attributes(stat):
    numbers = (0b1111, stat.st_size, stat.st_uid, stat.st_gid, stat.st_mode, int(stat.st_mtime), int(stat.st_mtime))
    return struct.pack(">IQ5I", *numbers)


def folded(path):
    """Returns the path of the entry that has this name in any case."""
    found = b"/"
    for name in path.split(b"/"):
        if name:
            there = os.listdir(found) if os.path.isdir(found) else []
            alike = [other for other in there if other.lower() == name.lower()]
            found = os.path.join(found, alike[0] if alike else name)
    return found


class Request:
    def __init__(self, body):
        self.body = body

    def take(self, form):
        (value,) = struct.unpack_from(">" + form, self.body)
        self.body = self.body[struct.calcsize(">" + form) :]
        return value

    def text(self):
        length = self.take("I")
        value, self.body = self.body[:length], self.body[length:]
        return value

    def path(self):
        return folded(self.text())

    def attributes(self, target):
        flags = self.take("I")
        if flags & 1:
            os.truncate(target, self.take("Q"))
        if flags & 2:
            os.chown(target, self.take("I"), self.take("I"))
        if flags & 4:
            os.chmod(target, self.take("I") & 0o7777)
        if flags & 8:
            os.utime(target, (self.take("I"), self.take("I")))


def new_handle(value):
    name = str(len(handles)).encode()
    handles[name] = value
    return HANDLE, text(name)


def rename(source, target):
    # A name that exists keeps its spelling.
    os.replace(source, target)
    return STATUS, OK


def reply(kind, request):
    if kind == 3:
        path, flags = request.path(), request.take("I")
        mode = {1: os.O_RDONLY, 2: os.O_WRONLY, 3: os.O_RDWR}[flags & 3]
        mode |= (os.O_CREAT if flags & 8 else 0) | (os.O_TRUNC if flags & 16 else 0) | (os.O_EXCL if flags & 32 else 0)
        return new_handle(os.open(path, mode, 0o600))
    if kind == 4:
        value = handles.pop(request.text())
        if isinstance(value, int):
            os.close(value)
        return STATUS, OK
    if kind == 5:
        data = os.pread(handles[request.text()], *reversed((request.take("Q"), request.take("I"))))
        return (DATA, text(data)) if data else (STATUS, END)
    if kind == 6:
        file, offset = handles[request.text()], request.take("Q")
        os.pwrite(file, request.text(), offset)
        return STATUS, OK
    if kind in (7, 17):
        return ATTRIBUTES, attributes((os.lstat if kind == 7 else os.stat)(request.path()))
    if kind == 8:
        return ATTRIBUTES, attributes(os.fstat(handles[request.text()]))
    if kind in (9, 10):
        request.attributes(request.path() if kind == 9 else handles[request.text()])
        return STATUS, OK
    if kind == 11:
        path = request.path()
        return new_handle([(name, os.lstat(os.path.join(path, name))) for name in os.listdir(path)])
    if kind == 12:
        names = handles[request.text()]
        if not names:
            return STATUS, END
        entries = b"".join(text(name) + text(name) + attributes(stat) for name, stat in names)
        count = len(names)
        names.clear()
        return NAMES, struct.pack(">I", count) + entries
    if kind in (13, 14, 15):
        {13: os.unlink, 14: os.mkdir, 15: os.rmdir}[kind](request.path())
        return STATUS, OK
    if kind == 16:
        path = os.path.abspath(request.text())
        return NAMES, struct.pack(">I", 1) + text(path) + text(path) + struct.pack(">I", 0)
    if kind == 18:
        source, target = request.path(), request.path()
        return (STATUS, FAILURE) if os.path.lexists(target) else rename(source, target)
    if kind == 200 and request.text() == b"posix-rename@openssh.com":
        return rename(request.path(), request.path())
    return STATUS, UNSUPPORTED


def send(body):
    sys.stdout.buffer.write(struct.pack(">I", len(body)) + body)
    sys.stdout.buffer.flush()


def receive():
    length = sys.stdin.buffer.read(4)
    return sys.stdin.buffer.read(struct.unpack(">I", length)[0]) if len(length) == 4 else b""


# `ssh -G` asks for a configuration.
if "-G" in sys.argv:
    sys.exit()
receive()
send(struct.pack(">BI", VERSION, 3) + text(b"posix-rename@openssh.com") + text(b"1"))
while packet := receive():
    kind, number = struct.unpack_from(">BI", packet)
    try:
        answer, body = reply(kind, Request(packet[5:]))
    except FileNotFoundError:
        answer, body = STATUS, NO_SUCH_FILE
    except OSError:
        answer, body = STATUS, FAILURE
    if answer == STATUS:
        body = struct.pack(">I", body) + text(b"") + text(b"")
    send(struct.pack(">BI", answer, number) + body)
