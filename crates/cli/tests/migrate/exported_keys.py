"""A bucket whose keys expire: after three requests it accepts only the next ones.

Prints its port. Keys are `id-1`, `id-2`, …; a request with other ones gets `ExpiredToken`.
"""

import http.server
import re

requests = 0


class Bucket(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        global requests
        used = re.search(r"Credential=id-(\d+)/", self.headers.get("Authorization", ""))
        if used is None or int(used[1]) <= requests // 3:
            return self.answer(400, b"<Error><Code>ExpiredToken</Code><Message>expired</Message></Error>")
        requests += 1
        if "?" in self.path:
            names = "".join(f"""<Contents><Key>{name}</Key><Size>5</Size><ETag>"{name}"</ETag>
                <LastModified>2026-01-02T03:04:05.000Z</LastModified></Contents>""" for name in "abcdefgh")
            listing = f"<ListBucketResult><IsTruncated>false</IsTruncated>{names}</ListBucketResult>"
            return self.answer(200, listing.encode())
        name = self.path[-1]
        headers = [("ETag", f'"{name}"'), ("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")]
        self.answer(200, b"bytes", headers)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Bucket)
print(server.server_address[1], flush=True)
server.serve_forever()
