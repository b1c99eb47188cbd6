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

from judge import (GOOGLE, MIB, MOTO, WORK, Proxy, both_ways, client, flipped, headworks, killed_when, make_tree, no_secret, nothing_to_do,
                   objects, rclone, same_trees, wait)


def google(place, endpoint=None):
    return f"gs://{place}?endpoint={endpoint or GOOGLE}"


def both_ways_with_google():
    both_ways("google", google("google/some/prefix"), "g:google/some/prefix")
    # Between two buckets Google copies by itself.
    told = headworks("run", google("google"), google("copied"), "--state", f"{WORK}/google-copied.db", aside=True)
    assert "copy" in told and "put" not in told, f"it was not copied by the far side: {told}"
    rclone("check", "--download", f"{WORK}/google-here", "g:copied/some/prefix")


def token_server(public, asked):
    """Issues the token to a caller that proves to be the account, as Google does."""

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
    """A bucket that needs a token, and a service that issues it for a signature."""
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
    # Another account is refused.
    environment = dict(environment, GOOGLE_OAUTH_ACCESS_TOKEN="wrong")
    told = headworks("plan", here, google("private"), "--state", f"{WORK}/refused.db", env=environment, codes=(1, 3), aside=True)
    told += headworks("report", "--state", f"{WORK}/refused.db", codes=(0, 1, 3))
    assert "401" in told, told


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


def chunks_of(lines):
    """Returns the chunks sent in sessions, and the queries of their progress."""
    return [line for line in lines if line[0] == "PUT" and "upload_id" in line[1] and line[2] in ("200", "308")]


def killed_in_a_session():
    """Bytes that Google has are not sent again, and only one upload begins."""
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
        # Seven chunks, and two queries of the progress.
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


def google_flipped_bytes():
    flipped("google", GOOGLE, lambda endpoint: google("flipped", endpoint), "g:flipped", "alt=media")


TESTS = {
    "both ways with google": both_ways_with_google,
    "google by service account": google_by_service_account,
    "from a bucket to google and back": from_bucket_to_google,
    "killed in a session of google": killed_in_a_session,
    "30 % of calls to google fail": google_faults,
    "flipped bytes to and from google": google_flipped_bytes,
}
