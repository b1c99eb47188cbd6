"""What headworks, rsync and rclone do in the same case of possible data loss.

Arguments: the binaries of headworks and rclone. Every verdict is asserted, so that the table that is
printed stays true of the installed versions. Mounts FUSE, and must run as root.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

HEADWORKS, RCLONE = (os.path.abspath(path) for path in sys.argv[1:3])
HELPERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/cli/tests/migrate")
TOOLS = ("headworks", "rsync", "rclone")


def run(*command, env=None):
    """Runs a command in the case's folder and returns its exit code."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, env=env)
    return done.returncode


def headworks(*args):
    return run(HEADWORKS, "migrate", *args, "--state", "job.db")


def rclone(*args, **settings):
    env = dict(os.environ, RCLONE_CONFIG="/dev/null", **settings)
    return run(RCLONE, *args, "--retries", "1", "--low-level-retries", "1", env=env)


def write(path, data=b"bytes"):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


def count(path):
    return sum(len(folders) + len(files) for _, folders, files in os.walk(path))


def fresh():
    for name in os.listdir("."):
        shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)


def short_read(tool):
    """A source that ends before its listed size."""
    size = 3 << 20
    write("src/short", b"x" * size)
    write("dst/short", b"the good copy")
    os.mkdir("faulty")
    server = subprocess.Popen([sys.executable, f"{HELPERS}/faulty.py", "src", "faulty"])
    try:
        while not os.path.ismount("faulty"):
            assert server.poll() is None, "FUSE cannot be mounted"
            time.sleep(0.01)
        code = {
            "headworks": lambda: headworks("run", "faulty", "dst", "--attempts", "1"),
            "rsync": lambda: run("rsync", "-a", "faulty/", "dst/"),
            "rclone": lambda: rclone("copy", "faulty", "dst"),
        }[tool]()
    finally:
        subprocess.run(["umount", "-l", "faulty"], check=False)
        server.wait()
    there = read("dst/short")
    kept = {b"the good copy": "kept the good copy"}.get(there, f"replaced it with {len(there)} bytes")
    return f"exit {code}, {kept}"


def changed_since_the_plan(tool):
    """A file at the destination that was written after the dry run."""
    write("src/file", b"of the source")
    os.mkdir("dst")
    if tool == "headworks":
        assert headworks("plan", "src", "dst") == 0
    write("dst/file", b"of another program")
    code = {
        "headworks": lambda: headworks("copy"),
        "rsync": lambda: run("rsync", "-a", "src/", "dst/"),
        "rclone": lambda: rclone("copy", "src", "dst"),
    }[tool]()
    kept = "kept it" if read("dst/file") == b"of another program" else "overwrote it"
    return f"exit {code}, {kept}"


def limit_on_deletions(tool):
    """A folder of 20 files that only the destination has, and a limit of one."""
    write("src/same")
    for number in range(20):
        write(f"dst/extra/{number}")
    code = {
        "headworks": lambda: headworks("run", "src", "dst", "--delete=permanent", "--max-delete=1"),
        "rsync": lambda: run("rsync", "-a", "--delete", "--max-delete=1", "src/", "dst/"),
        "rclone": lambda: rclone("sync", "src", "dst", "--max-delete", "1"),
    }[tool]()
    return f"exit {code}, {20 - count('dst/extra')} of 20 deleted"


def excluded(tool):
    """A file at the destination that a filter excludes."""
    write("src/same")
    write("dst/cache/precious")
    code = {
        "headworks": lambda: headworks("run", "src", "dst", "--exclude=cache", "--delete=permanent", "--max-delete=9"),
        "rsync": lambda: run("rsync", "-a", "--delete", "--exclude=cache", "src/", "dst/"),
        "rclone": lambda: rclone("sync", "src", "dst", "--exclude", "cache/**"),
    }[tool]()
    kept = "kept it" if os.path.exists("dst/cache/precious") else "deleted it"
    return f"exit {code}, {kept}"


def flipped_bit(tool):
    """An object of which one bit arrives wrong, always, and whose etag is the right MD5."""
    if tool == "rsync":
        return "has no buckets"
    os.mkdir("dst")
    command = [sys.executable, f"{HELPERS}/corrupt.py", "1000", "md5"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        endpoint = f"http://127.0.0.1:{server.stdout.readline().strip()}"
        if tool == "headworks":
            code = headworks("run", f"s3://b?anonymous&endpoint={endpoint}", "dst", "--attempts", "1")
        else:
            code = rclone("copy", "r:b", "dst", RCLONE_CONFIG_R_TYPE="s3", RCLONE_CONFIG_R_PROVIDER="Other",
                          RCLONE_CONFIG_R_ENDPOINT=endpoint, RCLONE_CONFIG_R_ENV_AUTH="false")
    finally:
        server.kill()
        server.wait()
    return f"exit {code}, {'copied it' if os.path.exists('dst/big') else 'refused it'}"


# Of rsync 3.5.0 and rclone 1.75.2, in the order of TOOLS.
EXPECTED = {
    short_read: ("exit 3, kept the good copy", "exit 23, kept the good copy", "exit 1, kept the good copy"),
    changed_since_the_plan: ("exit 3, kept it", "exit 0, overwrote it", "exit 0, overwrote it"),
    limit_on_deletions: ("exit 1, 0 of 20 deleted", "exit 25, 1 of 20 deleted", "exit 7, 1 of 20 deleted"),
    excluded: ("exit 0, kept it", "exit 0, kept it", "exit 0, kept it"),
    flipped_bit: ("exit 3, refused it", "has no buckets", "exit 1, refused it"),
}


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for case, expected in EXPECTED.items():
            found = []
            for tool in TOOLS:
                fresh()
                found.append(case(tool))
            print(case.__doc__)
            for tool, verdict in zip(TOOLS, found):
                print(f"  {tool}: {verdict}")
            assert tuple(found) == expected, f"expected {expected}"


main()
