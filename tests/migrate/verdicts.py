"""What headworks, rsync and rclone do in the same case of possible data loss.

Arguments: the binaries of headworks and rclone. Every verdict is compared with the table in
docs/measurements/migrate-data-loss.md, so that it stays true of the installed versions. Mounts FUSE,
and must run as root.
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
    """A source of 20 MiB that ends before its listed size."""
    size = 20 << 20
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
    command = [sys.executable, f"{HELPERS}/corrupt.py", "1000", "md5", "20"]
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


def type_conflict(tool):
    """A folder of five files in place of a file, and a limit of no deletions."""
    write("src/name", b"a file now")
    for number in range(5):
        write(f"dst/name/{number}")
    code = {
        "headworks": lambda: headworks("run", "src", "dst", "--delete=permanent", "--max-delete=0"),
        "rsync": lambda: run("rsync", "-a", "--delete", "--max-delete=0", "src/", "dst/"),
        "rclone": lambda: rclone("sync", "src", "dst", "--max-delete", "0"),
    }[tool]()
    left = len(os.listdir("dst/name")) if os.path.isdir("dst/name") else 0
    return f"exit {code}, {5 - left} of 5 deleted"


def empty_source(tool):
    """A source that is empty, as an unmounted one."""
    os.mkdir("src")
    for number in range(5):
        write(f"dst/{number}")
    code = {
        "headworks": lambda: headworks("run", "src", "dst", "--delete=permanent", "--max-delete=9"),
        "rsync": lambda: run("rsync", "-a", "--delete", "src/", "dst/"),
        "rclone": lambda: rclone("sync", "src", "dst"),
    }[tool]()
    return f"exit {code}, {5 - count('dst')} of 5 deleted"


def folded_names(tool):
    """`README` and `readme` of one size and time, to an SFTP server that folds case."""
    if tool == "rsync":
        return "has no SFTP"
    for name, data in ("README", b"one"), ("readme", b"two"):
        write(f"src/{name}", data)
        os.utime(f"src/{name}", (10**9, 10**9))
    os.mkdir("dst")
    write("bin/ssh", f'#!/bin/sh\nexec {sys.executable} {HELPERS}/folding_sftp.py "$@"\n'.encode())
    os.chmod("bin/ssh", 0o755)
    here = os.getcwd()
    if tool == "headworks":
        env = dict(os.environ, PATH=f"{here}/bin:{os.environ['PATH']}")
        location = f"sftp://tester@localhost{here}/dst"
        code = run(HEADWORKS, "migrate", "run", "src", location, "--attempts", "1", "--state", "job.db", env=env)
    else:
        code = rclone("copy", "src", f"r:{here}/dst", RCLONE_CONFIG_R_TYPE="sftp", RCLONE_CONFIG_R_SSH=f"{here}/bin/ssh",
                      RCLONE_CONFIG_R_SHELL_TYPE="none", RCLONE_CONFIG_R_DISABLE_HASHCHECK="true")
    (name,) = os.listdir("dst")
    intact = read(f"dst/{name}") == read(f"src/{name}")
    return f"exit {code}, {'kept the first' if intact else 'one replaced the other'}"


def chown_refused(tool):
    """A file of another user, and a destination where nobody can give files away."""
    write("src/file")
    os.chown("src/file", 1234, 1234)
    os.mkdir("dst")
    bare = ("setpriv", "--bounding-set=-chown", "--inh-caps=-chown")
    code = {
        "headworks": lambda: run(*bare, HEADWORKS, "migrate", "run", "src", "dst", "--state", "job.db"),
        "rsync": lambda: run(*bare, "rsync", "-a", "src/", "dst/"),
        "rclone": lambda: run(*bare, RCLONE, "copy", "-M", "src", "dst", "--config", "/dev/null", "--retries", "1"),
    }[tool]()
    return f"exit {code}, {'copied it' if os.path.exists('dst/file') else 'did not copy it'}"


CASES = (
    short_read, changed_since_the_plan, limit_on_deletions, excluded, flipped_bit, type_conflict, empty_source,
    folded_names, chown_refused,
)
TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/measurements/migrate-data-loss.md")


def main():
    with open(TABLE, encoding="utf-8") as file:
        expected = [line.strip() for line in file if line.startswith("|")][2:]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for case in CASES:
            verdicts = []
            for tool in TOOLS:
                fresh()
                verdicts.append(case(tool))
            found.append(f"| {' | '.join((case.__doc__.rstrip('.'), *verdicts))} |")
            print(found[-1], flush=True)
        os.chdir("/")
    assert found == expected, f"{TABLE} says otherwise: {sorted(set(expected) - set(found))}"


main()
