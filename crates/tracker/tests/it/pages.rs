//! The pages for operators, which anybody may ask for.

use crate::support::{Client, Running, TIMEOUT, announce, listed};
use headworks_tracker_wire::{Event, udp};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

/// Stores many torrents, over UDP.
fn store(running: &Running, torrents: u32) {
    let client = Client::at("127.0.0.1:0", running.udp());
    let id = client.connect();
    for first in (0..torrents).step_by(50) {
        for torrent in first..first + 50 {
            let mut packet = Vec::new();
            let announce = announce(torrent, 1, Event::None);
            udp::write_announce(id, torrent, &announce, b"", &mut packet);
            client.0.send_to(&packet, client.1).unwrap();
        }
        for _ in 0..50 {
            client.receive().expect("a response to each");
        }
    }
}

/// Sends requests in one go and returns everything that comes back.
async fn pipelined(at: SocketAddr, path: &'static str, count: usize) -> String {
    let exchange = move || {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: t\r\n\r\n");
        let requests = request.repeat(count) + "GET /healthz HTTP/1.0\r\n\r\n";
        let mut writer = stream.try_clone().unwrap();
        let writing = std::thread::spawn(move || writer.write_all(requests.as_bytes()));
        let mut response = Vec::new();
        stream.read_to_end(&mut response).unwrap();
        writing.join().unwrap().unwrap();
        String::from_utf8(response).unwrap()
    };
    tokio::task::spawn_blocking(exchange).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_build_a_page_once_per_second() {
    let forwarders = (1..=1000).map(|port| format!("udp://192.0.2.1:{port}"));
    // The one HTTP thread answers announces meanwhile.
    let settings = "max_torrents_per_client = 1000000\nfull_scrape = true\n".to_owned();
    let running = Running::with_workers(1, &(settings + &listed(forwarders)));
    store(&running, 20_000);
    let began = Instant::now();
    for (path, shows) in [
        ("/stats", "torrents: 20000\n"),
        ("/stats?format=json", "\"torrents\": 20000"),
    ] {
        let before = running.metric("headworks_tracker_pages_built_total").await;
        let response = pipelined(running.http(), path, 680).await;
        assert_eq!(response.matches("HTTP/1.1 200 OK").count(), 681, "{path}");
        assert_eq!(response.matches(shows).count(), 680, "{path}");
        let built = running.metric("headworks_tracker_pages_built_total").await - before;
        let seconds = began.elapsed().as_secs_f64();
        // One per second and a first one, and those of the two requests for the number.
        assert!(built <= seconds + 3.0, "{built} pages in {seconds} s");
    }
    let scrape = running.get("/scrape").await;
    let all = headworks_tracker_wire::scrape::parse(&scrape).unwrap();
    assert_eq!(all.len(), 20_000, "more than fits into a socket's buffer");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn announces_are_answered_while_others_ask_for_metrics() {
    let forwarders = (1..=1000).map(|port| format!("udp://192.0.2.1:{port}"));
    let running = Running::with_workers(1, &listed(forwarders));
    let at = running.http();
    let before = running.metric("headworks_tracker_pages_built_total").await;
    let began = Instant::now();
    let metrics = tokio::spawn(pipelined(at, "/metrics", 680));
    for peer in 0..50 {
        running.announce(&announce(1, peer, Event::None)).await;
    }
    let response = metrics.await.unwrap();
    assert_eq!(response.matches("HTTP/1.1 200 OK").count(), 681);
    let built = running.metric("headworks_tracker_pages_built_total").await - before;
    // Five per second, and those of the requests that ask for the number.
    let most = 5.0 * began.elapsed().as_secs_f64() + 3.0;
    assert!(built <= most, "{built} pages, at most {most}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_takes_little_memory() {
    let running = Running::with_workers(1, "");
    for peer in 0..50 {
        running.announce(&announce(1, peer, Event::None)).await;
    }
    let mut stream = TcpStream::connect(running.http()).unwrap();
    stream.set_nonblocking(true).unwrap();
    let request = "GET /stats HTTP/1.1\r\nHost: t\r\n\r\n".repeat(100);
    let mut sent = 0;
    // Until the tracker reads no more, because nobody reads its responses.
    let end = Instant::now() + TIMEOUT;
    let mut blocked = 0;
    while blocked < 50 {
        assert!(
            Instant::now() < end,
            "the tracker reads on after {sent} bytes"
        );
        match stream.write(request.as_bytes()) {
            Ok(length) => (sent, blocked) = (sent + length, 0),
            Err(_) => {
                blocked += 1;
                running.announce(&announce(1, 1, Event::None)).await;
            }
        }
    }
    // It goes on once they are read.
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let (mut received, mut buffer) = (0, vec![0; 1 << 20]);
    while received < sent {
        let length = stream.read(&mut buffer).unwrap();
        assert!(length > 0, "closed after {received} bytes");
        received += length;
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_address_cannot_take_all_connections() {
    let running = Running::start("max_connections_per_address = 10");
    let mut open: Vec<TcpStream> = Vec::new();
    for _ in 0..10 {
        let mut stream = TcpStream::connect(running.http()).unwrap();
        write!(stream, "GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        let mut byte = [0];
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "served");
        open.push(stream);
    }
    let mut refused = TcpStream::connect(running.http()).unwrap();
    assert_eq!(refused.read(&mut [0]).unwrap_or(0), 0, "closed");
    let other = std::net::IpAddr::from([127, 0, 0, 9]);
    let peer = announce(1, 1, Event::None);
    running.announce_from(other, &peer, "", "").await;
    drop(open);
    // Their places are free again.
    let end = Instant::now() + TIMEOUT;
    loop {
        let mut stream = TcpStream::connect(running.http()).unwrap();
        let _ = write!(stream, "GET /healthz HTTP/1.0\r\n\r\n");
        if stream.read(&mut [0]).is_ok_and(|length| length == 1) {
            break;
        }
        assert!(Instant::now() < end, "never served again");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_of_the_token_are_limited_as_at_the_admin_listener() {
    let running = Running::start("");
    let token = "the-right-token";
    running.tracker.show_clients_to(&token.into()).unwrap();
    let status = async |query: String| {
        let at = running.http();
        let exchange = move || {
            let mut stream = TcpStream::connect(at).unwrap();
            stream.set_read_timeout(Some(TIMEOUT)).unwrap();
            write!(stream, "GET /stats{query} HTTP/1.0\r\n\r\n").unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            response
        };
        tokio::task::spawn_blocking(exchange).await.unwrap()
    };
    for guess in 0..10 {
        let response = status(format!("?token=guess-{guess}")).await;
        assert!(response.starts_with("HTTP/1.1 401"), "{response}");
    }
    let response = status("?token=one-guess-more".into()).await;
    assert!(response.starts_with("HTTP/1.1 429"), "{response}");
    assert!(
        response.to_lowercase().contains("retry-after: "),
        "{response}"
    );
    let right = status(format!("?token={token}")).await;
    assert!(
        right.starts_with("HTTP/1.1 200"),
        "the right one is accepted: {right}"
    );
    let open = status(String::new()).await;
    assert!(
        open.starts_with("HTTP/1.1 200"),
        "no token, no guess: {open}"
    );
    running.stop().await;
}
