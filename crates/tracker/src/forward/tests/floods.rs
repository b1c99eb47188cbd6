//! Clients that announce more often than they should.

use super::*;
use crate::config::CountBy;

/// The events that the forwarder received, with the first byte of the peer id and the port.
type Log = Arc<Mutex<Vec<(Event, u8, u16)>>>;

fn start_logged() -> (AnnounceHandler, Log) {
    let log = Log::default();
    let entries = log.clone();
    let fake = move |_: &ForwarderState, announce: Option<&Announce>| {
        let entry = announce.map(|one| (one.event, one.peer_id.0[0], one.port));
        entries.lock().extend(entry);
        (DELAY, no_peers())
    };
    let (state, forwarding) = start(1, Box::new(fake));
    (AnnounceHandler { state, forwarding }, log)
}

fn count(log: &Log, event: Event) -> usize {
    let log = log.lock();
    log.iter().filter(|(other, ..)| *other == event).count()
}

#[tokio::test(start_paused = true)]
async fn a_repeated_completed_is_forwarded_once_per_minute() {
    let (handler, log) = start_logged();
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for _ in 0..200 {
        send(&handler, announce(1, Event::Completed));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(count(&log, Event::Completed), 1);
    tokio::time::sleep(Duration::from_secs(60)).await;
    send(&handler, announce(1, Event::Completed));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&log, Event::Completed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_changes_its_id_is_announced_once_per_minute() {
    let (handler, log) = start_logged();
    let with_id = |id: u8, event: Event| {
        let mut announce = announce(1, event);
        announce.peer_id.0[0] = id;
        announce
    };
    for id in 1..=200 {
        send(&handler, with_id(id, Event::Started));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(count(&log, Event::Started) <= 2, "{:?}", log.lock());
    tokio::time::sleep(Duration::from_secs(120)).await;
    send(&handler, with_id(200, Event::Stopped));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let log = log.lock();
    let ids = |event: Event| -> HashSet<u8> {
        let all = log.iter().filter(|(other, ..)| *other == event);
        all.map(|(_, id, _)| *id).collect()
    };
    assert!(
        ids(Event::Started).contains(&200),
        "the last one is announced"
    );
    assert_eq!(
        ids(Event::Started),
        ids(Event::Stopped),
        "no id is left behind"
    );
}

#[tokio::test(start_paused = true)]
async fn one_address_does_not_take_the_places_of_all_clients() {
    let (handler, log) = start_logged();
    let send_peer = |client: [u8; 4], id: u8| {
        let mut announce = announce(1, Event::Started);
        announce.peer_id.0[0] = id;
        announce.port = 6000 + u16::from(id);
        send_from(client.into(), &handler, announce);
    };
    for round in 0..3 {
        for id in 1..=10 {
            send_peer([127, 0, 0, 66], id);
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        send_peer([127, 0, 0, 5], 99);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let log = log.lock();
        assert!(
            log.contains(&(Event::Started, 99, 6099)),
            "round {round}: {log:?}"
        );
    }
    assert_eq!(count(&log, Event::Stopped), 1, "one made room, once");
    assert_eq!(count(&log, Event::Started), 11);
}

#[tokio::test(start_paused = true)]
async fn one_ipv6_network_does_not_take_the_places_of_all_clients() {
    let (handler, log) = start_logged();
    let send_peer = |client: &str, id: u8| {
        let mut announce = announce(1, Event::Started);
        announce.peer_id.0[0] = id;
        send_from(client.parse().unwrap(), &handler, announce);
    };
    for id in 1..=10 {
        send_peer(&format!("2600:1:2:3::{id:x}"), id);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    send_peer("2600:1:2:4::1", 99);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(
        log.lock().contains(&(Event::Started, 99, 6881)),
        "{:?}",
        log.lock()
    );
    assert_eq!(count(&log, Event::Stopped), 1, "one made room");
}

#[tokio::test(start_paused = true)]
async fn one_ipv6_network_stores_no_more_peers_than_one_address() {
    for count_by in [CountBy::Ip, CountBy::Peer] {
        let config = TrackerConfig {
            max_peers_per_client: 20,
            allow_ip_parameter: true,
            count_by,
            ..TrackerConfig::default()
        };
        let (state, forwarding) = start_with(&config, Box::new(|_, _| (DELAY, no_peers())));
        let handler = AnnounceHandler { state, forwarding };
        let stored = || {
            let hash = announce(1, Event::None).info_hash;
            let peers = (handler.state.swarms).with_existing(&hash, |swarm| swarm.local_peers());
            peers.unwrap_or_default()
        };
        let send_peer = |client: &str, port: u16, event: Event| {
            let mut announce = announce(1, event);
            announce.port = port;
            send_from(client.parse().unwrap(), &handler, announce);
        };
        for number in 1..=200 {
            send_peer(&format!("2600:1:2:3::{number:x}"), 1, Event::Started);
        }
        assert_eq!(stored(), 20, "{count_by:?}: one for each address at most");
        for number in 1..=200 {
            send_peer("2600:1:2:4::1", number, Event::Started);
        }
        assert_eq!(stored(), 40, "{count_by:?}: another network");
        send_peer("2600:1:2:3::1", 1, Event::Stopped);
        for number in 300..=500 {
            send_peer(&format!("2600:1:2:3::{number:x}"), 1, Event::Started);
        }
        assert_eq!(
            stored(),
            40,
            "{count_by:?}: in the place of the one that left"
        );
        // An address that is claimed with `ip=` counts for the network that claims it.
        for number in 1..=50 {
            let mut announce = announce(1, Event::Started);
            announce.ip = Some([10, 0, 0, number].into());
            let client = format!("2600:1:2:5::{number:x}");
            send_from(client.parse().unwrap(), &handler, announce);
        }
        assert_eq!(stored(), 60, "{count_by:?}: claimed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_changes_its_id_completes_once_per_minute() {
    let (handler, log) = start_logged();
    let complete = |id: u8| {
        let mut announce = announce(1, Event::Completed);
        announce.peer_id.0[0] = id;
        send(&handler, announce);
    };
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for id in 1..=200 {
        complete(id);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(count(&log, Event::Completed), 1, "{:?}", log.lock());
    assert_eq!(count(&log, Event::Stopped), 1, "{:?}", log.lock());
    tokio::time::sleep(Duration::from_secs(60)).await;
    complete(201);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&log, Event::Completed), 2);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_and_starts_again_is_announced_once_per_minute() {
    let (handler, log) = start_logged();
    let cycle = async |torrent: u32, port: u16| {
        for event in [Event::Started, Event::Stopped] {
            let mut announce = announce(torrent, event);
            announce.port = port;
            send(&handler, announce);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    for number in 0..100 {
        // The port is the client's choice.
        cycle(1, 6000 + number).await;
    }
    assert_eq!(count(&log, Event::Started), 1, "{:?}", log.lock());
    assert_eq!(count(&log, Event::Stopped), 1, "{:?}", log.lock());
    assert!(handler.forwarding.submitter.timers.len() <= 1);
    // One that stays is announced when the minute is over.
    let outcome = send(&handler, announce(1, Event::Started));
    assert!(
        matches!(outcome, AnnounceOutcome::Peers { interval: 90, .. }),
        "it is to come back soon: {outcome:?}"
    );
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!(count(&log, Event::Started), 2, "{:?}", log.lock());
    cycle(2, 6000).await;
    assert_eq!(count(&log, Event::Started), 3, "another torrent");
}

#[tokio::test(start_paused = true)]
async fn completed_goes_to_as_many_forwarders_as_an_announce() {
    let log = Log::default();
    let entries = log.clone();
    let fake = move |_: &ForwarderState, announce: Option<&Announce>| {
        let entry = announce.map(|one| (one.event, one.peer_id.0[0], one.port));
        entries.lock().extend(entry);
        (DELAY, no_peers())
    };
    let one = |number: usize| Forwarder::at(&format!("udp://192.0.2.1:{}", number + 1));
    let config = TrackerConfig {
        forwarders: (0..50).map(one).collect(),
        max_forwarders_per_announce: 20,
        ..TrackerConfig::default()
    };
    let (state, forwarding) = start_with(&config, Box::new(fake));
    let handler = AnnounceHandler { state, forwarding };
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(count(&log, Event::Started), 50, "one after the other");
    send(&handler, announce(1, Event::Completed));
    let offered = handler.forwarding.pool().inspect().classes[0]
        .stats
        .admitted;
    assert_eq!(offered, 0, "not on the thread that answers clients");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(count(&log, Event::Completed), 20);
}

#[tokio::test(start_paused = true)]
async fn completed_of_a_peer_that_is_not_announced_is_not_queued() {
    let (handler, log) = start_logged();
    let send_peer = |id: u8, event: Event| {
        let mut announce = announce(1, event);
        announce.peer_id.0[0] = id;
        announce.port = 6000 + u16::from(id);
        send(&handler, announce);
    };
    for id in 1..=10 {
        send_peer(id, Event::Started);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    let offered = || {
        let stats = &handler.forwarding.pool().inspect().classes[0].stats;
        stats.admitted + stats.refused_in_all()
    };
    let before = offered();
    for id in 11..=200 {
        send_peer(id, Event::Completed);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(offered(), before, "nothing displaces an announce");
    send_peer(10, Event::Completed);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(offered(), before + 1);
    assert_eq!(count(&log, Event::Completed), 1);
}
