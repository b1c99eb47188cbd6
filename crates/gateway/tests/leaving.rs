//! Clients that leave at any moment. A process of its own, because it measures its CPU time.
#![cfg(target_os = "linux")]

#[path = "gateway/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with the other tests, which use all of it"
)]
mod support;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower::ServiceExt;

use support::{CHAT, Reaction, Running, Upstream, chat, raw_request};

/// Tokens of every complete response, streamed or not.
const OUTPUT: u64 = 7;

/// Requests, and output tokens that were booked.
async fn booked(running: &Running) -> (u64, u64) {
    let request = Request::get("/admin/usage").body(Body::empty()).unwrap();
    let answer = running.gateway.routes().oneshot(request).await.unwrap();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    let usage: Value = serde_json::from_slice(&body).unwrap();
    let rows = usage["usage"].as_array().unwrap();
    let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap()).sum();
    (sum("requests"), sum("output_tokens"))
}

/// A small generator with a seed (SplitMix64), so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most
    }
}

/// One client: it sends a request, possibly not all of it, and leaves after a while, possibly with
/// a reset.
async fn visit(address: std::net::SocketAddr, seed: u64) {
    let mut random = Random(seed);
    let stream = random.below(2) == 0;
    let mut request = raw_request(CHAT, &chat(OUTPUT, stream));
    if random.below(3) == 0 {
        // Its deadline comes at about the same time as its grant.
        let timeout = format!(
            "host: gateway\r\nx-request-timeout: {}ms",
            1 + random.below(20)
        );
        request = request.replace("host: gateway", &timeout);
    }
    let sent = match random.below(8) {
        0 => random.below(request.len() as u64) as usize,
        _ => request.len(),
    };
    let mut connection = TcpStream::connect(address).await.unwrap();
    connection
        .write_all(&request.as_bytes()[..sent])
        .await
        .unwrap();
    let mut seen = Vec::new();
    let patience = Duration::from_micros(random.below(30_000));
    let read = async { while !matches!(connection.read_buf(&mut seen).await, Ok(0) | Err(_)) {} };
    let _ = tokio::time::timeout(patience, read).await;
    if random.below(2) == 0 {
        connection.set_zero_linger().unwrap();
    }
}

/// CPU time of this process in clock ticks.
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_at_any_moment_leave_nothing_behind() {
    let visits = match std::env::var_os("HEADWORKS_FULL") {
        Some(_) => 10_000,
        None => 600,
    };
    static STREAMS: AtomicU64 = AtomicU64::new(0);
    static WHOLE: AtomicU64 = AtomicU64::new(0);
    let upstream = Upstream::start(|call| match call.body.contains(r#""stream":true"#) {
        true => {
            STREAMS.fetch_add(1, Ordering::SeqCst);
            Reaction::Stream {
                events: OUTPUT as usize,
                gap: Duration::from_millis(1),
            }
        }
        false => {
            WHOLE.fetch_add(1, Ordering::SeqCst);
            // Like a hosted model: what was asked for is generated and paid for.
            Reaction::Finish {
                after: Duration::from_millis(5),
                tokens: OUTPUT,
            }
        }
    })
    .await;
    let limits =
        "scheduler_max_concurrent = 8\nscheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0";
    let running = Running::before(&upstream, limits);
    let address = running.gateway.address();
    let mut clients = JoinSet::new();
    for seed in 0..visits {
        if clients.len() >= 40 {
            clients.join_next().await.unwrap().unwrap();
        }
        clients.spawn(visit(address, seed));
    }
    clients.join_all().await;
    running.is_idle().await;

    // The slots are free: as many requests as there are slots run at once and are served.
    let (streams, whole) = (STREAMS.load(Ordering::SeqCst), WHOLE.load(Ordering::SeqCst));
    let (requests, output) = booked(&running).await;
    assert!(streams > 0 && whole > 0);
    // A client that left while the gateway connected to the upstream is not charged.
    assert_eq!(requests, streams + whole);
    assert_eq!(output, upstream.generated());
    let mut after = JoinSet::new();
    for _ in 0..8 {
        let client = running.client();
        after.spawn(async move { client.post(CHAT, &[], &chat(OUTPUT, false)).await.status });
    }
    assert_eq!(after.join_all().await, [200; 8]);
    running.is_idle().await;

    // Nothing runs on: a busy loop would use a hundred ticks in this second.
    let before = cpu_ticks();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = cpu_ticks() - before;
    assert!(used <= 5, "{used} ticks of CPU time without a client");
}
