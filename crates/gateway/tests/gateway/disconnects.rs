//! Clients that disconnect: queued, uploading, waiting for a response, streaming; by FIN, RST and
//! HTTP/2 reset.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{CHAT, Reaction, Running, Upstream, chat, raw_request, until};

/// Shorter than every timeout that would free the slot as well: the least is that of the queue,
/// 30 s. Far longer than a busy machine takes.
const BEFORE_ANY_TIMEOUT: Duration = Duration::from_secs(20);

async fn streaming() -> Upstream {
    let gap = Duration::from_millis(20);
    Upstream::start(move |_| Reaction::Stream {
        events: 100_000,
        gap,
    })
    .await
}

async fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Makes the system send RST instead of FIN.
fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}

async fn is_streaming(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    while !String::from_utf8_lossy(&seen).contains("\"n\":2") {
        assert_ne!(
            stream.read_buf(&mut seen).await.unwrap(),
            0,
            "the stream ended"
        );
    }
}

async fn is_over(running: &Running, upstream: &Upstream, left: usize) {
    let took = until("the slot is free and the upstream stopped", || {
        running.gateway.running_and_waiting() == (0, 0)
            && upstream.left() == left
            && upstream.now() == 0
    })
    .await;
    assert!(took < BEFORE_ANY_TIMEOUT, "took {took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_streaming_by_fin_and_by_rst() {
    let upstream = streaming().await;
    let running = Running::before(&upstream, "");
    for (left, by_reset) in [(1, false), (2, true)] {
        let mut stream = connect(running.gateway.address()).await;
        stream
            .write_all(raw_request(CHAT, &chat(10, true)).as_bytes())
            .await
            .unwrap();
        is_streaming(&mut stream).await;
        assert_eq!(running.gateway.running_and_waiting(), (1, 0));
        match by_reset {
            true => reset(stream),
            false => drop(stream),
        }
        is_over(&running, &upstream, left).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_the_response() {
    let upstream = Upstream::start(|_| Reaction::Hang).await;
    let running = Running::before(&upstream, "");
    for (left, by_reset) in [(1, false), (2, true)] {
        let mut stream = connect(running.gateway.address()).await;
        stream
            .write_all(raw_request(CHAT, &chat(10, false)).as_bytes())
            .await
            .unwrap();
        until("the upstream has it", || upstream.now() == 1).await;
        match by_reset {
            true => reset(stream),
            false => drop(stream),
        }
        is_over(&running, &upstream, left).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_queued() {
    let upstream = Upstream::start(|_| Reaction::Hang).await;
    let running = Running::before(&upstream, "scheduler_max_concurrent = 1");
    let mut first = connect(running.gateway.address()).await;
    first
        .write_all(raw_request(CHAT, &chat(10, false)).as_bytes())
        .await
        .unwrap();
    until("the upstream has it", || upstream.now() == 1).await;
    for by_reset in [false, true] {
        let mut second = connect(running.gateway.address()).await;
        second
            .write_all(raw_request(CHAT, &chat(10, false)).as_bytes())
            .await
            .unwrap();
        until("it waits", || {
            running.gateway.running_and_waiting() == (1, 1)
        })
        .await;
        match by_reset {
            true => reset(second),
            false => drop(second),
        }
        let took = until("its place is free", || {
            running.gateway.running_and_waiting() == (1, 0)
        })
        .await;
        assert!(took < BEFORE_ANY_TIMEOUT, "took {took:?}");
    }
    drop(first);
    is_over(&running, &upstream, 1).await;
    assert_eq!(
        upstream.count(),
        1,
        "who left the queue never reached the upstream"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_middle_of_an_upload() {
    let upstream = Upstream::answering(Duration::ZERO, 1).await;
    let running = Running::before(&upstream, "");
    let whole = raw_request(CHAT, &chat(10, false));
    for by_reset in [false, true] {
        let mut stream = connect(running.gateway.address()).await;
        stream
            .write_all(&whole.as_bytes()[..whole.len() - 10])
            .await
            .unwrap();
        match by_reset {
            true => reset(stream),
            false => drop(stream),
        }
    }
    // A later client is served, so the gateway has seen both earlier ones.
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(10, false))
            .await
            .status,
        200
    );
    assert_eq!(upstream.count(), 1, "half a request is not forwarded");
    running.is_idle().await;
}

/// A client may have sent more than the gateway reads ahead, and its FIN comes after that. The
/// disconnect is noticed nevertheless, unless the socket's buffer is full as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_pipelining_far_ahead() {
    let upstream = Upstream::start(|_| Reaction::Hang).await;
    let running = Running::before(&upstream, "scheduler_max_concurrent = 1");
    let request = raw_request(CHAT, &chat(10, false));
    let ahead = request.repeat((100 << 10) / request.len());
    for by_reset in [false, true] {
        let before = upstream.left();
        let mut stream = connect(running.gateway.address()).await;
        stream.write_all(ahead.as_bytes()).await.unwrap();
        until("the upstream has the first", || upstream.now() == 1).await;
        match by_reset {
            true => reset(stream),
            false => stream.shutdown().await.unwrap(),
        }
        is_over(&running, &upstream, before + 1).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_stream_of_an_http2_connection() {
    let upstream = streaming().await;
    let running = Running::before(&upstream, "");
    let stream = connect(running.gateway.address()).await;
    let io = TokioIo::new(stream);
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = || {
        let uri = format!("http://{}{CHAT}", running.gateway.address());
        Request::post(uri)
            .body(Full::new(Bytes::from(chat(10, true))))
            .unwrap()
    };
    let mut kept = sender.send_request(request()).await.unwrap();
    let mut reset = sender.send_request(request()).await.unwrap();
    for response in [&mut kept, &mut reset] {
        response.frame().await.unwrap().unwrap();
    }
    assert_eq!(running.gateway.running_and_waiting(), (2, 0));
    drop(reset);
    let took = until("one slot is free", || {
        running.gateway.running_and_waiting() == (1, 0) && upstream.left() == 1
    })
    .await;
    assert!(took < BEFORE_ANY_TIMEOUT, "took {took:?}");
    kept.frame().await.unwrap().unwrap();
    drop((kept, sender));
    connection.abort();
    is_over(&running, &upstream, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_queued_stream_that_nobody_reads_loses_its_slot() {
    let upstream = Upstream::start(|_| Reaction::Flood).await;
    let toml = "queue_progress = true\nclient_timeout = '1s'\nscheduler_max_concurrent = 1";
    let running = Running::before(&upstream, toml);
    let mut first = connect(running.gateway.address()).await;
    let request = raw_request(CHAT, &chat(10, true));
    first.write_all(request.as_bytes()).await.unwrap();
    until("the first one runs", || upstream.now() == 1).await;
    let io = TokioIo::new(connect(running.gateway.address()).await);
    // No event fits into the window of a stream, so its body is never asked for more.
    let (mut sender, connection) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1)
        .handshake(io)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let uri = format!("http://{}{CHAT}", running.gateway.address());
    let request = Request::post(uri).body(Full::new(Bytes::from(chat(10, true))));
    let queued = sender.send_request(request.unwrap()).await.unwrap();
    assert_eq!(queued.status(), 200);
    drop(first);
    until("it was granted", || upstream.count() == 2).await;
    until("its slot is free", || {
        running.gateway.running_and_waiting() == (0, 0)
    })
    .await;
    drop((queued, sender));
    connection.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_loses_its_slot() {
    // The flood soon exceeds the buffers of both sockets.
    let upstream = Upstream::start(|_| Reaction::Flood).await;
    let running = Running::before(&upstream, "client_timeout = '1s'");
    let mut stream = connect(running.gateway.address()).await;
    stream
        .write_all(raw_request(CHAT, &chat(10, true)).as_bytes())
        .await
        .unwrap();
    until("the upstream has it", || upstream.now() == 1).await;
    until("the slot is free", || {
        running.gateway.running_and_waiting() == (0, 0)
    })
    .await;
    until("the upstream stopped", || upstream.now() == 0).await;
    drop(stream);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_that_nobody_wants_is_not_read_for_long() {
    let upstream = Upstream::start(|_| Reaction::Flood).await;
    let running = Running::before(&upstream, "");
    let mut stream = connect(running.gateway.address()).await;
    let request = raw_request(CHAT, &chat(10, true));
    stream.write_all(request.as_bytes()).await.unwrap();
    until("the upstream has it", || upstream.now() == 1).await;
    let before = upstream.generated();
    drop(stream);
    until("it is read no longer", || upstream.now() == 0).await;
    // The sockets hold some of it, which is not read.
    let bytes = (upstream.generated() - before) << 16;
    assert!(bytes < 96 << 20, "{bytes} bytes");
    running.is_idle().await;
}
