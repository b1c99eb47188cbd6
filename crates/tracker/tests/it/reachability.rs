//! The peers that a client may be sent to: those it can reach, whatever forwarder or client named
//! them.

use crate::support::{Behaviour, Forwarder, Running, address, announce, http_uri, listed, until};
use headworks_tracker_wire::Event;
use headworks_tracker_wire::response::AnnounceResponse;
use std::net::{IpAddr, Ipv4Addr};

const PROXY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

const PUBLIC: [&str; 2] = ["1.2.3.4:1", "[2600::1]:1"];
const PRIVATE: [&str; 4] = ["10.1.2.3:1", "192.168.1.1:1", "100.64.0.1:1", "[fd00::1]:1"];
const LOOPBACK: [&str; 3] = ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"];
/// Of use to nobody.
const RESERVED: [&str; 16] = [
    "0.0.0.0:1",
    "0.1.2.3:1",
    "1.2.3.5:0",
    "169.254.169.254:1",
    "192.0.0.1:1",
    "192.0.2.1:1",
    "198.18.0.1:1",
    "198.51.100.1:1",
    "203.0.113.1:1",
    "224.0.0.1:1",
    "240.0.0.1:1",
    "255.255.255.255:1",
    "[2001:db8::1]:1",
    "[2001:2::1]:1",
    "[3fff::1]:1",
    "[fe80::1]:1",
];

/// Announces peer `number` through the proxy as a client, and returns the peers of others.
async fn peers_for(running: &Running, number: u16, client: &str) -> Vec<String> {
    let header = format!("X-Forwarded-For: {client}\r\n");
    let peer = announce(1, number, Event::None);
    let response = running.announce_from(PROXY, &peer, &header, "").await;
    let AnnounceResponse::Peers(list) = response else {
        panic!("a failure")
    };
    let mut peers: Vec<_> = list.peers.iter().map(|(at, _)| at.to_string()).collect();
    peers.sort();
    peers
}

fn sorted(parts: &[&[&str]]) -> Vec<String> {
    let mut all: Vec<String> = parts.concat().into_iter().map(str::to_owned).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_receives_what_it_can_reach_of_forwarders_peers() {
    let all = [&PUBLIC[..], &PRIVATE, &LOOPBACK, &RESERVED].concat();
    let forwarder = Forwarder::http(Behaviour::Peers(all.into_iter().map(address).collect()));
    let forwarder = forwarder.await;
    let settings = format!(
        "trusted_proxies = ['127.0.0.1']\n{}",
        listed([http_uri(&forwarder)])
    );
    let running = Running::start(&settings);
    // A loopback client fills the cache that all clients share.
    peers_for(&running, 1, "127.0.0.1").await;
    until("the forwarder is asked", || {
        !forwarder.received().is_empty()
    })
    .await;
    running.shows("/stats", "1 answers").await;
    let others = &["127.0.0.1:10001"][..];
    assert_eq!(
        peers_for(&running, 2, "127.0.0.2").await,
        sorted(&[&PUBLIC, &PRIVATE, &LOOPBACK, others])
    );
    let reported = |mut peers: Vec<String>| {
        peers.retain(|peer| peer.ends_with(":1"));
        peers
    };
    for (number, client) in [(3, "8.8.8.8"), (4, "2600::8"), (5, "192.0.2.9")] {
        let peers = peers_for(&running, number, client).await;
        assert!(
            !peers.contains(&others[0].to_owned()),
            "{client}: {peers:?}"
        );
        assert_eq!(reported(peers), sorted(&[&PUBLIC]), "{client}");
    }
    let private = peers_for(&running, 6, "10.0.0.7").await;
    assert_eq!(reported(private), sorted(&[&PUBLIC, &PRIVATE]));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_receives_what_it_can_reach_of_local_peers() {
    let running = Running::start("trusted_proxies = ['127.0.0.1']");
    let clients = [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.0.1",
        "8.8.8.8",
        "192.0.2.1",
    ];
    for (number, client) in (1..).zip(clients) {
        peers_for(&running, number, client).await;
    }
    let (loopback, private, link, public) = (
        "127.0.0.1:10001",
        "10.0.0.1:10002",
        "169.254.0.1:10003",
        "8.8.8.8:10004",
    );
    for (number, client, expected) in [
        (11, "8.8.4.4", &[public][..]),
        (12, "192.168.0.1", &[private, public]),
        (13, "169.254.0.2", &[private, link, public]),
        (14, "127.0.0.2", &[private, loopback, public]),
    ] {
        let mut peers = peers_for(&running, number, client).await;
        peers.retain(|peer| peer.contains(":1000"));
        assert_eq!(peers, sorted(&[expected]), "{client}");
    }
    running.stop().await;
}
