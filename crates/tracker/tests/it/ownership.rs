//! The right to change a peer: it belongs to the client that announced it, or one that has its key.
//! Other peers know its id, so the id proves nothing.

use crate::support::{
    Behaviour, Client, Forwarder, Running, announce, http_uri, listed, udp_uri, until,
};
use headworks_tracker_wire::udp;
use headworks_tracker_wire::{Announce, Event};
use std::net::IpAddr;

const OWNER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 9));
const OTHER_V6: IpAddr = IpAddr::V6(std::net::Ipv6Addr::LOCALHOST);

/// Everything that a forger may try with the id of peer 1: another port or state, and any event.
fn forgeries() -> Vec<Announce> {
    let mut all = Vec::new();
    for event in [
        Event::Started,
        Event::None,
        Event::Completed,
        Event::Stopped,
    ] {
        for (port, left, key) in [
            (10_001, Some(1), None),
            (10_001, Some(0), Some(8)),
            (666, Some(0), Some(0)),
        ] {
            let mut forged = announce(1, 1, event);
            (forged.port, forged.left, forged.key) = (port, left, key);
            all.push(forged);
        }
    }
    all
}

/// Returns the ports and events of the announces of peer 1 that a forwarder received.
fn heard(forwarder: &Forwarder) -> Vec<(String, String)> {
    let requests = forwarder.requests.lock().unwrap().clone();
    let value = |request: &str, key: &str| {
        let mut parts = request.split([' ', '?', '&']);
        let value = parts.find_map(|part| part.strip_prefix(key));
        value.unwrap_or_default().to_owned()
    };
    let both = |request: &String| (value(request, "port="), value(request, "event="));
    let of_first = |request: &&String| request.contains("peer_id=%00%01");
    requests.iter().filter(of_first).map(both).collect()
}

/// A tracker on both families with a forwarder that knows peer 1.
async fn with_announced_peer(settings: &str) -> (Running, Forwarder) {
    let forwarder = Forwarder::http(Behaviour::Peers(vec![])).await;
    let settings = format!("{settings}\n{}", listed([http_uri(&forwarder)]));
    let running = Running::listening("127.0.0.1:0,[::1]:0", &settings);
    let mut peer = announce(1, 1, Event::Started);
    peer.key = None;
    running.announce_from(OWNER, &peer, "", "").await;
    until("started arrives", || forwarder.received().len() == 1).await;
    (running, forwarder)
}

/// The owner completes and stops. The forwarder must have heard of nothing else.
async fn only_the_owner_was_heard(running: Running, forwarder: &Forwarder, headers: &str) {
    for event in [Event::Completed, Event::Stopped] {
        let mut own = announce(1, 1, event);
        own.key = None;
        running.announce_from(OWNER, &own, headers, "").await;
        let last = format!("{event:?}").to_lowercase();
        until("the event arrives", || {
            heard(forwarder)
                .last()
                .is_some_and(|(_, event)| *event == last)
        })
        .await;
    }
    running.stop().await;
    let events = ["started", "completed", "stopped"];
    let expected = events.map(|event| ("10001".to_owned(), event.to_owned()));
    assert_eq!(heard(forwarder), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_address_changes_nothing_over_http() {
    let (running, forwarder) = with_announced_peer("").await;
    for forged in forgeries() {
        running.announce_from(OTHER, &forged, "", "").await;
        // `ip=` is not allowed, so it claims nothing.
        running
            .announce_from(OTHER, &forged, "", "&ip=127.0.0.1")
            .await;
        running.announce_from(OTHER_V6, &forged, "", "").await;
    }
    let peers = running.peers(&announce(1, 2, Event::None)).await;
    assert!(
        peers.contains(&"127.0.0.1:10001".parse().unwrap()),
        "{peers:?}"
    );
    running.announce(&announce(1, 2, Event::Stopped)).await;
    only_the_owner_was_heard(running, &forwarder, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_address_changes_nothing_over_udp() {
    let (running, forwarder) = with_announced_peer("").await;
    for from in ["127.0.0.9:0", "[::1]:0"] {
        let same_family = |at: &&std::net::SocketAddr| at.is_ipv6() == from.starts_with('[');
        let at = *running.tracker.udp().iter().find(same_family).unwrap();
        let other = Client::at(from, at);
        let id = other.connect();
        for forged in forgeries() {
            let mut packet = Vec::new();
            udp::write_announce(id, 5, &forged, b"", &mut packet);
            other.exchange(&packet).expect("a response");
        }
    }
    only_the_owner_was_heard(running, &forwarder, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claimed_address_changes_nothing() {
    let (running, forwarder) = with_announced_peer("allow_ip_parameter = true").await;
    for forged in forgeries() {
        let claim = "&ip=127.0.0.1";
        running.announce_from(OTHER, &forged, "", claim).await;
    }
    let stats = running.stats().await;
    assert!(stats.contains("peers: 1\n"), "{stats}");
    // Neither does a peer that announced itself with `ip=` belong to anybody else.
    let mut claimed = announce(1, 3, Event::Started);
    claimed.key = None;
    let claim = "&ip=192.0.2.77";
    running.announce_from(OTHER, &claimed, "", claim).await;
    let mut forged = claimed;
    forged.event = Event::Stopped;
    running.announce_from(OWNER, &forged, "", claim).await;
    running.shows("/stats", "peers: 2\n").await;
    running.announce_from(OTHER, &forged, "", claim).await;
    running.shows("/stats", "peers: 1\n").await;
    only_the_owner_was_heard(running, &forwarder, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_client_of_a_trusted_proxy_changes_nothing() {
    let forwarder = Forwarder::http(Behaviour::Peers(vec![])).await;
    let settings = format!(
        "trusted_proxies = ['127.0.0.1']\n{}",
        listed([http_uri(&forwarder)])
    );
    let running = Running::start(&settings);
    let owner = "X-Forwarded-For: 198.51.100.1\r\n";
    let mut peer = announce(1, 1, Event::Started);
    peer.key = None;
    running.announce_from(OWNER, &peer, owner, "").await;
    until("started arrives", || forwarder.received().len() == 1).await;
    for forged in forgeries() {
        for other in [
            "X-Forwarded-For: 198.51.100.2\r\n",
            "X-Forwarded-For: 198.51.100.1, 198.51.100.2\r\n",
            "X-Real-IP: 198.51.100.1\r\n",
        ] {
            running.announce_from(OWNER, &forged, other, "").await;
        }
        // Not by way of the proxy.
        running.announce_from(OTHER, &forged, owner, "").await;
    }
    only_the_owner_was_heard(running, &forwarder, owner).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_address_changes_nothing_after_a_restart() {
    let path = std::env::temp_dir().join(format!("headworks-owner-{}", std::process::id()));
    let settings = format!("snapshot_file = '{}'", path.display());
    let (running, forwarder) = with_announced_peer(&settings).await;
    running.shows("/stats", "1 answers").await;
    running.stop().await;
    let settings = format!("{settings}\n{}", listed([http_uri(&forwarder)]));
    let running = Running::start(&settings);
    for forged in forgeries() {
        running.announce_from(OTHER, &forged, "", "").await;
    }
    only_the_owner_was_heard(running, &forwarder, "").await;
    std::fs::remove_file(path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_allows_changes_from_another_address() {
    let forwarder = Forwarder::udp(Behaviour::Peers(vec![])).await;
    let running = Running::start(&listed([udp_uri(&forwarder)]));
    running.announce(&announce(1, 1, Event::Started)).await;
    until("started arrives", || forwarder.received().len() == 1).await;
    let stopped = announce(1, 1, Event::Stopped);
    running.announce_from(OTHER, &stopped, "", "").await;
    until("stopped arrives", || {
        forwarder.events() == [Event::Started, Event::Stopped]
    })
    .await;
    running.shows("/stats", "peers: 0\n").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_go_by_the_address_of_the_connection() {
    let settings =
        "allow_ip_parameter = true\nmax_torrents_per_client = 4\nmax_peers_per_client = 2";
    let running = Running::start(settings);
    let stored = async || running.metric("headworks_tracker_peers").await;
    for number in 1..=9u32 {
        let claim = format!("&ip=192.0.2.{number}");
        let peer = announce(number, 1, Event::None);
        running.announce_from(OTHER, &peer, "", &claim).await;
    }
    assert_eq!(stored().await, 4.0, "four torrents for one client");
    for number in 1..=4u32 {
        let claim = format!("&ip=192.0.2.{number}");
        let stopped = announce(number, 1, Event::Stopped);
        running.announce_from(OTHER, &stopped, "", &claim).await;
    }
    assert_eq!(stored().await, 0.0);
    for number in 1..=9u16 {
        let claim = format!("&ip=192.0.2.{number}");
        let peer = announce(1, number, Event::None);
        running.announce_from(OTHER, &peer, "", &claim).await;
    }
    assert_eq!(stored().await, 2.0, "two peers of one client in a torrent");
    // Those whose address was claimed keep their places.
    for number in 1..=9u16 {
        let peer = announce(1, number, Event::None);
        running.announce_from(OWNER, &peer, "", "").await;
    }
    assert_eq!(stored().await, 4.0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_and_limits_survive_a_restart() {
    let path = std::env::temp_dir().join(format!("headworks-claims-{}", std::process::id()));
    let settings = format!(
        "allow_ip_parameter = true\nmax_peers_per_client = 2\nsnapshot_file = '{}'",
        path.display()
    );
    let running = Running::start(&settings);
    let claimed = |number: u16, event| {
        let mut peer = announce(1, number, event);
        peer.key = None;
        (peer, format!("&ip=10.0.0.{number}"))
    };
    for number in 1..=2 {
        let (peer, claim) = claimed(number, Event::Started);
        running.announce_from(OTHER, &peer, "", &claim).await;
    }
    running.stop().await;
    let running = Running::start(&settings);
    let stored = async || running.metric("headworks_tracker_peers").await;
    let (third, claim) = claimed(3, Event::Started);
    running.announce_from(OTHER, &third, "", &claim).await;
    assert_eq!(
        stored().await,
        2.0,
        "its claims still count towards its limit"
    );
    let (stopped, claim) = claimed(1, Event::Stopped);
    running.announce_from(OWNER, &stopped, "", &claim).await;
    assert_eq!(stored().await, 2.0, "another client does not own the peer");
    running.announce_from(OTHER, &stopped, "", &claim).await;
    assert_eq!(stored().await, 1.0, "the claimer does");
    running.stop().await;
    std::fs::remove_file(path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_stops_a_peer_that_no_forwarder_knows_from_another_address() {
    let path = std::env::temp_dir().join(format!("headworks-keys-{}", std::process::id()));
    let settings = format!("snapshot_file = '{}'", path.display());
    let running = Running::start(&settings);
    for number in 1..=3 {
        running.announce(&announce(1, number, Event::Started)).await;
    }
    let stored = async |running: &Running| running.metric("headworks_tracker_peers").await;
    for key in [None, Some(0), Some(8)] {
        let mut forged = announce(1, 1, Event::Stopped);
        forged.key = key;
        running.announce_from(OTHER, &forged, "", "").await;
    }
    assert_eq!(stored(&running).await, 3.0, "not without the key");
    let stopped = |number| announce(1, number, Event::Stopped);
    running.announce_from(OTHER, &stopped(1), "", "").await;
    assert_eq!(stored(&running).await, 2.0);
    running.stop().await;
    let running = Running::start(&settings);
    running.announce_from(OTHER, &stopped(2), "", "").await;
    assert_eq!(stored(&running).await, 1.0, "nor is it lost in a restart");
    running.stop().await;
    std::fs::remove_file(path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_moved_leaves_no_peer_behind() {
    let running = Running::start("");
    let peer = |event| announce(1, 1, event);
    running.announce(&peer(Event::Started)).await;
    running
        .announce_from(OTHER, &peer(Event::None), "", "")
        .await;
    running.shows("/stats", "peers: 2\n").await;
    running
        .announce_from(OTHER, &peer(Event::Stopped), "", "")
        .await;
    running.shows("/stats", "peers: 0\n").await;
    running.stop().await;
}
