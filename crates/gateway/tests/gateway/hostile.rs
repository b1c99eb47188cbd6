//! A hostile tenant beside a well-behaved one, whose requests are counted.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{CHAT, Client, Reaction, Running, Upstream, chat, raw_request};

const VICTIM: [(&str, &str); 1] = [("x-api-key", "sk-victim")];
const HOSTILE: [(&str, &str); 1] = [("x-api-key", "sk-hostile")];

/// Does what the prompt asks for.
async fn obedient() -> Upstream {
    Upstream::start(|call| match call.header("x-do") {
        Some("429") => Reaction::Status(429, "\r\nretry-after: 60"),
        Some("403") => Reaction::Status(403, ""),
        Some("500") => Reaction::Status(500, ""),
        Some("503") => Reaction::Status(503, "\r\nretry-after: 60"),
        Some("close") => Reaction::Close,
        Some("garbage") => Reaction::Garbage,
        Some("break") => Reaction::BreakOff { in_event: true },
        Some("stream") => Reaction::Stream {
            events: 1000,
            gap: std::time::Duration::from_millis(1),
        },
        _ => Reaction::Answer {
            after: std::time::Duration::ZERO,
            tokens: 5,
        },
    })
    .await
}

/// Sends bytes and leaves without waiting for the response.
async fn send_and_leave(running: &Running, bytes: &[u8], wait_for_response: bool) {
    let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let _ = stream.write_all(bytes).await;
    if wait_for_response {
        let _ = stream.read(&mut [0; 64]).await;
    }
}

async fn attack(running: &Running, client: &Client, turn: usize) {
    let distinct = chat(10, true).replace("hello", &format!("prompt {turn}"));
    for action in ["429", "403", "500", "503", "close", "garbage", "break"] {
        let body = distinct.replace("prompt", action);
        let headers = [HOSTILE[0], ("x-do", action)];
        let _ = client.try_post(CHAT, &headers, &body).await;
    }
    let keyed =
        |bytes: String| bytes.replace("host: gateway", "host: gateway\r\nx-api-key: sk-hostile");
    // Leaves a stream early.
    let streamed = keyed(raw_request(CHAT, &distinct)).replace("host:", "x-do: stream\r\nhost:");
    send_and_leave(running, streamed.as_bytes(), true).await;
    // Leaves before the response, and in the middle of the request.
    let plain = keyed(raw_request(CHAT, &chat(10, false)));
    send_and_leave(running, plain.as_bytes(), false).await;
    send_and_leave(running, &plain.as_bytes()[..plain.len() - 7], false).await;
    // Announces other lengths than it sends.
    let longer = plain.replace("content-length: ", "content-length: 9");
    send_and_leave(running, longer.as_bytes(), false).await;
    let twice = plain.replace("host:", "content-length: 3\r\nhost:");
    send_and_leave(running, twice.as_bytes(), true).await;
    for body in [
        r#"{"model":"m","model":"n"}"#.to_owned(),
        r#"{"model":"m","MAX_TOKENS":5}"#.to_owned(),
        format!(
            r#"{{"model":"m","stream":[{}[]]}}"#,
            "[],".repeat(1_000_000)
        ),
    ] {
        client.post(CHAT, &HOSTILE, &body).await;
    }
}

/// Connections that the hostile tenant opens in all.
const CONNECTIONS: usize = 10_000;
const TURNS: usize = 15;

/// Opens connections that send nothing, or a part of a request, from several addresses.
async fn open_connections(running: &Running, count: usize) -> Vec<TcpStream> {
    let mut open = Vec::with_capacity(count);
    for number in 0..count {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let from = std::net::Ipv4Addr::new(127, 0, 1, (number % 8) as u8 + 1);
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(running.gateway.address()).await.unwrap();
        if number % 2 == 0 {
            let _ = stream
                .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nho")
                .await;
        }
        open.push(stream);
    }
    open
}

/// Neither wait nor failure: every request of the neighbour is served at once. The bench measures
/// throughput and tails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_tenant_costs_its_neighbour_nothing() {
    let upstream = obedient().await;
    let running = Running::start(&format!(
        "scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n\
         [[gateway.key]]\nprefix = 'sk-victim'\ntenant = 'victim'\n\
         [[gateway.key]]\nprefix = 'sk-hostile'\ntenant = 'hostile'\n{}",
        upstream.toml("one", "fault_threshold = 2\nsuspend_for = '60s'")
    ));
    let (victim, hostile) = (running.client(), running.client());
    let good = chat(10, false);
    let ask = || victim.post(CHAT, &VICTIM, &good);
    assert_eq!(ask().await.status, 200);
    for turn in 0..TURNS {
        // In turns, because this process holds both ends of each.
        let _open = open_connections(&running, CONNECTIONS.div_ceil(TURNS)).await;
        attack(&running, &hostile, turn).await;
        for _ in 0..3 {
            let answer = ask().await;
            let reason = answer.header("x-headworks-reason").to_owned();
            assert_eq!(
                (answer.status, &*reason),
                (200, "granted"),
                "{turn}: {}",
                answer.body
            );
        }
    }
    running.is_idle().await;
}
