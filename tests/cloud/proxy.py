#!/usr/bin/env python3
"""A proxy that logs the requests to a server and injects network faults.

    proxy.py PORT UPSTREAM_PORT LOG [SETTING=VALUE…]

LOG has a line per finished request, LOG.begun a dot per request that arrived complete.

    faults=30    percentage of requests that fail: disconnected before or after they were served,
                 refused with and without a time to retry, truncated, or with a wrong length
    flip=up      changes one byte in every fifth large request body; flip=down: response body
    of=media     only for addresses that contain this; of=-list: that do not contain it
    delay=0.05   extra seconds per request
    seed=1       of the random numbers
"""
import asyncio
import random
import sys

PORT, UPSTREAM, LOG = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
SETTINGS = dict(pair.split("=", 1) for pair in sys.argv[4:])
FAULTS, FLIP, OF = int(SETTINGS.get("faults", 0)), SETTINGS.get("flip"), SETTINGS.get("of", "")
DELAY, DRAW = float(SETTINGS.get("delay", 0)), random.Random(int(SETTINGS.get("seed", 1)))
log = open(LOG, "a", buffering=1)
begun = open(f"{LOG}.begun", "ab", buffering=0)


def length_of(head):
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return None


async def head_of(reader):
    return await reader.readuntil(b"\r\n\r\n")


async def ask(head, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", UPSTREAM)
    try:
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith((b"connection:", b"expect:"))]
        writer.write(b"\r\n".join(lines[:-2] + [b"Connection: close"] + lines[-2:]) + body)
        await writer.drain()
        answer = await head_of(reader)
        while answer.startswith(b"HTTP/1.1 100"):
            answer = await head_of(reader)
        if head.startswith(b"HEAD") or b" 304 " in answer[:16] or b" 204 " in answer[:16]:
            return answer, b""
        length = length_of(answer)
        chunked = b"transfer-encoding: chunked" in answer.lower()
        content = await (reader.readexactly(length) if length is not None else reader.read())
        if chunked:
            content, answer = unchunk(content), without(answer, b"transfer-encoding")
        return answer, content
    finally:
        writer.close()


def unchunk(data):
    whole = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        size = int(size.split(b";")[0], 16)
        if size == 0:
            break
        whole, data = whole + data[:size], data[size + 2 :]
    return whole


def without(head, *names):
    return b"\r\n".join(line for line in head.split(b"\r\n") if line.split(b":")[0].strip().lower() not in names)


def is_flipped(way, target, body):
    """Returns whether to change a body. Large bodies are content; small ones are protocol."""
    chosen = OF[1:] not in target if OF.startswith("-") else OF in target
    return FLIP == way and chosen and len(body) > 2000 and DRAW.randrange(5) == 0


def flipped(body):
    at = DRAW.randrange(len(body) // 2, len(body) - 100)
    return body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]


REFUSED = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Gone(Exception):
    pass


async def one(reader, writer):
    head = await head_of(reader)
    line = head.split(b"\r\n")[0].decode()
    method, target, _ = line.split(" ")
    if b"expect: 100-continue" in head.lower():
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(length_of(head) or 0)
    begun.write(b".")
    await asyncio.sleep(DELAY)
    fault = DRAW.choice("before after slow retry cut long short".split()) if DRAW.randrange(100) < FAULTS else ""
    if fault == "before":
        log.write(f"{method} {target} reset\n")
        raise Gone
    if fault in ("slow", "retry"):
        log.write(f"{method} {target} 503\n")
        after = b"Retry-After: 1\r\n" if fault == "retry" and DRAW.randrange(8) == 0 else b""
        writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: %d\r\n%s\r\n" % (len(REFUSED), after))
        writer.write(b"" if method == "HEAD" else REFUSED)
        return
    damaged = is_flipped("up", target, body)
    answer, content = await ask(head, flipped(body) if damaged else body)
    status = answer.split(b" ")[1].decode()
    if status.startswith("2") and is_flipped("down", target, content):
        content, damaged = flipped(content), True
    words = [" lost"] * (fault in ("after", "cut", "long", "short")) + [" flipped"] * damaged
    log.write(f"{method} {target} {status}{''.join(words)}\n")
    if fault == "after":
        raise Gone
    length = length_of(answer) if method == "HEAD" else len(content)
    answer = without(answer, b"content-length", b"connection")[:-4]
    if fault == "long" and method != "HEAD":
        length += 7
    if fault == "short" and method != "HEAD":
        length, content = length * 2 // 3, content[: length * 2 // 3]
    if length is not None and status != "204":
        answer += b"\r\nContent-Length: %d" % length
    writer.write(answer + b"\r\n\r\n")
    writer.write(content[: len(content) // 2] if fault == "cut" else content)
    if fault in ("cut", "long", "short"):
        await writer.drain()
        raise Gone


async def serve(reader, writer):
    try:
        while True:
            await one(reader, writer)
            await writer.drain()
    except (Gone, asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", PORT, limit=1 << 26)
    async with server:
        await server.serve_forever()


asyncio.run(main())
