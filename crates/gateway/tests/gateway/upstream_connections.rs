//! Plain HTTP/1 connections to upstreams: when they are reused, and where a response on them ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::support::{Authority, CHAT, Reaction, Running, Upstream, chat, until};

async fn ask(running: &Running, upstream: &Upstream, times: usize) -> Vec<(u16, String)> {
    let client = running.client();
    let mut answers = Vec::new();
    for n in 1..=times {
        let answer = client.post(CHAT, &[], &chat(10, false)).await;
        assert_eq!(upstream.count(), n, "nothing is asked twice");
        answers.push((answer.status, answer.body));
    }
    running.is_idle().await;
    answers
}

#[tokio::test]
async fn sequential_requests_reuse_a_connection() {
    let upstream = Upstream::answering(Duration::ZERO, 3).await;
    let running = Running::before(&upstream, "");
    let answers = ask(&running, &upstream, 5).await;
    assert!(answers.iter().all(|(status, _)| *status == 200));
    assert_eq!(upstream.connections(), 1);
}

/// An upstream without TLS, and one with it.
async fn both(authority: &Authority, reaction: fn(usize) -> Reaction) -> [Upstream; 2] {
    let tls = Some(authority.acceptor());
    [
        Upstream::start_with(None, move |call| reaction(call.before)).await,
        Upstream::start_with(tls, move |call| reaction(call.before)).await,
    ]
}

const FINE: Reaction = Reaction::Answer {
    after: Duration::ZERO,
    tokens: 3,
};

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_timeout() {
    let authority = Authority::new();
    for upstream in both(&authority, |_| FINE).await {
        let toml = format!(
            "upstream_idle_timeout = '100ms'\n{}",
            upstream.toml("one", "")
        );
        let running = Running::trusting(&authority, &toml);
        ask(&running, &upstream, 1).await;
        // The upstream itself would keep it, and the settings of the client say 90 s.
        let took = until("it is closed", || upstream.closed() == 1).await;
        assert!(took < Duration::from_secs(60), "{took:?}");
    }
}

/// Many servers close a connection that was idle for 5 s. A request that crosses with the close is
/// lost: nobody knows whether it was read, so it is not sent again.
#[tokio::test]
async fn an_upstream_that_closes_idle_connections_early_loses_no_request() {
    let authority = Authority::new();
    // The close crosses with the second request on a connection.
    let closing = |before| if before == 0 { FINE } else { Reaction::Close };
    for upstream in both(&authority, closing).await {
        let toml = format!(
            "upstream_idle_timeout = '50ms'\n{}",
            upstream.toml("one", "")
        );
        let running = Running::trusting(&authority, &toml);
        let client = running.client();
        for turn in 0..5 {
            let answer = client.post(CHAT, &[], &chat(10, false)).await;
            assert_eq!(answer.status, 200, "{turn}: {}", answer.body);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn chunked_responses_reuse_a_connection() {
    let gap = Duration::ZERO;
    let upstream = Upstream::start(move |_| Reaction::Stream { events: 2, gap }).await;
    let running = Running::before(&upstream, "");
    for (status, body) in ask(&running, &upstream, 3).await {
        assert_eq!(status, 200);
        assert!(body.ends_with("data: [DONE]\n\n"), "{body}");
    }
    assert_eq!(upstream.connections(), 1);
}

#[tokio::test]
async fn a_closed_or_ambiguous_connection_is_not_reused() {
    for answer in [
        // Closed without `connection: close`.
        Reaction::Last("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
        Reaction::Raw("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}"),
        Reaction::Raw("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}"),
        // Surplus bytes are a response to no request.
        Reaction::Raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 500 No\r\n\r\n"),
        // Two kinds of framing.
        Reaction::Raw(
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        ),
    ] {
        let told = answer.clone();
        let upstream = Upstream::start(move |_| told.clone()).await;
        let running = Running::before(&upstream, "");
        let answers = ask(&running, &upstream, 3).await;
        let fine = (200, "{}".to_owned());
        assert!(answers.iter().all(|answer| *answer == fine), "{answer:?}");
        assert_eq!(upstream.connections(), 3, "{answer:?}");
    }
}

#[tokio::test]
async fn a_response_ends_where_its_framing_says() {
    for (answer, status, body) in [
        ("HTTP/1.1 200 OK\r\n\r\nall of it", 200, "all of it"),
        ("HTTP/1.0 404 No\n\nnot here", 404, "not here"),
        ("HTTP/1.1 204 Nothing\r\ncontent-length: 5\r\n\r\n", 204, ""),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;x=y\r\n{\r\n1\r\n}\r\n0\r\nt: 1\r\n\r\n",
            200,
            "{}",
        ),
        // These are not known to be complete.
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\nx",
            502,
            "",
        ),
        ("HTTP/1.1 200 OK\r\ncontent-length: 1, 1\r\n\r\nx", 502, ""),
        ("HTTP/1.1 200 OK\r\ncontent-len", 502, ""),
    ] {
        let upstream = Upstream::start(move |_| Reaction::Last(answer)).await;
        let running = Running::before(&upstream, "");
        let (told, text) = ask(&running, &upstream, 1).await.remove(0);
        assert_eq!(told, status, "{answer:?}");
        assert!(status == 502 || text == body, "{answer:?}: {text}");
    }
}

#[tokio::test]
async fn a_truncated_body_is_an_error() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n",
    ] {
        let upstream = Upstream::start(move |_| Reaction::Last(answer)).await;
        let running = Running::before(&upstream, "");
        let request = running.client();
        let answered = request.try_post(CHAT, &[], &chat(10, false)).await;
        assert!(answered.is_err(), "{answer:?}");
        running.is_idle().await;
    }
}

/// An upstream may reject a request that it has not fully read. Its response is relayed although
/// the request cannot be sent to its end.
#[tokio::test]
async fn a_response_may_begin_before_the_request_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let upstream = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let refusal = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}";
        stream.read_u8().await.unwrap();
        stream.write_all(refusal).await.unwrap();
        // The upstream stops reading.
        stream
    });
    let toml = format!("[[gateway.upstream]]\nname = 'u'\nurl = '{url}'\n");
    let running = Running::start(&toml);
    // More than the buffers of two sockets hold.
    let prompt = "x".repeat(16 << 20);
    let body = format!(r#"{{"model":"m","metadata":"{prompt}","messages":[]}}"#);
    let answer = running.client().post(CHAT, &[], &body).await;
    assert_eq!((answer.status, answer.body.as_str()), (413, "{}"));
    running.is_idle().await;
    upstream.await.unwrap();
}

/// If an upstream responds while it still reads, the rest of the request is sent.
#[tokio::test]
async fn a_request_is_sent_to_its_end_while_the_response_arrives() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    const SIZE: usize = 16 << 20;
    let upstream = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let head = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n";
        stream.read_u8().await.unwrap();
        stream.write_all(head).await.unwrap();
        let (mut room, mut left) = (vec![0; 64 << 10], SIZE);
        while left > 0 {
            let read = stream.read(&mut room).await.unwrap();
            assert!(read > 0, "{left} bytes were not sent");
            left = left.saturating_sub(read);
        }
        stream.write_all(b"{}").await.unwrap();
        stream
    });
    let toml = format!("[[gateway.upstream]]\nname = 'u'\nurl = '{url}'\n");
    let running = Running::start(&toml);
    let prompt = "x".repeat(SIZE);
    let body = format!(r#"{{"model":"m","metadata":"{prompt}","messages":[]}}"#);
    let answer = running.client().post(CHAT, &[], &body).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "{}"));
    running.is_idle().await;
    upstream.await.unwrap();
}

/// An upstream that closes the connections that are idle when it is told to.
struct Closing {
    address: std::net::SocketAddr,
    close: Arc<Notify>,
    /// Bodies of the requests that were answered.
    answered: Arc<Mutex<Vec<String>>>,
    /// Requests of which bytes had arrived when their connection was closed.
    lost: Arc<AtomicUsize>,
}

impl Closing {
    async fn start() -> Closing {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = Closing {
            address: listener.local_addr().unwrap(),
            close: Arc::default(),
            answered: Arc::default(),
            lost: Arc::default(),
        };
        let (close, answered, lost) = (
            upstream.close.clone(),
            upstream.answered.clone(),
            upstream.lost.clone(),
        );
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                stream.set_nodelay(true).unwrap();
                tokio::spawn(answer_until_closed(
                    stream,
                    close.clone(),
                    answered.clone(),
                    lost.clone(),
                ));
            }
        });
        upstream
    }
}

async fn answer_until_closed(
    mut stream: TcpStream,
    close: Arc<Notify>,
    answered: Arc<Mutex<Vec<String>>>,
    lost: Arc<AtomicUsize>,
) {
    const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
    let (mut buffer, mut is_used) = (Vec::new(), false);
    loop {
        tokio::select! {
            biased;
            read = stream.read_buf(&mut buffer) => if !matches!(read, Ok(1..)) {
                return;
            },
            () = close.notified(), if is_used && buffer.is_empty() => {
                let mut stream = stream.into_std().unwrap();
                let _ = stream.shutdown(std::net::Shutdown::Both);
                // Bytes that arrived before stay readable. From now on they are answered with a
                // reset.
                let read = std::io::Read::read(&mut stream, &mut [0; 1]);
                lost.fetch_add(read.unwrap_or(0), Ordering::SeqCst);
                return;
            }
        }
        let text = String::from_utf8_lossy(&buffer).into_owned();
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && body.ends_with('}')
        {
            answered.lock().push(body.to_owned());
            buffer.clear();
            is_used = true;
            stream.write_all(ANSWER).await.unwrap();
        }
    }
}

/// The close of an idle connection crosses with a request, a little earlier or later each time. The
/// request is sent again unless the upstream has a byte of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_crosses_with_a_close_is_sent_again() {
    const REQUESTS: u32 = 400;
    let upstream = Closing::start().await;
    let running = Running::start(&format!(
        "scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n\
         [[gateway.upstream]]\nname = 'one'\nurl = 'http://{}'\n\
         fault_threshold = 1\nsuspend_for = '1ms'",
        upstream.address
    ));
    let (client, mut broken) = (running.client(), 0);
    for n in 0..REQUESTS {
        let body = chat(10, false).replace("hello", &format!("request {n}."));
        let client = client.clone();
        let asked = tokio::spawn(async move { client.post(CHAT, &[], &body).await });
        let (start, after) = (Instant::now(), Duration::from_micros(5) * (n % 100));
        while start.elapsed() < after {
            std::hint::spin_loop();
        }
        upstream.close.notify_waiters();
        let answer = asked.await.unwrap();
        assert!(matches!(answer.status, 200 | 502), "{n}: {}", answer.body);
        broken += usize::from(answer.status == 502);
    }
    let lost = upstream.lost.load(Ordering::SeqCst);
    assert!(broken <= lost, "{broken} broken, {lost} lost");
    let answered = std::mem::take(&mut *upstream.answered.lock());
    assert_eq!(answered.len() + broken, REQUESTS as usize);
    for n in 0..REQUESTS {
        let text = format!("request {n}.");
        let times = answered.iter().filter(|body| body.contains(&text)).count();
        assert!(times <= 1, "{n} was answered {times} times");
    }
    running.is_idle().await;
}
