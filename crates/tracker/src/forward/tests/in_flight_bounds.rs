//! The numbers of requests in flight to UDP forwarders.

use super::*;

/// The forwarders that were asked, with the event and the time from the request to its end.
type Log = Arc<Mutex<Vec<(u16, Event, Duration)>>>;

/// The time for which a request to a silent forwarder is open: nothing is known of its latency.
const OPEN: Duration = Duration::from_secs(30);

/// Starts a handler with UDP forwarders at the ports from 1 up to `forwarders`. Those up to
/// `silent` never respond.
fn start_logged(forwarders: u16, silent: u16, in_flight: usize) -> (AnnounceHandler, Log) {
    let log = Log::default();
    let (entries, began) = (log.clone(), VirtualInstant::now());
    let fake = move |forwarder: &ForwarderState, announce: Option<&Announce>| {
        let number = forwarder.uri.port_u16().unwrap_or_default();
        if let Some(announce) = announce {
            (entries.lock()).push((number, announce.event, began.elapsed()));
        }
        match number > silent {
            true => (DELAY, no_peers()),
            false => (Duration::from_secs(3600), Err(ClientError::Timeout)),
        }
    };
    let uri = |number: u16| Forwarder::at(&format!("udp://192.0.2.1:{number}"));
    let config = TrackerConfig {
        forwarders: (1..=forwarders).map(uri).collect(),
        forwarder_in_flight: in_flight,
        forwarder_queue_size: 100_000,
        ..TrackerConfig::default()
    };
    let (state, forwarding) = start_with(&config, Box::new(fake));
    (AnnounceHandler { state, forwarding }, log)
}

/// Returns the most requests that were open at once, of those that began at these times.
fn most_open(times: &[Duration]) -> usize {
    let open_at = |at: &Duration| {
        let open = times
            .iter()
            .filter(|began| **began <= *at && *at < **began + OPEN);
        open.count()
    };
    times.iter().map(open_at).max().unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn no_more_requests_are_in_flight_than_configured() {
    // One responds, so that this is no outage.
    let (handler, log) = start_logged(51, 50, 20);
    for torrent in 0..50 {
        send(&handler, announce(torrent, Event::Started));
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    let log = log.lock();
    let silent = log.iter().filter(|(number, ..)| *number <= 50);
    let times: Vec<Duration> = silent.map(|(.., at)| *at).collect();
    assert!(times.len() >= 50, "{} requests", times.len());
    let most = most_open(&times);
    assert!((10..=20).contains(&most), "{most} in flight");
}

#[tokio::test(start_paused = true)]
async fn one_forwarder_gets_no_more_requests_at_once_than_configured() {
    // All but the first respond, so that there are tasks for more.
    let (handler, log) = start_logged(10, 1, 4096);
    for (_, forwarder) in handler.state.active().listed_forwarders() {
        // No probes, of which there is one at a time.
        forwarder.record_response();
    }
    for torrent in 0..50 {
        send(&handler, announce(torrent, Event::Started));
    }
    tokio::time::sleep(Duration::from_secs(600)).await;
    let log = log.lock();
    let to_silent = log.iter().filter(|(number, ..)| *number == 1);
    let times: Vec<Duration> = to_silent.map(|(.., at)| *at).collect();
    let concurrency = handler.state.active().config.forwarder_concurrency as usize;
    assert_eq!(most_open(&times), concurrency);
}

#[tokio::test(start_paused = true)]
async fn silent_forwarders_leave_tasks_to_events_and_to_those_that_respond() {
    const SILENT: u16 = 300;
    let (handler, log) = start_logged(SILENT + 1, SILENT, 64);
    handler.state.active().forwarders[usize::from(SILENT)].record_response();
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let got = |event: Event| {
        let log = log.lock();
        log.iter()
            .any(|(number, other, _)| *number == SILENT + 1 && *other == event)
    };
    assert!(got(Event::Started));
    // Each torrent probes up to a hundred forwarders.
    for torrent in 2..20 {
        send(&handler, announce(torrent, Event::None));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let silent = || -> HashSet<u16> {
        let log = log.lock();
        let numbers = log.iter().map(|(number, ..)| *number);
        numbers.filter(|number| *number <= SILENT).collect()
    };
    assert_eq!(silent().len(), 64 - 64 / 4, "at once");
    for event in [Event::Completed, Event::Stopped] {
        send(&handler, announce(1, event));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(got(event), "{event:?}");
    }
    // The `stopped` of a torrent goes to the silent ones, too, and must not take their place.
    send(&handler, announce(30, Event::None));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let last = log
        .lock()
        .iter()
        .filter(|(number, ..)| *number == SILENT + 1)
        .count();
    assert_eq!(last, 22, "19 torrents and two events, and one more torrent");
    tokio::time::sleep(Duration::from_secs(1200)).await;
    assert_eq!(silent().len(), usize::from(SILENT), "all in turn");
}
