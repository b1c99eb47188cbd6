//! Clients that leave at any moment. A process of its own, because it measures its CPU time.
#![cfg(target_os = "linux")]

#[path = "gateway/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with the other tests, which use all of it"
)]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tower::ServiceExt;

use support::{Authority, CHAT, Reaction, ReceivedRequest, Running, Upstream, chat, raw_request};

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
/// a reset. A third of them speak HTTP/2. Returns the output tokens that it received.
async fn visit(address: std::net::SocketAddr, seed: u64) -> u64 {
    let mut random = Random(seed);
    let seen = match random.below(3) {
        0 => visit_over_http2(address, &mut random).await,
        _ => visit_over_http1(address, &mut random).await,
    };
    let seen = String::from_utf8_lossy(&seen);
    match seen.contains("\"completion_tokens\":") {
        true => OUTPUT,
        false => seen.matches("\"n\":").count() as u64,
    }
}

/// Leaves a stream, which is reset if it has not ended.
async fn visit_over_http2(address: std::net::SocketAddr, random: &mut Random) -> Vec<u8> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (io, executor) = (TokioIo::new(stream), TokioExecutor::new());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::post(format!("http://{address}{CHAT}"));
    if random.below(3) == 0 {
        let timeout = format!("{}ms", 1 + random.below(20));
        request = request.header("x-request-timeout", timeout);
    }
    let body = chat(OUTPUT, random.below(2) == 0);
    let request = request.body(Full::new(Bytes::from(body))).unwrap();
    let patience = Duration::from_micros(random.below(30_000));
    let mut seen = Vec::new();
    let read = async {
        let Ok(response) = sender.send_request(request).await else {
            return;
        };
        let mut body = response.into_body();
        while let Some(Ok(frame)) = body.frame().await {
            if let Some(data) = frame.data_ref() {
                seen.extend_from_slice(data);
            }
        }
    };
    let _ = tokio::time::timeout(patience, read).await;
    drop(sender);
    // It ends when the last stream has ended or was reset.
    let _ = connection.await;
    seen
}

async fn visit_over_http1(address: std::net::SocketAddr, random: &mut Random) -> Vec<u8> {
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
    seen
}

/// Counts the panics of all threads, and prints them as before.
fn count_panics() -> Arc<AtomicU64> {
    let count = Arc::new(AtomicU64::new(0));
    let (counted, print) = (count.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        counted.fetch_add(1, Ordering::SeqCst);
        print(panic);
    }));
    count
}

/// Totals of all visits.
struct Outcome {
    /// Streams and other requests that the upstream received.
    streams: u64,
    whole: u64,
    /// Requests and output tokens that were booked.
    booked: (u64, u64),
    /// Output tokens that clients received.
    received: u64,
    /// Output tokens that the upstream generated.
    generated: u64,
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

/// A reaction to each request, which are counted.
fn react(
    counts: Arc<[AtomicU64; 2]>,
) -> impl Fn(&ReceivedRequest) -> Reaction + Send + Sync + 'static {
    move |call| {
        let is_stream = call.body.contains(r#""stream":true"#);
        counts[usize::from(is_stream)].fetch_add(1, Ordering::SeqCst);
        match is_stream {
            true => Reaction::Stream {
                events: OUTPUT as usize,
                gap: Duration::from_millis(1),
            },
            // Like a hosted model: what was asked for is generated and paid for.
            false => Reaction::Finish {
                after: Duration::from_millis(5),
                tokens: OUTPUT,
            },
        }
    }
}

const LIMITS: &str =
    "scheduler_max_concurrent = 8\nscheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n";

/// Lets clients come and leave, and checks that all slots are free afterwards.
async fn visits(running: &Running, upstream: &Upstream, counts: &[AtomicU64; 2]) -> Outcome {
    let visits = match std::env::var_os("HEADWORKS_FULL") {
        Some(_) => 10_000,
        None => 600,
    };
    let address = running.gateway.address();
    let mut received = 0;
    let mut clients = JoinSet::new();
    for seed in 0..visits {
        if clients.len() >= 40 {
            received += clients.join_next().await.unwrap().unwrap();
        }
        clients.spawn(visit(address, seed));
    }
    received += clients.join_all().await.iter().sum::<u64>();
    running.is_idle().await;
    let [whole, streams] = [&counts[0], &counts[1]].map(|count| count.load(Ordering::SeqCst));
    assert!(streams > 0 && whole > 0);
    let outcome = Outcome {
        streams,
        whole,
        booked: booked(running).await,
        received,
        generated: upstream.generated(),
    };
    // The slots are free: as many requests as there are slots run at once and are served.
    let mut after = JoinSet::new();
    for _ in 0..8 {
        let client = running.client();
        after.spawn(async move { client.post(CHAT, &[], &chat(OUTPUT, false)).await.status });
    }
    assert_eq!(after.join_all().await, [200; 8]);
    running.is_idle().await;
    outcome
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_leave_at_any_moment_leave_nothing_behind() {
    let panics = count_panics();
    for progress in ["", "queue_progress = true\n"] {
        let counts: Arc<[AtomicU64; 2]> = Arc::default();
        let upstream = Upstream::start(react(counts.clone())).await;
        let running = Running::before(&upstream, &format!("{LIMITS}{progress}"));
        let outcome = visits(&running, &upstream, &counts).await;
        let (requests, output) = outcome.booked;
        // A client that left while the gateway connected to the upstream is not charged.
        assert_eq!(requests, outcome.streams + outcome.whole, "{progress}");
        // A stream that ended before its first token is charged for its time.
        let (generated, silent) = (outcome.generated, upstream.silent());
        assert!(
            output >= generated,
            "{output} booked, {generated} generated, {progress}"
        );
        assert!(
            output <= generated + silent * OUTPUT,
            "{output} booked, {generated} generated, {silent} streams without a token, {progress}"
        );
    }

    // An upstream with TLS cannot be told to stop and still say what it generated.
    let authority = Authority::new();
    let (counts, tls): (Arc<[AtomicU64; 2]>, _) = (Arc::default(), authority.acceptor());
    let upstream = Upstream::start_with(Some(tls), react(counts.clone())).await;
    let toml = format!("{LIMITS}{}", upstream.toml("one", ""));
    let over_tls = Running::trusting(&authority, &toml);
    let outcome = visits(&over_tls, &upstream, &counts).await;
    let ((requests, output), received) = (outcome.booked, outcome.received);
    assert!(received > 0);
    assert!(output >= received, "{output} booked, {received} received");
    // A request is charged for what it may have generated, and never for more than it asked for.
    assert!(
        output <= requests * OUTPUT,
        "{output} booked for {requests} requests"
    );
    drop(over_tls);
    assert_eq!(panics.load(Ordering::SeqCst), 0);

    // Nothing runs on: a busy loop would use a hundred ticks in this second.
    let before = cpu_ticks();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let used = cpu_ticks() - before;
    assert!(used <= 5, "{used} ticks of CPU time without a client");
}
