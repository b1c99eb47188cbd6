#!/usr/bin/env python3
"""Forwards requests to a server, records them, and injects faults.

    proxy.py PORT UPSTREAM_PORT LOG [SETTING=VALUE…]

LOG has a line for every request that ended, LOG.begun a dot for every one that arrived completely.

    faults=30    percentage of requests that fail: connections closed before or after the server
                 handled them, 503 with and without Retry-After, truncated responses and wrong lengths
    flip=up      flips a bit in every fifth large request body; flip=down: in every fifth response
    of=media     flips only where the target contains this; of=-list: only where it does not
    delay=0.05   additional seconds per request
    seed=1       seed of the random numbers
"""
import asyncio
import random
import sys

PORT, UPSTREAM, LOG = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
SETTINGS = dict(pair.split("=", 1) for pair in sys.argv[4:])
FAULTS, FLIP, OF = int(SETTINGS.get("faults", 0)), SETTINGS.get("flip"), SETTINGS.get("of", "")
DELAY, DRAW = float(SETTINGS.get("delay", 0)), random.Random(int(SETTINGS.get("seed", 1)))
log = open(LOG, "a", buffering=1)
arrived = open(f"{LOG}.begun", "ab", buffering=0)


def length_of(head):
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return None


async def head_of(reader):
    return await reader.readuntil(b"\r\n\r\n")


async def forward(head, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", UPSTREAM)
    try:
        lines = [line for line in head.split(b"\r\n") if not line.lower().startswith((b"connection:", b"expect:"))]
        writer.write(b"\r\n".join(lines[:-2] + [b"Connection: close"] + lines[-2:]) + body)
        await writer.drain()
        response_head = await head_of(reader)
        while response_head.startswith(b"HTTP/1.1 100"):
            response_head = await head_of(reader)
        if head.startswith(b"HEAD") or b" 304 " in response_head[:16] or b" 204 " in response_head[:16]:
            return response_head, b""
        length = length_of(response_head)
        chunked = b"transfer-encoding: chunked" in response_head.lower()
        content = await (reader.readexactly(length) if length is not None else reader.read())
        if chunked:
            content, response_head = unchunk(content), without(response_head, b"transfer-encoding")
        return response_head, content
    finally:
        writer.close()


def unchunk(data):
    joined = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        size = int(size.split(b";")[0], 16)
        if size == 0:
            break
        joined, data = joined + data[:size], data[size + 2 :]
    return joined


def without(head, *names):
    return b"\r\n".join(line for line in head.split(b"\r\n") if line.split(b":")[0].strip().lower() not in names)


def is_flipped(direction, target, body):
    """Returns whether to flip a byte of this body. Large bodies are content, not metadata."""
    chosen = OF[1:] not in target if OF.startswith("-") else OF in target
    return FLIP == direction and chosen and len(body) > 2000 and DRAW.randrange(5) == 0


def flipped(body):
    position = DRAW.randrange(len(body) // 2, len(body) - 100)
    return body[:position] + bytes([body[position] ^ 1]) + body[position + 1 :]


SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class ConnectionCut(Exception):
    pass


async def handle_request(reader, writer):
    head = await head_of(reader)
    line = head.split(b"\r\n")[0].decode()
    method, target, _ = line.split(" ")
    if b"expect: 100-continue" in head.lower():
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await reader.readexactly(length_of(head) or 0)
    arrived.write(b".")
    await asyncio.sleep(DELAY)
    fault = DRAW.choice("before after slow retry cut long short".split()) if DRAW.randrange(100) < FAULTS else ""
    if fault == "before":
        log.write(f"{method} {target} reset\n")
        raise ConnectionCut
    if fault in ("slow", "retry"):
        log.write(f"{method} {target} 503\n")
        after = b"Retry-After: 1\r\n" if fault == "retry" and DRAW.randrange(8) == 0 else b""
        writer.write(b"HTTP/1.1 503 Slow Down\r\nContent-Length: %d\r\n%s\r\n" % (len(SLOW_DOWN), after))
        writer.write(b"" if method == "HEAD" else SLOW_DOWN)
        return
    damaged = is_flipped("up", target, body)
    try:
        response_head, content = await forward(head, flipped(body) if damaged else body)
    except (OSError, asyncio.IncompleteReadError):
        # The server closed the connection. Without a line, the request would seem pending for ever.
        log.write(f"{method} {target} reset\n")
        raise ConnectionCut from None
    status = response_head.split(b" ")[1].decode()
    if status.startswith("2") and is_flipped("down", target, content):
        content, damaged = flipped(content), True
    marks = [" lost"] * (fault in ("after", "cut", "long", "short")) + [" flipped"] * damaged
    log.write(f"{method} {target} {status}{''.join(marks)}\n")
    if fault == "after":
        raise ConnectionCut
    length = length_of(response_head) if method == "HEAD" else len(content)
    response_head = without(response_head, b"content-length", b"connection")[:-4]
    if fault == "long" and method != "HEAD":
        length += 7
    if fault == "short" and method != "HEAD":
        length, content = length * 2 // 3, content[: length * 2 // 3]
    if length is not None and status != "204":
        response_head += b"\r\nContent-Length: %d" % length
    writer.write(response_head + b"\r\n\r\n")
    writer.write(content[: len(content) // 2] if fault == "cut" else content)
    if fault in ("cut", "long", "short"):
        await writer.drain()
        raise ConnectionCut


async def serve(reader, writer):
    try:
        while True:
            await handle_request(reader, writer)
            await writer.drain()
    except (ConnectionCut, asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", PORT, limit=1 << 26)
    async with server:
        await server.serve_forever()


asyncio.run(main())
