//! Announces that find the queue full.

use super::*;
use std::io::Write;
use tracing_subscriber::fmt::MakeWriter;

/// The lines that were logged.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Lines {
    type Writer = Lines;

    fn make_writer(&self) -> Lines {
        self.clone()
    }
}

impl Lines {
    fn warnings(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().clone()).unwrap();
        let lines = text.lines().filter(|line| line.contains("WARN"));
        lines.map(str::to_owned).collect()
    }
}

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
    let lines = Lines::default();
    let log = tracing_subscriber::fmt()
        .with_writer(lines.clone())
        .with_ansi(false)
        .finish();
    let forwarding = &handler.forwarding;
    tracing::subscriber::with_default(log, || {
        for torrent in 10..20 {
            forwarding.last_rejected.record(CLIENT, Instant::now());
            let outcome = send(&handler, announce(torrent, Event::Started));
            assert!(
                matches!(outcome, AnnounceOutcome::Rejected { .. }),
                "{outcome:?}"
            );
        }
    });
    let warnings = lines.warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("dropped=1"), "{warnings:?}");
}
