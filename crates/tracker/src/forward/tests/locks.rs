//! The locks of a swarm that an announce takes outside of its forwards.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_submit_task_and_a_full_queue_take_few_locks() {
    let uri = |number: usize| Forwarder::at(&format!("udp://192.0.2.1:{number}"));
    let config = TrackerConfig {
        forwarders: (1..=3).map(uri).collect(),
        forwarder_queue_size: 6,
        forwarder_concurrency: 1,
        queue_throttle_top_n: 0,
        ..TrackerConfig::default()
    };
    let silent = |_: &ForwarderState, _: Option<&Announce>| (Duration::MAX, no_peers());
    let (state, forwarding) = start_with(&config, Box::new(silent));
    for (_, forwarder) in state.active().listed_forwarders() {
        // No probes, so that several torrents are queued.
        forwarder.record_response();
    }
    let handler = AnnounceHandler { state, forwarding };
    let send_counted = async |torrent: u32| {
        let locks = || handler.state.swarms.locks.load(Ordering::Relaxed);
        let before = locks();
        let outcome = send(&handler, announce(torrent, Event::Started));
        let at_once = locks() - before;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let rejected = matches!(outcome, AnnounceOutcome::Rejected { .. });
        (rejected, at_once, locks() - before)
    };
    // Three requests are in flight from now on, so that nothing that follows is sent.
    send_counted(1).await;
    assert_eq!(send_counted(2).await, (false, 1, 2), "the submit task");
    assert_eq!(
        send_counted(3).await,
        (false, 1, 2),
        "the queue is full now"
    );
    // The forwards that find no room are taken out of the record again.
    assert_eq!(send_counted(4).await, (true, 2, 2), "a full queue");
    let hash = announce(4, Event::None).info_hash;
    let pending = handler.state.swarms.with_existing(&hash, |swarm| {
        let record = swarm.record.as_ref()?;
        Some((record.pending(), record.was_forwarded()))
    });
    assert_eq!(pending.flatten(), Some((0, false)));
}
