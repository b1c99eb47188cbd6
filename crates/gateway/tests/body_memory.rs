//! Memory of request bodies that one tenant sends. A process of its own, because it measures its
//! peak.
#![cfg(target_os = "linux")]

#[path = "gateway/support/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    reason = "shared with the other tests, which use all of it"
)]
mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use support::{CHAT, Reaction, Running, Upstream, chat, until};

const BODIES: usize = 64;
const SIZE: usize = 31 << 20;
const MEMORY: usize = 256 << 20;

/// Largest resident size of this process so far, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.unwrap().parse::<usize>().unwrap() << 10
}

/// Sends the body over HTTP/1. Returns if the gateway responds.
async fn upload(running: Arc<Running>, body: Bytes) -> u16 {
    let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: gateway\r\nx-api-key: sk-hog\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let (mut reader, mut writer) = stream.split();
    let mut answer = [0; 12];
    let read = async {
        let read = reader.read_exact(&mut answer).await;
        read.map(|_| ())
    };
    let write = async {
        let _ = writer.write_all(&body).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = read => {}
        () = write => {}
    }
    std::str::from_utf8(&answer[9..])
        .unwrap()
        .parse()
        .unwrap_or(0)
}

/// The same over HTTP/2.
async fn upload_stream(running: Arc<Running>, body: Bytes) -> u16 {
    let stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let (io, executor) = (TokioIo::new(stream), TokioExecutor::new());
    let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::post(format!("http://gateway{CHAT}")).header("x-api-key", "sk-hog");
    let request = request.body(Full::new(body)).unwrap();
    let answer = sender.send_request(request).await;
    connection.abort();
    answer.map_or(0, |answer| answer.status().as_u16())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bodies_of_one_tenant_take_a_part_of_the_memory() {
    let upstream = Upstream::start(|call| match call.header("x-hang") {
        Some(_) => Reaction::Hang,
        None => Reaction::Answer {
            after: std::time::Duration::ZERO,
            tokens: 5,
        },
    })
    .await;
    let toml = format!(
        "max_body_memory = '{MEMORY}B'\nscheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n\
         scheduler_queue_timeout = '1h'\n\
         [[gateway.key]]\nprefix = 'sk-hog'\ntenant = 'hog'\n\
         [[gateway.key]]\nprefix = 'sk-other'\ntenant = 'other'\n\
         [[gateway.tenant]]\nname = 'hog'\nmax_concurrent = 1\n"
    );
    let running = Arc::new(Running::before(&upstream, &toml));
    let client = running.client();
    let hung = [("x-api-key", "sk-hog"), ("x-hang", "yes")];
    let first = tokio::spawn({
        let client = client.clone();
        async move { client.try_post(CHAT, &hung, &chat(10, false)).await }
    });
    until("the first one hangs", || upstream.now() == 1).await;
    let text = "word ".repeat(SIZE / 5);
    let body = Bytes::from(format!(
        r#"{{"model":"m","messages":[{{"content":"{text}"}}]}}"#
    ));
    drop(text);
    let before = peak();
    for over_http2 in [false, true] {
        let (mut hog, refused) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..BODIES {
            let (running, body, refused) = (running.clone(), body.clone(), refused.clone());
            hog.spawn(async move {
                let status = match over_http2 {
                    false => upload(running, body).await,
                    true => upload_stream(running, body).await,
                };
                // A client that still sends may lose the response to the reset.
                assert!(matches!(status, 0 | 429), "{status}");
                refused.fetch_add(1, Ordering::SeqCst);
            });
        }
        let are_decided = || {
            let waiting = running.gateway.running_and_waiting().1 as usize;
            refused.load(Ordering::SeqCst) + waiting == BODIES
        };
        until("each is queued or refused", are_decided).await;
        let queued = BODIES - refused.load(Ordering::SeqCst);
        assert!((2..=4).contains(&queued), "{queued} of {MEMORY} bytes");
        let other = [("x-api-key", "sk-other")];
        let answer = client.post(CHAT, &other, &chat(10, false)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let taken = peak() - before;
        // A body that grows may be copied, and the allocator keeps some of what was freed. All
        // bodies would take four times as much.
        assert!(
            taken <= 2 * MEMORY,
            "{taken} bytes, over HTTP/2: {over_http2}"
        );
        hog.shutdown().await;
        until("they are gone", || {
            running.gateway.running_and_waiting() == (1, 0)
        })
        .await;
    }
    first.abort();
    running.is_idle().await;
}
