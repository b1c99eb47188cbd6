"""PyPI openai and anthropic against the gateway."""

import ctypes
import errno
import json
import os
import socket
import threading
import time
import urllib.request

import anthropic
import openai

gateway, admin = os.environ["GATEWAY"], os.environ["ADMIN"]
ai = openai.OpenAI(base_url=gateway + "/v1", api_key="sk-e2e-python", timeout=30)
claude = anthropic.Anthropic(base_url=gateway, api_key="sk-e2e-python", timeout=30)
question = [{"role": "user", "content": "one two three"}]


def stats():
    request = urllib.request.Request(
        admin + "/admin/scheduler/stats", headers={"Authorization": "Bearer e2e-token-e2e-token"}
    )
    return json.load(urllib.request.urlopen(request))


def connections():
    """Duplicates the sockets of the gateway's connections, which its parent may do (pidfd_getfd)."""
    pid, lend = int(os.environ["GATEWAY_PID"]), 438
    process, system = os.pidfd_open(pid), ctypes.CDLL(None, use_errno=True)
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            if not os.readlink(f"/proc/{pid}/fd/{number}").startswith("socket:"):
                continue
        except FileNotFoundError:
            continue  # Closed since it was listed.
        copy = system.syscall(lend, process, int(number), 0)
        if copy < 0 and ctypes.get_errno() == errno.EBADF:
            continue
        assert copy >= 0, os.strerror(ctypes.get_errno())
        with socket.socket(fileno=copy) as one:
            listens = one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
            if one.family == socket.AF_INET and one.type == socket.SOCK_STREAM and not listens:
                yield one


def raises(error, call):
    try:
        call()
    except error as raised:
        return raised
    raise AssertionError(f"{error} was not raised")


# Chat, with every field that a client reads.
chat = ai.chat.completions.create(model="echo", messages=question)
assert chat.choices[0].message.content == "one two three", chat
assert chat.usage.completion_tokens == 3
assert chat._request_id.startswith("hw-")

# Streams, with and without usage.
chunks = list(ai.chat.completions.create(model="echo", messages=question, stream=True))
assert "".join(c.choices[0].delta.content or "" for c in chunks).split() == ["one", "two", "three"]
options = {"include_usage": True}
chunks = list(ai.chat.completions.create(model="echo", messages=question, stream=True, stream_options=options))
assert chunks[-1].usage.completion_tokens == 3

# Tools and pictures.
tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
called = ai.chat.completions.create(model="echo", messages=question, tools=[tool], tool_choice="required")
assert called.choices[0].message.tool_calls[0].function.name == "weather"
picture = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 40000}}]
assert ai.chat.completions.create(model="echo", messages=[{"role": "user", "content": picture}]).choices[0].message.content == "look"

# The other endpoints.
assert ai.completions.create(model="echo", prompt="a b").choices[0].text == "a b"
assert len(ai.embeddings.create(model="echo", input=["a", "b"], dimensions=4, encoding_format="float").data) == 2
assert ai.responses.create(model="echo", input="a b").output_text == "a b"
with ai.responses.stream(model="echo", input="a b") as stream:
    assert stream.get_final_response().output_text == "a b"
assert [model.id for model in ai.models.list()] == ["echo"]
assert ai.models.retrieve("echo").id == "echo"

# Anthropic.
message = claude.messages.create(model="echo", max_tokens=50, messages=question)
assert message.content[0].text == "one two three" and message.usage.output_tokens == 3
assert message._request_id.startswith("hw-")
with claude.messages.stream(model="echo", max_tokens=50, messages=question) as stream:
    assert stream.get_final_text().split() == ["one", "two", "three"]
tool = {"name": "weather", "input_schema": {"type": "object", "properties": {}}}
called = claude.messages.create(model="echo", max_tokens=50, messages=question, tools=[tool], tool_choice={"type": "any"})
assert called.stop_reason == "tool_use" and called.content[0].name == "weather"
assert claude.messages.count_tokens(model="echo", messages=question).input_tokens > 0
assert [model.id for model in claude.models.list()] == ["echo"]

# Every error maps to the right exception.
stranger = openai.OpenAI(base_url=gateway + "/v1", api_key="unknown")
assert raises(openai.AuthenticationError, lambda: stranger.models.list()).code == "invalid_api_key"
raises(openai.NotFoundError, lambda: ai.models.retrieve("nothing"))
raises(openai.PermissionDeniedError, lambda: ai.chat.completions.create(model="forbidden", messages=question))
raises(openai.BadRequestError, lambda: ai.chat.completions.create(model="", messages=question))
stranger = anthropic.Anthropic(base_url=gateway, api_key="unknown")
raises(anthropic.AuthenticationError, lambda: stranger.messages.create(model="echo", max_tokens=5, messages=question))
once = {"x-echo-status": "500"}
raises(openai.InternalServerError, lambda: ai.with_options(max_retries=0).chat.completions.create(model="echo", messages=question, extra_headers=once))

# A request that can never fit is rejected once, and the SDK does not retry.
before = stats()["total_rejected"]
large = raises(openai.APIStatusError, lambda: ai.chat.completions.create(model="echo", messages=question, max_tokens=9999))
assert large.status_code == 413, large
raises(anthropic.RequestTooLargeError, lambda: claude.messages.create(model="echo", max_tokens=9999, messages=question))
assert stats()["total_rejected"] == before + 2, "one refusal each"


def occupied(seconds):
    """Starts two requests; returns when one runs and one is queued."""
    slow = {"x-echo-latency-ms": str(int(seconds * 1000))}

    def ask():
        ai.with_options(max_retries=0).chat.completions.create(model="echo", messages=question, extra_headers=slow)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for number, thread in enumerate(threads):
        thread.start()
        while (state := stats())["running"] + state["waiting"] <= number:
            time.sleep(0.005)
    return threads


# A full queue: without retries, the error says when to retry; with retries, the SDK obeys it.
threads = occupied(0.7)
limited = raises(openai.RateLimitError, lambda: ai.with_options(max_retries=0).chat.completions.create(model="echo", messages=question))
assert float(limited.response.headers["retry-after-ms"]) > 0 and limited.response.headers["retry-after"]
raises(anthropic.RateLimitError, lambda: claude.with_options(max_retries=0).messages.create(model="echo", max_tokens=5, messages=question))
raw = ai.with_options(max_retries=4).chat.completions.with_raw_response.create(model="echo", messages=question)
assert raw.retries_taken >= 1 and raw.parse().choices, raw.retries_taken
for thread in threads:
    thread.join()
threads = occupied(0.7)
raw = claude.with_options(max_retries=4).messages.with_raw_response.create(model="echo", max_tokens=5, messages=question)
assert raw.retries_taken >= 1 and raw.parse().content, raw.retries_taken
for thread in threads:
    thread.join()

# A client that disconnects in the middle of a stream frees its slot.
slow = {"x-echo-tokens": "1000", "x-echo-token-ms": "50"}
stream = ai.chat.completions.create(model="echo", messages=question, stream=True, extra_headers=slow)
next(iter(stream))
assert stats()["running"] == 1
# Small writes are sent at once (TCP_NODELAY).
at_once = [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in connections()]
assert at_once and all(at_once), at_once
stream.close()
end = time.time() + 10
while stats()["running"]:
    assert time.time() < end, "the slot was never free"
    time.sleep(0.005)
print(f"python: openai {openai.__version__} and anthropic {anthropic.__version__} work")
