"""LangChain and LiteLLM, as clients of the gateway."""

import asyncio
import json
import os
import threading
import time
import urllib.request
from importlib.metadata import version

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # Nothing is fetched at import.
import litellm
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

gateway, admin = os.environ["GATEWAY"], os.environ["ADMIN"]
key, text = "sk-e2e-clients", "one two three"
question = [{"role": "user", "content": text}]


def stats():
    request = urllib.request.Request(
        admin + "/admin/scheduler/stats", headers={"Authorization": "Bearer e2e-token-e2e-token"}
    )
    return json.load(urllib.request.urlopen(request))


def raises(error, call):
    try:
        call()
    except error as raised:
        return raised
    raise AssertionError(f"{error} was not raised")


def ask_slowly():
    body = json.dumps({"model": "echo", "messages": question}).encode()
    headers = {"Authorization": f"Bearer {key}", "x-echo-latency-ms": "700"}
    request = urllib.request.Request(gateway + "/v1/chat/completions", body, headers)
    urllib.request.urlopen(request).read()


def while_full(call):
    """Calls while one request runs and one is queued. Returns the result and the rejections."""
    threads = [threading.Thread(target=ask_slowly) for _ in range(2)]
    for number, thread in enumerate(threads):
        thread.start()
        while (state := stats())["running"] + state["waiting"] <= number:
            time.sleep(0.005)
    before = stats()["total_rejected"]
    result = call()
    rejected = stats()["total_rejected"] - before
    for thread in threads:
        thread.join()
    return result, rejected


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return city


# LangChain, with both providers.
openai = ChatOpenAI(base_url=gateway + "/v1", api_key=key, model="echo", timeout=30, max_retries=4)
claude = ChatAnthropic(base_url=gateway, api_key=key, model="echo", timeout=30, max_retries=4, max_tokens=50)
for model, strict in (openai, {"tool_choice": "required"}), (claude, {"tool_choice": "any"}):
    answer = model.invoke(text)
    assert answer.text.split() == text.split(), answer
    assert answer.usage_metadata["output_tokens"] == 3, answer
    chunks = list(model.stream(text))
    assert "".join(chunk.text for chunk in chunks).split() == text.split(), chunks
    called = model.bind_tools([weather], **strict).invoke(text)
    assert called.tool_calls[0]["name"] == "weather", called
    assert asyncio.run(model.ainvoke(text)).text.split() == text.split()
    answer, rejected = while_full(lambda: model.invoke(text))
    assert answer.text and rejected >= 1, rejected
vectors = OpenAIEmbeddings(base_url=gateway + "/v1", api_key=key, model="echo", check_embedding_ctx_length=False)
assert len(vectors.embed_documents(["a", "b"])) == 2

# LiteLLM, as a client of an OpenAI-compatible server, of Anthropic, and of a LiteLLM proxy. The
# last one sends no `/v1`.
litellm.suppress_debug_info = True
for name, base in ("openai/echo", gateway + "/v1"), ("anthropic/echo", gateway), ("litellm_proxy/echo", gateway):
    ask = {"model": name, "api_base": base, "api_key": key, "messages": question, "timeout": 30, "max_tokens": 50}
    answer = litellm.completion(**ask)
    assert answer.choices[0].message.content.split() == text.split(), answer
    assert answer.usage.completion_tokens == 3, answer
    pieces = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(stream=True, **ask)]
    assert "".join(pieces).split() == text.split(), pieces
    stranger = ask | {"api_key": "unknown"}
    raises(litellm.AuthenticationError, lambda: litellm.completion(**stranger))
    limited, _ = while_full(lambda: raises(litellm.RateLimitError, lambda: litellm.completion(max_retries=0, **ask)))
    headers = limited.litellm_response_headers or limited.response.headers
    assert float(headers.get("retry-after", 0)) > 0, headers
answer, rejected = while_full(lambda: litellm.completion(max_retries=4, **ask))
assert answer.choices and rejected >= 1, rejected

names = ", ".join(f"{name} {version(name)}" for name in ("langchain-openai", "langchain-anthropic", "litellm"))
print(f"python: {names} work")
