// Vercel's AI SDK with its OpenAI and Anthropic providers against the gateway.

import assert from "node:assert/strict";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, RetryError, embed, generateText, jsonSchema, streamText, tool } from "ai";

globalThis.AI_SDK_LOG_WARNINGS = false;
const { GATEWAY: gateway, ADMIN: admin } = process.env;
const [apiKey, prompt] = ["sk-e2e-vercel", "one two three"];
const openai = createOpenAI({ baseURL: `${gateway}/v1`, apiKey });
const claude = createAnthropic({ baseURL: `${gateway}/v1`, apiKey });
const models = [openai.chat("echo"), openai.responses("echo"), claude("echo")];
const same = (text) => assert.deepEqual(text.split(/\s+/).filter(Boolean), prompt.split(" "));

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

// Calls while one request runs and one is queued. Returns the number of rejections.
const whileFull = async (call) => {
  const slow = [];
  for (let number = 1; number <= 2; number++) {
    const headers = { "x-echo-latency-ms": "700" };
    slow.push(generateText({ model: models[0], prompt, headers, maxRetries: 0 }));
    await until("it is there", async () => {
      const { running, waiting } = await stats();
      return running + waiting >= number;
    });
  }
  const before = (await stats()).total_rejected;
  await call();
  const rejected = (await stats()).total_rejected - before;
  await Promise.all(slow);
  return rejected;
};

const parameters = { type: "object", properties: {}, additionalProperties: false };
const tools = { weather: tool({ description: "The weather.", inputSchema: jsonSchema(parameters) }) };
for (const model of models) {
  const answer = await generateText({ model, prompt, maxOutputTokens: 50 });
  same(answer.text);
  assert.equal(answer.usage.outputTokens, 3);
  let text = "";
  for await (const piece of streamText({ model, prompt, maxOutputTokens: 50 }).textStream) text += piece;
  same(text);
}
for (const model of [models[0], models[2]]) {
  const called = await generateText({ model, prompt, tools, toolChoice: "required" });
  assert.equal(called.toolCalls[0].toolName, "weather");
}
assert((await embed({ model: openai.embedding("echo"), value: "a" })).embedding.length > 0);

// Errors, and what the retry logic makes of them.
const stranger = createOpenAI({ baseURL: `${gateway}/v1`, apiKey: "unknown" }).chat("echo");
await assert.rejects(generateText({ model: stranger, prompt }), { statusCode: 401, isRetryable: false });
const large = generateText({ model: models[0], prompt, maxOutputTokens: 9999 });
await assert.rejects(large, { statusCode: 413, isRetryable: false });
for (const model of [models[0], models[2]]) {
  const rejected = await whileFull(async () => {
    await assert.rejects(generateText({ model, prompt, maxRetries: 0 }), (error) => {
      const one = RetryError.isInstance(error) ? error.lastError : error;
      assert(APICallError.isInstance(one) && one.isRetryable && one.statusCode === 429, one);
      return Number(one.responseHeaders["retry-after-ms"]) > 0;
    });
    same((await generateText({ model, prompt, maxRetries: 4 })).text);
  });
  assert(rejected >= 2, `${rejected}`);
}
console.log("node: ai, @ai-sdk/openai and @ai-sdk/anthropic work");
