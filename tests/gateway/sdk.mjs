// npm openai and @anthropic-ai/sdk against the gateway.

import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";

const { GATEWAY: gateway, ADMIN: admin } = process.env;
const ai = new OpenAI({ baseURL: `${gateway}/v1`, apiKey: "sk-e2e-node", timeout: 30_000 });
const claude = new Anthropic({ baseURL: gateway, apiKey: "sk-e2e-node", timeout: 30_000 });
const messages = [{ role: "user", content: "one two three" }];
const model = "echo";

const stats = async () => {
  const answer = await fetch(`${admin}/admin/scheduler/stats`, { headers: { authorization: "Bearer e2e-token-e2e-token" } });
  return answer.json();
};

const until = async (what, condition) => {
  const end = Date.now() + 10_000;
  while (!(await condition())) {
    assert(Date.now() < end, `never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

// Chat, stream, tools.
const chat = await ai.chat.completions.create({ model, messages });
assert.equal(chat.choices[0].message.content, "one two three");
let text = "";
for await (const chunk of await ai.chat.completions.create({ model, messages, stream: true })) {
  text += chunk.choices[0]?.delta?.content ?? "";
}
assert.equal(text.trim(), "one two three");
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
const called = await ai.chat.completions.create({ model, messages, tools, tool_choice: "required" });
assert.equal(called.choices[0].message.tool_calls[0].function.name, "weather");

// The other endpoints.
assert.equal((await ai.embeddings.create({ model, input: ["a", "b"], encoding_format: "float" })).data.length, 2);
assert.equal((await ai.responses.create({ model, input: "a b" })).output_text, "a b");
assert.deepEqual((await ai.models.list()).data.map((one) => one.id), ["echo"]);

// Anthropic.
const message = await claude.messages.create({ model, max_tokens: 50, messages });
assert.equal(message.content[0].text, "one two three");
assert.equal((await claude.messages.stream({ model, max_tokens: 50, messages }).finalText()).trim(), "one two three");
assert.deepEqual((await claude.models.list()).data.map((one) => one.id), ["echo"]);

// Errors.
const stranger = { apiKey: "unknown" };
await assert.rejects(new OpenAI({ baseURL: `${gateway}/v1`, ...stranger }).models.list(), OpenAI.AuthenticationError);
await assert.rejects(ai.chat.completions.create({ model: "forbidden", messages }), OpenAI.PermissionDeniedError);
await assert.rejects(ai.models.retrieve("nothing"), OpenAI.NotFoundError);
await assert.rejects(
  new Anthropic({ baseURL: gateway, ...stranger }).messages.create({ model, max_tokens: 5, messages }),
  Anthropic.AuthenticationError,
);

// A request that can never fit is rejected once, and the SDK does not retry.
const before = (await stats()).total_rejected;
await assert.rejects(ai.chat.completions.create({ model, messages, max_tokens: 9999 }), { status: 413 });
await assert.rejects(claude.messages.create({ model, messages, max_tokens: 9999 }), { status: 413 });
assert.equal((await stats()).total_rejected, before + 2);

// A full queue: the SDK retries when it was told to.
const occupied = async () => {
  const headers = { "x-echo-latency-ms": "700" };
  const asked = [];
  for (let number = 1; number <= 2; number++) {
    asked.push(ai.chat.completions.create({ model, messages }, { headers, maxRetries: 0 }));
    await until("it is there", async () => {
      const { running, waiting } = await stats();
      return running + waiting >= number;
    });
  }
  return asked;
};
let slow = await occupied();
await assert.rejects(ai.chat.completions.create({ model, messages }, { maxRetries: 0 }), OpenAI.RateLimitError);
const refused = (await stats()).total_rejected;
assert.equal((await ai.chat.completions.create({ model, messages }, { maxRetries: 4 })).choices.length, 1);
assert((await stats()).total_rejected > refused, "it was rejected first");
await Promise.all(slow);
slow = await occupied();
await assert.rejects(claude.messages.create({ model, max_tokens: 5, messages }, { maxRetries: 0 }), Anthropic.RateLimitError);
assert.equal((await claude.messages.create({ model, max_tokens: 5, messages }, { maxRetries: 4 })).role, "assistant");
await Promise.all(slow);

// A client that disconnects in the middle of a stream frees its slot.
const headers = { "x-echo-tokens": "1000", "x-echo-token-ms": "50" };
const stream = await ai.chat.completions.create({ model, messages, stream: true }, { headers });
for await (const _ of stream) {
  break;
}
await until("the slot is free", async () => (await stats()).running === 0);
console.log("node: openai and @anthropic-ai/sdk work");
