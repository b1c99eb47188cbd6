//! Usage that is booked for responses that end early or that no client waits for.

use std::time::{Duration, Instant};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tower::ServiceExt;

use crate::support::{CHAT, PATIENCE, Reaction, Running, Upstream, chat, raw_request, until};

/// Tokens of the prompt that `chat` sends: "user" and "hello".
const PROMPT: u64 = 3;

/// Requests, input tokens and output tokens of all tenants and models.
async fn usage(running: &Running) -> (u64, u64, u64) {
    let request = Request::get("/admin/usage").body(Body::empty()).unwrap();
    let answer = running.gateway.routes().oneshot(request).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let usage: Value = serde_json::from_slice(&body).unwrap();
    let rows = usage["usage"].as_array().unwrap();
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum();
    (sum("requests"), sum("input_tokens"), sum("output_tokens"))
}

/// Input and output tokens, once the first request is booked.
async fn booked(running: &Running) -> (u64, u64) {
    booked_requests(running, 1).await
}

/// Input and output tokens, once `count` requests are booked.
async fn booked_requests(running: &Running, count: u64) -> (u64, u64) {
    let start = Instant::now();
    loop {
        let (requests, input, output) = usage(running).await;
        if requests >= count {
            return (input, output);
        }
        assert!(start.elapsed() < PATIENCE, "the request was never booked");
        tokio::task::yield_now().await;
    }
}

/// Sends a request and disconnects as soon as the response contains `word`.
async fn leave_after(running: &Running, path: &str, body: &str, word: &str) {
    let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let request = raw_request(path, body);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains(word) {
        let read = stream.read_buf(&mut seen).await.unwrap();
        assert_ne!(read, 0, "{}", String::from_utf8_lossy(&seen));
    }
}

/// A stream of events without an end.
fn unfinished(events: &str) -> Reaction {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked";
    let text = format!("{head}\r\n\r\n{:x}\r\n{events}\r\n", events.len());
    Reaction::Raw(Box::leak(text.into_boxed_str()))
}

fn anthropic(events: usize) -> String {
    let text = "forty characters of text in every event.";
    let delta = format!(
        "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":{{\"type\":\"text_delta\",\"text\":\"{text}\"}}}}\n\n"
    );
    let start = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\"output_tokens\":8}}}\n\n";
    format!(
        "{start}{}event: ping\ndata: {{\"type\":\"ping\"}}\n\n",
        delta.repeat(events)
    )
}

#[tokio::test]
async fn a_stream_that_is_closed_early_books_what_was_relayed() {
    let events = anthropic(400);
    let upstream = Upstream::start(move |_| unfinished(&events)).await;
    let running = Running::start(&upstream.toml("one", "kind = 'anthropic'"));
    leave_after(&running, "/v1/messages", &chat(4000, true), "ping").await;
    let (input, output) = booked(&running).await;
    assert_eq!(input, 25, "as reported");
    // Ten tokens in each of four hundred events. The other events may count as one each.
    assert!((4000..4010).contains(&output), "{output}");
}

#[tokio::test]
async fn an_openai_stream_that_is_closed_early_books_what_was_relayed() {
    let text = "forty characters of text in every event.";
    let delta = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{text}\"}}}}]}}\n\n");
    let events = format!("{}data: {{\"n\":\"end\"}}\n\n", delta.repeat(100));
    let upstream = Upstream::start(move |_| unfinished(&events)).await;
    let running = Running::before(&upstream, "");
    leave_after(&running, CHAT, &chat(4000, true), "\"end\"").await;
    let (input, output) = booked(&running).await;
    assert_eq!(input, PROMPT);
    assert!((1000..1010).contains(&output), "{output}");
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_books_what_was_expected() {
    let upstream = Upstream::start(|_| Reaction::Hang).await;
    let running = Running::before(&upstream, "");
    let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let request = raw_request(CHAT, &chat(500, false));
    stream.write_all(request.as_bytes()).await.unwrap();
    until("the upstream has it", || upstream.now() == 1).await;
    drop(stream);
    assert_eq!(booked(&running).await, (PROMPT, 500));
}

#[tokio::test]
async fn short_answers_do_not_make_it_cheap_to_leave_a_long_one() {
    let upstream = Upstream::start(|call| match call.header("x-hold") {
        Some(_) => Reaction::Hang,
        None => Reaction::Answer {
            after: Duration::ZERO,
            tokens: 1,
        },
    })
    .await;
    let running = Running::before(&upstream, "");
    for _ in 0..20 {
        let answer = running
            .client()
            .post(CHAT, &[], &chat(100_000, false))
            .await;
        assert_eq!(answer.status, 200);
    }
    let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let request = raw_request(CHAT, &chat(100_000, false));
    let request = request.replace("host:", "x-hold: 1\r\nhost:");
    stream.write_all(request.as_bytes()).await.unwrap();
    until("the upstream has it", || upstream.now() == 1).await;
    drop(stream);
    let (_, output) = booked_requests(&running, 21).await;
    assert!(output >= 20 + 512, "{output}");
}

/// A model may reason for minutes before it says anything.
#[tokio::test]
async fn a_stream_without_text_books_the_time_until_its_client_leaves() {
    let silent = unfinished("data: {\"type\":\"response.created\",\"response\":{}}\n\n");
    for reaction in [Reaction::Hang, silent] {
        let began = matches!(reaction, Reaction::Raw(_));
        let upstream = Upstream::start(move |_| reaction.clone()).await;
        let running = Running::before(&upstream, "");
        let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
        let request = raw_request(CHAT, &chat(30, true));
        stream.write_all(request.as_bytes()).await.unwrap();
        until("the upstream has it", || upstream.count() == 1).await;
        if began {
            stream.read_u8().await.unwrap();
        }
        let since = Instant::now();
        until("it generates", || {
            since.elapsed() > Duration::from_millis(310)
        })
        .await;
        drop(stream);
        // A hundred tokens per second, and at most what was asked for.
        assert_eq!(booked(&running).await, (PROMPT, 30), "began: {began}");
        assert_eq!(upstream.silent(), u64::from(!began));
    }
}

#[tokio::test]
async fn a_client_that_leaves_before_the_answer_books_what_the_upstream_says_later() {
    let after = Duration::from_millis(50);
    let upstream = Upstream::start(move |_| Reaction::Finish { after, tokens: 9 }).await;
    let running = Running::before(&upstream, "");
    let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let request = raw_request(CHAT, &chat(500, false));
    stream.write_all(request.as_bytes()).await.unwrap();
    until("the upstream has it", || upstream.now() == 1).await;
    drop(stream);
    // The prompt as the upstream counts it, and not as it was estimated.
    assert_eq!(booked(&running).await, (0, 9));
    running.is_idle().await;
}

/// The client reads nothing, so most of the response is in the buffers of the sockets.
#[tokio::test]
async fn a_stream_that_nobody_reads_books_what_was_generated() {
    let upstream = Upstream::start(|_| Reaction::Stream {
        events: 20_000,
        gap: Duration::ZERO,
    })
    .await;
    let running = Running::before(&upstream, "");
    let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let request = raw_request(CHAT, &chat(500, true));
    stream.write_all(request.as_bytes()).await.unwrap();
    until("the upstream generates", || upstream.generated() > 5000).await;
    drop(stream);
    let (_, output) = booked(&running).await;
    // A stream that got to its end has a report, which says 7.
    let generated = upstream.generated();
    assert!(
        output == generated || generated == 20_000 && output == 7,
        "{output}, {generated}"
    );
}

#[tokio::test]
async fn a_client_that_leaves_while_the_gateway_connects_books_nothing() {
    // The system completes no further connection while the backlog is full.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut full = Vec::new();
    let soon = Duration::from_millis(100);
    while let Ok(connected) = tokio::time::timeout(soon, TcpStream::connect(address)).await {
        full.push(connected.unwrap());
    }
    let toml = format!(
        "scheduler_max_tokens_per_sec = 600\n\
         [[gateway.upstream]]\nname = 'one'\nurl = 'http://{address}'\n"
    );
    let running = Running::start(&toml);
    // Each would need all tokens of a second. The charge is returned, so nobody waits.
    for _ in 0..3 {
        let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
        let request = raw_request(CHAT, &chat(500, false));
        stream.write_all(request.as_bytes()).await.unwrap();
        let has_it = || running.gateway.running_and_waiting() == (1, 0);
        until("the gateway connects", has_it).await;
        drop(stream);
        running.is_idle().await;
    }
    assert_eq!(usage(&running).await, (0, 0, 0));
}

#[tokio::test]
async fn a_client_that_leaves_in_the_middle_of_an_answer_books_what_was_expected() {
    let half = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{\"choices\":";
    let upstream = Upstream::start(|_| Reaction::Raw(half)).await;
    let running = Running::before(&upstream, "");
    leave_after(&running, CHAT, &chat(500, false), "choices").await;
    assert_eq!(booked(&running).await, (PROMPT, 500));
}

#[tokio::test]
async fn an_upstream_that_breaks_off_books_the_prompt() {
    let upstream = Upstream::start(|_| Reaction::Close).await;
    let running = Running::before(&upstream, "");
    let answer = running.client().post(CHAT, &[], &chat(500, false)).await;
    assert_eq!(answer.status, 502, "{}", answer.body);
    assert_eq!(booked(&running).await, (PROMPT, 0));
}

#[tokio::test]
async fn an_answer_without_a_usage_books_its_text() {
    let body = r#"{"choices":[{"message":{"content":"sixteen letters."}}]}"#;
    let text = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let text: &'static str = Box::leak(text.into_boxed_str());
    let upstream = Upstream::start(move |_| Reaction::Raw(text)).await;
    let running = Running::before(&upstream, "");
    let answer = running.client().post(CHAT, &[], &chat(500, false)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(booked(&running).await, (PROMPT, 4));
}

#[tokio::test]
async fn a_client_that_leaves_the_queue_books_nothing() {
    let upstream = Upstream::start(|_| Reaction::Hang).await;
    let running = Running::before(&upstream, "scheduler_max_concurrent = 1");
    let request = raw_request(CHAT, &chat(500, false));
    let mut streams = Vec::new();
    for waiting in 0..2 {
        let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let seen = || running.gateway.running_and_waiting() == (1, waiting);
        until("the gateway has it", seen).await;
        streams.push(stream);
    }
    streams.pop();
    let gone = || running.gateway.running_and_waiting() == (1, 0);
    until("it left the queue", gone).await;
    assert_eq!(usage(&running).await, (0, 0, 0));
}
