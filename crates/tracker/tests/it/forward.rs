//! The forward plane: who is asked, told and believed.

use crate::support::{
    Forwarder, Manner, Running, address, announce, http_uri, listed, udp_uri, until,
};
use headworks_tracker_wire::Event;
use headworks_tracker_wire::response::AnnounceResponse;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn what_forwarders_find_is_in_the_next_answer() {
    let http = Forwarder::http(Manner::Peers(vec![
        address("192.0.2.1:1"),
        address("[2001:db8::1]:2"),
    ]))
    .await;
    let udp = Forwarder::udp(Manner::Peers(vec![
        address("192.0.2.1:1"),
        address("192.0.2.3:3"),
    ]))
    .await;
    let running = Running::start(&listed([http_uri(&http), udp_uri(&udp)]));
    let AnnounceResponse::Peers(first) = running.announce(&announce(1, 1, Event::Started)).await
    else {
        panic!()
    };
    assert_eq!(first.interval, Some(90), "it is asked back soon");
    assert!(first.peers.is_empty());
    running.shows("/stats", "1 answers").await;
    until("both are asked", || {
        http.heard().len() == 1 && udp.heard().len() == 1
    })
    .await;
    assert_eq!(
        (http.events(), udp.events()),
        (vec![Event::Started], vec![Event::Started])
    );
    assert!(
        udp.lines
            .lock()
            .unwrap()
            .contains(&"/announce?passkey=k".to_owned()),
        "the path travels"
    );

    let everybody = ["192.0.2.1:1", "192.0.2.3:3", "[2001:db8::1]:2"].map(address);
    let end = std::time::Instant::now() + crate::support::PATIENCE;
    loop {
        let AnnounceResponse::Peers(next) = running.announce(&announce(1, 1, Event::None)).await
        else {
            panic!()
        };
        let mut peers: Vec<_> = next.peers.iter().map(|(at, _)| *at).collect();
        peers.sort();
        if peers == everybody {
            assert_eq!(next.interval, Some(1800));
            assert_eq!((next.complete, next.incomplete), (Some(3), Some(1)));
            break;
        }
        assert!(std::time::Instant::now() < end, "{peers:?}");
    }
    assert_eq!(
        (http.heard().len(), udp.heard().len()),
        (1, 1),
        "nobody is asked before his time"
    );
    let stats = running.stats().await;
    assert!(!stats.contains("passkey"), "{stats}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_told_started_is_told_stopped_after_it() {
    let quick = Forwarder::http(Manner::Peers(vec![])).await;
    let slow = Forwarder::http(Manner::Silent).await;
    let settings = format!(
        "forward_timeout = '1s'\nforwarder_retry_attempts = 2\n{}",
        listed([http_uri(&quick), http_uri(&slow)])
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::Started)).await;
    until("both hear started", || {
        quick.heard().len() == 1 && slow.heard().len() == 1
    })
    .await;
    slow.set(Manner::Peers(vec![]));
    running.announce(&announce(1, 1, Event::Stopped)).await;
    // The slow one is still busy with `started` when the peer leaves.
    assert_eq!(slow.events(), [Event::Started]);
    until("both hear stopped", || {
        quick.events() == [Event::Started, Event::Stopped]
            && slow.events() == [Event::Started, Event::Stopped]
    })
    .await;
    running.shows("/stats", "torrents: 0\n").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_was_not_told_yet_is_told_nothing() {
    let slow = Forwarder::http(Manner::Silent).await;
    let settings = format!(
        "forwarder_workers = 1\nmax_forwarder_workers = 1\nforward_timeout = '2s'\nforwarder_retry_attempts = 1\n{}",
        listed([http_uri(&slow)])
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::Started)).await;
    until("the only worker is busy", || slow.heard().len() == 1).await;
    slow.set(Manner::Peers(vec![]));
    running.announce(&announce(2, 2, Event::Started)).await;
    running.announce(&announce(2, 2, Event::Stopped)).await;
    running.announce(&announce(3, 3, Event::Started)).await;
    until("the third is told of", || slow.heard().len() == 2).await;
    assert_eq!(slow.heard()[1].hash, announce(3, 3, Event::None).info_hash);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn completed_goes_to_everybody() {
    let one = Forwarder::http(Manner::Peers(vec![])).await;
    let other = Forwarder::udp(Manner::Peers(vec![])).await;
    let running = Running::start(&listed([http_uri(&one), udp_uri(&other)]));
    running.announce(&announce(1, 1, Event::Started)).await;
    until("both hear of it", || {
        one.heard().len() == 1 && other.heard().len() == 1
    })
    .await;
    running.announce(&announce(1, 1, Event::Completed)).await;
    until("both hear again", || {
        one.events().last() == Some(&Event::Completed)
            && other.events().last() == Some(&Event::Completed)
    })
    .await;
    running.announce(&announce(1, 1, Event::Completed)).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_refuses_first_announces_in_words_and_lets_events_in() {
    let slow = Forwarder::http(Manner::Silent).await;
    let settings = format!(
        "forwarder_queue_size = 10\nforwarder_workers = 1\nmax_forwarder_workers = 1\nforwarder_concurrency = 1\nrate_limit_initial_burst = 1\nrate_limit_initial_per_sec = 0.001\nretry_period = '120s'\nforward_timeout = '20s'\n{}",
        listed([http_uri(&slow)])
    );
    let running = Running::start(&settings);
    // One runs, eight wait: eighty percent.
    for hash in 0..9 {
        assert!(
            matches!(
                running.announce(&announce(hash, 1, Event::None)).await,
                AnnounceResponse::Peers(_)
            ),
            "{hash}"
        );
        until("the worker is busy", || !slow.heard().is_empty()).await;
        running.queues(hash + 1, hash).await;
    }
    assert!(
        matches!(
            running.announce(&announce(9, 1, Event::None)).await,
            AnnounceResponse::Peers(_)
        ),
        "the one token"
    );
    running.queues(10, 9).await;
    let AnnounceResponse::Failure { reason, retry_in } =
        running.announce(&announce(10, 1, Event::None)).await
    else {
        panic!("it is limited")
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
    // The torrent of the first is known to its forwarder: its peer's completion must get in.
    running.announce(&announce(0, 1, Event::Completed)).await;
    assert_eq!(running.metric("queue_depth").await, 10.0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_without_a_limit_says_nothing() {
    let slow = Forwarder::http(Manner::Silent).await;
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
        let before = slow.heard().len();
        running.announce(&announce(0, 1, Event::None)).await;
        until("the worker is busy", || slow.heard().len() == before + 1).await;
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
async fn a_torrent_that_found_the_queue_full_rests() {
    let slow = Forwarder::http(Manner::Silent).await;
    let uris = (0..3).map(|n| format!("http://{}/announce?n={n}", slow.address));
    let settings = format!(
        "forwarder_queue_size = 3\nforwarder_workers = 1\nmax_forwarder_workers = 1\nforward_timeout = '20s'\n{}",
        listed(uris)
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::None)).await;
    until("the worker is busy", || slow.heard().len() == 1).await;
    running.queues(3, 2).await;
    // One of its three finds a place.
    running.announce(&announce(2, 1, Event::None)).await;
    running.shows("/metrics", "queue_dropped_full 2").await;
    running.announce(&announce(2, 1, Event::None)).await;
    assert_eq!(running.metric("queue_dropped_full").await, 2.0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_pressure_fewer_are_asked() {
    let slow = Forwarder::http(Manner::Silent).await;
    let uris = (0..10).map(|n| format!("http://{}/announce?n={n}", slow.address));
    let settings = format!(
        "forwarder_queue_size = 100\nforwarder_workers = 1\nmax_forwarder_workers = 1\nqueue_throttle_threshold = 5\nqueue_throttle_top_n = 3\nmax_forwarders_per_announce = 8\n{}",
        listed(uris)
    );
    let running = Running::start(&settings);
    running.announce(&announce(1, 1, Event::None)).await;
    until("the worker is busy", || slow.heard().len() == 1).await;
    // Eight at most.
    running.queues(8, 7).await;
    running.announce(&announce(2, 1, Event::None)).await;
    // Three under pressure.
    running.queues(11, 10).await;
    assert_eq!(running.metric("queue_throttled_forwarders").await, 7.0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_forgets_nothing() {
    let path = std::env::temp_dir().join(format!("headworks-warm-{}", std::process::id()));
    let far = Forwarder::http(Manner::Peers(vec![address("192.0.2.1:1")])).await;
    let settings = format!(
        "snapshot_file = '{}'\n{}",
        path.display(),
        listed([http_uri(&far)])
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
        "the local peer and the found one: {peers:?}"
    );
    running.announce(&announce(1, 1, Event::Stopped)).await;
    until("the forwarder hears that it left", || {
        far.events() == [Event::Started, Event::Stopped]
    })
    .await;
    running.stop().await;
    std::fs::remove_file(path).unwrap();
}
