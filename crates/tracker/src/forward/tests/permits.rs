//! Lists with many forwarders over HTTP that never respond.

use super::*;
use std::collections::BTreeSet;

/// The forwarders that never respond: all but the last one.
const SILENT: u16 = 300;

/// The forwarders that were asked, by their number, with the event.
type Asked = Arc<Mutex<Vec<(u16, Event)>>>;

fn start_logged() -> (AnnounceHandler, Asked) {
    let asked = Asked::default();
    let entries = asked.clone();
    let fake = move |forwarder: &ForwarderState, announce: Option<&Announce>| {
        let number = forwarder.uri.port_u16().unwrap_or_default();
        entries
            .lock()
            .extend(announce.map(|one| (number, one.event)));
        match number {
            0..=SILENT => (Duration::from_secs(3600), Err(ClientError::Timeout)),
            _ => (DELAY, no_peers()),
        }
    };
    let uri = |number: u16| format!("http://192.0.2.1:{number}/announce");
    let uris: Vec<String> = (1..=SILENT + 1).map(uri).collect();
    let (state, forwarding) = start_at(&uris, Box::new(fake));
    (AnnounceHandler { state, forwarding }, asked)
}

#[tokio::test(start_paused = true)]
async fn probes_over_http_are_bounded_and_events_do_not_wait_for_them() {
    let (handler, asked) = start_logged();
    let last = handler.state.active().forwarders[usize::from(SILENT)].clone();
    last.record_response();
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(asked.lock().contains(&(SILENT + 1, Event::Started)));
    // Each torrent probes up to a hundred forwarders.
    for torrent in 2..20 {
        send(&handler, announce(torrent, Event::None));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let silent = || -> BTreeSet<u16> {
        let asked = asked.lock();
        let numbers = asked.iter().map(|(number, _)| *number);
        numbers.filter(|number| *number <= SILENT).collect()
    };
    assert_eq!(silent().len(), REQUESTS - REQUESTS / 4, "at once");
    for event in [Event::Completed, Event::Stopped] {
        send(&handler, announce(1, event));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(asked.lock().contains(&(SILENT + 1, event)), "{event:?}");
    }
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(silent().len(), usize::from(SILENT), "all in turn");
}
