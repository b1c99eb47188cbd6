//! Torrents and clients that a reload denies.

use super::*;

/// A handler with one forwarder, and the events that it received.
fn start_counted() -> (AnnounceHandler, Arc<Mutex<Vec<Event>>>) {
    let log = Arc::<Mutex<Vec<Event>>>::default();
    let events = log.clone();
    let fake = move |_: &ForwarderState, announce: Option<&Announce>| {
        events
            .lock()
            .extend(announce.map(|announce| announce.event));
        (DELAY, no_peers())
    };
    let (state, forwarding) = start(1, Box::new(fake));
    (AnnounceHandler { state, forwarding }, log)
}

/// Makes the configuration active that `change` leaves.
fn reload(handler: &AnnounceHandler, change: impl FnOnce(&mut TrackerConfig)) {
    let before = handler.state.active();
    let mut config = before.config.clone();
    change(&mut config);
    let lists = Subscriptions::default();
    let active = ActiveConfig::new(&config, &lists, &before.forwarders).unwrap();
    handler.state.active.store(Arc::new(active));
}

#[tokio::test(start_paused = true)]
async fn a_denied_torrent_is_no_longer_announced_and_its_client_can_leave() {
    let (handler, log) = start_counted();
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let file = format!("headworks-denied-{}", std::process::id());
    let file = std::env::temp_dir().join(file);
    std::fs::write(&file, announce(1, Event::None).info_hash.to_string()).unwrap();
    reload(&handler, |config| {
        config.deny_hashes_file = Some(file.clone());
    });
    let _ = std::fs::remove_file(&file);
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!(*log.lock(), [Event::Started]);
    send(&handler, announce(1, Event::Stopped));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*log.lock(), [Event::Started, Event::Stopped]);
    assert_eq!(handler.state.swarms.totals().1, 0, "no peer is left");
}

#[tokio::test(start_paused = true)]
async fn a_denied_client_is_no_longer_announced_and_can_leave() {
    let (handler, log) = start_counted();
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(10)).await;
    reload(&handler, |config| {
        config.deny_clients = vec!["127.0.0.0/8".parse().unwrap()];
    });
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    assert_eq!(*log.lock(), [Event::Started]);
    send(&handler, announce(1, Event::Stopped));
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(*log.lock(), [Event::Started, Event::Stopped]);
}
