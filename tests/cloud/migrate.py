#!/usr/bin/env python3
"""Migrations to, from and between buckets, judged by boto3, rclone and a walk over the files."""
import json
import os
import re
import sqlite3
import struct
import sys
import time
from http.client import HTTPConnection
from urllib.parse import parse_qs, urlsplit

from judge import (DAV, MIB, MOTO, S3S, WORK, Proxy, both_ways, client, flipped, headworks, killed_when, make_tree, no_uploads, nothing_to_do,
                   objects, rclone, same_trees, wait, walked)
import with_authority
import with_azure
import with_google


def both_ways_with_moto():
    both_ways("moto", f"s3://moto/some/prefix?endpoint={MOTO}", "r:moto/some/prefix")
    no_uploads(client(MOTO), "moto")


def both_ways_with_pages_of_many_folders():
    """Prefix listings, as at Amazon by default. Small pages end in the middle of folders."""
    place = "s3://below/some/prefix"
    both_ways("below", f"{place}?endpoint={MOTO}&below=true&page=20", "r:below/some/prefix")

    def listings(proxy, below):
        asked = len(proxy.lines())
        bucket = f"{place}?endpoint={proxy.endpoint}&below={below}"
        headworks("plan", bucket, f"{WORK}/below-nowhere", "--state", f"{WORK}/below-{below}.db")
        return sum("list-type" in line[1] for line in proxy.lines()[asked:])

    with Proxy(MOTO, "below") as proxy:
        few, many = listings(proxy, "true"), listings(proxy, "false")
        assert few < many, (few, many)


def both_ways_with_s3s():
    """s3s-fs stores objects as files with a suffix, so long names do not fit. It has no folder markers,
    answers 500 to a request for a folder as a key, which rclone makes for a prefix, and claims that
    names in listings are encoded although they are not."""
    both_ways("s3s", f"s3://s3s?endpoint={S3S}", "r:s3s", awkward=False)


def both_ways_with_webdav():
    """WebDAV keeps no times: copied files are recognised by their etag."""
    here, back, state = f"{WORK}/dav-here", f"{WORK}/dav-back", f"{WORK}/dav.db"
    make_tree(here)
    place = f"webdav://{DAV}/migrated"
    assert "keeps no times" in headworks("run", here, place, "--state", state, aside=True)
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


def killed_in_a_large_file_to_webdav():
    """WebDAV has no partial uploads, and servers must refuse them. So the file begins again, and
    nothing is left of the first attempt."""
    here, state, there = f"{WORK}/dav-large-here", f"{WORK}/dav-large.db", f"{WORK}/dav/large"
    make_tree(here, folders=0, large=(200 * MIB,))
    place = f"webdav://{DAV}/large"
    connection = HTTPConnection(DAV)
    connection.request("PUT", "/part", b"x" * 10, {"Content-Range": "bytes 10-19/20"})
    assert connection.getresponse().status == 400 and not os.path.exists(f"{WORK}/dav/part")
    begun = lambda: [name for _, _, names in os.walk(there) for name in names if name.startswith(".headworks")]
    killed_when(begun, "the file is being sent", "run", here, place, "--state", state)
    assert "0 parts kept" in headworks("run", here, place, "--state", state)
    rclone("check", "--download", here, "d:large")
    assert not begun(), begun()
    nothing_to_do(here, place, state)


def faults_of_webdav():
    here, state = f"{WORK}/dav-faults-here", f"{WORK}/dav-faults.db"
    make_tree(here, folders=2, files=8, large=(20 * MIB,))
    with Proxy(f"http://{DAV}", "dav-faults", "faults=30", "seed=5") as proxy:
        place = f"webdav://127.0.0.1:{proxy.port}/faults"
        headworks("run", here, place, "--state", state, "--attempts", "20")
        failed = [line for line in proxy.lines() if line[2] in ("reset", "503") or "lost" in line]
        assert len(failed) > 10, len(failed)
        back, state_back = f"{WORK}/dav-faults-back", f"{WORK}/dav-faults-back.db"
        headworks("run", place, back, "--state", state_back, "--attempts", "20")
        nothing_to_do(here, place, state, 20)
    a, b = walked(here), walked(back)
    assert a.keys() == b.keys() and all(a[path][1] == b[path][1] for path in a), "the trees differ"
    rclone("check", "--download", here, "d:faults")


def what_a_copy_costs():
    """A plan states the number of requests; a lower rate makes a run wait."""
    here, back, bucket = f"{WORK}/costs-here", f"{WORK}/costs-back", f"s3://costs?endpoint={MOTO}"
    make_tree(here, folders=3, files=10, large=(30 * MIB,))

    def told_and_taken(*places):
        state = ["--state", f"{WORK}/costs-{len(places[0])}.db"]
        told = headworks("plan", *places, *state, aside=True)
        told = re.search(r"a copy takes about (\d+) requests of the destination and (\d+) of the source", told)
        spent = re.findall(r"requests of the (\w+): (.*)", headworks("copy", *state, aside=True))
        taken = {side: sum(int(count) for count in re.findall(r" (\d+)", f" {kinds}")) for side, kinds in spent}
        return int(told[1]), int(told[2]), taken

    up, _, taken = told_and_taken(here, bucket)
    assert abs(up - taken["destination"]) <= 0.1 * up, (up, taken)
    _, down, taken = told_and_taken(bucket, back)
    assert abs(down - taken["source"]) <= 0.1 * down, (down, taken)
    began = time.monotonic()
    headworks("run", f"{bucket}&requests=20", f"{WORK}/costs-slow", "--state", f"{WORK}/costs-slow.db")
    took = time.monotonic() - began
    assert took > (down - 5) / 20, f"{down} requests in {took:.1f} s"


def between_buckets():
    s3 = client(MOTO)
    s3.create_bucket(Bucket="from")
    keys = ["a", "a!", "a/", "a//b", "a/b", ".", "..", " ", "/x", "tail /x", "new\nline", "plus+%41", "marker/", "big"]
    for key in keys:
        body = b"" if key == "marker/" else (b"z" * (12 * MIB) if key == "big" else key.encode())
        s3.put_object(Bucket="from", Key=key, Body=body, ContentType="text/x-odd", Metadata={"colour": "red"})
    source, state = f"s3://from?endpoint={MOTO}", f"{WORK}/between.db"
    told = headworks("run", source, f"s3://onto?endpoint={MOTO}", "--state", state, aside=True)
    assert f": copy {len(keys)}," in told and "put" not in told, f"it was not copied by the far side: {told}"
    assert objects(s3, "from") == objects(s3, "onto")
    nothing_to_do(source, f"s3://onto?endpoint={MOTO}", state, len(keys))
    # Another endpoint, so the bytes pass through us.
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
    # A directory cannot hold all names; the others are reported, the rest is copied.
    told = headworks("run", source, f"{WORK}/directory", "--state", f"{WORK}/directory.db", codes=(4,))
    assert os.path.isdir(f"{WORK}/directory/a") and os.path.isfile(f"{WORK}/directory/tail /x"), told


def parts_of(lines):
    """Counts how often each part of each upload arrived."""
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
    """The endpoint began an upload whose id was never recorded."""
    here, state, s3 = f"{WORK}/unnoted-here", f"{WORK}/unnoted.db", client(MOTO)
    make_tree(here, folders=0, large=(20 * MIB,))
    with Proxy(MOTO, "unnoted", "delay=0.2") as proxy:
        bucket = f"s3://unnoted?endpoint={proxy.endpoint}"
        condition = lambda: any(line[1].endswith("?uploads=") for line in proxy.lines())
        killed_when(condition, "an upload began", "run", here, bucket, "--state", state)
        headworks("run", here, bucket, "--state", state)
    no_uploads(s3, "unnoted")
    assert len(objects(s3, "unnoted")["large/0.bin"]) == 20 * MIB


def frames(data):
    """Yields byte strings, each preceded by its length."""
    while data:
        length = struct.unpack_from("<I", data)[0]
        yield data[4 : 4 + length]
        data = data[4 + length :]


def durable(state):
    """Returns the durable part of the root's listing: start, position and completion of every range,
    and the number of names. `None` before the first page."""
    try:
        with sqlite3.connect(f"file:{state}?mode=ro", uri=True) as connection:
            cursor = connection.execute("SELECT src_cursor FROM folder WHERE id = 1").fetchone()
            names = connection.execute("SELECT count(*) FROM source WHERE parent = 1").fetchone()[0]
    except sqlite3.Error:
        return None
    if not cursor or not cursor[0]:
        return None
    assert cursor[0][:4] == b"\xff" * 4, cursor
    parts = list(frames(cursor[0][4:]))
    stretches = [parts[at : at + 6] for at in range(0, len(parts), 6)]
    reached = lambda after, done, end: (end.decode() or None) if done[0] else after.decode()
    return [(start.decode(), reached(*how)) for start, *how in (stretch[:4] for stretch in stretches)], names


def begun_at(lines):
    """Returns the names after which listings began, except those that only search for the last name."""
    queries = [parse_qs(urlsplit(line[1]).query) for line in lines if "list-type" in line[1]]
    begun = [query for query in queries if "continuation-token" not in query and query["max-keys"] != ["1"]]
    return [query.get("start-after", [""])[0] for query in begun]


def not_again(before, lines):
    """Checks that no listing began inside a durable range."""
    for place in begun_at(lines):
        for start, reached in before[0]:
            assert not (start <= place and (reached is None or place < reached)), (place, before[0])


def killed_in_a_listing():
    """With pages of five, 800 keys are a large folder, which is listed in several ranges at once."""
    keys, s3, state = 800, client(MOTO), f"{WORK}/listing.db"
    s3.create_bucket(Bucket="listing")
    for number in range(keys):
        s3.put_object(Bucket="listing", Key=f"key-{number:05}", Body=b"x")
    with Proxy(MOTO, "listing", "delay=0.2") as proxy:
        bucket = f"s3://listing?endpoint={proxy.endpoint}&page=5"
        command = ["plan", bucket, f"{WORK}/listing-there", "--state", state]
        known = widest = 0
        before = ([], 0)
        for _ in range(3):
            asked = len(proxy.lines())
            # The first four pages are requested one by one.
            condition = lambda: (durable(state) or before)[1] > known + 50
            killed_when(condition, "more of the listing is durable", *command)
            wait(proxy.is_idle, "what was under way is over")
            not_again(before, proxy.lines()[asked:])
            before = durable(state)
            known, widest = before[1], max(widest, len(before[0]))
        asked = len(proxy.lines())
        plan = json.loads(headworks(*command, "--json"))
        assert plan["statuses"]["missing"]["entries"] >= keys, plan["statuses"]
        lines = proxy.lines()[asked:]
        not_again(before, lines)
        assert widest > 1, "it was listed in one place only"
        pages = [line for line in lines if "list-type" in line[1]]
        left = -(-(keys - known) // 5)
        # A split costs a page that goes beyond it, or an empty one.
        assert len(pages) <= left + 2 * 16, (len(pages), left)


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
    """s3s checks checksums and signatures, as real endpoints do."""
    flipped("s3", S3S, lambda endpoint: f"s3://flipped?endpoint={endpoint}", "r:flipped", "-list-type")


def main():
    tests = {
        "both ways with moto": both_ways_with_moto,
        "both ways with pages of many folders": both_ways_with_pages_of_many_folders,
        "both ways with s3s": both_ways_with_s3s,
        "both ways with webdav": both_ways_with_webdav,
        "30 % of calls to webdav fail": faults_of_webdav,
        "what a copy costs": what_a_copy_costs,
        "killed in a large file to webdav": killed_in_a_large_file_to_webdav,
        "between buckets": between_buckets,
        "killed in a multipart upload": killed_in_a_multipart_upload,
        "killed before the upload was noted": killed_before_the_upload_was_noted,
        "killed in a listing": killed_in_a_listing,
        "30 % of calls fail": faults,
        "flipped bytes": flipped_bytes,
        **with_authority.TESTS,
        **with_azure.TESTS,
        **with_google.TESTS,
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
