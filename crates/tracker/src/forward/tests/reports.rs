//! Forwarders that report peers that they should not.

use super::*;

/// A forward plane with one forwarder, which reports those peers.
fn start_reporting(uri: &str, peers: &[SocketAddr]) -> AnnounceHandler {
    let mut compact = Vec::new();
    for peer in peers {
        let IpAddr::V4(ip) = peer.ip() else {
            unreachable!("IPv4 only");
        };
        compact.extend(ip.octets());
        compact.extend(peer.port().to_be_bytes());
    }
    let mut body = format!("d8:intervali1800e5:peers{}:", compact.len()).into_bytes();
    body.extend(compact);
    body.push(b'e');
    let response = response::parse(&body).unwrap();
    let fake = move |_: &ForwarderState, _: Option<&Announce>| (DELAY, Ok(response.clone()));
    let (state, forwarding) = start_at(&[uri], Box::new(fake));
    AnnounceHandler { state, forwarding }
}

/// Announces a torrent from a client and returns the number of peers that were reported.
async fn reported(handler: &AnnounceHandler, client: &str) -> usize {
    send_from(
        client.parse().unwrap(),
        handler,
        announce(1, Event::Started),
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let hash = announce(1, Event::None).info_hash;
    let cached = (handler.state.swarms).with_existing(&hash, |swarm| swarm.cached_peers());
    cached.unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_forwarder_elsewhere_does_not_point_clients_at_their_own_network() {
    let peers = ["127.0.0.1:22", "10.0.0.7:80", "192.168.1.1:80"].map(|at| at.parse().unwrap());
    for (uri, client, expected) in [
        ("udp://8.8.8.8:1", "127.0.0.1", 0),
        ("http://tracker.example/announce", "127.0.0.1", 0),
        ("http://tracker.example/announce", "10.0.0.9", 0),
        ("udp://10.0.0.1:1", "10.0.0.9", 2),
        ("udp://10.0.0.1:1", "127.0.0.1", 2),
        ("http://tracker.lan/announce", "10.0.0.9", 2),
        ("http://127.0.0.1:9/announce", "127.0.0.1", 3),
    ] {
        let handler = start_reporting(uri, &peers);
        let cached = reported(&handler, client).await;
        assert_eq!(cached, expected, "{uri} for {client}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_peers_are_taken_than_were_asked_for() {
    let peer = |number: u32| {
        let ip = std::net::Ipv4Addr::from_bits(0x0800_0000 + number);
        SocketAddr::from((ip, 1))
    };
    let peers: Vec<SocketAddr> = (0..5000).map(peer).collect();
    let handler = start_reporting("udp://8.8.8.8:1", &peers);
    assert_eq!(reported(&handler, "127.0.0.1").await, 200);
}
