//! A client that stops and starts again within the time of a request or a retry.

use super::*;

/// The requests that a forwarder received, with the time at which each began and ended.
type Log = Arc<Mutex<Vec<(Event, Duration, Duration)>>>;

/// Starts a handler with one forwarder. `respond` gets the event and the number of requests before.
fn start_logged(
    respond: impl Fn(Event, usize) -> (Duration, Result<AnnounceResponse, ClientError>)
    + Send
    + Sync
    + 'static,
) -> (AnnounceHandler, Log) {
    let log = Log::default();
    let (entries, began) = (log.clone(), VirtualInstant::now());
    let fake = move |_: &ForwarderState, announce: Option<&Announce>| {
        let Some(announce) = announce else {
            return (DELAY, no_peers());
        };
        let mut entries = entries.lock();
        let (took, response) = respond(announce.event, entries.len());
        let at = began.elapsed();
        entries.push((announce.event, at, at + took));
        (took, response)
    };
    let (state, forwarding) = start(1, Box::new(fake));
    (AnnounceHandler { state, forwarding }, log)
}

fn events(log: &Log) -> Vec<Event> {
    log.lock().iter().map(|(event, ..)| *event).collect()
}

/// Whether the forwarder of torrent 1 was asked for the present peer and is due in half an hour.
fn is_scheduled(handler: &AnnounceHandler) -> bool {
    let hash = announce(1, Event::None).info_hash;
    let schedule = handler.state.swarms.with_existing(&hash, |swarm| {
        let record = swarm.record.as_ref()?;
        Some(record.schedule(ForwarderId(0)))
    });
    schedule
        .flatten()
        .is_some_and(|schedule| schedule.last != 0 && schedule.due >= schedule.last + 1800)
}

async fn stop_and_start(handler: &AnnounceHandler) {
    send(handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(1)).await;
    send(handler, announce(1, Event::Stopped));
    tokio::time::sleep(Duration::from_millis(100)).await;
    send(handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(120)).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_restarts_during_its_first_announce_stays_announced() {
    let (handler, log) = start_logged(|_, before| match before {
        0 => (Duration::from_secs(4), no_peers()),
        _ => (DELAY, no_peers()),
    });
    stop_and_start(&handler).await;
    let events = events(&log);
    assert_eq!(events.last(), Some(&Event::Started), "{events:?}");
    assert!(events.len() >= 2 && is_scheduled(&handler), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_retried_stopped_does_not_remove_a_client_that_is_back() {
    let failures = [ClientError::Status(503), ClientError::Status(429)];
    for failure in failures {
        let name = failure.to_string();
        let (handler, log) = start_logged(move |event, before| match (event, before) {
            (Event::Stopped, 1) => (DELAY, Err(failure.clone())),
            _ => (DELAY, no_peers()),
        });
        stop_and_start(&handler).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        let events = events(&log);
        let expected = [Event::Started, Event::Stopped, Event::Started];
        assert_eq!(events, expected, "{name}");
        assert!(is_scheduled(&handler), "{name}");
        // It can still leave.
        send(&handler, announce(1, Event::Stopped));
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(log.lock().last().unwrap().0, Event::Stopped, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_announce_does_not_overtake_the_last_stopped() {
    let (handler, log) = start_logged(|event, _| match event {
        Event::Stopped => (Duration::from_secs(4), no_peers()),
        _ => (DELAY, no_peers()),
    });
    stop_and_start(&handler).await;
    let log = log.lock();
    let events: Vec<_> = log.iter().map(|(event, ..)| *event).collect();
    assert_eq!(events, [Event::Started, Event::Stopped, Event::Started]);
    assert!(log[2].1 >= log[1].2, "{log:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_for_good_after_a_restart_is_stopped() {
    let (handler, log) = start_logged(|_, before| match before {
        0 => (Duration::from_secs(4), no_peers()),
        _ => (DELAY, no_peers()),
    });
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(1)).await;
    for event in [Event::Stopped, Event::Started, Event::Stopped] {
        send(&handler, announce(1, event));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(events(&log), [Event::Started, Event::Stopped]);
}

#[tokio::test(start_paused = true)]
async fn a_stopped_that_waited_for_its_announce_is_given_up_after_half_an_hour() {
    let (handler, log) = start_logged(|event, _| match event {
        Event::Stopped => {
            let busy = b"d14:failure reason4:busy8:retry ini0ee";
            (DELAY, Ok(response::parse(busy).unwrap()))
        }
        _ => (Duration::from_secs(4), no_peers()),
    });
    send(&handler, announce(1, Event::Started));
    tokio::time::sleep(Duration::from_secs(1)).await;
    send(&handler, announce(1, Event::Stopped));
    tokio::time::sleep(Duration::from_secs(2 * 3600)).await;
    let events = events(&log);
    let stopped = events.iter().filter(|event| **event == Event::Stopped);
    let stopped = stopped.count();
    assert!(
        (20..=31).contains(&stopped),
        "{stopped} times, once per minute"
    );
}
