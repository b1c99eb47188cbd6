"""Migrations to, from and inside Google Cloud Storage."""
import base64
import json
import os
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from support import (
    GOOGLE, MIB, MOTO, WORK, Proxy, check_flipped_bytes, client, expect_no_secret,
    expect_nothing_to_do, expect_same_trees, headworks, kill_when, make_tree, objects, rclone,
    round_trip, wait_until,
)


def google(location, endpoint=None):
    return f"gs://{location}?endpoint={endpoint or GOOGLE}"


def round_trip_with_google():
    round_trip("google", google("google/some/prefix"), "g:google/some/prefix")
    # Between two buckets it is a server-side copy.
    output = headworks("run", google("google"), google("copied"), "--state", f"{WORK}/google-copied.db", stderr=True)
    assert "copy" in output and "put" not in output, f"it was not a server-side copy: {output}"
    rclone("check", "--download", f"{WORK}/google-here", "g:copied/some/prefix")


def token_server(public, grants):
    """Returns the token for an assertion that the account signed, as Google does."""

    class TokenHandler(BaseHTTPRequestHandler):
        def do_POST(self):
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            head, claims, signature = form["assertion"][0].split(".")
            decode = lambda text: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            public.verify(decode(signature), f"{head}.{claims}".encode(), padding.PKCS1v15(), hashes.SHA256())
            claims = json.loads(decode(claims))
            assert claims["iss"] == "me@example.org" and claims["exp"] > time.time() > claims["iat"] - 60, claims
            grants.append(form["grant_type"][0])
            body = json.dumps({"access_token": os.environ["GOOGLE_TOKEN"], "expires_in": 3600, "token_type": "Bearer"}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), TokenHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def google_by_service_account():
    """Uses a bucket that needs a token, and a token server that needs a signature."""
    here, state, grants = f"{WORK}/account-here", f"{WORK}/account.db", []
    make_tree(here, folders=2, files=4, large=(9 * MIB,))
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key_format = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    server = token_server(key.public_key(), grants)
    account = {"type": "service_account", "client_email": "me@example.org", "private_key": key.private_bytes(*key_format).decode(),
               "private_key_id": "1", "project_id": "p", "token_uri": f"http://127.0.0.1:{server.server_port}/token"}
    with open(f"{WORK}/account.json", "w") as file:
        json.dump(account, file)
    environment = dict(os.environ, GOOGLE_APPLICATION_CREDENTIALS=f"{WORK}/account.json")
    del environment["STORAGE_EMULATOR_HOST"]
    headworks("run", here, google("private"), "--state", state, env=environment)
    # The token was requested once.
    assert grants == ["urn:ietf:params:oauth:grant-type:jwt-bearer"], grants
    headworks("run", google("private"), f"{WORK}/account-back", "--state", f"{WORK}/account-back.db", env=environment)
    expect_same_trees(here, f"{WORK}/account-back")
    server.shutdown()
    expect_no_secret(state)
    # A wrong token is an error.
    environment = dict(environment, GOOGLE_OAUTH_ACCESS_TOKEN="wrong")
    output = headworks("plan", here, google("private"), "--state", f"{WORK}/refused.db", env=environment, codes=(1, 3), stderr=True)
    output += headworks("report", "--state", f"{WORK}/refused.db", codes=(0, 1, 3))
    assert "401" in output, output


def from_bucket_to_google():
    s3 = client(MOTO)
    s3.create_bucket(Bucket="leaving-for-google")
    keys = ["a", "a!", "a/b", "a//b", " ", "tail /x", "/x", "plus+%41", "marker/", "a/./c", "big"]
    for key in keys:
        body = b"" if key == "marker/" else (b"z" * (12 * MIB) if key == "big" else key.encode())
        s3.put_object(Bucket="leaving-for-google", Key=key, Body=body, ContentType="text/x-odd", Metadata={"in-two-words": "yes"})
    source, state = f"s3://leaving-for-google?endpoint={MOTO}", f"{WORK}/leaving-for-google.db"
    headworks("run", source, google("arrived"), "--state", state)
    expect_nothing_to_do(source, google("arrived"), state, len(keys))
    there = f"s3://returned-from-google?endpoint={MOTO}"
    headworks("run", google("arrived"), there, "--state", f"{WORK}/returned-from-google.db")
    expect_nothing_to_do(google("arrived"), there, f"{WORK}/returned-from-google.db", len(keys))
    assert objects(s3, "leaving-for-google") == objects(s3, "returned-from-google")
    for key in keys:
        head = s3.head_object(Bucket="returned-from-google", Key=key)
        assert (head["ContentType"], head["Metadata"]["in-two-words"]) == ("text/x-odd", "yes"), (key, head)


def chunks_of(lines):
    """Returns the requests of upload sessions: chunks, and requests for the progress."""
    return [line for line in lines if line[0] == "PUT" and "upload_id" in line[1] and line[2] in ("200", "308")]


def killed_in_a_session():
    """Bytes that Google has are not sent again, and only one upload starts."""
    here, state = f"{WORK}/session-here", f"{WORK}/session.db"
    make_tree(here, folders=1, files=1, large=(50 * MIB,))
    with Proxy(GOOGLE, "session", "delay=0.1") as proxy:
        location = google("session", proxy.endpoint)
        for least in (1, 4):
            condition = lambda: len(chunks_of(proxy.lines())) >= least
            kill_when(condition, f"{least} chunks arrived", "run", here, location, "--state", state)
            wait_until(proxy.is_idle, "pending requests ended")
        headworks("run", here, location, "--state", state)
        begun = [line for line in proxy.lines() if line[0] == "POST" and "uploadType=resumable" in line[1]]
        assert len(begun) == 1, begun
        # Seven chunks, and two requests for the progress.
        assert len(chunks_of(proxy.lines())) == 7 + 2, chunks_of(proxy.lines())
        expect_nothing_to_do(here, location, state)
    rclone("check", "--download", here, "g:session")


def google_faults():
    here, state = f"{WORK}/google-faults-here", f"{WORK}/google-faults.db"
    make_tree(here, folders=2, files=8, large=(20 * MIB,))
    with Proxy(GOOGLE, "google-faults", "faults=30", "seed=5") as proxy:
        location = google("faults/p", proxy.endpoint) + "&page=20"
        headworks("run", here, location, "--state", state)
        failed = [line for line in proxy.lines() if line[2] in ("reset", "503") or "lost" in line]
        assert len(failed) > 10, len(failed)
        headworks("run", location, f"{WORK}/google-faults-back", "--state", f"{WORK}/google-faults-back.db")
        expect_same_trees(here, f"{WORK}/google-faults-back")
        expect_nothing_to_do(here, location, state, 20)


def google_flipped_bytes():
    check_flipped_bytes("google", GOOGLE, lambda endpoint: google("flipped", endpoint), "g:flipped", "alt=media")


TESTS = {
    "both ways with google": round_trip_with_google,
    "google by service account": google_by_service_account,
    "from a bucket to google and back": from_bucket_to_google,
    "killed in a session of google": killed_in_a_session,
    "30 % of calls to google fail": google_faults,
    "flipped bytes to and from google": google_flipped_bytes,
}
