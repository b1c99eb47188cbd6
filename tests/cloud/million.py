#!/usr/bin/env python3
"""A million keys in one prefix: memory must not grow with them, and a run copies during the listing.

The server is simulated here, because no available server lists so many keys fast enough.

    million.py [KEYS [LATENCY [ONE]]]    number of keys; additional seconds per page; with a third
                                         argument the server ignores `start-after`, so the listing
                                         cannot be split
"""
import bisect
import os
import resource
import shutil
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

KEYS, PAGE, MEMORY_LIMIT = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, 1000, 100_000_000
# Additional seconds per page, as over a network.
LATENCY = float(sys.argv[2]) if len(sys.argv) > 2 else 0
ONE = len(sys.argv) > 3


class SimulatedBucket(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pages = 0

    def log_message(self, *_):
        pass

    def respond(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = lambda self: self.respond(b"")
    first_read = None

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" not in query:
            SimulatedBucket.first_read = SimulatedBucket.first_read or (time.monotonic(), SimulatedBucket.pages)
            return self.respond_with_key(int(self.path.split("key-")[1].split("?")[0]))
        time.sleep(LATENCY)
        after = query.get("continuation-token", query.get("start-after", [""]) if not ONE else [""])[0]
        first = bisect.bisect_right(range(1, KEYS + 1), after, key=lambda number: f"key-{number:010}")
        last = min(first + int(query.get("max-keys", [PAGE])[0]), KEYS)
        row = "<Contents><Key>key-%010d</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;%032x-1&quot;</ETag><Size>7</Size></Contents>"
        rows = "".join(row % (number, number) for number in range(first + 1, last + 1))
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>key-{last:010}</NextContinuationToken>"
        more = more if last < KEYS else "<IsTruncated>false</IsTruncated>"
        SimulatedBucket.pages += 1
        self.respond(f"<ListBucketResult>{more}{rows}</ListBucketResult>".encode())


    def respond_with_key(self, number):
        self.send_response(200)
        self.send_header("Content-Length", "7")
        self.send_header("ETag", f'"{number:032x}-1"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(b"content")


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # the client was killed


server = Server(("127.0.0.1", 0), SimulatedBucket)
threading.Thread(target=server.serve_forever, daemon=True).start()
bucket = f"s3://million?anonymous&endpoint=http://127.0.0.1:{server.server_port}"
DESTINATION, STATE = f"{os.environ['WORK']}/million", f"{os.environ['WORK']}/million.db"


def start(verb):
    command = [os.environ["HEADWORKS"], "migrate", verb, bucket, DESTINATION, "--state", STATE]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def watch(process, condition):
    """Returns the peak memory until the process ends or the condition holds."""
    peak = 0
    while process.poll() is None and not condition():
        # Only anonymous memory: the system may drop pages of the program's file at any time.
        with open(f"/proc/{process.pid}/status") as status:
            anonymous = [line.split()[1] for line in status if line.startswith("RssAnon")]
        peak = max(peak, int(anonymous[0]) << 10 if anonymous else 0)
        time.sleep(0.02)
    return peak


def some_file():
    return os.path.isdir(DESTINATION) and next((e for e in os.scandir(DESTINATION) if e.name.startswith("key-")), None)


# A run, until it has copied for a while during its listing.
began = time.monotonic()
process = start("run")
peak = watch(process, some_file)
first = time.monotonic() - began
pages = SimulatedBucket.pages
assert process.poll() is None, process.stdout.read()
peak = max(peak, watch(process, lambda: SimulatedBucket.pages >= KEYS // PAGE * 9 // 10))
copied = sum(1 for entry in os.scandir(DESTINATION) if entry.name.startswith("key-"))
process.kill()
process.communicate()
print(f"run: the first file after {first:.1f} s and {pages} pages, {copied} files after {SimulatedBucket.pages}, peak memory {peak >> 20} MiB")
assert first <= 10 and pages < KEYS // PAGE * 9 // 10, "copying waited for the listing"
assert peak <= MEMORY_LIMIT, f"peak memory {peak} bytes, {MEMORY_LIMIT} allowed"
for name in [STATE, f"{STATE}-wal", f"{STATE}-shm", f"{STATE}-lock"]:
    if os.path.exists(name):
        os.remove(name)
shutil.rmtree(DESTINATION)

# A complete plan.
SimulatedBucket.pages = 0
began = time.monotonic()
process = start("plan")
peak = watch(process, lambda: False)
output = process.stdout.read()
assert process.returncode == 0, output
missing = [line.split()[1] for line in output.splitlines() if line.startswith("missing ")]
assert missing == [str(KEYS)], output
# Name ranges are listed in parallel, which costs some additional pages.
assert SimulatedBucket.pages <= KEYS / PAGE * 1.1 + 50, SimulatedBucket.pages
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = usage.ru_utime + usage.ru_stime
print(f"{KEYS} keys in {SimulatedBucket.pages} pages: peak memory {peak >> 20} MiB, {cpu:.1f} s of CPU, {time.monotonic() - began:.1f} s")
assert peak <= MEMORY_LIMIT, f"peak memory {peak} bytes, {MEMORY_LIMIT} allowed"
