"""Shared by the tests of cloud storages: trees, runs of headworks, and independent checks."""
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

HERE, HEADWORKS, RCLONE = os.path.dirname(os.path.abspath(__file__)), os.environ["HEADWORKS"], os.environ["RCLONE"]
MOTO, S3S, DAV = os.environ["MOTO"], os.environ["S3S"], os.environ["DAV"]
WORK = os.environ["WORK"]
AZURITE, ACCOUNT = os.environ["AZURITE"], os.environ["AZURE_STORAGE_ACCOUNT"]
GOOGLE = os.environ["STORAGE_EMULATOR_HOST"]
SECRETS = [os.environ[name] for name in ("AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_KEY", "GOOGLE_TOKEN")]
MIB = 1 << 20


def client(endpoint):
    config = Config(s3={"addressing_style": "path"}, proxies={}, retries={"max_attempts": 1})
    return boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=config)


def headworks(*args, codes=(0,), env=None, stderr=False):
    """Runs headworks and returns its output: stdout, or stderr with `stderr`."""
    done = subprocess.run([HEADWORKS, "migrate", *args], capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode in codes, f"{args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    for output in (done.stdout, done.stderr):
        assert not any(secret in output for secret in SECRETS), "a secret was printed"
    return done.stderr if stderr else done.stdout


def expect_nothing_to_do(source, destination, state, least=1):
    plan = json.loads(headworks("plan", source, destination, "--state", state, "--json"))
    left = {name: count for name, count in plan["statuses"].items() if name != "same" and count["entries"]}
    assert not left and plan["statuses"]["same"]["entries"] >= least, plan["statuses"]


def expect_no_secret(state):
    with open(state, "rb") as file:
        kept = file.read()
    assert not any(secret.encode() in kept for secret in SECRETS), "a secret is in the state file"


def make_tree(root, seed=1, folders=6, files=12, large=(9 * MIB + 5, 21 * MIB)):
    """Makes small files, large files of several parts, awkward names and empty folders.

    Modification times have nanoseconds.
    """
    draw = random.Random(seed)

    def put(path, size):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(draw.randbytes(size))
        os.utime(path, ns=(0, draw.randrange(10**18, 17 * 10**17)))

    for folder in range(folders):
        for number in range(files):
            put(f"{root}/folder {folder}/sub {number % 3}/file-{number}.txt", draw.choice([0, 1, 100, 5000, 70000]))
    for name in ["caf\u00e9", "trailing ", " leading", "a%41", "q?x=1&y#z", "plus+", "quote\"'<>&", "x" * 200]:
        put(f"{root}/names/{name}", 10)
    for number, size in enumerate(large):
        put(f"{root}/large/{number}.bin", size)
    os.makedirs(f"{root}/empty/inside", exist_ok=True)


def read_tree(root):
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders:
            found[os.path.relpath(os.path.join(folder, name), root)] = "folder"
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = (os.stat(path).st_mtime_ns, file.read())
    return found


def expect_same_trees(here, there):
    a, b = read_tree(here), read_tree(there)
    assert a.keys() == b.keys(), sorted(set(a) ^ set(b))[:10]
    for path in a:
        assert a[path] == b[path], f"{path} differs"


def objects(s3, bucket):
    found, token = {}, {}
    while True:
        page = s3.list_objects_v2(Bucket=bucket, **token)
        for item in page.get("Contents", []):
            found[item["Key"]] = s3.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
        if not page["IsTruncated"]:
            return found
        token = {"ContinuationToken": page["NextContinuationToken"]}


def expect_no_uploads(s3, bucket):
    left = s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    assert not left, f"{len(left)} unfinished uploads remain"


def rclone(*args, endpoint=MOTO):
    environment = dict(os.environ, RCLONE_CONFIG="/dev/null", RCLONE_CONFIG_R_TYPE="s3", RCLONE_CONFIG_R_PROVIDER="Other",
                       RCLONE_CONFIG_R_ENDPOINT=endpoint, RCLONE_CONFIG_R_ENV_AUTH="true", RCLONE_CONFIG_R_REGION="us-east-1",
                       RCLONE_CONFIG_A_TYPE="azureblob", RCLONE_CONFIG_A_ENDPOINT=f"{AZURITE}/{ACCOUNT}",
                       RCLONE_CONFIG_A_ACCOUNT=ACCOUNT, RCLONE_CONFIG_A_KEY=os.environ["AZURE_STORAGE_KEY"],
                       RCLONE_CONFIG_G_TYPE="google cloud storage", RCLONE_CONFIG_G_ENDPOINT=f"{GOOGLE}/storage/v1/",
                       RCLONE_CONFIG_G_ANONYMOUS="true", RCLONE_CONFIG_G_BUCKET_POLICY_ONLY="true",
                       RCLONE_CONFIG_D_TYPE="webdav", RCLONE_CONFIG_D_URL=f"http://{DAV}", RCLONE_CONFIG_D_VENDOR="other")
    done = subprocess.run([RCLONE, *args, "--no-unicode-normalization"], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, f"rclone {args}: {done.stderr}"
    return done.stderr


class Proxy:
    """A server behind proxy.py."""

    def __init__(self, endpoint, name, *settings):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = f"{WORK}/{name}.log"
        self.endpoint = f"http://127.0.0.1:{self.port}"
        upstream = str(urlsplit(endpoint).port)
        command = [sys.executable, f"{HERE}/proxy.py", str(self.port), upstream, self.log, *settings]
        self.process = subprocess.Popen(command)
        wait_until(lambda: is_open(self.port), "the proxy accepts connections")

    def lines(self):
        with open(self.log) as file:
            return [line.split() for line in file.read().splitlines()]

    def is_idle(self):
        """Returns whether every request that arrived completely has ended, even if its client was killed."""
        return os.path.getsize(f"{self.log}.begun") == len(self.lines())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until(condition, description, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {description}"
        time.sleep(0.005)


def kill_when(condition, description, *command):
    """Runs headworks and kills it when the condition holds."""
    process = subprocess.Popen([HEADWORKS, "migrate", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: condition() or process.poll() is not None, description)
        assert process.poll() is None, "it ended before it could be killed"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def round_trip(name, location, remote, awkward=True):
    """Uploads a tree and downloads it again.

    `location` is the URL for headworks, `remote` the same for rclone.
    """
    here, back, state = f"{WORK}/{name}-here", f"{WORK}/{name}-back", f"{WORK}/{name}.db"
    make_tree(here)
    if not awkward:
        shutil.rmtree(f"{here}/names")
        shutil.rmtree(f"{here}/empty")
    endpoint = S3S if name == "s3s" else MOTO
    headworks("run", here, location, "--state", state)
    rclone("check", "--download", here, remote, endpoint=endpoint)
    output = rclone("sync", "--dry-run", "-v", here, remote, endpoint=endpoint)
    assert "Skipped copy" not in output and "Skipped update" not in output, output
    expect_nothing_to_do(here, location, state, 80)
    # Without the state file of the earlier run, times are requested.
    expect_nothing_to_do(here, location, f"{WORK}/{name}-fresh.db", 80)
    headworks("verify", "--hash", "--state", state)
    headworks("run", location, back, "--state", f"{WORK}/{name}-back.db")
    expect_same_trees(here, back)
    expect_nothing_to_do(location, back, f"{WORK}/{name}-back.db", 80)
    # Only the changed file is copied.
    with open(f"{here}/folder 1/sub 0/file-0.txt", "ab") as file:
        file.write(b"more")
    statuses = json.loads(headworks("plan", here, location, "--state", state, "--json"))["statuses"]
    work = sum(statuses[name]["entries"] for name in statuses if name.startswith(("different", "missing")))
    assert work == 1, statuses
    headworks("copy", "--state", state)
    expect_nothing_to_do(here, location, state)
    for file in (state, f"{WORK}/{name}-back.db"):
        expect_no_secret(file)


def check_flipped_bytes(name, upstream, location, remote, reads):
    """Flips bytes in transit. The server detects them in uploads, and headworks in downloads.

    `location` returns the URL for an endpoint; `reads` selects the requests for content.
    """
    here, back = f"{WORK}/flipped-{name}-here", f"{WORK}/flipped-{name}-back"
    make_tree(here, folders=4, files=12, large=(20 * MIB,))
    for folder in ("names", "empty"):
        shutil.rmtree(f"{here}/{folder}")
    with Proxy(upstream, f"flipped-{name}-up", "flip=up") as proxy:
        headworks("run", here, location(proxy.endpoint), "--state", f"{WORK}/flipped-{name}.db")
        damaged = [line for line in proxy.lines() if line[-1] == "flipped" and "upload_id" not in line[1]]
        assert damaged and not any(line[2].startswith("2") for line in damaged), damaged
    rclone("check", "--download", here, remote, endpoint=upstream if name == "s3" else MOTO)
    # Ranges of large files have no checksums: `verify --hash` detects these.
    shutil.rmtree(f"{here}/large")
    with Proxy(upstream, f"flipped-{name}-down", "flip=down", f"of={reads}", "seed=3") as proxy:
        state = f"{WORK}/flipped-{name}-back.db"
        headworks("run", location(proxy.endpoint), back, "--state", state, "--exclude", "large/**", "--exclude", "large")
        damaged = [line for line in proxy.lines() if line[-1] == "flipped"]
        assert damaged, "no response was damaged"
    expect_same_trees(here, back)
