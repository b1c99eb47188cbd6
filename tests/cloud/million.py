#!/usr/bin/env python3
"""A million keys in one prefix: a plan of them must not grow with their number.

The far side is computed here, because no server at hand lists so many fast enough to be the one that waits.
"""
import os
import resource
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

KEYS, PAGE, BOUND = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000, 1000, 100_000_000


class FarSide(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    pages = 0

    def log_message(self, *_):
        pass

    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = lambda self: self.answer(b"")

    def do_GET(self):
        query = parse_qs(urlsplit(self.path).query)
        after = query.get("continuation-token", query.get("start-after", ["key-0000000000"]))[0]
        first = int(after[4:])
        last = min(first + PAGE, KEYS)
        row = "<Contents><Key>key-%010d</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;%032x&quot;</ETag><Size>7</Size></Contents>"
        rows = "".join(row % (number, number) for number in range(first + 1, last + 1))
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>key-{last:010}</NextContinuationToken>"
        more = more if last < KEYS else "<IsTruncated>false</IsTruncated>"
        FarSide.pages += 1
        self.answer(f"<ListBucketResult>{more}{rows}</ListBucketResult>".encode())


server = ThreadingHTTPServer(("127.0.0.1", 0), FarSide)
threading.Thread(target=server.serve_forever, daemon=True).start()
bucket = f"s3://million?anonymous&endpoint=http://127.0.0.1:{server.server_port}"
began = time.monotonic()
command = [os.environ["HEADWORKS"], "migrate", "plan", bucket, f"{os.environ['WORK']}/million", "--state", f"{os.environ['WORK']}/million.db"]
process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
peak = 0
while process.poll() is None:
    # What it holds itself: pages of the program's file are the system's, and it drops them at will.
    with open(f"/proc/{process.pid}/status") as status:
        held = [line.split()[1] for line in status if line.startswith("RssAnon")]
    peak = max(peak, int(held[0]) << 10 if held else 0)
    time.sleep(0.05)
told = process.stdout.read()
assert process.returncode == 0, told
missing = [line.split()[1] for line in told.splitlines() if line.startswith("missing ")]
assert missing == [str(KEYS)], told
assert FarSide.pages == -(-KEYS // PAGE), FarSide.pages
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
cpu = usage.ru_utime + usage.ru_stime
print(f"{KEYS} keys in {FarSide.pages} pages: {peak >> 20} MiB at the peak, {cpu:.1f} s of CPU, {time.monotonic() - began:.1f} s")
assert peak <= BOUND, f"{peak} bytes at the peak, {BOUND} allowed"
