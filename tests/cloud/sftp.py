#!/usr/bin/env python3
"""Migrations to and from Debian's sshd, checked with rclone and a walk of the files."""
import glob
import json
import os
import socket
import subprocess
import sys
import threading
import time

from support import (
    HEADWORKS, MIB, RCLONE, WORK, expect_no_secret, expect_nothing_to_do, headworks, make_tree,
    read_tree,
)

SFTP, SFTP_HOME, SECRET = os.environ["SFTP"], os.environ["SFTP_HOME"], os.environ["AWS_SECRET_ACCESS_KEY"]
USER, PORT = SFTP.split("@")[0], int(SFTP.rsplit(":")[-1])


def rclone(*args):
    environment = dict(os.environ, RCLONE_CONFIG="/dev/null", RCLONE_CONFIG_R_TYPE="sftp", RCLONE_CONFIG_R_HOST="127.0.0.1",
                       RCLONE_CONFIG_R_PORT=str(PORT), RCLONE_CONFIG_R_USER=USER, RCLONE_CONFIG_R_KEY_FILE=f"{SFTP_HOME}/key",
                       RCLONE_CONFIG_R_SHELL_TYPE="none", RCLONE_CONFIG_R_DISABLE_HASHCHECK="true")
    command = [RCLONE, *args, "--no-unicode-normalization"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, f"rclone {args}: {done.stderr}"
    return done.stderr


def read_attributes(root):
    """Returns the content or link target, permissions, owners and seconds of every path, in bytes."""
    root, found = os.fsencode(root), {}
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            data = os.readlink(path) if os.path.islink(path) else None
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    data = file.read()
            attributes = (info.st_mode, info.st_uid, info.st_gid, info.st_mtime_ns // 10**9)
            found[os.path.relpath(path, root)] = (attributes, data)
    return found


def expect_same(here, there):
    a, b = read_attributes(here), read_attributes(there)
    assert a.keys() == b.keys(), sorted(set(a) ^ set(b))[:10]
    for path in a:
        assert a[path] == b[path], (path, a[path][0], b[path][0])


def make_awkward_tree(root, **settings):
    make_tree(root, **settings)
    with open(os.fsencode(f"{root}/names/") + b"\xff\xfe \n", "wb") as file:
        file.write(b"no UTF-8")
    os.symlink("nowhere at all", f"{root}/names/broken link")
    os.utime(f"{root}/names/broken link", ns=(0, 10**18), follow_symlinks=False)
    os.chmod(f"{root}/names/plus+", 0o4751)
    os.chmod(f"{root}/empty/inside", 0o2750)
    if os.getuid() == 0:
        os.chown(f"{root}/names/trailing ", 12345, 23456)


def round_trip():
    here, there, back, state = (f"{WORK}/sftp-{name}" for name in ("here", "there", "back", "job.db"))
    make_awkward_tree(here)
    location = f"sftp://{SFTP}{there}"
    headworks("run", here, location, "--state", state)
    expect_same(here, there)
    # rclone follows symlinks at the server, and supports only names in UTF-8.
    rclone("check", "--download", here, f"r:{there}", "--skip-links", "--exclude", "names/broken link", "--exclude", "names/\ufffd*")
    expect_nothing_to_do(here, location, state, 80)
    expect_nothing_to_do(here, location, f"{WORK}/sftp-fresh.db", 80)
    headworks("verify", "--hash", "--state", state)
    headworks("run", location, back, "--state", f"{WORK}/sftp-back.db")
    expect_same(there, back)
    expect_nothing_to_do(location, back, f"{WORK}/sftp-back.db", 80)
    # Only the changes are copied.
    with open(f"{here}/folder 1/sub 0/file-0.txt", "ab") as file:
        file.write(b"more")
    os.chmod(f"{here}/names/plus+", 0o600)
    found = json.loads(headworks("plan", here, location, "--state", state, "--json"))["statuses"]
    work = sum(found[name]["entries"] for name in found if name.startswith(("different", "missing")))
    assert work == 2, found
    headworks("copy", "--state", state)
    expect_same(here, there)
    expect_nothing_to_do(here, location, state)
    # Entries that only the destination has are quarantined or removed.
    for delete in (["--delete=quarantine"], ["--delete=permanent", "--max-delete", "10"]):
        os.makedirs(f"{there}/stale/deep")
        open(f"{there}/stale/deep/file", "w").close()
        # SFTP tells whole seconds: made in the second of the plan, they would count as newer.
        for name in ("stale/deep/file", "stale/deep", "stale"):
            os.utime(f"{there}/{name}", (1, 1))
        headworks("plan", here, location, "--state", state)
        headworks("copy", "--state", state, *delete)
        assert not os.path.exists(f"{there}/stale")
    aside = glob.glob(f"{there}/.headworks-quarantine/pass-*/stale/deep/file")
    assert len(aside) == 1, aside
    left = [name for _, _, names in os.walk(there) for name in names if name.startswith(".headworks-")]
    assert not left, left
    expect_no_secret(state)


def home_relative():
    """A path after `/~/` is relative to the user's folder."""
    here, state = f"{WORK}/sftp-home-here", f"{WORK}/sftp-home.db"
    make_tree(here, folders=1, files=3, large=())
    home = os.path.expanduser(f"~{USER}")
    location = f"sftp://{SFTP}/~/{os.path.relpath(WORK, home)}/sftp-home"
    headworks("run", here, location, "--state", state)
    assert read_tree(here).keys() == read_tree(f"{WORK}/sftp-home").keys()
    expect_nothing_to_do(here, location, state)


def killed_in_a_large_file():
    """Durable parts are neither read nor sent again."""
    here, there, state = f"{WORK}/sftp-large-here", f"{WORK}/sftp-large", f"{WORK}/sftp-large.db"
    make_tree(here, folders=0, large=(150 * MIB,))
    location = f"sftp://{SFTP}{there}"
    environment = dict(os.environ, HEADWORKS_FAILPOINT="after-part:2")
    command = [HEADWORKS, "migrate", "run", here, location, "--state", state]
    killed = subprocess.run(command, capture_output=True, env=environment, timeout=120)
    assert killed.returncode == -9, killed
    assert not os.path.exists(f"{there}/large/0.bin"), "visible before it was complete"
    report = headworks("run", here, location, "--state", state)
    assert "2 parts kept, 0 parts sent again" in report, report
    writes = [line for line in report.splitlines() if "write" in line]
    assert os.path.getsize(f"{there}/large/0.bin") == 150 * MIB
    expect_same(here, there)
    expect_nothing_to_do(here, location, state)
    left = [name for name in os.listdir(f"{there}/large") if name != "0.bin"]
    assert not left, (left, writes)


class CuttingProxy:
    """A proxy to the server that cuts connections after some bytes."""

    def __init__(self, after):
        self.after, self.cuts = after, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", PORT))
            left = [self.after]
            self.after += MIB // 2  # so that a file of any size arrives eventually
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self.forward, args=(*pair, left), daemon=True).start()

    def forward(self, source, sink, left):
        try:
            while data := source.recv(65536):
                left[0] -= len(data)
                if left[0] < 0:
                    self.cuts += 1
                    break
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def cut_connections():
    here, there, back, state = (f"{WORK}/sftp-cut-{name}" for name in ("here", "there", "back", "job.db"))
    make_tree(here, folders=3, files=12, large=(15 * MIB, 30 * MIB))
    proxy = CuttingProxy(5 * MIB)
    location = f"sftp://{USER}@127.0.0.1:{proxy.port}{there}"
    headworks("run", here, location, "--state", state)
    up = proxy.cuts
    proxy.after = 5 * MIB
    headworks("run", location, back, "--state", f"{WORK}/sftp-cut-back.db")
    assert up >= 3 and proxy.cuts - up >= 3, (up, proxy.cuts)
    expect_same(here, there)
    expect_same(here, back)
    rclone("check", "--download", here, f"r:{there}")
    expect_nothing_to_do(here, location, state)
    left = [name for _, _, names in os.walk(there) for name in names if name.startswith(".headworks-")]
    assert not left, left


def a_key_with_a_passphrase():
    """The passphrase is in the environment, and never printed, stored or passed as an argument."""
    here, there, state = f"{WORK}/sftp-locked-here", f"{WORK}/sftp-locked", f"{WORK}/sftp-locked.db"
    make_tree(here, folders=1, files=1, large=())
    location = f"sftp://{SFTP}{there}"
    config = f"{SFTP_HOME}/ssh_config_stranger"
    refused = subprocess.run([HEADWORKS, "migrate", "plan", location, here, "--state", state], capture_output=True, text=True,
                             env=dict(os.environ, SFTP_CONFIG=config), timeout=60)
    assert refused.returncode != 0 and "SFTP_PASSWORD" in refused.stdout + refused.stderr, refused
    os.environ.update(SFTP_CONFIG=config, SFTP_KEY=f"{SFTP_HOME}/locked-key", SFTP_PASSWORD=SECRET)
    try:
        headworks("run", here, location, "--state", f"{WORK}/sftp-unlocked.db")
    finally:
        os.environ.update(SFTP_CONFIG=f"{SFTP_HOME}/ssh_config")
        del os.environ["SFTP_KEY"], os.environ["SFTP_PASSWORD"]
    assert read_tree(here).keys() == read_tree(there).keys()
    expect_no_secret(f"{WORK}/sftp-unlocked.db")


def main():
    tests = {
        "both ways with sftp": round_trip,
        "sftp from the user's folder": home_relative,
        "sftp killed in a large file": killed_in_a_large_file,
        "sftp with connections that are cut": cut_connections,
        "sftp with a key that has a passphrase": a_key_with_a_passphrase,
    }
    chosen = sys.argv[1:]
    for name, test in tests.items():
        if chosen and not any(part in name for part in chosen):
            continue
        began = time.monotonic()
        test()
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


main()
