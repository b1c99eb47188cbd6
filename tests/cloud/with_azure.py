"""Migrations to, from and inside Azure."""
import base64
import hashlib
import hmac
import json
import os
import subprocess
from urllib.parse import parse_qs, urlencode, urlsplit

from support import (
    ACCOUNT, AZURITE, HEADWORKS, MIB, MOTO, WORK, Proxy, check_flipped_bytes, client,
    expect_nothing_to_do, expect_same_trees, headworks, kill_when, make_tree, objects, rclone,
    round_trip, wait_until,
)


def azure(location, endpoint=None):
    return f"azblob://{ACCOUNT}/{location}?endpoint={endpoint or AZURITE}"


def round_trip_with_azure():
    round_trip("azure", azure("azure/some/prefix"), "a:azure/some/prefix")


def account_signature(permissions):
    """Returns a shared access signature, as the owner of the account would create it."""
    fields = {"sv": "2021-12-02", "ss": "b", "srt": "sco", "sp": permissions, "se": "2099-01-01T00:00:00Z", "spr": "https,http"}
    parts = [ACCOUNT, fields["sp"], fields["ss"], fields["srt"], "", fields["se"], "", fields["spr"], fields["sv"], "", ""]
    key = base64.b64decode(os.environ["AZURE_STORAGE_KEY"])
    signature = hmac.new(key, "\n".join(parts).encode(), hashlib.sha256).digest()
    return urlencode(dict(fields, sig=base64.b64encode(signature).decode()))


def azure_by_signature():
    """Works without the account's key, including server-side copies and moves."""
    environment = dict(os.environ, AZURE_STORAGE_SAS_TOKEN=account_signature("rwdlac"))
    del environment["AZURE_STORAGE_KEY"]
    here, state = f"{WORK}/signed-here", f"{WORK}/signed.db"
    make_tree(here, folders=2, files=4, large=(20 * MIB,))
    headworks("run", here, azure("signed"), "--state", state, env=environment)
    output = headworks("run", azure("signed"), azure("copied"), "--state", f"{WORK}/copied.db", env=environment, stderr=True)
    assert ": copy 18," in output and "put" not in output, f"it was not a server-side copy: {output}"
    rclone("check", "--download", here, "a:copied")
    os.remove(f"{here}/names/plus+")
    headworks("run", here, azure("signed"), "--state", state, "--delete=quarantine", env=environment)
    rclone("check", "--download", here, "a:signed", "--exclude", "/.headworks-quarantine/**")
    signature = parse_qs(environment["AZURE_STORAGE_SAS_TOKEN"])["sig"][0].encode()
    for file in (state, f"{WORK}/copied.db"):
        assert signature not in open(file, "rb").read(), "a secret is in the state file"
    # Without write access it fails before anything happens.
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
    expect_nothing_to_do(source, azure("arrived"), state, len(keys))
    rclone("check", "--download", "r:leaving", "a:arrived")
    # And back, with their headers and metadata.
    headworks("run", azure("arrived"), f"s3://returned?endpoint={MOTO}", "--state", f"{WORK}/returned.db")
    expect_nothing_to_do(azure("arrived"), f"s3://returned?endpoint={MOTO}", f"{WORK}/returned.db", len(keys))
    assert objects(s3, "leaving") == objects(s3, "returned")
    for key in keys:
        head = s3.head_object(Bucket="returned", Key=key)
        assert (head["ContentType"], head["CacheControl"]) == ("text/x-odd", "no-store"), (key, head)
        metadata = {name: head["Metadata"].get(name) for name in ("colour", "in-two-words")}
        assert metadata == {"colour": "red", "in-two-words": "yes"}, (key, head)
    # Names that a blob cannot have are in the plan.
    for key in ("dot.", "back\\slash", "./x"):
        s3.put_object(Bucket="leaving", Key=key, Body=b"x")
    statuses = json.loads(headworks("plan", source, azure("arrived"), "--state", state, "--json"))["statuses"]
    assert statuses["name_conflict"]["entries"] == 3, statuses


def blocks_of(lines):
    """Counts how often each block arrived."""
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
        location = azure("blocks", proxy.endpoint)
        for least in (1, 3, 5):
            condition = lambda: len(blocks_of(proxy.lines())) >= least
            kill_when(condition, f"{least} blocks arrived", "run", here, location, "--state", state)
            wait_until(proxy.is_idle, "pending requests ended")
        headworks("run", here, location, "--state", state)
        arrived = blocks_of(proxy.lines())
        assert len(arrived) == 7 and set(arrived.values()) == {1}, arrived
        expect_nothing_to_do(here, location, state)
    rclone("check", "--download", here, "a:blocks")


def azure_faults():
    here, state = f"{WORK}/azure-faults-here", f"{WORK}/azure-faults.db"
    make_tree(here, folders=3, files=8, large=(40 * MIB,))
    with Proxy(AZURITE, "azure-faults", "faults=30", "seed=7") as proxy:
        location = azure("faults/p", proxy.endpoint) + "&page=20"
        headworks("run", here, location, "--state", state)
        failed = [line for line in proxy.lines() if line[2] in ("reset", "503") or "lost" in line]
        share = len(failed) / len(proxy.lines())
        assert share > 0.2 and len(failed) > 15, (share, len(failed))
        headworks("run", location, f"{WORK}/azure-faults-back", "--state", f"{WORK}/azure-faults-back.db")
        expect_same_trees(here, f"{WORK}/azure-faults-back")
        expect_nothing_to_do(here, location, state, 30)
    rclone("check", "--download", here, "a:faults/p")


def azure_flipped_bytes():
    check_flipped_bytes("azure", AZURITE, lambda endpoint: azure("flipped", endpoint), "a:flipped", "-comp=list")


TESTS = {
    "both ways with azure": round_trip_with_azure,
    "azure by signature": azure_by_signature,
    "from a bucket to azure and back": from_bucket_to_azure,
    "killed among the blocks of azure": killed_among_the_blocks,
    "30 % of calls to azure fail": azure_faults,
    "flipped bytes to and from azure": azure_flipped_bytes,
}
