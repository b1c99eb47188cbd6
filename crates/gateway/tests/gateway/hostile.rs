//! A hostile tenant beside a well-behaved one, whose requests are counted.

use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{CHAT, Client, Reaction, Running, Upstream, chat, config, raw_request};

const VICTIM: [(&str, &str); 1] = [("x-api-key", "sk-victim")];
const HOSTILE: [(&str, &str); 1] = [("x-api-key", "sk-hostile")];

#[tokio::test]
async fn a_query_that_fits_into_no_url_is_the_clients_fault() {
    let upstream = obedient().await;
    let path = "p".repeat(100);
    let toml = format!(
        "[[gateway.upstream]]\nname = 'one'\nurl = 'http://{}/{path}'\nsuspend_for = '1h'\n",
        upstream.address
    );
    let running = Running::start(&toml);
    let client = running.client();
    for number in 0..10 {
        // About as long as a request line may be.
        let query = number.to_string().repeat(65_000);
        let answer = client
            .post(&format!("{CHAT}?{query}"), &[], &chat(5, false))
            .await;
        assert_eq!(answer.status, 414);
        assert_eq!(answer.header("x-headworks-reason"), "query_too_long");
    }
    assert_eq!(client.post(CHAT, &[], &chat(5, false)).await.status, 200);
}

#[tokio::test]
async fn clients_that_ask_for_the_models_at_once_cause_one_call() {
    let list =
        "HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\n{\"data\":[{\"id\":\"org/model\"}]}    ";
    let upstream = Upstream::start(move |_| Reaction::Raw(list)).await;
    let running = Running::before(&upstream, "");
    let asked = (0..50).map(|_| {
        let client = running.client();
        async move { client.get("/v1/models", &[]).await.json()["data"][0]["id"].clone() }
    });
    for model in futures_util::future::join_all(asked).await {
        assert_eq!(model, "org/model");
    }
    assert_eq!(upstream.count(), 1);
    let one = running.client().get("/v1/models/org%2Fmodel", &[]).await;
    assert_eq!(one.json()["id"], "org/model", "as SDKs write the name");
}

#[tokio::test]
async fn a_reload_that_moves_an_upstream_asks_for_its_models_again() {
    let list =
        "HTTP/1.1 200 OK\r\ncontent-length: 32\r\n\r\n{\"data\":[{\"id\":\"org/model\"}]}    ";
    let [old, new] = [
        Upstream::start(move |_| Reaction::Raw(list)).await,
        Upstream::start(move |_| Reaction::Raw(list)).await,
    ];
    let running = Running::before(&old, "");
    let models = async || running.client().get("/v1/models", &[]).await.status;
    let expect = [(old.toml("one", ""), 1, 0), (new.toml("one", ""), 1, 1)];
    let other_key = (new.toml("one", "api_key = 'other'"), 1, 2);
    for (toml, at_old, at_new) in expect.into_iter().chain([other_key]) {
        running.gateway.apply(config(&toml)).unwrap();
        for _ in 0..2 {
            assert_eq!(models().await, 200);
            assert_eq!((old.count(), new.count()), (at_old, at_new), "{toml}");
        }
    }
}

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

/// A body of 31 MB that is refused at its end, after all of it was read.
fn giant() -> String {
    let text = "word ".repeat((31 << 20) / 5);
    format!(r#"{{"model":"m","messages":[{{"content":"{text}"}}],"MAX_TOKENS":5}}"#)
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
    let answer = client.post(CHAT, &HOSTILE, &giant()).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
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

/// Requests that the neighbour sends at least, one after the other.
const REQUESTS: usize = 200;

/// Neither wait nor failure: beside the attack, every request of the neighbour is served at once.
/// The bench measures throughput and tails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hostile_tenant_costs_its_neighbour_nothing() {
    let upstream = obedient().await;
    let running = Running::start(&format!(
        "scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n\
         [[gateway.key]]\nprefix = 'sk-victim'\ntenant = 'victim'\n\
         [[gateway.key]]\nprefix = 'sk-hostile'\ntenant = 'hostile'\n{}",
        upstream.toml("one", "fault_threshold = 2\nsuspend_for = '60s'")
    ));
    let running = Arc::new(running);
    let (victim, hostile) = (running.client(), running.client());
    let good = chat(10, false);
    let ask = async || {
        let answer = victim.post(CHAT, &VICTIM, &good).await;
        let reason = answer.header("x-headworks-reason");
        assert_eq!((answer.status, reason), (200, "granted"), "{}", answer.body);
    };
    ask().await;
    let attacked = running.clone();
    let attack = tokio::spawn(async move {
        for turn in 0..TURNS {
            // In turns, because this process holds both ends of each.
            let _open = open_connections(&attacked, CONNECTIONS.div_ceil(TURNS)).await;
            attack(&attacked, &hostile, turn).await;
        }
    });
    let mut beside = 0;
    while !attack.is_finished() {
        ask().await;
        beside += 1;
    }
    attack.await.unwrap();
    assert!(beside >= REQUESTS, "{beside} requests beside the attack");
    running.is_idle().await;
}
