"""What the tests of cloud storages share: trees, runs of headworks, and those who judge them."""
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


def headworks(*words, codes=(0,), env=None, aside=False):
    """What it says; with `aside`, what it says beside its results."""
    done = subprocess.run([HEADWORKS, "migrate", *words], capture_output=True, text=True, timeout=240, env=env)
    assert done.returncode in codes, f"{words}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    for told in (done.stdout, done.stderr):
        assert not any(secret in told for secret in SECRETS), "a secret was shown"
    return done.stderr if aside else done.stdout


def nothing_to_do(source, destination, state, least=1):
    plan = json.loads(headworks("plan", source, destination, "--state", state, "--json"))
    left = {word: count for word, count in plan["statuses"].items() if word != "same" and count["entries"]}
    assert not left and plan["statuses"]["same"]["entries"] >= least, plan["statuses"]


def no_secret(state):
    with open(state, "rb") as file:
        kept = file.read()
    assert not any(secret.encode() in kept for secret in SECRETS), "a secret is in the state file"


def make_tree(root, seed=1, folders=6, files=12, large=(9 * MIB + 5, 21 * MIB)):
    """Files of all small sizes and two of several parts, awkward names, empty folders; times to the nanosecond."""
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


def walked(root):
    found = {}
    for folder, folders, files in os.walk(root):
        for name in folders:
            found[os.path.relpath(os.path.join(folder, name), root)] = "folder"
        for name in files:
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, root)] = (os.stat(path).st_mtime_ns, file.read())
    return found


def same_trees(here, there):
    a, b = walked(here), walked(there)
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


def no_uploads(s3, bucket):
    left = s3.list_multipart_uploads(Bucket=bucket).get("Uploads", [])
    assert not left, f"{len(left)} uploads were left behind"


def rclone(*words, endpoint=MOTO):
    environment = dict(os.environ, RCLONE_CONFIG="/dev/null", RCLONE_CONFIG_R_TYPE="s3", RCLONE_CONFIG_R_PROVIDER="Other",
                       RCLONE_CONFIG_R_ENDPOINT=endpoint, RCLONE_CONFIG_R_ENV_AUTH="true", RCLONE_CONFIG_R_REGION="us-east-1",
                       RCLONE_CONFIG_A_TYPE="azureblob", RCLONE_CONFIG_A_ENDPOINT=f"{AZURITE}/{ACCOUNT}",
                       RCLONE_CONFIG_A_ACCOUNT=ACCOUNT, RCLONE_CONFIG_A_KEY=os.environ["AZURE_STORAGE_KEY"],
                       RCLONE_CONFIG_G_TYPE="google cloud storage", RCLONE_CONFIG_G_ENDPOINT=f"{GOOGLE}/storage/v1/",
                       RCLONE_CONFIG_G_ANONYMOUS="true", RCLONE_CONFIG_G_BUCKET_POLICY_ONLY="true",
                       RCLONE_CONFIG_D_TYPE="webdav", RCLONE_CONFIG_D_URL=f"http://{DAV}", RCLONE_CONFIG_D_VENDOR="other")
    done = subprocess.run([RCLONE, *words, "--no-unicode-normalization"], capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0, f"rclone {words}: {done.stderr}"
    return done.stderr


class Proxy:
    """A server seen through proxy.py."""

    def __init__(self, endpoint, name, *settings):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.log = f"{WORK}/{name}.log"
        self.endpoint = f"http://127.0.0.1:{self.port}"
        upstream = str(urlsplit(endpoint).port)
        command = [sys.executable, f"{HERE}/proxy.py", str(self.port), upstream, self.log, *settings]
        self.process = subprocess.Popen(command)
        wait(lambda: reached(self.port), "the proxy answers")

    def lines(self):
        with open(self.log) as file:
            return [line.split() for line in file.read().splitlines()]

    def is_idle(self):
        """Whether all that came whole is over, also for whoever was killed meanwhile."""
        return os.path.getsize(f"{self.log}.begun") == len(self.lines())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def reached(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait(condition, words, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {words}"
        time.sleep(0.005)


def killed_when(condition, words, *command):
    """Runs headworks until the condition holds, and kills it there."""
    process = subprocess.Popen([HEADWORKS, "migrate", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait(lambda: condition() or process.poll() is not None, words)
        assert process.poll() is None, "it ended before it could be killed"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def both_ways(name, place, remote, awkward=True):
    """`place` for us is `remote` for rclone."""
    here, back, state = f"{WORK}/{name}-here", f"{WORK}/{name}-back", f"{WORK}/{name}.db"
    make_tree(here)
    if not awkward:
        shutil.rmtree(f"{here}/names")
        shutil.rmtree(f"{here}/empty")
    endpoint = S3S if name == "s3s" else MOTO
    headworks("run", here, place, "--state", state)
    rclone("check", "--download", here, remote, endpoint=endpoint)
    told = rclone("sync", "--dry-run", "-v", here, remote, endpoint=endpoint)
    assert "Skipped copy" not in told and "Skipped update" not in told, told
    nothing_to_do(here, place, state, 80)
    # Without what an earlier run knew, the times are asked for.
    nothing_to_do(here, place, f"{WORK}/{name}-fresh.db", 80)
    headworks("verify", "--hash", "--state", state)
    headworks("run", place, back, "--state", f"{WORK}/{name}-back.db")
    same_trees(here, back)
    nothing_to_do(place, back, f"{WORK}/{name}-back.db", 80)
    # What changed, and only that, is copied.
    with open(f"{here}/folder 1/sub 0/file-0.txt", "ab") as file:
        file.write(b"more")
    told = json.loads(headworks("plan", here, place, "--state", state, "--json"))["statuses"]
    work = sum(told[word]["entries"] for word in told if word.startswith(("different", "missing")))
    assert work == 1, told
    headworks("copy", "--state", state)
    nothing_to_do(here, place, state)
    for file in (state, f"{WORK}/{name}-back.db"):
        no_secret(file)


def flipped(name, upstream, place, remote, reads):
    """Bytes that change on the way are found: by the far side in what it gets, by us in what we get and where the far side cannot.
    `place` makes a location of an endpoint; `reads` tells addresses of content from others."""
    here, back = f"{WORK}/flipped-{name}-here", f"{WORK}/flipped-{name}-back"
    make_tree(here, folders=4, files=12, large=(20 * MIB,))
    for folder in ("names", "empty"):
        shutil.rmtree(f"{here}/{folder}")
    with Proxy(upstream, f"flipped-{name}-up", "flip=up") as proxy:
        headworks("run", here, place(proxy.endpoint), "--state", f"{WORK}/flipped-{name}.db")
        damaged = [line for line in proxy.lines() if line[-1] == "flipped" and "upload_id" not in line[1]]
        assert damaged and not any(line[2].startswith("2") for line in damaged), damaged
    rclone("check", "--download", here, remote, endpoint=upstream if name == "s3" else MOTO)
    # Pieces of large files have no checksums: `verify --hash` is for these.
    shutil.rmtree(f"{here}/large")
    with Proxy(upstream, f"flipped-{name}-down", "flip=down", f"of={reads}", "seed=3") as proxy:
        state = f"{WORK}/flipped-{name}-back.db"
        headworks("run", place(proxy.endpoint), back, "--state", state, "--exclude", "large/**", "--exclude", "large")
        damaged = [line for line in proxy.lines() if line[-1] == "flipped"]
        assert damaged, "nothing was damaged on the way"
    same_trees(here, back)
