//! Limits of tenants, weights of upstreams, and timeouts.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::{CHAT, Reaction, Running, Upstream, chat, raw_request, until};

/// Concurrent requests, each with this key.
fn crowd(running: &Running, key: &'static str, many: usize) -> JoinSet<u16> {
    let mut clients = JoinSet::new();
    for _ in 0..many {
        let client = running.client();
        clients.spawn(async move {
            let key = [("x-api-key", key)];
            client.post(CHAT, &key, &chat(10, false)).await.status
        });
    }
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_is_limited_and_delays_no_other() {
    let release = Arc::new(Semaphore::new(0));
    let held = release.clone();
    let upstream = Upstream::start(move |_| Reaction::When(held.clone(), 100)).await;
    let tenants = "
        scheduler_max_concurrent = 10
        [[gateway.key]]
        prefix = 'few'
        tenant = 'few'
        [[gateway.key]]
        prefix = 'many'
        tenant = 'many'
        [[gateway.tenant]]
        name = 'few'
        max_concurrent = 2
    ";
    let running = Running::before(&upstream, tenants);
    let few = crowd(&running, "few", 6);
    until("the others of its tenant wait", || {
        running.gateway.running_and_waiting() == (2, 4)
    })
    .await;
    let many = crowd(&running, "many", 8);
    until("every slot is taken", || {
        running.gateway.running_and_waiting() == (10, 4) && upstream.now() == 10
    })
    .await;
    release.add_permits(14);
    for status in few
        .join_all()
        .await
        .into_iter()
        .chain(many.join_all().await)
    {
        assert_eq!(status, 200);
    }
    running.is_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_of_a_model_share_by_weight() {
    let release = Arc::new(Semaphore::new(0));
    let (one, other) = (release.clone(), release.clone());
    let large = Upstream::start(move |_| Reaction::When(one.clone(), 100)).await;
    let small = Upstream::start(move |_| Reaction::When(other.clone(), 100)).await;
    let toml = [large.toml("large", "weight = 3"), small.toml("small", "")].concat();
    let running = Running::start(&toml);
    let clients = crowd(&running, "any", 40);
    until("all have them", || large.now() + small.now() == 40).await;
    let (large, small) = (large.now(), small.now());
    assert!((29..=31).contains(&large), "{large} and {small}");
    release.add_permits(40);
    assert!(clients.join_all().await.iter().all(|status| *status == 200));
    running.is_idle().await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_times_out() {
    let upstream = Upstream::answering(Duration::ZERO, 1).await;
    let running = Running::before(&upstream, "body_timeout = '200ms'");
    let mut stream = TcpStream::connect(running.gateway.address()).await.unwrap();
    let request = raw_request(CHAT, &chat(10, false));
    let half = &request.as_bytes()[..request.len() - 5];
    stream.write_all(half).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains("body_timeout"), "{answer}");
    assert_eq!(upstream.count(), 0);
    running.is_idle().await;
}

#[tokio::test]
async fn one_address_cannot_take_every_connection() {
    let upstream = Upstream::answering(Duration::ZERO, 1).await;
    let running = Running::before(&upstream, "max_connections_per_address = 3");
    let connect = || TcpStream::connect(running.gateway.address());
    let mut open = Vec::new();
    for _ in 0..3 {
        let mut stream = connect().await.unwrap();
        let request = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(request).await.unwrap();
        stream.read_u8().await.unwrap();
        open.push(stream);
    }
    let mut refused = connect().await.unwrap();
    assert!(matches!(refused.read(&mut [0; 1]).await, Ok(0) | Err(_)));
    drop(open);
    loop {
        // The gateway may not have noticed yet that the others are gone.
        let mut stream = connect().await.unwrap();
        let request = raw_request(CHAT, &chat(10, false));
        let mut answer = [0; 12];
        let written = stream.write_all(request.as_bytes()).await;
        if written.is_ok() && stream.read_exact(&mut answer).await.is_ok() {
            assert_eq!(&answer, b"HTTP/1.1 200");
            break;
        }
    }
}

/// Connections that sent no request with a valid key are closed for newcomers, even if two
/// addresses hold all of them.
#[tokio::test]
async fn connections_without_a_request_do_not_keep_others_out() {
    let upstream = Upstream::answering(Duration::ZERO, 1).await;
    let toml = "max_connections = 5\n[[gateway.key]]\nprefix = 'k'\ntenant = 'a'";
    let running = Running::before(&upstream, toml);
    let connect = async |number: u8| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let from = std::net::Ipv4Addr::new(127, 0, 1, number);
        socket.bind((from, 0).into()).unwrap();
        socket.connect(running.gateway.address()).await.unwrap()
    };
    let ask = async |stream: &mut TcpStream, key: &str, expected: &[u8]| {
        let request = raw_request(CHAT, &chat(10, false));
        let request = request.replace("host:", &format!("x-api-key: {key}\r\nhost:"));
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer[9..], expected);
        let mut rest = vec![0; 4096];
        assert_ne!(stream.read(&mut rest).await.unwrap(), 0);
    };
    let mut known = vec![connect(1).await];
    ask(&mut known[0], "key", b"200").await;
    let mut idle = Vec::new();
    for number in [1, 2, 1, 2] {
        let mut stream = connect(number).await;
        if idle.is_empty() {
            ask(&mut stream, "wrong", b"401").await;
        } else {
            stream.write_all(b"POST /v1/chat").await.unwrap();
        }
        idle.push(stream);
    }
    for number in 3..=6 {
        let mut newcomer = connect(number).await;
        ask(&mut newcomer, "key", b"200").await;
        known.push(newcomer);
        // The oldest is closed, and only that one.
        let _ = idle.remove(0).read_to_end(&mut Vec::new()).await;
        for open in &idle {
            let read = open.try_read(&mut [0; 1]);
            let waits = std::io::ErrorKind::WouldBlock;
            assert!(read.is_err_and(|error| error.kind() == waits), "{number}");
        }
    }
    for stream in &mut known {
        ask(stream, "key", b"200").await;
    }
}

#[tokio::test]
async fn an_endless_response_times_out() {
    let gap = Duration::from_millis(10);
    let upstream = Upstream::start(move |_| Reaction::Stream {
        events: 1_000_000,
        gap,
    })
    .await;
    let running = Running::before(&upstream, "request_timeout = '500ms'");
    let answer = running.client().post(CHAT, &[], &chat(10, true)).await;
    assert!(answer.body.contains("request_timeout"), "{}", answer.body);
    running.is_idle().await;
    until("the upstream stopped", || upstream.left() == 1).await;
}

#[tokio::test]
async fn a_server_that_speaks_both_apis_has_its_limit_once() {
    let release = Arc::new(Semaphore::new(0));
    let held = release.clone();
    let upstream = Upstream::start(move |_| Reaction::When(held.clone(), 10)).await;
    let limit = "models = ['m']\nmax_concurrent = 2";
    let anthropic = format!("kind = 'anthropic'\n{limit}");
    let toml = [
        upstream.toml("openai", limit),
        upstream.toml("anthropic", &anthropic),
    ]
    .concat();
    let running = Running::start(&toml);
    let mut clients = JoinSet::new();
    for path in [CHAT, "/v1/messages"].repeat(4) {
        let client = running.client();
        clients.spawn(async move { client.post(path, &[], &chat(10, false)).await.status });
    }
    until("two run and the others wait", || {
        running.gateway.running_and_waiting() == (2, 6) && upstream.now() == 2
    })
    .await;
    release.add_permits(8);
    assert_eq!(clients.join_all().await, [200; 8]);
    assert_eq!(upstream.peak(), 2);
    let paths: Vec<_> = upstream
        .calls()
        .iter()
        .map(|call| call.head.contains("/v1/messages"))
        .collect();
    assert_eq!(paths.iter().filter(|messages| **messages).count(), 4);
}

/// Connections with a valid key are kept while there is room. Two tenants that hold all of them
/// cannot keep others out, whether their connections are idle or busy.
#[tokio::test]
async fn connections_with_a_key_do_not_keep_others_out() {
    let release = Arc::new(Semaphore::new(0));
    let held = release.clone();
    let upstream = Upstream::start(move |call| match call.header("x-hang") {
        Some(_) => Reaction::When(held.clone(), 1),
        None => Reaction::Answer {
            after: Duration::ZERO,
            tokens: 1,
        },
    })
    .await;
    let key = |name: &str| format!("[[gateway.key]]\nprefix = '{name}'\ntenant = '{name}'\n");
    let keys = ["one", "two", "other"].map(key).concat();
    let running = Running::before(&upstream, &format!("max_connections = 32\n{keys}"));
    let connect = async |number: u8| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        let from = std::net::Ipv4Addr::new(127, 0, 2, number);
        socket.bind((from, 0).into()).unwrap();
        socket.connect(running.gateway.address()).await.unwrap()
    };
    for hangs in ["", "x-hang: yes\r\n"] {
        let mut open = Vec::new();
        for number in 0..32 {
            let mut stream = connect(1 + number / 16).await;
            let key = if number < 16 { "one" } else { "two" };
            let header = format!("{hangs}x-api-key: {key}\r\nhost:");
            let request = raw_request(CHAT, &chat(10, false)).replace("host:", &header);
            let before = upstream.count();
            stream.write_all(request.as_bytes()).await.unwrap();
            match hangs {
                "" => assert_eq!(stream.read_u8().await.unwrap(), b'H'),
                _ => drop(until("it hangs", || upstream.count() > before).await),
            }
            open.push(stream);
        }
        for path in ["/health", "/v1/quota"] {
            let mut stream = connect(9).await;
            let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nx-api-key: other\r\n\r\n");
            stream.write_all(request.as_bytes()).await.unwrap();
            let mut answer = [0; 12];
            stream.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer, b"HTTP/1.1 200", "{path} {hangs}");
        }
        let answer = running
            .client()
            .post(CHAT, &[("x-api-key", "other")], &chat(10, false))
            .await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        release.add_permits(32);
        drop(open);
        running.is_idle().await;
    }
}
