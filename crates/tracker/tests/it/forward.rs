//! The forward plane: selection of forwarders, events, and the forward queue.

use crate::support::{
    Behaviour, Client, Forwarder, Running, address, announce, http_uri, listed, udp_uri, until,
};
use headworks_tracker_wire::response::AnnounceResponse;
use headworks_tracker_wire::{Event, udp};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn peers_from_forwarders_are_in_the_next_response() {
    let http = Forwarder::http(Behaviour::Peers(vec![
        address("1.2.3.1:1"),
        address("[2600::1]:2"),
    ]))
    .await;
    let udp = Forwarder::udp(Behaviour::Peers(vec![
        address("1.2.3.1:1"),
        address("1.2.3.3:3"),
    ]))
    .await;
    let running = Running::start(&listed([http_uri(&http), udp_uri(&udp)]));
    let AnnounceResponse::Peers(first) = running.announce(&announce(1, 1, Event::Started)).await
    else {
        panic!()
    };
    assert_eq!(first.interval, Some(90), "the client is to come back soon");
    assert!(first.peers.is_empty());
    running.shows("/stats", "1 answers").await;
    until("both are asked", || {
        http.received().len() == 1 && udp.received().len() == 1
    })
    .await;
    assert_eq!(
        (http.events(), udp.events()),
        (vec![Event::Started], vec![Event::Started])
    );
    assert!(
        udp.requests
            .lock()
            .unwrap()
            .contains(&"/announce?passkey=k".to_owned()),
        "the path is sent as an option"
    );

    let all_peers = ["1.2.3.1:1", "1.2.3.3:3", "[2600::1]:2"].map(address);
    let end = std::time::Instant::now() + crate::support::TIMEOUT;
    loop {
        let AnnounceResponse::Peers(next) = running.announce(&announce(1, 1, Event::None)).await
        else {
            panic!()
        };
        let mut peers: Vec<_> = next.peers.iter().map(|(at, _)| *at).collect();
        peers.sort();
        if peers == all_peers {
            assert_eq!(next.interval, Some(1800));
            assert_eq!((next.complete, next.incomplete), (Some(3), Some(1)));
            break;
        }
        assert!(std::time::Instant::now() < end, "{peers:?}");
    }
    assert_eq!(
        (http.received().len(), udp.received().len()),
        (1, 1),
        "no forwarder is asked before it is due"
    );
    let stats = running.stats().await;
    assert!(!stats.contains("passkey"), "{stats}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_follows_an_announce_in_flight() {
    let quick = Forwarder::http(Behaviour::Peers(vec![])).await;
    let slow = Forwarder::http(Behaviour::Silent).await;
    let settings = format!(
        "forward_timeout = '1s'\nforwarder_retry_attempts = 2\n{}",
        listed([http_uri(&quick), http_uri(&slow)])
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::Started)).await;
    until("both receive started", || {
        quick.received().len() == 1 && slow.received().len() == 1
    })
    .await;
    slow.set(Behaviour::Peers(vec![]));
    running.announce(&announce(1, 1, Event::Stopped)).await;
    // The slow one has not answered `started` when the peer leaves.
    assert_eq!(slow.events(), [Event::Started]);
    until("both receive stopped", || {
        quick.events() == [Event::Started, Event::Stopped]
            && slow.events() == [Event::Started, Event::Stopped]
    })
    .await;
    running.shows("/stats", "torrents: 0\n").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queued_announce_of_a_stopped_peer_is_cancelled() {
    let slow = Forwarder::http(Behaviour::Peers(vec![])).await;
    let settings = format!(
        "forwarder_workers = 1\nmax_forwarder_workers = 1\nforward_timeout = '2s'\nforwarder_retry_attempts = 1\n{}",
        listed([http_uri(&slow)])
    );
    let running = Running::start(&settings);
    running.prove(&[&slow]).await;
    slow.set(Behaviour::Silent);
    running.announce(&announce(1, 1, Event::Started)).await;
    until("the only worker is busy", || slow.received().len() == 1).await;
    slow.set(Behaviour::Peers(vec![]));
    running.announce(&announce(2, 2, Event::Started)).await;
    running.announce(&announce(2, 2, Event::Stopped)).await;
    running.announce(&announce(3, 3, Event::Started)).await;
    until("the third is announced", || slow.received().len() == 2).await;
    assert_eq!(
        slow.received()[1].hash,
        announce(3, 3, Event::None).info_hash
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_goes_to_every_forwarder() {
    let one = Forwarder::http(Behaviour::Peers(vec![])).await;
    let other = Forwarder::udp(Behaviour::Peers(vec![])).await;
    let running = Running::start(&listed([http_uri(&one), udp_uri(&other)]));
    running.announce(&announce(1, 1, Event::Started)).await;
    until("both receive the announce", || {
        one.received().len() == 1 && other.received().len() == 1
    })
    .await;
    running.announce(&announce(1, 1, Event::Completed)).await;
    until("both receive completed", || {
        one.events().last() == Some(&Event::Completed)
            && other.events().last() == Some(&Event::Completed)
    })
    .await;
    running.announce(&announce(1, 1, Event::Completed)).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_rejects_first_announces_and_accepts_events() {
    let slow = Forwarder::http(Behaviour::Peers(vec![])).await;
    let settings = format!(
        "forwarder_queue_size = 10\nforwarder_workers = 1\nmax_forwarder_workers = 1\nforwarder_concurrency = 1\nrate_limit_initial_burst = 1\nrate_limit_initial_per_sec = 0.001\nretry_period = '120s'\nforward_timeout = '20s'\n{}",
        listed([http_uri(&slow)])
    );
    let running = Running::start(&settings);
    running.prove(&[&slow]).await;
    slow.set(Behaviour::Silent);
    // One runs and eight are queued: eighty percent.
    for hash in 0..9 {
        assert!(
            matches!(
                running.announce(&announce(hash, 1, Event::None)).await,
                AnnounceResponse::Peers(_)
            ),
            "{hash}"
        );
        until("the worker is busy", || !slow.received().is_empty()).await;
        running.queues(hash + 1, hash).await;
    }
    assert!(
        matches!(
            running.announce(&announce(9, 1, Event::None)).await,
            AnnounceResponse::Peers(_)
        ),
        "the only token"
    );
    running.queues(10, 9).await;
    let AnnounceResponse::Failure { reason, retry_in } =
        running.announce(&announce(10, 1, Event::None)).await
    else {
        panic!("not rate-limited")
    };
    assert_eq!(reason, "tracker busy, retry in 120 seconds");
    assert_eq!(
        retry_in,
        Some(headworks_tracker_wire::RetryIn::After(Duration::from_secs(
            120
        )))
    );
    assert_eq!(running.metric("queue_rate_limited").await, 1.0);
    assert_eq!(
        (
            running.metric("queue_depth").await,
            running.metric("queue_capacity").await
        ),
        (9.0, 10.0)
    );
    // An event is accepted even now.
    running.announce(&announce(0, 1, Event::Completed)).await;
    assert_eq!(running.metric("queue_depth").await, 10.0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_rejects_only_with_a_rate_limit() {
    let slow = Forwarder::http(Behaviour::Silent).await;
    for (threshold, overload, refused) in [
        (100, "refuse", true),
        (0, "refuse", false),
        (100, "serve", false),
    ] {
        let settings = format!(
            "forwarder_queue_size = 2\nforwarder_workers = 1\nmax_forwarder_workers = 1\nforwarder_concurrency = 1\nqueue_rate_limit_threshold = {threshold}\noverload = '{overload}'\n{}",
            listed([http_uri(&slow)])
        );
        let running = Running::start(&settings);
        slow.set(Behaviour::Peers(vec![]));
        running.prove(&[&slow]).await;
        slow.set(Behaviour::Silent);
        running.announce(&announce(0, 1, Event::None)).await;
        until("the worker is busy", || slow.received().len() == 1).await;
        for hash in 1..3 {
            running.announce(&announce(hash, 1, Event::None)).await;
            running.queues(hash + 1, hash).await;
        }
        match running.announce(&announce(3, 2, Event::None)).await {
            AnnounceResponse::Failure { reason, .. } => assert!(
                refused && reason == "tracker queue full, retry in 30 minutes",
                "{reason}"
            ),
            AnnounceResponse::Peers(peers) => {
                assert!(!refused);
                let soon = if overload == "serve" { 90 } else { 1800 };
                assert_eq!(peers.interval, Some(soon));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(running.metric("queue_dropped_full").await, 1.0);
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_torrent_that_found_the_queue_full_backs_off() {
    let slow = Forwarder::http(Behaviour::Peers(vec![])).await;
    let uris = (0..3).map(|n| format!("http://{}/announce?n={n}", slow.address));
    let settings = format!(
        "forwarder_queue_size = 3\nforwarder_workers = 1\nmax_forwarder_workers = 1\nforwarder_concurrency = 1\nforward_timeout = '20s'\n{}",
        listed(uris)
    );
    let running = Running::start(&settings);
    running.prove(&[&slow]).await;
    slow.set(Behaviour::Silent);
    running.announce(&announce(1, 1, Event::None)).await;
    until("the worker is busy", || slow.received().len() == 1).await;
    running.queues(3, 2).await;
    // One of its three forwards finds room.
    running.announce(&announce(2, 1, Event::None)).await;
    running.shows("/metrics", "queue_dropped_full 2").await;
    running.announce(&announce(2, 1, Event::None)).await;
    assert_eq!(running.metric("queue_dropped_full").await, 2.0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filling_queue_throttles_the_fanout() {
    let slow = Forwarder::http(Behaviour::Peers(vec![])).await;
    let uris = (0..10).map(|n| format!("http://{}/announce?n={n}", slow.address));
    let settings = format!(
        "forwarder_queue_size = 100\nforwarder_workers = 1\nmax_forwarder_workers = 1\nqueue_throttle_threshold = 5\nqueue_throttle_top_n = 3\nmax_forwarders_per_announce = 8\n{}",
        listed(uris)
    );
    let running = Running::start(&settings);
    running.prove(&[&slow]).await;
    slow.set(Behaviour::Silent);
    let before = running.metric("queue_throttled_forwarders").await;
    running.announce(&announce(1, 1, Event::None)).await;
    until("the worker is busy", || slow.received().len() == 1).await;
    // The configured limit of eight.
    running.queues(8, 7).await;
    running.announce(&announce(2, 1, Event::None)).await;
    // Three above the throttle threshold.
    running.queues(11, 10).await;
    let throttled = running.metric("queue_throttled_forwarders").await - before;
    assert_eq!(
        throttled, 9.0,
        "two by the configured limit and seven by the lower one"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_peers_and_announcements() {
    let path = std::env::temp_dir().join(format!("headworks-warm-{}", std::process::id()));
    let forwarder = Forwarder::http(Behaviour::Peers(vec![address("1.2.3.1:1")])).await;
    let settings = format!(
        "snapshot_file = '{}'\n{}",
        path.display(),
        listed([http_uri(&forwarder)])
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::Started)).await;
    running.shows("/stats", "1 unique peers").await;
    running.stop().await;
    let running = Running::start(&settings);
    let peers = running.peers(&announce(1, 2, Event::Started)).await;
    assert_eq!(
        peers.len(),
        2,
        "the local peer and the cached one: {peers:?}"
    );
    running.announce(&announce(1, 1, Event::Stopped)).await;
    let of_first = || -> Vec<Event> {
        let received = forwarder.received().into_iter();
        let first = announce(1, 1, Event::None).peer_id;
        let of_first = received.filter(|received| received.peer == first);
        of_first.map(|received| received.event).collect()
    };
    until("the forwarder receives stopped", || {
        of_first() == [Event::Started, Event::Stopped]
    })
    .await;
    running.stop().await;
    std::fs::remove_file(path).unwrap();
}

/// Starts a tracker with forwarders that respond and one that hangs once it is known to respond,
/// and announces a torrent to it, so that it holds the only worker.
async fn with_hung_worker(others: &[String]) -> (Running, Forwarder) {
    let hung = Forwarder::http(Behaviour::Peers(vec![])).await;
    let uris = [http_uri(&hung)].into_iter().chain(others.iter().cloned());
    // No test waits so long.
    let settings = format!(
        "forwarder_workers = 1\nmax_forwarder_workers = 1\nforward_timeout = '600s'\n{}",
        listed(uris)
    );
    let running = Running::start(&settings);
    running.prove(&[&hung]).await;
    hung.set(Behaviour::Raw(Vec::new()));
    running.announce(&announce(1, 1, Event::Started)).await;
    until("the only worker hangs", || hung.received().len() == 1).await;
    (running, hung)
}

#[tokio::test(flavor = "multi_thread")]
async fn udp_forwarders_need_no_worker() {
    let udp = Forwarder::udp(Behaviour::Peers(vec![])).await;
    let responds = || Behaviour::Peers(vec![]);
    let silent = futures_util::future::join_all((0..20).map(|_| Forwarder::udp(responds()))).await;
    let others: Vec<_> = [&udp].into_iter().chain(&silent).map(udp_uri).collect();
    let (running, _hung) = with_hung_worker(&others).await;
    for one in &silent {
        one.set(Behaviour::Silent);
    }
    for hash in 2..50 {
        running.announce(&announce(hash, 1, Event::None)).await;
    }
    until("the good one is asked for every torrent", || {
        let received = udp.received();
        let asked = |hash| {
            let hash = announce(hash, 1, Event::None).info_hash;
            received.iter().any(|received| received.hash == hash)
        };
        (1..50).all(asked)
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn events_do_not_wait_for_workers() {
    let good = Forwarder::http(Behaviour::Peers(vec![])).await;
    let (running, _hung) = with_hung_worker(&[http_uri(&good)]).await;
    let first = announce(1, 1, Event::None).peer_id;
    // The announce of the other peer may wait behind the one that hangs.
    running.announce(&announce(2, 2, Event::Completed)).await;
    until("completed arrives", || {
        let received = good.received();
        let completed = |r: &&crate::support::ReceivedAnnounce| r.event == Event::Completed;
        received
            .iter()
            .find(completed)
            .is_some_and(|r| r.peer != first)
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_local_peer_is_announced_and_replaced_when_it_stops() {
    let forwarder = Forwarder::udp(Behaviour::Peers(vec![])).await;
    let settings = format!("announce_peers = 'one'\n{}", listed([udp_uri(&forwarder)]));
    for (settings, peers) in [(listed([udp_uri(&forwarder)]), 3), (settings, 1)] {
        forwarder.received.lock().unwrap().clear();
        let running = Running::start(&settings);
        for peer in 1..=3 {
            running.announce(&announce(1, peer, Event::Started)).await;
        }
        let known = || -> Vec<_> {
            let received = forwarder.received().into_iter();
            received.map(|r| (r.peer.0[1], r.event)).collect()
        };
        until("peers are announced", || known().len() == peers).await;
        running.announce(&announce(1, 1, Event::Stopped)).await;
        until("stopped arrives", || known().contains(&(1, Event::Stopped))).await;
        // With one at a time, another one takes its place at once.
        until("another is known", || {
            known().iter().any(|(peer, _)| *peer != 1)
        })
        .await;
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn user_and_password_of_a_uri_are_sent_to_its_forwarder_only() {
    let elsewhere = Forwarder::http(Behaviour::Peers(vec![])).await;
    let moved = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://localhost:{}/announce\r\nContent-Length: 0\r\n\r\n",
        elsewhere.address.port()
    );
    let forwarder = Forwarder::http(Behaviour::Raw(moved.into_bytes())).await;
    let uri = http_uri(&forwarder).replace("http://", "http://me:secret@");
    let running = Running::start(&listed([uri]));
    running.announce(&announce(1, 1, Event::Started)).await;
    until("the redirect is followed", || {
        !elsewhere.requests.lock().unwrap().is_empty()
    })
    .await;
    let header = "authorization: basic bwu6c2vjcmv0";
    let request = forwarder.requests.lock().unwrap()[0].to_lowercase();
    assert!(request.contains(header), "{request}");
    let request = elsewhere.requests.lock().unwrap()[0].to_lowercase();
    assert!(!request.contains("authorization"), "{request}");
    let stats = running.stats().await;
    assert!(!stats.contains("secret"), "{stats}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_does_not_carry_the_passkey_to_another_host() {
    let elsewhere = Forwarder::http(Behaviour::Peers(vec![])).await;
    let moved = format!(
        "HTTP/1.1 302 Found\r\nLocation: http://localhost:{}/?k3yk3yk3y\r\nContent-Length: 0\r\n\r\n",
        elsewhere.address.port()
    );
    let forwarder = Forwarder::http(Behaviour::Raw(moved.into_bytes())).await;
    let uri = http_uri(&forwarder) + "?passkey=k3yk3yk3y";
    let running = Running::start(&listed([uri]));
    running.announce(&announce(1, 1, Event::Started)).await;
    let reason = "last error: redirected to another host with the passkey: not followed";
    running.shows("/stats", reason).await;
    assert!(forwarder.requests.lock().unwrap()[0].contains("k3yk3yk3y"));
    assert!(elsewhere.requests.lock().unwrap().is_empty());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_needs_the_address_or_the_key() {
    let forwarder = Forwarder::udp(Behaviour::Peers(vec![])).await;
    let running = Running::start(&listed([udp_uri(&forwarder)]));
    let peer = announce(1, 1, Event::Started);
    running.announce(&peer).await;
    until("started arrives", || forwarder.received().len() == 1).await;
    let other = Client::at("127.0.0.9:0", running.udp());
    let id = other.connect();
    let mut forged = announce(1, 1, Event::Stopped);
    for key in [8, 7] {
        assert_eq!(forwarder.events(), [Event::Started]);
        running.shows("/stats", "peers: 1\n").await;
        forged.key = Some(key);
        let mut packet = Vec::new();
        udp::write_announce(id, 5, &forged, b"", &mut packet);
        other.exchange(&packet).expect("a response");
    }
    until("stopped arrives with the key", || {
        forwarder.events() == [Event::Started, Event::Stopped]
    })
    .await;
    running.shows("/stats", "peers: 0\n").await;
    running.stop().await;
}
