//! Forwarders that fail in every possible way: their status, and what clients notice.

use crate::support::{
    Behaviour, Forwarder, Running, address, announce, http_uri, listed, udp_uri, until,
};
use flate2::Compression;
use flate2::write::GzEncoder;
use headworks_tracker_wire::Event;
use std::io::Write;

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    let body = encoder.finish().unwrap();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.into_bytes(), body].concat()
}

/// Starts a tracker with a good forwarder and one with the given behaviour, and waits until
/// `/stats` shows the expected state of the latter.
async fn shows(
    behaviour: Behaviour,
    settings: &str,
    expected: &[&str],
) -> (Running, Forwarder, Forwarder) {
    let good = Forwarder::http(Behaviour::Peers(vec![address("1.2.3.9:9")])).await;
    let bad = Forwarder::http(behaviour).await;
    let settings = format!(
        "forward_timeout = '500ms'\nforwarder_retry_base_ms = 10\nforwarder_retry_attempts = 3\n{settings}\n{}",
        listed([http_uri(&good), http_uri(&bad)])
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::None)).await;
    let name = format!("forwarder {}: ", bad.address);
    for text in expected {
        running.shows("/stats", &format!("{name}{text}")).await;
    }
    (running, bad, good)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_error_leads_to_its_status() {
    let huge = Behaviour::Body(vec![b'x'; 10 << 20]);
    let bomb = Behaviour::Raw(gzip(&vec![b'0'; 64 << 20]));
    for (behaviour, expected) in [
        (
            Behaviour::status(404),
            "disabled, 1 requests, 0 answers, 1 failures, 0 unique peers, last error: status 404",
        ),
        (Behaviour::status(403), "disabled, 1 requests"),
        (Behaviour::status(429), "suspended, 1 requests"),
        (
            Behaviour::status(500),
            "active, 3 requests, 0 answers, 3 failures, 0 unique peers, last error: status 500",
        ),
        (
            Behaviour::Silent,
            "suspended, 1 requests, 0 answers, 1 failures, 0 unique peers, last error: no response in time",
        ),
        (
            Behaviour::Drip,
            "suspended, 1 requests, 0 answers, 1 failures, 0 unique peers, last error: no response in time",
        ),
        (
            huge,
            "active, 1 requests, 0 answers, 1 failures, 0 unique peers, last error: the response is too large",
        ),
        (
            bomb,
            "active, 1 requests, 0 answers, 1 failures, 0 unique peers, last error: the response is too large",
        ),
        (
            Behaviour::Body(b"<html>".to_vec()),
            "active, 1 requests, 0 answers, 1 failures, 0 unique peers, last error: not a tracker's response",
        ),
        (
            Behaviour::Body(b"d14:failure reason4:nopee".to_vec()),
            "active, 1 requests, 1 answers",
        ),
        (
            Behaviour::Body(b"d14:failure reason1:x8:retry in5:nevere".to_vec()),
            "active, 1 requests, 1 answers",
        ),
    ] {
        let description = format!("{behaviour:.60?}");
        let (running, _bad, _good) = shows(behaviour, "", &[expected]).await;
        running.shows("/stats", "1 unique peers").await;
        assert_eq!(
            running.peers(&announce(1, 2, Event::None)).await.len(),
            2,
            "{description}"
        );
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_form_of_a_valid_response_is_accepted() {
    let peers = b"d8:intervali900e5:peers6:\x01\x02\x03\x05\x00\x05e";
    let body = Behaviour::Body(peers.to_vec());
    let other = Forwarder::http(body.clone()).await;
    let redirect = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://{}/other\r\nContent-Length: 0\r\n\r\n",
        other.address
    );
    for behaviour in [
        body,
        Behaviour::Raw(gzip(peers)),
        Behaviour::Raw(redirect.into_bytes()),
    ] {
        let (running, _bad, _good) = shows(
            behaviour,
            "",
            &["active, 1 requests, 1 answers, 0 failures, 1 unique peers"],
        )
        .await;
        running.stop().await;
    }
    let round = Behaviour::Raw(
        b"HTTP/1.1 302 Found\r\nLocation: /announce\r\nContent-Length: 0\r\n\r\n".to_vec(),
    );
    let (running, _bad, _good) = shows(round, "", &["active, 1 requests, 0 answers, 1 failures, 0 unique peers, last error: too many redirects"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn impossible_addresses_are_dropped() {
    let addresses = [
        "0.0.0.0:1",
        "224.0.0.1:1",
        "255.255.255.255:1",
        "[ff02::1]:1",
        "1.2.3.7:7",
    ];
    let (running, _liar, _good) = shows(
        Behaviour::Peers(addresses.map(address).to_vec()),
        "",
        &["active, 1 requests, 1 answers, 0 failures, 1 unique peers"],
    )
    .await;
    let peers = running.peers(&announce(1, 1, Event::None)).await;
    assert!(
        peers.contains(&address("1.2.3.7:7")) && peers.len() <= 2,
        "{peers:?}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_never_gets_its_own_address() {
    // The forwarder knows the client by the public address of its network.
    let own = address("8.8.8.7:10001");
    let mut body = b"d11:external ip4:\x08\x08\x08\x07".to_vec();
    body.extend(b"8:intervali900e5:peers12:\x08\x08\x08\x07\x27\x11\x01\x02\x03\x05\x00\x05e");
    let forwarder = Forwarder::http(Behaviour::Body(body)).await;
    let running = Running::start(&listed([http_uri(&forwarder)]));
    running.announce(&announce(1, 1, Event::None)).await;
    running.shows("/stats", "1 answers").await;
    running.shows("/stats", " 1 unique peers").await;
    let peers = running.peers(&announce(1, 1, Event::None)).await;
    assert!(!peers.contains(&own) && peers.len() == 1, "{peers:?}");
    running.stop().await;

    // One that does not say what it sees, and an operator who knows.
    let silent = Forwarder::udp(Behaviour::Peers(vec![own, address("1.2.3.5:5")])).await;
    let settings = format!(
        "public_addresses = ['8.8.8.7']\n{}",
        listed([udp_uri(&silent)])
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::None)).await;
    running.shows("/stats", " 1 unique peers").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_forwarder_cannot_hide_a_peer_that_another_reports() {
    // The victim has the same port as the client, which is common.
    let victim = address("8.8.8.7:10001");
    let mut lie = b"d11:external ip4:\x08\x08\x08\x07".to_vec();
    lie.extend(b"8:intervali900e5:peers6:\x08\x08\x08\x07\x27\x11e");
    let liar = Forwarder::http(Behaviour::Body(lie)).await;
    let honest = Forwarder::udp(Behaviour::Peers(vec![victim])).await;
    let uris = [
        http_uri(&liar),
        udp_uri(&honest).replace("127.0.0.1", "localhost"),
    ];
    let running = Running::start(&listed(uris));
    running.announce(&announce(1, 1, Event::None)).await;
    until("both are asked", || {
        liar.received().len() + honest.received().len() == 2
    })
    .await;
    running.shows("/stats", " 1 unique peers").await;
    let peers = running.peers(&announce(1, 1, Event::None)).await;
    assert_eq!(peers, [victim]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recovered_forwarder_is_used_again() {
    let (running, bad, _good) = shows(
        Behaviour::status(404),
        "forwarder_probe_seconds = '100ms'",
        &["disabled"],
    )
    .await;
    bad.set(Behaviour::Peers(vec![address("1.2.3.8:8")]));
    running
        .shows("/stats", &format!("forwarder {}: probation", bad.address))
        .await;
    running.announce(&announce(2, 1, Event::None)).await;
    running
        .shows("/stats", &format!("forwarder {}: active", bad.address))
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_connection_disables_and_silence_suspends() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let closed_udp = std::net::UdpSocket::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let silent = Forwarder::udp(Behaviour::Silent).await;
    let settings = format!(
        "forward_timeout = '300ms'\nforwarder_retry_base_ms = 10\nforwarder_retry_attempts = 2\n{}",
        listed([
            format!("http://{closed}/announce"),
            format!("udp://{closed_udp}"),
            udp_uri(&silent)
        ])
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::None)).await;
    running
        .shows("/stats", &format!("forwarder {closed}: disabled"))
        .await;
    running
        .shows("/stats", &format!("forwarder {closed_udp}: disabled"))
        .await;
    running
        .shows(
            "/stats",
            &format!(
                "forwarder {}: suspended, 1 requests, 0 answers, 1 failures",
                silent.address
            ),
        )
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_our_own_network_blames_no_forwarder() {
    let bad: Vec<_> =
        futures_util::future::join_all((0..6).map(|_| Forwarder::http(Behaviour::Silent))).await;
    let settings = format!(
        "forward_timeout = '300ms'\nforwarder_retry_base_ms = 10\n{}",
        listed(bad.iter().map(http_uri))
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::None)).await;
    running
        .shows("/metrics", "\nheadworks_tracker_network_down 1\n")
        .await;
    for one in &bad {
        // No forwarder is blamed.
        let active = format!("forwarder {}: active,", one.address);
        running.shows("/stats", &active).await;
    }
    for one in &bad {
        one.set(Behaviour::Peers(vec![]));
    }
    running
        .shows("/metrics", "\nheadworks_tracker_network_down 0\n")
        .await;
    // The torrent does not wait for another announce of its client.
    until("every forwarder is asked again", || {
        bad.iter().all(|one| one.received().len() >= 2)
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_in_delays_the_forward() {
    let (running, busy, _good) = shows(
        Behaviour::Body(b"d14:failure reason4:busy8:retry ini1ee".to_vec()),
        "",
        &["active, 1 requests, 1 answers"],
    )
    .await;
    running.shows("/stats", "delayed 1").await;
    assert_eq!(busy.received().len(), 1);
    let torrent = announce(1, 1, Event::None).info_hash.to_string();
    let explanation = running.tracker.panel();
    let explanation = explanation.explain(&torrent).await.unwrap();
    let name = format!("forwarder {}", busy.address);
    let fact = explanation
        .facts
        .iter()
        .find(|fact| fact.name == name)
        .unwrap();
    assert!(fact.value.contains("next retry in "), "{}", fact.value);
    running.stop().await;
}
