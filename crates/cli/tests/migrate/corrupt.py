"""A bucket with one object of 20 MiB, one bit of which is wrong the first times it is read.

Arguments: how many reads are wrong, and what the bucket states about the object: "md5" (its etag) or
"nothing" (an etag as of a multipart upload). Prints its port, and on each wrong read a line.
"""

import hashlib
import http.server
import sys

wrong_reads, states = int(sys.argv[1]), sys.argv[2]
good = bytes((i * 31 + (i >> 12)) & 255 for i in range(20 << 20))
flipped = 10 << 20
bad = bytearray(good)
bad[flipped] ^= 4
etag = hashlib.md5(good).hexdigest() + {"md5": "", "nothing": "-3"}[states]


class Bucket(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, headers, length=None):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        global wrong_reads
        # Some programs name the operation in the query of an object.
        if "?" in self.path and "x-id=GetObject" not in self.path:
            listing = f"""<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>big</Key>
                <Size>{len(good)}</Size><ETag>"{etag}"</ETag>
                <LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents></ListBucketResult>"""
            return self.answer(200, listing.encode(), [])
        headers = [("ETag", f'"{etag}"'), ("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")]
        if self.command == "HEAD":
            return self.answer(200, b"", headers, len(good))
        begin, end = 0, len(good)
        if ranged := self.headers.get("Range"):
            begin, last = ranged.removeprefix("bytes=").split("-")
            begin, end = int(begin), min(int(last) + 1, len(good)) if last else len(good)
            headers.append(("Content-Range", f"bytes {begin}-{end - 1}/{len(good)}"))
        body = good[begin:end]
        if begin <= flipped < end and wrong_reads > 0:
            wrong_reads -= 1
            body = bytes(bad[begin:end])
            print("wrong", flush=True)
        self.answer(206 if ranged else 200, body, headers)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
print(server.server_address[1], flush=True)
server.serve_forever()
