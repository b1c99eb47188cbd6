"""Three gateways, each in a network namespace, with a Valkey server and an upstream that counts.

usage: unshare -rnm python3 partitions.py HEADWORKS FOLDER keep|closed LONGEST

Every node has one link to the server and one to the upstream. Only the first is cut: for one node,
for the allocator, for all, and in one direction. The limits must hold throughout, and every node
must work again within five seconds after its link is back.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time

headworks, folder, on_loss, longest = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4])
RATE, BURST, SLOTS, CLIENTS = 100, 5, 8, 12
PASSWORD = "only for tests"
NODES = [1, 2, 3]
children = []


def run(*command):
    subprocess.run(command, check=True)


def spawn(*command, log, env=None):
    output = open(f"{folder}/{log}.log", "w")
    child = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, env=env or {})
    children.append(child)
    return child


def network():
    # `ip netns` keeps names in /run; this mount is private.
    run("mount", "-t", "tmpfs", "none", "/run")
    os.mkdir("/run/netns")
    run("ip", "link", "set", "lo", "up")
    for bridge, net in (("server", 79), ("upstream", 80)):
        run("ip", "link", "add", bridge, "type", "bridge")
        run("ip", "addr", "add", f"10.{net}.0.100/24", "dev", bridge)
        run("ip", "link", "set", bridge, "up")
    for node in NODES:
        run("ip", "netns", "add", f"n{node}")
        run("ip", "-n", f"n{node}", "link", "set", "lo", "up")
        for bridge, net in (("server", 79), ("upstream", 80)):
            here, there = f"{bridge[0]}{node}", f"{bridge}0"
            run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", f"n{node}")
            run("ip", "link", "set", here, "master", bridge, "up")
            run("ip", "-n", f"n{node}", "addr", "add", f"10.{net}.0.{node}/24", "dev", there)
            run("ip", "-n", f"n{node}", "link", "set", there, "up")


# A connection that is not encrypted must stay on the loopback interface, so a relay in the node's
# namespace brings it to the server.
RELAY = """
import asyncio
async def copy(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.transport.abort()
async def relay(reader, writer):
    try:
        there = await asyncio.wait_for(asyncio.open_connection('10.79.0.100', 6379), 3)
    except (OSError, asyncio.TimeoutError):
        writer.transport.abort()
        return
    await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))
async def main():
    server = await asyncio.start_server(relay, '127.0.0.1', 6379)
    await server.serve_forever()
asyncio.run(main())
"""


def start():
    server = shutil.which("valkey-server") or shutil.which("redis-server")
    spawn(server, "--bind", "127.0.0.1", "10.79.0.100", "--port", "6379", "--save", "", "--appendonly", "no",
          "--requirepass", PASSWORD, log="server")
    for node in NODES:
        spawn("ip", "netns", "exec", f"n{node}", sys.executable, "-c", RELAY, log=f"relay{node}", env=dict(os.environ))
        with open(f"{folder}/n{node}.toml", "w") as file:
            file.write(f"""
[fleet]
url = "valkey://127.0.0.1:6379/0"
name = "n{node}"
on_loss = "{on_loss}"
forget_after = "1h"
[gateway]
listen = "10.80.0.{node}:8080"
request_timeout = "2s"
scheduler_queue_timeout = "5m"
scheduler_max_rps = {RATE}
scheduler_rps_burst = {BURST}
scheduler_max_tokens_per_sec = 0
scheduler_max_concurrent = {SLOTS}
[[gateway.key]]
id = "k"
prefix = "sk-k-"
tenant = "t{node}"
[[gateway.upstream]]
name = "one"
url = "http://10.80.0.100:9000"
""")
        environment = {"VALKEYCLI_AUTH": PASSWORD}
        spawn("ip", "netns", "exec", f"n{node}", headworks, "--config", f"n{node}.toml", "gateway",
              "--admin-listen", "127.0.0.1:0", "--admin-token", "a-token-for-tests",
              log=f"n{node}", env=environment | {"PATH": os.environ["PATH"]})


class Upstream:
    def __init__(self):
        self.arrivals, self.now, self.peak = [], 0, 0

    async def serve(self, reader, writer):
        answer = b'{"usage":{"prompt_tokens":1,"completion_tokens":1}}'
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer)
        while message := await read_message(reader):
            self.now += 1
            self.peak = max(self.peak, self.now)
            self.arrivals.append((time.monotonic(), message[1].decode().split('"model":"')[1][0]))
            await asyncio.sleep(0.03)
            self.now -= 1
            writer.write(head + answer)

    def most(self):
        """Returns the most of any ten seconds, as a part of the limit."""
        first, most = 0, 0
        for last, (at, _) in enumerate(self.arrivals):
            while self.arrivals[first][0] <= at - 10:
                first += 1
            most = max(most, last - first + 1)
        return most / (10 * RATE)

    def since(self, at, node):
        return sum(1 for when, who in self.arrivals if when >= at and who == str(node))


async def read_message(reader):
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
    return head.split(b"\r\n")[0], body


async def client(node):
    body = b'{"model":"%d","max_tokens":1,"messages":[{"role":"user","content":"a"}]}' % node
    request = (b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer sk-k-1\r\n"
               b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body)) + body
    reader, writer = await asyncio.open_connection(f"10.80.0.{node}", 8080)
    while True:
        writer.write(request)
        answer = await read_message(reader)
        assert answer and b" 200 " in answer[0], (node, answer)


async def ready(node):
    try:
        reader, writer = await asyncio.open_connection(f"10.80.0.{node}", 8080)
        writer.write(b"GET /ready HTTP/1.1\r\nhost: a\r\n\r\n")
        answer = await read_message(reader)
        writer.close()
        return bool(answer) and b" 200 " in answer[0]
    except OSError:
        return False


async def until(what, condition, within=120):
    end = time.monotonic() + within
    while not await condition():
        assert time.monotonic() < end, f"never within {within} s: {what}"
        await asyncio.sleep(0.05)


def nodes_shown():
    # The server is at the loopback address here as well.
    shown = subprocess.run([headworks, "--config", "n1.toml", "fleet", "status", "--json"], cwd=folder,
                           env={"VALKEYCLI_AUTH": PASSWORD}, capture_output=True, text=True, check=True)
    return json.loads(shown.stdout)["nodes"]


def allocator():
    names = [node["name"] for node in nodes_shown() if node["is_allocator"]]
    return int(names[0][1:]) if names else 1


def link(node, up):
    run("ip", "link", "set", f"s{node}", "up" if up else "down")


def deaf(node, on):
    """Drops what the server sends to a node: its reports arrive, and their answers do not."""
    inside = ["ip", "netns", "exec", f"n{node}", "nft"]
    if on:
        run(*inside, "add table inet t; add chain inet t i { type filter hook input priority 0; }; "
                     "add rule inet t i iifname server0 drop")
    else:
        run(*inside, "delete table inet t")


async def trouble(upstream, clients, what, nodes, begin, end, length):
    for node in nodes:
        begin(node)
    await asyncio.sleep(length)
    if on_loss == "closed" and length >= 5:
        # A node that is cut off for longer than its share lives starts nothing.
        late = time.monotonic() - 1
        assert all(upstream.since(late, node) == 0 for node in nodes), f"{what}: a node goes on"
    for node in nodes:
        end(node)
    back = time.monotonic()
    for node in nodes:
        async def works(node=node):
            return await ready(node) and upstream.since(back, node) > 0
        await until(f"{what}: node {node} works again", works, 120)

    async def heard():
        shown = await asyncio.to_thread(nodes_shown)
        return len(shown) == len(NODES) and not any(node["silent_seconds"] for node in shown)
    await until(f"{what}: every node reports again", heard)
    took = time.monotonic() - back
    for task in clients:
        assert not task.done(), task.exception()
    print(f"{what} for {length:g} s: back after {took:.1f} s, at most {upstream.most():.3f} of the rate over "
          f"any 10 s, {upstream.peak} requests at once", flush=True)
    assert upstream.most() <= 1.02 and upstream.peak <= SLOTS, what
    # How soon depends on a quiet machine.
    assert took <= 5 or longest < 60, f"{what}: back after {took:.1f} s"


async def main():
    network()
    upstream = Upstream()
    await asyncio.start_server(upstream.serve, "10.80.0.100", 9000)
    start()
    for node in NODES:
        await until(f"node {node} is ready", lambda node=node: ready(node))
    clients = [asyncio.create_task(client(node)) for node in NODES for _ in range(CLIENTS)]
    await asyncio.sleep(2)
    first = allocator()
    other = NODES[first % 3]
    down, up = (lambda node: link(node, False)), (lambda node: link(node, True))
    lengths = [2, longest] if longest < 60 else [2, 6, 20, longest]
    for length in lengths:
        await trouble(upstream, clients, "one node", [other], down, up, length)
        await trouble(upstream, clients, "the allocator", [allocator()], down, up, length)
        await trouble(upstream, clients, "all nodes", NODES, down, up, length)
    await trouble(upstream, clients, "answers to one node", [other], lambda node: deaf(node, True),
                  lambda node: deaf(node, False), longest)
    print(f"{len(upstream.arrivals)} requests")


try:
    # Connections are still open; nobody needs to hear how they end.
    asyncio.new_event_loop().run_until_complete(main())
except BaseException:
    for name in sorted(os.listdir(folder)):
        if name.endswith(".log"):
            with open(f"{folder}/{name}") as file:
                print(f"--- {name}\n{file.read()[-2000:]}", file=sys.stderr)
    raise
finally:
    for child in children:
        child.kill()
    if sys.exc_info()[0] is None:
        sys.stdout.flush()
        os._exit(0)
