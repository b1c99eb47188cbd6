//! Echo responses in the format of each endpoint.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::wire::{Endpoint, RequestSummary};

/// Content of a response, independent of the endpoint.
pub(super) struct Reply {
    model: String,
    pub(super) words: Vec<String>,
    prompt: u64,
    /// The tool to call, if the request requires a call.
    tool: Option<String>,
    inputs: usize,
    dimensions: usize,
    /// Whether a stream ends with a usage report.
    tells_usage: bool,
}

impl Reply {
    pub(super) fn new(body: &Value, summary: &RequestSummary, tokens: Option<u64>) -> Reply {
        let text = question(body);
        let given: Vec<&str> = text.split_whitespace().collect();
        let given = if given.is_empty() {
            vec!["echo"]
        } else {
            given
        };
        let wanted = tokens.unwrap_or(given.len() as u64);
        let count = wanted.min(summary.max_output.unwrap_or(u64::MAX));
        let words = given
            .iter()
            .cycle()
            .take(usize::try_from(count).unwrap_or(0));
        Reply {
            model: summary.model.clone(),
            words: words.map(|word| format!("{word} ")).collect(),
            prompt: summary.prompt,
            tool: tool(body),
            inputs: body["input"].as_array().map_or(1, Vec::len).max(1),
            tells_usage: body["stream_options"]["include_usage"] == true,
            dimensions: body["dimensions"]
                .as_u64()
                .map_or(8, |wanted| wanted.min(4096) as usize),
        }
    }

    fn text(&self) -> String {
        self.words.concat().trim_end().to_owned()
    }

    fn output(&self) -> u64 {
        self.words.len() as u64
    }

    fn openai_usage(&self) -> Value {
        let (prompt, output) = (self.prompt, self.output());
        json!({ "prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output })
    }

    fn usage(&self) -> Value {
        let (prompt, output) = (self.prompt, self.output());
        json!({ "input_tokens": prompt, "output_tokens": output, "total_tokens": prompt + output,
            "input_tokens_details": { "cached_tokens": 0 }, "output_tokens_details": { "reasoning_tokens": 0 } })
    }
}

/// Text of the last message of the prompt.
fn question(body: &Value) -> String {
    let last = |list: &Value| list.as_array().and_then(|list| list.last().cloned());
    let said = last(&body["messages"])
        .or_else(|| Some(body["prompt"].clone()).filter(|prompt| !prompt.is_null()))
        .or_else(|| last(&body["input"]))
        .unwrap_or_else(|| body["input"].clone());
    let content = match said.get("content") {
        Some(content) => content.clone(),
        None => said,
    };
    let part = |part: &Value| part["text"].as_str().map(str::to_owned);
    match &content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(part).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

/// The first tool, if the request requires a call.
fn tool(body: &Value) -> Option<String> {
    let choice = &body["tool_choice"];
    let word = choice.as_str().or_else(|| choice["type"].as_str())?;
    if !["required", "any", "function", "tool"].contains(&word) {
        return None;
    }
    let first = body["tools"].get(0)?;
    let name = first["function"]["name"]
        .as_str()
        .or_else(|| first["name"].as_str());
    name.map(str::to_owned)
}

/// The complete response.
pub(super) fn whole(endpoint: Endpoint, reply: &Reply) -> Value {
    let model = &reply.model;
    match endpoint {
        Endpoint::Chat => json!({
            "id": "chatcmpl-echo", "object": "chat.completion", "created": 0, "model": model,
            "choices": [{ "index": 0, "message": chat_message(reply), "logprobs": null,
                "finish_reason": if reply.tool.is_some() { "tool_calls" } else { "stop" } }],
            "usage": reply.openai_usage(),
        }),
        Endpoint::Completions => json!({
            "id": "cmpl-echo", "object": "text_completion", "created": 0, "model": model,
            "choices": [{ "index": 0, "text": reply.text(), "logprobs": null, "finish_reason": "stop" }],
            "usage": reply.openai_usage(),
        }),
        Endpoint::Embeddings => json!({
            "object": "list", "model": model,
            "data": (0..reply.inputs).map(|index| json!({ "object": "embedding", "index": index,
                "embedding": vec![0.5; reply.dimensions] })).collect::<Vec<_>>(),
            "usage": { "prompt_tokens": reply.prompt, "total_tokens": reply.prompt },
        }),
        Endpoint::Responses => response(reply, "completed"),
        Endpoint::Messages => json!({
            "id": "msg_echo", "type": "message", "role": "assistant", "model": model,
            "content": [message_block(reply)],
            "stop_reason": if reply.tool.is_some() { "tool_use" } else { "end_turn" },
            "stop_sequence": null,
            "usage": { "input_tokens": reply.prompt, "output_tokens": reply.output() },
        }),
        Endpoint::CountTokens => json!({ "input_tokens": reply.prompt }),
    }
}

fn chat_message(reply: &Reply) -> Value {
    match &reply.tool {
        Some(name) => {
            json!({ "role": "assistant", "content": null, "refusal": null, "tool_calls": [
            { "id": "call_echo", "type": "function", "function": { "name": name, "arguments": "{}" } }] })
        }
        None => json!({ "role": "assistant", "content": reply.text(), "refusal": null }),
    }
}

fn message_block(reply: &Reply) -> Value {
    match &reply.tool {
        Some(name) => json!({ "type": "tool_use", "id": "toolu_echo", "name": name, "input": {} }),
        None => json!({ "type": "text", "text": reply.text() }),
    }
}

fn response(reply: &Reply, status: &str) -> Value {
    let done = status == "completed";
    let message = json!({ "type": "message", "id": "msg_echo", "status": "completed", "role": "assistant",
        "content": [{ "type": "output_text", "text": reply.text(), "annotations": [] }] });
    json!({
        "id": "resp_echo", "object": "response", "created_at": 0, "status": status, "model": reply.model,
        "error": null, "incomplete_details": null, "instructions": null, "metadata": {},
        "parallel_tool_calls": true, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "output": if done { json!([message]) } else { json!([]) },
        "usage": if done { reply.usage() } else { Value::Null },
    })
}

/// The response as a stream of events.
pub(super) fn stream(endpoint: Endpoint, reply: &Reply) -> Vec<Bytes> {
    match endpoint {
        Endpoint::Messages => messages_stream(reply),
        Endpoint::Responses => responses_stream(reply),
        Endpoint::Completions => openai_stream(reply, "text_completion", |word| {
            json!({ "index": 0, "text": word.unwrap_or_default(), "logprobs": null,
                "finish_reason": word.is_none().then_some("stop") })
        }),
        _ => openai_stream(reply, "chat.completion.chunk", |word| {
            let delta = word.map_or(
                json!({}),
                |word| json!({ "role": "assistant", "content": word }),
            );
            json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": word.is_none().then_some("stop") })
        }),
    }
}

fn openai_stream(
    reply: &Reply,
    object: &str,
    choice: impl Fn(Option<&str>) -> Value,
) -> Vec<Bytes> {
    let event = |choices: Vec<Value>, usage: Value| {
        let body = json!({ "id": "chatcmpl-echo", "object": object, "created": 0, "model": reply.model,
            "choices": choices, "usage": usage });
        Bytes::from(format!("data: {body}\n\n"))
    };
    let words = reply
        .words
        .iter()
        .map(|word| Some(word.as_str()))
        .chain([None]);
    let mut events: Vec<Bytes> = words
        .map(|word| event(vec![choice(word)], Value::Null))
        .collect();
    if reply.tells_usage {
        events.push(event(Vec::new(), reply.openai_usage()));
    }
    events.push(Bytes::from_static(b"data: [DONE]\n\n"));
    events
}

fn named(name: &str, mut body: Value) -> Bytes {
    body["type"] = name.into();
    Bytes::from(format!("event: {name}\ndata: {body}\n\n"))
}

fn messages_stream(reply: &Reply) -> Vec<Bytes> {
    let start = json!({ "message": { "id": "msg_echo", "type": "message", "role": "assistant",
        "model": reply.model, "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": { "input_tokens": reply.prompt, "output_tokens": 1 } } });
    let mut events = vec![
        named("message_start", start),
        named(
            "content_block_start",
            json!({ "index": 0, "content_block": { "type": "text", "text": "" } }),
        ),
    ];
    events.extend(reply.words.iter().map(|word| {
        named(
            "content_block_delta",
            json!({ "index": 0, "delta": { "type": "text_delta", "text": word } }),
        )
    }));
    let end = json!({ "delta": { "stop_reason": "end_turn", "stop_sequence": null },
        "usage": { "output_tokens": reply.output() } });
    events.extend([
        named("content_block_stop", json!({ "index": 0 })),
        named("message_delta", end),
        named("message_stop", json!({})),
    ]);
    events
}

fn responses_stream(reply: &Reply) -> Vec<Bytes> {
    let place = |mut event: Value| {
        event["item_id"] = "msg_echo".into();
        event["output_index"] = 0.into();
        event["content_index"] = 0.into();
        event
    };
    let item = json!({ "type": "message", "id": "msg_echo", "status": "in_progress", "role": "assistant", "content": [] });
    let part = |text: &str| json!({ "type": "output_text", "text": text, "annotations": [] });
    let mut parts = vec![
        (
            "response.created",
            json!({ "response": response(reply, "in_progress") }),
        ),
        (
            "response.output_item.added",
            json!({ "output_index": 0, "item": item }),
        ),
        (
            "response.content_part.added",
            place(json!({ "part": part("") })),
        ),
    ];
    parts.extend(reply.words.iter().map(|word| {
        (
            "response.output_text.delta",
            place(json!({ "delta": word, "logprobs": [] })),
        )
    }));
    let done = response(reply, "completed");
    parts.extend([
        (
            "response.output_text.done",
            place(json!({ "text": reply.text(), "logprobs": [] })),
        ),
        (
            "response.content_part.done",
            place(json!({ "part": part(&reply.text()) })),
        ),
        (
            "response.output_item.done",
            json!({ "output_index": 0, "item": done["output"][0] }),
        ),
        ("response.completed", json!({ "response": done })),
    ]);
    let numbered = parts.into_iter().enumerate();
    numbered
        .map(|(number, (name, mut body))| {
            body["sequence_number"] = number.into();
            named(name, body)
        })
        .collect()
}
