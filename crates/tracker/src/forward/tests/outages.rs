//! Requests while our own network is down.

use super::*;

/// The requests, by forwarder, with their times. Probes have no torrent.
type Log = Arc<Mutex<Vec<(u16, Option<InfoHash>, Duration)>>>;

/// Starts 20 forwarders in different networks that respond until the returned switch is set.
fn start_cut_off() -> (Arc<TrackerState>, Forwarding, Log, Arc<AtomicBool>) {
    let (log, down) = (Log::default(), Arc::new(AtomicBool::new(false)));
    let (entries, cut, began) = (log.clone(), down.clone(), VirtualInstant::now());
    let fake = move |forwarder: &ForwarderState, announce: Option<&Announce>| {
        let number = forwarder.uri.port_u16().unwrap_or_default();
        let torrent = announce.map(|announce| announce.info_hash);
        (entries.lock()).push((number, torrent, began.elapsed()));
        match cut.load(Ordering::Relaxed) {
            true => (Duration::from_secs(3600), Err(ClientError::Timeout)),
            false => (DELAY, no_peers()),
        }
    };
    let uri = |number: u16| format!("udp://8.8.{number}.1:{number}");
    let uris: Vec<String> = (1..=20).map(uri).collect();
    let (state, forwarding) = start_at(&uris, Box::new(fake));
    (state, forwarding, log, down)
}

#[tokio::test(start_paused = true)]
async fn the_probes_of_a_round_are_sent_at_once() {
    let (state, forwarding, log, down) = start_cut_off();
    down.store(true, Ordering::Relaxed);
    add_torrents(&state, &forwarding, 1);
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert!(forwarding.outage.is_down());
    let mut rounds = BTreeMap::<Duration, HashSet<u16>>::new();
    for (number, torrent, at) in log.lock().iter() {
        if torrent.is_none() {
            rounds.entry(*at).or_default().insert(*number);
        }
    }
    assert!(rounds.len() >= 3, "{rounds:?}");
    assert!(rounds.values().all(|round| round.len() == 8), "{rounds:?}");
}

#[tokio::test(start_paused = true)]
async fn forwards_that_fail_in_an_outage_pause_after_their_attempts() {
    let (state, forwarding, log, down) = start_cut_off();
    add_torrents(&state, &forwarding, 20);
    tokio::time::sleep(Duration::from_secs(600)).await;
    down.store(true, Ordering::Relaxed);
    log.lock().clear();
    tokio::time::sleep(Duration::from_secs(4 * 3600)).await;
    assert!(forwarding.outage.is_down());
    let mut asks = HashMap::<_, Vec<Duration>>::new();
    for (number, torrent, at) in log.lock().iter() {
        if let Some(torrent) = torrent {
            asks.entry((*number, *torrent)).or_default().push(*at);
        }
    }
    assert_eq!(
        asks.len(),
        400,
        "those that responded last go on being asked"
    );
    let attempts = state.active().config.forwarder_retry_attempts as usize;
    for times in asks.values() {
        assert!(times.len() > attempts, "{times:?}");
        for more_than_one_forward in times.windows(attempts + 1) {
            let longest = more_than_one_forward
                .windows(2)
                .map(|pair| pair[1] - pair[0]);
            let longest = longest.max().unwrap();
            assert!(longest >= Duration::from_secs(60), "{times:?}");
        }
    }
}
