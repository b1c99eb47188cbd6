//! Announces that find the queue full.

use super::*;
use crate::captured_log::captured_log;

#[tokio::test(start_paused = true)]
async fn a_client_that_found_the_queue_full_a_moment_ago_is_logged_too() {
    let config = TrackerConfig {
        forwarders: vec![Forwarder::at("udp://192.0.2.1:1")],
        forwarder_queue_size: 1,
        forwarder_concurrency: 1,
        ..TrackerConfig::default()
    };
    let silent = |_: &ForwarderState, _: Option<&Announce>| (Duration::MAX, no_peers());
    let (state, forwarding) = start_with(&config, Box::new(silent));
    let active = state.active();
    // Its first announces are no probes, so the second one is queued.
    active.forwarders[0].record_response();
    drop(active);
    let handler = AnnounceHandler { state, forwarding };
    for torrent in 0..2 {
        send(&handler, announce(torrent, Event::Started));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let forwarding = &handler.forwarding;
    let lines = captured_log(|| {
        for torrent in 10..20 {
            forwarding.last_rejected.record(CLIENT, Instant::now());
            let outcome = send(&handler, announce(torrent, Event::Started));
            assert!(
                matches!(outcome, AnnounceOutcome::Rejected { .. }),
                "{outcome:?}"
            );
        }
    });
    let warnings: Vec<&String> = lines.iter().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("dropped=1"), "{warnings:?}");
}
