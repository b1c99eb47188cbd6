#!/usr/bin/env python3
"""Migrations to, from and between buckets, checked with boto3, rclone and a walk of the files."""
import json
import os
import re
import sqlite3
import struct
import sys
import time
from http.client import HTTPConnection
from urllib.parse import parse_qs, urlsplit

from support import (
    DAV, MIB, MOTO, S3S, WORK, Proxy, check_flipped_bytes, client, expect_no_uploads,
    expect_nothing_to_do, expect_same_trees, headworks, kill_when, make_tree, objects, rclone,
    read_tree, round_trip, wait_until,
)
import with_authority
import with_azure
import with_google


def round_trip_with_moto():
    round_trip("moto", f"s3://moto/some/prefix?endpoint={MOTO}", "r:moto/some/prefix")
    expect_no_uploads(client(MOTO), "moto")


def round_trip_with_pages_of_many_folders():
    """Uses prefix listings, as at Amazon by default. Small pages end in the middle of folders."""
    location = "s3://below/some/prefix"
    round_trip("below", f"{location}?endpoint={MOTO}&below=true&page=20", "r:below/some/prefix")

    def listings(proxy, below):
        before_run = len(proxy.lines())
        bucket = f"{location}?endpoint={proxy.endpoint}&below={below}"
        headworks("plan", bucket, f"{WORK}/below-nowhere", "--state", f"{WORK}/below-{below}.db")
        return sum("list-type" in line[1] for line in proxy.lines()[before_run:])

    with Proxy(MOTO, "below") as proxy:
        few, many = listings(proxy, "true"), listings(proxy, "false")
        assert few < many, (few, many)


def round_trip_with_s3s():
    """Avoids what this server cannot do.

    It stores objects as files with a suffix, so long names do not fit. It has no markers, and
    responds with 500 if a folder is requested like a key, which rclone does with a prefix. It
    claims that names in listings are encoded, and they are not.
    """
    round_trip("s3s", f"s3://s3s?endpoint={S3S}", "r:s3s", awkward=False)


def round_trip_with_webdav():
    """The server keeps no times: copied files are recognised by their etags."""
    here, back, state = f"{WORK}/dav-here", f"{WORK}/dav-back", f"{WORK}/dav.db"
    make_tree(here)
    location = f"webdav://{DAV}/migrated"
    assert "keeps no times" in headworks("run", here, location, "--state", state, stderr=True)
    rclone("check", "--download", here, "d:migrated")
    expect_nothing_to_do(here, location, state, 80)
    headworks("run", location, back, "--state", f"{WORK}/dav-back.db")
    a, b = read_tree(here), read_tree(back)
    assert a.keys() == b.keys() and all(a[path][1] == b[path][1] for path in a), "the trees differ"
    expect_nothing_to_do(location, back, f"{WORK}/dav-back.db", 80)
    with open(f"{here}/names/plus+", "r+b") as file:
        file.write(b"other")
    statuses = json.loads(headworks("plan", here, location, "--state", state, "--json"))["statuses"]
    assert statuses["different (mtime)"]["entries"] == 1 and "missing" not in statuses, statuses
    headworks("copy", "--state", state)
    rclone("check", "--download", here, "d:migrated", endpoint=MOTO)
    left = [name for _, _, names in os.walk(f"{WORK}/dav/migrated") for name in names if name.startswith(".headworks")]
    assert not left, left


def killed_in_a_large_file_to_webdav():
    """WebDAV has no partial uploads, and a server must refuse a part of a file.

    So the upload starts again, and nothing remains of the first one.
    """
    here, state, there = f"{WORK}/dav-large-here", f"{WORK}/dav-large.db", f"{WORK}/dav/large"
    make_tree(here, folders=0, large=(200 * MIB,))
    location = f"webdav://{DAV}/large"
    connection = HTTPConnection(DAV)
    connection.request("PUT", "/part", b"x" * 10, {"Content-Range": "bytes 10-19/20"})
    assert connection.getresponse().status == 400 and not os.path.exists(f"{WORK}/dav/part")
    begun = lambda: [name for _, _, names in os.walk(there) for name in names if name.startswith(".headworks")]
    kill_when(begun, "the file is being sent", "run", here, location, "--state", state)
    assert "0 parts kept" in headworks("run", here, location, "--state", state)
    rclone("check", "--download", here, "d:large")
    assert not begun(), begun()
    expect_nothing_to_do(here, location, state)


def faults_of_webdav():
    here, state = f"{WORK}/dav-faults-here", f"{WORK}/dav-faults.db"
    make_tree(here, folders=2, files=8, large=(20 * MIB,))
    with Proxy(f"http://{DAV}", "dav-faults", "faults=30", "seed=5") as proxy:
        location = f"webdav://127.0.0.1:{proxy.port}/faults"
        headworks("run", here, location, "--state", state, "--attempts", "20")
        failed = [line for line in proxy.lines() if line[2] in ("reset", "503") or "lost" in line]
        assert len(failed) > 10, len(failed)
        back, state_back = f"{WORK}/dav-faults-back", f"{WORK}/dav-faults-back.db"
        headworks("run", location, back, "--state", state_back, "--attempts", "20")
        expect_nothing_to_do(here, location, state, 20)
    a, b = read_tree(here), read_tree(back)
    assert a.keys() == b.keys() and all(a[path][1] == b[path][1] for path in a), "the trees differ"
    rclone("check", "--download", here, "d:faults")


def requests_of_a_copy():
    """A plan estimates the requests, and a limit of requests per second is respected."""
    here, back, bucket = f"{WORK}/costs-here", f"{WORK}/costs-back", f"s3://costs?endpoint={MOTO}"
    make_tree(here, folders=3, files=10, large=(30 * MIB,))

    def estimated_and_taken(*locations):
        state = ["--state", f"{WORK}/costs-{len(locations[0])}.db"]
        output = headworks("plan", *locations, *state, stderr=True)
        estimate = re.search(r"a copy takes about (\d+) requests of the destination and (\d+) of the source", output)
        spent = re.findall(r"requests of the (\w+): (.*)", headworks("copy", *state, stderr=True))
        taken = {side: sum(int(count) for count in re.findall(r" (\d+)", f" {kinds}")) for side, kinds in spent}
        return int(estimate[1]), int(estimate[2]), taken

    up, _, taken = estimated_and_taken(here, bucket)
    assert abs(up - taken["destination"]) <= 0.1 * up, (up, taken)
    _, down, taken = estimated_and_taken(bucket, back)
    assert abs(down - taken["source"]) <= 0.1 * down, (down, taken)
    began = time.monotonic()
    headworks("run", f"{bucket}&requests=20", f"{WORK}/costs-slow", "--state", f"{WORK}/costs-slow.db")
    took = time.monotonic() - began
    assert took > (down - 5) / 20, f"{down} requests in {took:.1f} s"


def verified_by_listings():
    """A run looks up no object that its listings show; the bucket itself is looked up."""
    here, bucket = f"{WORK}/listed-here", f"s3://listed?endpoint={MOTO}"
    make_tree(here, folders=3, files=10, large=())

    def requests_of_a_run():
        output = headworks("run", here, bucket, "--state", f"{WORK}/listed.db", stderr=True)
        kinds = re.search(r"requests of the destination: (.*)", output)[1]
        return dict((kind, int(count)) for kind, count in re.findall(r"(\w+) (\d+)", kinds))

    first = requests_of_a_run()
    assert first.get("head", 0) < 5, first
    again = requests_of_a_run()
    assert set(again) == {"list", "head"} and again["head"] <= 2, again
    with open(f"{here}/names/new", "w") as file:
        file.write("bytes")
    third = requests_of_a_run()
    assert third["put"] == 1 and third["head"] <= 4, third


def other_times_in_a_bucket():
    """An object of the same size and another time is neither verified nor replaced by --update."""
    here, bucket = f"{WORK}/times-here", f"s3://times?endpoint={MOTO}"
    os.makedirs(here)
    s3 = client(MOTO)
    s3.create_bucket(Bucket="times")
    for name, text in [("same-size-1", b"there"), ("same-size-2", b"there"), ("longer", b"longer there")]:
        with open(f"{here}/{name}", "wb") as file:
            file.write(b"here!")
        os.utime(f"{here}/{name}", (10**9, 10**9))
        s3.put_object(Bucket="times", Key=name, Body=text)
    state = ["--state", f"{WORK}/times.db"]
    headworks("plan", here, bucket, *state)
    output = headworks("verify", *state, codes=(4,))
    assert "different (mtime): 2" in output, output
    # The time of an object of another size is not known: it is kept and reported.
    output = headworks("copy", *state, "--update", codes=(3,))
    assert "which of the two is newer is not known" in output, output
    for name, text in [("same-size-1", b"there"), ("longer", b"longer there")]:
        assert s3.get_object(Bucket="times", Key=name)["Body"].read() == text, name


def between_buckets():
    s3 = client(MOTO)
    s3.create_bucket(Bucket="from")
    keys = ["a", "a!", "a/", "a//b", "a/b", ".", "..", " ", "/x", "tail /x", "new\nline", "plus+%41", "marker/", "big"]
    for key in keys:
        body = b"" if key == "marker/" else (b"z" * (12 * MIB) if key == "big" else key.encode())
        s3.put_object(Bucket="from", Key=key, Body=body, ContentType="text/x-odd", Metadata={"colour": "red"})
    source, state = f"s3://from?endpoint={MOTO}", f"{WORK}/between.db"
    output = headworks("run", source, f"s3://onto?endpoint={MOTO}", "--state", state, stderr=True)
    assert f": copy {len(keys)}," in output and "put" not in output, f"it was not a server-side copy: {output}"
    assert objects(s3, "from") == objects(s3, "onto")
    expect_nothing_to_do(source, f"s3://onto?endpoint={MOTO}", state, len(keys))
    # Another endpoint: the bytes pass through headworks.
    with Proxy(MOTO, "beside") as proxy:
        state = f"{WORK}/through.db"
        there = f"s3://through?endpoint={proxy.endpoint}"
        headworks("run", source, there, "--state", state)
        assert objects(s3, "from") == objects(s3, "through")
        expect_nothing_to_do(source, there, state, len(keys))
    for key in keys:
        for bucket in ("onto", "through"):
            head = s3.head_object(Bucket=bucket, Key=key)
            assert (head["ContentType"], head["Metadata"]["colour"]) == ("text/x-odd", "red"), (bucket, key, head)
    # A directory cannot contain some of these names: they are reported, and the rest is copied.
    output = headworks("run", source, f"{WORK}/directory", "--state", f"{WORK}/directory.db", codes=(4,))
    assert os.path.isdir(f"{WORK}/directory/a") and os.path.isfile(f"{WORK}/directory/tail /x"), output


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
            kill_when(condition, f"{least} parts arrived", "run", here, bucket, "--state", state)
            wait_until(proxy.is_idle, "pending requests ended")
        headworks("run", here, bucket, "--state", state)
        arrived = parts_of(proxy.lines())
        assert len(arrived) == 7 and set(arrived.values()) == {1}, arrived
        begun = [line for line in proxy.lines() if line[0] == "POST" and line[1].endswith("?uploads=")]
        assert len(begun) == 1, begun
        expect_nothing_to_do(here, bucket, state)
    assert objects(s3, "multipart")["large/0.bin"] == open(f"{here}/large/0.bin", "rb").read()
    expect_no_uploads(s3, "multipart")


def killed_before_the_upload_was_recorded():
    """The server started an upload whose id was not recorded."""
    here, state, s3 = f"{WORK}/unnoted-here", f"{WORK}/unnoted.db", client(MOTO)
    make_tree(here, folders=0, large=(20 * MIB,))
    with Proxy(MOTO, "unnoted", "delay=0.2") as proxy:
        bucket = f"s3://unnoted?endpoint={proxy.endpoint}"
        condition = lambda: any(line[1].endswith("?uploads=") for line in proxy.lines())
        kill_when(condition, "an upload began", "run", here, bucket, "--state", state)
        headworks("run", here, bucket, "--state", state)
    expect_no_uploads(s3, "unnoted")
    assert len(objects(s3, "unnoted")["large/0.bin"]) == 20 * MIB


def frames(data):
    """Splits byte strings that are preceded by their lengths."""
    while data:
        length = struct.unpack_from("<I", data)[0]
        yield data[4 : 4 + length]
        data = data[4 + length :]


def durable_listing(state):
    """Returns the durable progress of the root's listing, or `None` before the first page.

    It consists of the start and the progress of every name range, and the number of names.
    """
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
    ranges = [parts[at : at + 6] for at in range(0, len(parts), 6)]
    reached = lambda after, done, end: (end.decode() or None) if done[0] else after.decode()
    return [(start.decode(), reached(*how)) for start, *how in (range_[:4] for range_ in ranges)], names


def listing_starts(lines):
    """Returns the names after which listings started, except probes for the last name."""
    queries = [parse_qs(urlsplit(line[1]).query) for line in lines if "list-type" in line[1]]
    begun = [query for query in queries if "continuation-token" not in query and query["max-keys"] != ["1"]]
    return [query.get("start-after", [""])[0] for query in begun]


def expect_not_listed_again(before, lines):
    """Checks that no listing started inside a range that was durable."""
    for after in listing_starts(lines):
        for start, reached in before[0]:
            assert not (start <= after and (reached is None or after < reached)), (after, before[0])


def killed_in_a_listing():
    """With pages of five, 800 keys are a large folder, listed as several name ranges in parallel."""
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
            before_run = len(proxy.lines())
            # The first four pages are requested one after the other.
            condition = lambda: (durable_listing(state) or before)[1] > known + 50
            kill_when(condition, "more of the listing is durable", *command)
            wait_until(proxy.is_idle, "pending requests ended")
            expect_not_listed_again(before, proxy.lines()[before_run:])
            before = durable_listing(state)
            known, widest = before[1], max(widest, len(before[0]))
        before_run = len(proxy.lines())
        plan = json.loads(headworks(*command, "--json"))
        assert plan["statuses"]["missing"]["entries"] >= keys, plan["statuses"]
        lines = proxy.lines()[before_run:]
        expect_not_listed_again(before, lines)
        assert widest > 1, "it was listed as one range only"
        pages = [line for line in lines if "list-type" in line[1]]
        left = -(-(keys - known) // 5)
        # A split costs a page that goes beyond it, or one without names.
        assert len(pages) <= left + 2 * 16, (len(pages), left)


def rewritten_since_the_plan():
    """An object that was written after the plan is not deleted, whatever its size."""
    here, state, s3 = f"{WORK}/rewritten-here", f"{WORK}/rewritten.db", client(MOTO)
    make_tree(here, folders=1, files=2, large=())
    s3.create_bucket(Bucket="rewritten")
    for key in "extra", "gone":
        s3.put_object(Bucket="rewritten", Key=key, Body=b"before")
    s3.put_object(Bucket="rewritten", Key="folder/old", Body=b"old")
    headworks("plan", here, f"s3://rewritten?endpoint={MOTO}", "--state", state)
    s3.put_object(Bucket="rewritten", Key="extra", Body=b"behind")
    s3.put_object(Bucket="rewritten", Key="folder/new", Body=b"new")
    headworks("copy", "--delete=permanent", "--max-delete=9", "--state", state, codes=(3,))
    for key, body in ("extra", b"behind"), ("folder/new", b"new"):
        assert s3.get_object(Bucket="rewritten", Key=key)["Body"].read() == body, key
    listed = s3.list_objects_v2(Bucket="rewritten")["Contents"]
    assert "gone" not in [entry["Key"] for entry in listed], listed


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
        expect_same_trees(here, f"{WORK}/faults-back")
        expect_nothing_to_do(here, bucket, state, 50)
    rclone("check", "--download", here, "r:faults/p", endpoint=MOTO)
    expect_no_uploads(s3, "faults")


def flipped_bytes():
    """s3s verifies checksums and signatures of uploads, like real servers."""
    check_flipped_bytes("s3", S3S, lambda endpoint: f"s3://flipped?endpoint={endpoint}", "r:flipped", "-list-type")


def main():
    tests = {
        "both ways with moto": round_trip_with_moto,
        "both ways with pages of many folders": round_trip_with_pages_of_many_folders,
        "both ways with s3s": round_trip_with_s3s,
        "both ways with webdav": round_trip_with_webdav,
        "30 % of calls to webdav fail": faults_of_webdav,
        "requests of a copy": requests_of_a_copy,
        "verified by listings": verified_by_listings,
        "other times in a bucket": other_times_in_a_bucket,
        "killed in a large file to webdav": killed_in_a_large_file_to_webdav,
        "between buckets": between_buckets,
        "killed in a multipart upload": killed_in_a_multipart_upload,
        "killed before the upload was recorded": killed_before_the_upload_was_recorded,
        "killed in a listing": killed_in_a_listing,
        "rewritten since the plan": rewritten_since_the_plan,
        "30 % of calls fail": faults,
        "flipped bytes": flipped_bytes,
        **with_authority.TESTS,
        **with_azure.TESTS,
        **with_google.TESTS,
    }
    chosen = sys.argv[1:]
    for name, test in tests.items():
        if chosen and not any(part in name for part in chosen):
            continue
        began = time.monotonic()
        test()
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
