//! HTTP/1 on the byte level: what well-behaved clients may do, and what no client may.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{CHAT, PATIENCE, Reaction, Running, Upstream, chat, raw_request, until};

async fn started() -> (Running, Upstream) {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    (Running::before(&upstream, ""), upstream)
}

async fn connect(running: &Running) -> TcpStream {
    let stream = TcpStream::connect(running.gateway.address()).await;
    let stream = stream.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Reads until `enough` is satisfied or the stream ends.
async fn read(stream: &mut TcpStream, enough: impl Fn(&str) -> bool) -> String {
    let mut seen = Vec::new();
    let reading = async {
        while !enough(&String::from_utf8_lossy(&seen)) {
            if stream.read_buf(&mut seen).await.unwrap() == 0 {
                break;
            }
        }
    };
    let read = tokio::time::timeout(PATIENCE, reading).await;
    let seen = String::from_utf8_lossy(&seen).into_owned();
    read.unwrap_or_else(|_| panic!("no more came after: {seen}"));
    seen
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    read(stream, |_| false).await
}

/// The response to `request`, up to the end of the connection.
async fn ask(running: &Running, request: &str) -> String {
    let mut stream = connect(running).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    read_to_end(&mut stream).await
}

fn statuses(answers: &str) -> Vec<&str> {
    let starts = answers.match_indices("HTTP/1.1 ");
    starts.map(|(at, _)| &answers[at + 9..at + 12]).collect()
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let upstream = Upstream::start(|call| Reaction::Answer {
        // The first one takes longer and is still answered first.
        after: Duration::from_millis(if call.body.contains("\"max_tokens\":1,") {
            50
        } else {
            0
        }),
        tokens: call.json()["max_tokens"].as_u64().unwrap(),
    })
    .await;
    let running = Running::before(&upstream, "");
    let mut stream = connect(&running).await;
    let ahead: String = (1..=3)
        .map(|n| raw_request(CHAT, &chat(n, false)))
        .collect();
    stream.write_all(ahead.as_bytes()).await.unwrap();
    let answers = read(&mut stream, |seen| seen.matches("}}").count() == 3).await;
    let tokens: Vec<&str> = answers
        .match_indices("completion_tokens\":")
        .map(|(at, name)| &answers[at + name.len()..at + name.len() + 1])
        .collect();
    assert_eq!(tokens, ["1", "2", "3"]);
    let again = raw_request(CHAT, &chat(4, false)).replace("host:", "connection: close\r\nhost:");
    stream.write_all(again.as_bytes()).await.unwrap();
    let last = read_to_end(&mut stream).await;
    assert!(
        last.contains("connection: close") && last.contains("completion_tokens\":4"),
        "{last}"
    );
}

#[tokio::test]
async fn a_request_may_arrive_in_any_pieces() {
    let (running, upstream) = started().await;
    let mut stream = connect(&running).await;
    let body = chat(5, false);
    let (left, right) = body.split_at(20);
    let chunked = format!(
        "\r\nPOST {CHAT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{:x};a=b\r\n{left}\r\n{:X}\r\n{right}\r\n0\r\nX-End: 1\r\n\r\n",
        left.len(),
        right.len()
    );
    for request in [raw_request(CHAT, &body), chunked] {
        for byte in request.as_bytes() {
            stream.write_all(&[*byte]).await.unwrap();
        }
        let answer = read(&mut stream, |seen| seen.contains("}}")).await;
        assert_eq!(statuses(&answer), ["200"], "{answer}");
    }
    let bodies: Vec<String> = upstream.calls().into_iter().map(|call| call.body).collect();
    assert_eq!(bodies, [body.clone(), body]);
}

#[tokio::test]
async fn a_large_body_arrives_whole() {
    let (running, upstream) = started().await;
    let body = chat(5, false).replace("hello", &"x".repeat(3_000_000));
    let request = raw_request(CHAT, &body) + &raw_request(CHAT, &chat(5, false));
    let mut stream = connect(&running).await;
    let (mut reader, mut writer) = stream.split();
    let send = async { writer.write_all(request.as_bytes()).await.unwrap() };
    let receive = async {
        let mut seen = Vec::new();
        while String::from_utf8_lossy(&seen).matches("}}").count() < 2 {
            assert_ne!(reader.read_buf(&mut seen).await.unwrap(), 0);
        }
    };
    tokio::join!(send, receive);
    assert!(
        upstream.calls()[0].body == body,
        "what is sent is what comes"
    );
    assert_eq!(upstream.count(), 2);
}

#[tokio::test]
async fn expect_continue_is_honoured() {
    let (running, _upstream) = started().await;
    let mut stream = connect(&running).await;
    let request = raw_request(CHAT, &chat(5, false));
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let head = format!("{head}\r\nexpect: 100-continue\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let leave = read(&mut stream, |seen| seen.ends_with("\r\n\r\n")).await;
    assert_eq!(leave, "HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).await.unwrap();
    let answer = read(&mut stream, |seen| seen.contains("}}")).await;
    assert_eq!(statuses(&answer), ["200"]);
}

/// A response that breaks before its first byte was relayed becomes an error response. A closed
/// connection would look like one that was idle for too long, and the client would retry.
#[tokio::test]
async fn a_response_that_breaks_before_its_first_byte_becomes_an_error() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nx-theirs: 1\r\n\r\n";
    for (version, size) in [
        ("HTTP/1.1", "zz"),
        ("HTTP/1.0", "-1"),
        ("HTTP/1.1", "fffffffffffffffff"),
    ] {
        let answer: &str = format!("{head}{size}\r\n{{}}\r\n").leak();
        let upstream = Upstream::start(move |_| Reaction::Last(answer)).await;
        let running = Running::before(&upstream, "");
        let request = raw_request(CHAT, &chat(10, false)).replace("HTTP/1.1", version);
        // The connection stays open where it would have anyway.
        let next = "GET /v1/models HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        let told = ask(&running, &(request + next)).await;
        let both: &[&str] = if version == "HTTP/1.1" {
            &["502", "200"]
        } else {
            &["502"]
        };
        assert_eq!(statuses(&told), both, "{told}");
        assert!(
            told.contains("x-headworks-reason: upstream_broke_off\r\n"),
            "{told}"
        );
        assert!(told.contains("x-headworks-upstream: "), "{told}");
        assert!(!told.contains("x-theirs"), "{told}");
        running.is_idle().await;
    }
}

#[tokio::test]
async fn http_1_0_clients_get_no_chunks() {
    let upstream = Upstream::start(|_| Reaction::Stream {
        events: 3,
        gap: Duration::from_millis(1),
    })
    .await;
    let running = Running::before(&upstream, "");
    let request = raw_request(CHAT, &chat(5, true)).replace("HTTP/1.1", "HTTP/1.0");
    let answer = ask(&running, &request).await;
    assert!(answer.ends_with("data: [DONE]\n\n"), "{answer}");
    assert!(!answer.contains("transfer-encoding"), "{answer}");
    let modern = raw_request(CHAT, &chat(5, true));
    let mut stream = connect(&running).await;
    stream.write_all(modern.as_bytes()).await.unwrap();
    let answer = read(&mut stream, |seen| seen.ends_with("\r\n0\r\n\r\n")).await;
    assert!(answer.contains("transfer-encoding: chunked"), "{answer}");
}

#[tokio::test]
async fn ambiguous_requests_reach_no_upstream() {
    let (running, upstream) = started().await;
    let smuggled = raw_request(CHAT, &chat(5, false));
    for (status, lines) in [
        ("400", "content-length: 4\r\ntransfer-encoding: chunked\r\n"),
        ("400", "content-length: 4\r\ncontent-length: 5\r\n"),
        ("501", "transfer-encoding: gzip, chunked\r\n"),
        ("400", "x: 1\r\n folded: 2\r\ncontent-length: 0\r\n"),
        ("400", "x: 1\ncontent-length: 0\r\n"),
        ("400", "content-length : 4\r\n"),
        ("400", "host: other\r\n"),
    ] {
        let request = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\n{lines}\r\n0\r\n\r\n{smuggled}");
        let answer = ask(&running, &request).await;
        assert_eq!(statuses(&answer), [status], "{lines}: {answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
    let chunk = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n\r\n{smuggled}"
    );
    assert_eq!(statuses(&ask(&running, &chunk).await), ["400"]);
    let long = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nx: {}",
        "x".repeat(100_000)
    );
    assert_eq!(statuses(&ask(&running, &long).await), ["431"]);
    let bare = "GET /healthz HTTP/1.1\nhost: x\n\n";
    assert_eq!(statuses(&ask(&running, bare).await), ["400"]);
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn an_oversized_upload_gets_an_error_response() {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let running = Running::before(&upstream, "max_body = '1KiB'");
    let large = raw_request(CHAT, &"x".repeat(500_000));
    let answer = ask(&running, &large).await;
    assert_eq!(statuses(&answer), ["413"], "{answer}");
    let endless = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n{}",
        "200\r\n".to_owned() + &"x".repeat(0x200) + "\r\n300\r\n" + &"x".repeat(0x300)
    );
    let answer = ask(&running, &endless).await;
    assert_eq!(statuses(&answer), ["413"], "{answer}");
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn an_error_keeps_the_connection_and_a_head_request_has_no_body() {
    let (running, _upstream) = started().await;
    let mut stream = connect(&running).await;
    let refused = raw_request("/v1/nothing", "{}");
    stream.write_all(refused.as_bytes()).await.unwrap();
    let answer = read(&mut stream, |seen| seen.contains("unknown_url\"")).await;
    assert_eq!(statuses(&answer), ["404"]);
    let head = "HEAD /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    let get = "GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    stream
        .write_all(format!("{head}{get}").as_bytes())
        .await
        .unwrap();
    let answers = read_to_end(&mut stream).await;
    assert_eq!(statuses(&answers), ["200", "200"], "{answers}");
    assert_eq!(answers.matches("content-length: 3").count(), 2);
    assert_eq!(answers.matches("ok\n").count(), 1, "{answers}");
}

#[tokio::test]
async fn shutdown_waits_for_responses_and_not_for_idle_connections() {
    let upstream = Upstream::answering(Duration::from_millis(200), 7).await;
    let running = Running::before(&upstream, "");
    // A client that sent a part of the HTTP/2 preface is idle as well. It connects first, because
    // the shutdown drops connections that are not accepted yet.
    let mut silent = connect(&running).await;
    let beginning = b"PRI * HTTP/2.0\r\n\r\n";
    silent.write_all(beginning).await.unwrap();
    let (mut idle, mut busy) = (connect(&running).await, connect(&running).await);
    let healthy = "GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n";
    idle.write_all(healthy.as_bytes()).await.unwrap();
    read(&mut idle, |seen| seen.ends_with("ok\n")).await;
    let request = raw_request(CHAT, &chat(5, false));
    busy.write_all(request.as_bytes()).await.unwrap();
    until("the upstream has it", || upstream.now() == 1).await;
    let drained = running.shutdown.drain(PATIENCE);
    let (drained, answer, rest, nothing) = tokio::join!(
        drained,
        read_to_end(&mut busy),
        read_to_end(&mut idle),
        read_to_end(&mut silent)
    );
    assert_eq!(nothing, "");
    assert!(drained.unfinished.is_empty(), "{:?}", drained.unfinished);
    assert_eq!((statuses(&answer), rest.as_str()), (vec!["200"], ""));
    assert!(answer.contains("connection: close"), "{answer}");
}
