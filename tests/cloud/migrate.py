#!/usr/bin/env python3
"""Migrations to, from and between buckets, judged by boto3, rclone and a walk over the files."""
import base64
import hashlib
import hmac
import json
import os
import random
import shutil
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlencode, urlsplit

import boto3
from botocore.config import Config
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

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


def both_ways_with_moto():
    both_ways("moto", f"s3://moto/some/prefix?endpoint={MOTO}", "r:moto/some/prefix")
    no_uploads(client(MOTO), "moto")


def both_ways_with_s3s():
    """It keeps objects as files of their names with a suffix, so long names do not fit; it has no markers, and answers 500
    when it is asked for a folder as if that were a key, which rclone does with a prefix. It says that names in listings are
    encoded, and they are not."""
    both_ways("s3s", f"s3://s3s?endpoint={S3S}", "r:s3s", awkward=False)


def azure(place, endpoint=None):
    return f"azblob://{ACCOUNT}/{place}?endpoint={endpoint or AZURITE}"


def both_ways_with_azure():
    both_ways("azure", azure("azure/some/prefix"), "a:azure/some/prefix")


def account_signature(permissions):
    """A shared access signature, as whoever owns the account hands it out."""
    said = {"sv": "2021-12-02", "ss": "b", "srt": "sco", "sp": permissions, "se": "2099-01-01T00:00:00Z", "spr": "https,http"}
    parts = [ACCOUNT, said["sp"], said["ss"], said["srt"], "", said["se"], "", said["spr"], said["sv"], "", ""]
    key = base64.b64decode(os.environ["AZURE_STORAGE_KEY"])
    signature = hmac.new(key, "\n".join(parts).encode(), hashlib.sha256).digest()
    return urlencode(dict(said, sig=base64.b64encode(signature).decode()))


def azure_by_signature():
    """Without the account's key; server-side copies and moves among it."""
    environment = dict(os.environ, AZURE_STORAGE_SAS_TOKEN=account_signature("rwdlac"))
    del environment["AZURE_STORAGE_KEY"]
    here, state = f"{WORK}/signed-here", f"{WORK}/signed.db"
    make_tree(here, folders=2, files=4, large=(20 * MIB,))
    headworks("run", here, azure("signed"), "--state", state, env=environment)
    told = headworks("run", azure("signed"), azure("copied"), "--state", f"{WORK}/copied.db", env=environment, aside=True)
    assert ": copy 18," in told and "put" not in told, f"it was not copied by the far side: {told}"
    rclone("check", "--download", here, "a:copied")
    os.remove(f"{here}/names/plus+")
    headworks("run", here, azure("signed"), "--state", state, "--delete=quarantine", env=environment)
    rclone("check", "--download", here, "a:signed", "--exclude", "/.headworks-quarantine/**")
    signature = parse_qs(environment["AZURE_STORAGE_SAS_TOKEN"])["sig"][0].encode()
    for file in (state, f"{WORK}/copied.db"):
        assert signature not in open(file, "rb").read(), "a secret is in the state file"
    # Who may only read is told so before anything happens.
    environment["AZURE_STORAGE_SAS_TOKEN"] = account_signature("rl")
    refused = subprocess.run([HEADWORKS, "migrate", "run", here, azure("mayn0t"), "--state", f"{WORK}/not.db"], env=environment,
                             capture_output=True, text=True, timeout=60)
    assert refused.returncode != 0 and "403" in refused.stderr + refused.stdout, (refused.returncode, refused.stdout, refused.stderr)


def from_bucket_to_azure():
    s3 = client(MOTO)
    s3.create_bucket(Bucket="leaving")
    keys = ["a", "a!", "a/b", "a//b", " ", "tail /x", "/x", "plus+%41", "marker/", "big"]
    for key in keys:
        body = b"" if key == "marker/" else (b"z" * (12 * MIB) if key == "big" else key.encode())
        metadata = {"colour": "red", "in-two-words": "yes"}
        s3.put_object(Bucket="leaving", Key=key, Body=body, ContentType="text/x-odd", CacheControl="no-store", Metadata=metadata)
    source, state = f"s3://leaving?endpoint={MOTO}", f"{WORK}/leaving.db"
    headworks("run", source, azure("arrived"), "--state", state)
    nothing_to_do(source, azure("arrived"), state, len(keys))
    rclone("check", "--download", "r:leaving", "a:arrived")
    # And back, with all that belonged to them.
    headworks("run", azure("arrived"), f"s3://returned?endpoint={MOTO}", "--state", f"{WORK}/returned.db")
    nothing_to_do(azure("arrived"), f"s3://returned?endpoint={MOTO}", f"{WORK}/returned.db", len(keys))
    assert objects(s3, "leaving") == objects(s3, "returned")
    for key in keys:
        head = s3.head_object(Bucket="returned", Key=key)
        assert (head["ContentType"], head["CacheControl"]) == ("text/x-odd", "no-store"), (key, head)
        told = {name: head["Metadata"].get(name) for name in ("colour", "in-two-words")}
        assert told == {"colour": "red", "in-two-words": "yes"}, (key, head)
    # What cannot be the name of a blob is told before anything is written, and the rest is there.
    for key in ("dot.", "back\\slash", "./x"):
        s3.put_object(Bucket="leaving", Key=key, Body=b"x")
    told = json.loads(headworks("plan", source, azure("arrived"), "--state", state, "--json"))["statuses"]
    assert told["name_conflict"]["entries"] == 3, told


def google(place, endpoint=None):
    return f"gs://{place}?endpoint={endpoint or GOOGLE}"


def both_ways_with_google():
    both_ways("google", google("google/some/prefix"), "g:google/some/prefix")
    # Between two buckets Google copies by itself.
    told = headworks("run", google("google"), google("copied"), "--state", f"{WORK}/google-copied.db", aside=True)
    assert "copy" in told and "put" not in told, f"it was not copied by the far side: {told}"
    rclone("check", "--download", f"{WORK}/google-here", "g:copied/some/prefix")


def from_bucket_to_google():
    s3 = client(MOTO)
    s3.create_bucket(Bucket="leaving-for-google")
    keys = ["a", "a!", "a/b", "a//b", " ", "tail /x", "/x", "plus+%41", "marker/", "a/./c", "big"]
    for key in keys:
        body = b"" if key == "marker/" else (b"z" * (12 * MIB) if key == "big" else key.encode())
        s3.put_object(Bucket="leaving-for-google", Key=key, Body=body, ContentType="text/x-odd", Metadata={"in-two-words": "yes"})
    source, state = f"s3://leaving-for-google?endpoint={MOTO}", f"{WORK}/leaving-for-google.db"
    headworks("run", source, google("arrived"), "--state", state)
    nothing_to_do(source, google("arrived"), state, len(keys))
    there = f"s3://returned-from-google?endpoint={MOTO}"
    headworks("run", google("arrived"), there, "--state", f"{WORK}/returned-from-google.db")
    nothing_to_do(google("arrived"), there, f"{WORK}/returned-from-google.db", len(keys))
    assert objects(s3, "leaving-for-google") == objects(s3, "returned-from-google")
    for key in keys:
        head = s3.head_object(Bucket="returned-from-google", Key=key)
        assert (head["ContentType"], head["Metadata"]["in-two-words"]) == ("text/x-odd", "yes"), (key, head)


def token_server(public, asked):
    """Lends the token to whoever proves to be the account, as Google does."""

    class Lender(BaseHTTPRequestHandler):
        def do_POST(self):
            said = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            head, claims, signature = said["assertion"][0].split(".")
            decode = lambda text: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            public.verify(decode(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
            claims = json.loads(decode(claims))
            assert claims["iss"] == "me@example.org" and claims["exp"] > time.time() > claims["iat"] - 60, claims
            asked.append(said["grant_type"][0])
            body = json.dumps({"access_token": os.environ["GOOGLE_TOKEN"], "expires_in": 3600, "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Lender)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def google_by_service_account():
    """A door that opens to a token, and somebody who lends it for a signature."""
    here, state, asked = f"{WORK}/account-here", f"{WORK}/account.db", []
    make_tree(here, folders=2, files=4, large=(9 * MIB,))
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    server = token_server(key.public_key(), asked)
    account = {"type": "service_account", "client_email": "me@example.org", "private_key": key.private_bytes(*form).decode(),
               "private_key_id": "1", "project_id": "p", "token_uri": f"http://127.0.0.1:{server.server_port}/token"}
    with open(f"{WORK}/account.json", "w") as file:
        json.dump(account, file)
    environment = dict(os.environ, GOOGLE_APPLICATION_CREDENTIALS=f"{WORK}/account.json")
    del environment["STORAGE_EMULATOR_HOST"]
    headworks("run", here, google("private"), "--state", state, env=environment)
    # It was fetched once.
    assert asked == ["urn:ietf:params:oauth:grant-type:jwt-bearer"], asked
    headworks("run", google("private"), f"{WORK}/account-back", "--state", f"{WORK}/account-back.db", env=environment)
    same_trees(here, f"{WORK}/account-back")
    server.shutdown()
    no_secret(state)
    # Somebody else is told so.
    environment = dict(environment, GOOGLE_OAUTH_ACCESS_TOKEN="wrong")
    told = headworks("plan", here, google("private"), "--state", f"{WORK}/refused.db", env=environment, codes=(1, 3), aside=True)
    told += headworks("report", "--state", f"{WORK}/refused.db", codes=(0, 1, 3))
    assert "401" in told, told


def chunks_of(lines):
    """What was sent in sessions, and questions how far they are."""
    return [line for line in lines if line[0] == "PUT" and "upload_id" in line[1] and line[2] in ("200", "308")]


def killed_in_a_session():
    """Bytes that Google has are not sent again, and one upload is begun."""
    here, state = f"{WORK}/session-here", f"{WORK}/session.db"
    make_tree(here, folders=1, files=1, large=(50 * MIB,))
    with Proxy(GOOGLE, "session", "delay=0.1") as proxy:
        place = google("session", proxy.endpoint)
        for least in (1, 4):
            condition = lambda: len(chunks_of(proxy.lines())) >= least
            killed_when(condition, f"{least} chunks arrived", "run", here, place, "--state", state)
            wait(proxy.is_idle, "what was under way arrived")
        headworks("run", here, place, "--state", state)
        begun = [line for line in proxy.lines() if line[0] == "POST" and "uploadType=resumable" in line[1]]
        assert len(begun) == 1, begun
        # Seven chunks, and two questions how far it is.
        assert len(chunks_of(proxy.lines())) == 7 + 2, chunks_of(proxy.lines())
        nothing_to_do(here, place, state)
    rclone("check", "--download", here, "g:session")


def google_faults():
    here, state = f"{WORK}/google-faults-here", f"{WORK}/google-faults.db"
    make_tree(here, folders=2, files=8, large=(20 * MIB,))
    with Proxy(GOOGLE, "google-faults", "faults=30", "seed=5") as proxy:
        place = google("faults/p", proxy.endpoint) + "&page=20"
        headworks("run", here, place, "--state", state)
        failed = [line for line in proxy.lines() if line[2] in ("reset", "503") or "lost" in line]
        assert len(failed) > 10, len(failed)
        headworks("run", place, f"{WORK}/google-faults-back", "--state", f"{WORK}/google-faults-back.db")
        same_trees(here, f"{WORK}/google-faults-back")
        nothing_to_do(here, place, state, 20)


def blocks_of(lines):
    """How often each block arrived."""
    arrived = {}
    for method, target, status, *_ in lines:
        query = parse_qs(urlsplit(target).query)
        if method == "PUT" and query.get("comp") == ["block"] and status == "201":
            block = query["blockid"][0]
            arrived[block] = arrived.get(block, 0) + 1
    return arrived


def killed_among_the_blocks():
    here, state = f"{WORK}/blocks-here", f"{WORK}/blocks.db"
    make_tree(here, folders=1, files=1, large=(50 * MIB,))
    with Proxy(AZURITE, "blocks", "delay=0.1") as proxy:
        place = azure("blocks", proxy.endpoint)
        for least in (1, 3, 5):
            condition = lambda: len(blocks_of(proxy.lines())) >= least
            killed_when(condition, f"{least} blocks arrived", "run", here, place, "--state", state)
            wait(proxy.is_idle, "what was under way arrived")
        headworks("run", here, place, "--state", state)
        arrived = blocks_of(proxy.lines())
        assert len(arrived) == 7 and set(arrived.values()) == {1}, arrived
        nothing_to_do(here, place, state)
    rclone("check", "--download", here, "a:blocks")


def azure_faults():
    here, state = f"{WORK}/azure-faults-here", f"{WORK}/azure-faults.db"
    make_tree(here, folders=3, files=8, large=(40 * MIB,))
    with Proxy(AZURITE, "azure-faults", "faults=30", "seed=7") as proxy:
        place = azure("faults/p", proxy.endpoint) + "&page=20"
        headworks("run", here, place, "--state", state)
        failed = [line for line in proxy.lines() if line[2] in ("reset", "503") or "lost" in line]
        share = len(failed) / len(proxy.lines())
        assert share > 0.2 and len(failed) > 15, (share, len(failed))
        headworks("run", place, f"{WORK}/azure-faults-back", "--state", f"{WORK}/azure-faults-back.db")
        same_trees(here, f"{WORK}/azure-faults-back")
        nothing_to_do(here, place, state, 30)
    rclone("check", "--download", here, "a:faults/p")


def both_ways_with_webdav():
    """It keeps no times: what was copied is known by its etag."""
    here, back, state = f"{WORK}/dav-here", f"{WORK}/dav-back", f"{WORK}/dav.db"
    make_tree(here)
    place = f"webdav://{DAV}/migrated"
    headworks("run", here, place, "--state", state)
    rclone("check", "--download", here, "d:migrated")
    nothing_to_do(here, place, state, 80)
    headworks("run", place, back, "--state", f"{WORK}/dav-back.db")
    a, b = walked(here), walked(back)
    assert a.keys() == b.keys() and all(a[path][1] == b[path][1] for path in a), "the trees differ"
    nothing_to_do(place, back, f"{WORK}/dav-back.db", 80)
    with open(f"{here}/names/plus+", "r+b") as file:
        file.write(b"other")
    told = json.loads(headworks("plan", here, place, "--state", state, "--json"))["statuses"]
    assert told["different (mtime)"]["entries"] == 1 and "missing" not in told, told
    headworks("copy", "--state", state)
    rclone("check", "--download", here, "d:migrated", endpoint=MOTO)
    left = [name for _, _, names in os.walk(f"{WORK}/dav/migrated") for name in names if name.startswith(".headworks")]
    assert not left, left


def between_buckets():
    s3 = client(MOTO)
    s3.create_bucket(Bucket="from")
    keys = ["a", "a!", "a/", "a//b", "a/b", ".", "..", " ", "/x", "tail /x", "new\nline", "plus+%41", "marker/", "big"]
    for key in keys:
        body = b"" if key == "marker/" else (b"z" * (12 * MIB) if key == "big" else key.encode())
        s3.put_object(Bucket="from", Key=key, Body=body, ContentType="text/x-odd", Metadata={"colour": "red"})
    source, state = f"s3://from?endpoint={MOTO}", f"{WORK}/between.db"
    headworks("run", source, f"s3://onto?endpoint={MOTO}", "--state", state)
    assert objects(s3, "from") == objects(s3, "onto")
    nothing_to_do(source, f"s3://onto?endpoint={MOTO}", state, len(keys))
    # Through us, because the far side cannot do it: another endpoint.
    with Proxy(MOTO, "beside") as proxy:
        state = f"{WORK}/through.db"
        there = f"s3://through?endpoint={proxy.endpoint}"
        headworks("run", source, there, "--state", state)
        assert objects(s3, "from") == objects(s3, "through")
        nothing_to_do(source, there, state, len(keys))
    for key in keys:
        for bucket in ("onto", "through"):
            head = s3.head_object(Bucket=bucket, Key=key)
            assert (head["ContentType"], head["Metadata"]["colour"]) == ("text/x-odd", "red"), (bucket, key, head)
    # A directory cannot hold them all; what it cannot is told, and the rest is there.
    told = headworks("run", source, f"{WORK}/directory", "--state", f"{WORK}/directory.db", codes=(4,))
    assert os.path.isdir(f"{WORK}/directory/a") and os.path.isfile(f"{WORK}/directory/tail /x"), told


def parts_of(lines):
    """How often each part of each upload arrived."""
    arrived = {}
    for method, target, status, *_ in lines:
        query = parse_qs(urlsplit(target).query)
        if method == "PUT" and "partNumber" in query and status == "200":
            part = (query["uploadId"][0], int(query["partNumber"][0]))
            arrived[part] = arrived.get(part, 0) + 1
    return arrived


def killed_in_a_multipart_upload():
    here, state, s3 = f"{WORK}/multipart-here", f"{WORK}/multipart.db", client(MOTO)
    make_tree(here, folders=1, files=1, large=(50 * MIB,))
    with Proxy(MOTO, "multipart", "delay=0.1") as proxy:
        bucket = f"s3://multipart?endpoint={proxy.endpoint}"
        for least in (1, 3, 5):
            condition = lambda: len(parts_of(proxy.lines())) >= least
            killed_when(condition, f"{least} parts arrived", "run", here, bucket, "--state", state)
            wait(proxy.is_idle, "what was under way arrived")
        headworks("run", here, bucket, "--state", state)
        arrived = parts_of(proxy.lines())
        assert len(arrived) == 7 and set(arrived.values()) == {1}, arrived
        begun = [line for line in proxy.lines() if line[0] == "POST" and line[1].endswith("?uploads=")]
        assert len(begun) == 1, begun
        nothing_to_do(here, bucket, state)
    assert objects(s3, "multipart")["large/0.bin"] == open(f"{here}/large/0.bin", "rb").read()
    no_uploads(s3, "multipart")


def killed_before_the_upload_was_noted():
    """The far side began an upload, and nobody wrote down which."""
    here, state, s3 = f"{WORK}/unnoted-here", f"{WORK}/unnoted.db", client(MOTO)
    make_tree(here, folders=0, large=(20 * MIB,))
    with Proxy(MOTO, "unnoted", "delay=0.2") as proxy:
        bucket = f"s3://unnoted?endpoint={proxy.endpoint}"
        condition = lambda: any(line[1].endswith("?uploads=") for line in proxy.lines())
        killed_when(condition, "an upload began", "run", here, bucket, "--state", state)
        headworks("run", here, bucket, "--state", state)
    no_uploads(s3, "unnoted")
    assert len(objects(s3, "unnoted")["large/0.bin"]) == 20 * MIB


def durable_place(state):
    """Up to where the listing of the root is durable, as its cursor says."""
    try:
        with sqlite3.connect(f"file:{state}?mode=ro", uri=True) as connection:
            row = connection.execute("SELECT src_cursor FROM folder WHERE id = 1").fetchone()
    except sqlite3.Error:
        return None
    if not row or not row[0]:
        return None
    length = struct.unpack_from("<I", row[0])[0]
    return row[0][4 : 4 + length].decode()


def begun_at(lines):
    """After which keys listings were begun; `None` at the first."""
    queries = [parse_qs(urlsplit(line[1]).query) for line in lines if "list-type" in line[1]]
    return [query.get("start-after", [None])[0] for query in queries if "continuation-token" not in query]


def killed_in_a_listing():
    s3, state = client(MOTO), f"{WORK}/listing.db"
    s3.create_bucket(Bucket="listing")
    for number in range(400):
        s3.put_object(Bucket="listing", Key=f"key-{number:05}", Body=b"x")
    with Proxy(MOTO, "listing", "delay=0.05") as proxy:
        bucket = f"s3://listing?endpoint={proxy.endpoint}&page=5"
        reached = []
        for _ in range(3):
            before = durable_place(state)
            asked = len(proxy.lines())
            condition = lambda: durable_place(state) not in (None, before)
            killed_when(condition, "more of the listing is durable", "plan", bucket, f"{WORK}/listing-there", "--state", state)
            # One begins where the listing was durable; the others follow it, or are the last of the run before.
            assert begun_at(proxy.lines()[asked:]) == [before], (before, proxy.lines()[asked:])
            reached.append(durable_place(state))
        asked = len(proxy.lines())
        plan = json.loads(headworks("plan", bucket, f"{WORK}/listing-there", "--state", state, "--json"))
        assert plan["statuses"]["missing"]["entries"] >= 400, plan["statuses"]
        lines = proxy.lines()[asked:]
        assert begun_at(lines) == [reached[-1]], lines
        begin = next(at for at, line in enumerate(lines) if "start-after" in line[1])
        pages = [line for line in lines[begin:] if "list-type" in line[1]]
        left = 400 - int(reached[-1].split("-")[1]) - 1
        assert len(pages) == -(-left // 5), (len(pages), left)
    assert reached == sorted(set(reached)), reached


def faults():
    here, state, s3 = f"{WORK}/faults-here", f"{WORK}/faults.db", client(MOTO)
    make_tree(here, folders=5, files=10, large=(40 * MIB,))
    with Proxy(MOTO, "faults", "faults=30", "seed=7") as proxy:
        bucket = f"s3://faults/p?endpoint={proxy.endpoint}&page=20"
        headworks("run", here, bucket, "--state", state)
        failed = [line for line in proxy.lines() if line[2] in ("reset", "503") or "lost" in line]
        share = len(failed) / len(proxy.lines())
        assert share > 0.2 and len(failed) > 30, (share, len(failed))
        headworks("run", bucket, f"{WORK}/faults-back", "--state", f"{WORK}/faults-back.db")
        same_trees(here, f"{WORK}/faults-back")
        nothing_to_do(here, bucket, state, 50)
    rclone("check", "--download", here, "r:faults/p", endpoint=MOTO)
    no_uploads(s3, "faults")


def flipped_bytes():
    """s3s looks at checksums and signatures of what it gets, as real far sides do; we look at what we get."""
    here = f"{WORK}/flipped-here"
    make_tree(here, folders=4, files=12, large=(20 * MIB,))
    shutil.rmtree(f"{here}/names")
    shutil.rmtree(f"{here}/empty")
    with Proxy(S3S, "flipped-up", "flip=up") as proxy:
        bucket = f"s3://flipped?endpoint={proxy.endpoint}"
        headworks("run", here, bucket, "--state", f"{WORK}/flipped.db")
        refused = [line for line in proxy.lines() if line[2] != "200" and line[0] == "PUT"]
        assert refused, "nothing was damaged on the way"
    rclone("check", "--download", here, "r:flipped", endpoint=S3S)
    shutil.rmtree(f"{here}/large")
    with Proxy(S3S, "flipped-down", "flip=down", "seed=3") as proxy:
        bucket = f"s3://flipped?endpoint={proxy.endpoint}"
        back, state = f"{WORK}/flipped-back", f"{WORK}/flipped-back.db"
        headworks("run", bucket, back, "--state", state, "--exclude", "large/**", "--exclude", "large")
        got = [line for line in proxy.lines() if line[0] == "GET" and "list-type" not in line[1]]
        assert len(got) > len({line[1] for line in got}), "nothing was read again"
        same_trees(here, back)


def main():
    tests = {
        "both ways with moto": both_ways_with_moto,
        "both ways with s3s": both_ways_with_s3s,
        "both ways with webdav": both_ways_with_webdav,
        "both ways with azure": both_ways_with_azure,
        "azure by signature": azure_by_signature,
        "from a bucket to azure and back": from_bucket_to_azure,
        "both ways with google": both_ways_with_google,
        "google by service account": google_by_service_account,
        "from a bucket to google and back": from_bucket_to_google,
        "between buckets": between_buckets,
        "killed in a multipart upload": killed_in_a_multipart_upload,
        "killed before the upload was noted": killed_before_the_upload_was_noted,
        "killed among the blocks of azure": killed_among_the_blocks,
        "killed in a session of google": killed_in_a_session,
        "killed in a listing": killed_in_a_listing,
        "30 % of calls fail": faults,
        "30 % of calls to azure fail": azure_faults,
        "30 % of calls to google fail": google_faults,
        "flipped bytes": flipped_bytes,
    }
    chosen = sys.argv[1:]
    for name, test in tests.items():
        if chosen and not any(word in name for word in chosen):
            continue
        began = time.monotonic()
        test()
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
