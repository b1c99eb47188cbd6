//! Torrents with more local peers than are announced to forwarders.

use super::*;

/// The ids of the peers that the forwarder received a `started` of, by their first byte.
type Started = Arc<Mutex<HashSet<u8>>>;

fn start_logged() -> (AnnounceHandler, Started) {
    let started = Started::default();
    let ids = started.clone();
    let fake = move |_: &ForwarderState, announce: Option<&Announce>| {
        // A peer that takes the place of another is announced without an event.
        if let Some(announce) = announce.filter(|one| one.event != Event::Stopped) {
            ids.lock().insert(announce.peer_id.0[0]);
        }
        (DELAY, no_peers())
    };
    let (state, forwarding) = start(1, Box::new(fake));
    (AnnounceHandler { state, forwarding }, started)
}

fn send_peer(handler: &AnnounceHandler, id: u8, event: Event) {
    let mut announce = announce(1, event);
    announce.peer_id.0[0] = id;
    announce.port = 6000 + u16::from(id);
    send(handler, announce);
}

#[tokio::test(start_paused = true)]
async fn another_peer_is_announced_at_once_when_one_of_ten_stops() {
    let (handler, announced) = start_logged();
    for id in 1..=12 {
        send_peer(&handler, id, Event::Started);
    }
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*announced.lock(), (1..=10).collect());
    send_peer(&handler, 4, Event::Stopped);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(announced.lock().len(), 11);
    send_peer(&handler, 5, Event::Stopped);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(*announced.lock(), (1..=12).collect());
}

#[tokio::test(start_paused = true)]
async fn another_peer_is_announced_at_once_when_others_expire() {
    let (handler, announced) = start_logged();
    for id in 1..=10 {
        send_peer(&handler, id, Event::Started);
    }
    let age = handler.state.active().config.age;
    // Not when the others are due anyway.
    tokio::time::sleep(Duration::from_secs(1000)).await;
    send_peer(&handler, 11, Event::Started);
    tokio::time::sleep(age - Duration::from_secs(900)).await;
    assert_eq!(*announced.lock(), (1..=10).collect());
    handler.purge();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(announced.lock().contains(&11));
}
