"""A bucket with one object, one bit of which is wrong the first times it is read.

Arguments: how many reads are wrong; what the bucket states about the object; its size in MiB. Stated
is "md5" (its etag), "sha256" (in the response to HEAD), "composite-md5" or "composite-sha256" (of
parts of 8 MiB), "uneven" (of parts of different sizes), or "nothing" (an etag as of a multipart
upload, and no parts). Prints its port, and on each wrong read a line.
"""

import base64
import hashlib
import http.server
import sys
import urllib.parse

MIB = 1 << 20
wrong_reads, states, size = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]) * MIB
good = b"".join(bytes((i * 31 + mib) & 255 for i in range(256)) * 4096 for mib in range(size // MIB))
flipped = 10 * MIB
bad = bytearray(good)
bad[flipped] ^= 4

if states == "uneven":
    lengths = [7 * MIB, 6 * MIB, size - 13 * MIB]
elif states.startswith("composite"):
    lengths = [min(8 * MIB, size - begin) for begin in range(0, size, 8 * MIB)]
else:
    lengths = []
begins = [sum(lengths[:at]) for at in range(len(lengths))]
parts = [good[begin : begin + length] for begin, length in zip(begins, lengths)]


def of_parts(hash_of):
    return hash_of(b"".join(hash_of(part).digest() for part in parts))


etag, stated = "0" * 32 + "-3", {}
if states == "md5":
    etag = hashlib.md5(good).hexdigest()
elif states in ("composite-md5", "uneven"):
    etag = f"{of_parts(hashlib.md5).hexdigest()}-{len(parts)}"
elif states == "composite-sha256":
    sha256 = base64.b64encode(of_parts(hashlib.sha256).digest()).decode()
    stated = {"x-amz-checksum-sha256": f"{sha256}-{len(parts)}", "x-amz-checksum-type": "COMPOSITE"}
elif states == "sha256":
    sha256 = base64.b64encode(hashlib.sha256(good).digest()).decode()
    stated = {"x-amz-checksum-sha256": sha256, "x-amz-checksum-type": "FULL_OBJECT"}


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
        path, _, query = self.path.partition("?")
        if not path.endswith("/big"):
            listing = f"""<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>big</Key>
                <Size>{len(good)}</Size><ETag>"{etag}"</ETag>
                <LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents></ListBucketResult>"""
            return self.answer(200, listing.encode(), [])
        headers = [("ETag", f'"{etag}"'), ("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")]
        if self.command == "HEAD":
            if self.headers.get("x-amz-checksum-mode") == "ENABLED":
                headers += stated.items()
            part = urllib.parse.parse_qs(query).get("partNumber")
            if part and parts:
                return self.answer(206, b"", headers, lengths[int(part[0]) - 1])
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
