//! Many torrents and many forwarders at once: no forward is lost or sent twice, and the counters
//! add up.
//!
//! With `HEADWORKS_FULL=1` there are ten thousand torrents.

use crate::support::{Behaviour, Client, Forwarder, Running, announce, http_uri, listed};
use headworks_tracker_wire::{Event, udp};
use std::collections::HashMap;

const FORWARDERS: usize = 100;
/// The number of them that reject everything.
const REJECTING: usize = 4;
/// Announces in flight at once.
const BURST: u32 = 50;

fn torrents() -> u32 {
    match std::env::var_os("HEADWORKS_FULL") {
        Some(_) => 10_000,
        None => 400,
    }
}

/// Announces a peer of each torrent, over UDP.
fn announce_all(client: &Client, id: u64, torrents: u32, event: Event) {
    for first in (0..torrents).step_by(BURST as usize) {
        let last = (first + BURST).min(torrents);
        for torrent in first..last {
            let mut packet = Vec::new();
            let announce = announce(torrent, 1, event);
            udp::write_announce(id, torrent, &announce, b"", &mut packet);
            client.0.send_to(&packet, client.1).unwrap();
        }
        for _ in first..last {
            client.receive().expect("a response to each");
        }
    }
}

/// Four UDP trackers, each listed many times, and some HTTP trackers that reject everything.
struct Forwarders {
    good: Vec<Forwarder>,
    rejecting: Vec<Forwarder>,
}

impl Forwarders {
    async fn new() -> Forwarders {
        let good = (0..4).map(|_| Forwarder::udp(Behaviour::Peers(vec![])));
        let rejecting = (0..REJECTING).map(|_| Forwarder::http(Behaviour::status(418)));
        Forwarders {
            good: futures_util::future::join_all(good).await,
            rejecting: futures_util::future::join_all(rejecting).await,
        }
    }

    fn listed(&self) -> String {
        let one = |n: usize| format!("udp://{}/announce?n={n}", self.good[n % 4].address);
        let good = (0..FORWARDERS - REJECTING).map(one);
        listed(good.chain(self.rejecting.iter().map(http_uri)))
    }

    fn received(all: &[Forwarder]) -> usize {
        all.iter().map(|one| one.received().len()).sum()
    }
}

/// Returns the counters of ended forwards.
async fn ends(running: &Running) -> HashMap<&'static str, f64> {
    let mut ends = HashMap::new();
    for end in [
        "done",
        "failed",
        "merged",
        "cancelled",
        "dropped",
        "returned",
    ] {
        let name = format!("headworks_tracker_forwards_total{{end=\"{end}\"}}");
        ends.insert(end, running.metric(&name).await);
    }
    ends
}

/// Returns the counted requests to all forwarders.
async fn requests(running: &Running) -> u64 {
    let stats = running.stats().await;
    let requests = stats.lines().filter_map(|line| {
        let parts = line.strip_prefix("forwarder ")?.split(", ");
        let count = parts.into_iter().nth(1)?.strip_suffix(" requests")?;
        count.parse::<u64>().ok()
    });
    requests.sum()
}

async fn wait_until_idle(running: &Running, capacity: usize) {
    let text = format!("queue: depth 0, capacity {capacity}, fill 0.0 %, delayed 0, running 0");
    running.shows("/stats", &text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_forward_is_accounted_for() {
    let (torrents, far) = (torrents(), Forwarders::new().await);
    // The rejecting forwarders are not suspended, so each forward to them fails.
    let settings = format!(
        "forwarder_queue_size = 100000\nforwarder_fail_threshold = 0\n{}",
        far.listed()
    );
    let running = Running::start(&settings);
    let client = Client::at("127.0.0.1:0", running.udp());
    let id = client.connect();
    announce_all(&client, id, torrents, Event::Started);
    let expected = torrents as usize * (FORWARDERS - REJECTING);
    let end = std::time::Instant::now() + crate::support::TIMEOUT;
    let done = "headworks_tracker_forwards_total{end=\"done\"}";
    while running.metric(done).await < expected as f64 {
        assert!(std::time::Instant::now() < end, "not all are asked");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    wait_until_idle(&running, 100_000).await;

    let offered = running
        .metric("headworks_tracker_forwards_offered_total")
        .await;
    let ends = ends(&running).await;
    assert_eq!(offered, ends.values().sum::<f64>(), "{ends:?}");
    assert_eq!(ends["dropped"], running.metric("queue_dropped_full").await);

    assert_eq!(
        ends["done"], expected as f64,
        "each good forwarder is asked once for each torrent"
    );
    // A request is sent again if the machine is too busy to respond in time.
    assert!(Forwarders::received(&far.good) >= expected);
    let refused = Forwarders::received(&far.rejecting);
    assert_eq!(
        ends["failed"], refused as f64,
        "the logs agree on what failed"
    );
    let end = std::time::Instant::now() + crate::support::TIMEOUT;
    while requests(&running).await != (expected + refused) as u64 {
        assert!(std::time::Instant::now() < end, "the page agrees, too");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    running.stop().await;
}

/// Returns the forwards that were offered, those that ended, and those that were dropped because
/// the queue was full, all at one time.
async fn offered_ended_dropped(running: &Running) -> (f64, f64, f64) {
    let page = running.metrics().await;
    let sum = |name: &str| -> f64 {
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            rest.rsplit(' ').next()?.parse::<f64>().ok()
        });
        values.sum()
    };
    (
        sum("headworks_tracker_forwards_offered_total "),
        sum("headworks_tracker_forwards_total{"),
        sum("queue_dropped_full "),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_forward_is_accounted_for_when_the_queue_overflows() {
    let (torrents, far) = (60, Forwarders::new().await);
    // Every announce goes to a hundred forwarders, and there is room for half of one.
    let settings = format!(
        "forwarder_queue_size = 50\nforwarder_fail_threshold = 0\nqueue_throttle_top_n = 0\nqueue_rate_limit_threshold = 0\n{}",
        far.listed()
    );
    let running = Running::start(&settings);
    let client = Client::at("127.0.0.1:0", running.udp());
    let id = client.connect();
    announce_all(&client, id, torrents, Event::Started);
    announce_all(&client, id, torrents, Event::Completed);
    // Torrents that found the queue full try again, so it is idle for moments only.
    let end = std::time::Instant::now() + crate::support::TIMEOUT;
    let (offered, dropped) = loop {
        let first = offered_ended_dropped(&running).await;
        let (offered, ended, dropped) = first;
        if offered == ended && dropped > 0.0 && offered_ended_dropped(&running).await == first {
            break (offered, dropped);
        }
        assert!(std::time::Instant::now() < end, "{first:?}");
    };
    assert!(dropped < offered, "{dropped} of {offered}");
    running.stop().await;
    let received = Forwarders::received(&far.good) + Forwarders::received(&far.rejecting);
    assert!(received as f64 >= offered - dropped, "{received}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_started_is_followed_by_stopped() {
    let (torrents, far) = (torrents(), Forwarders::new().await);
    let settings = format!(
        "forwarder_queue_size = 100000\nforwarder_fail_threshold = 0\n{}",
        far.listed()
    );
    let running = Running::start(&settings);
    let client = Client::at("127.0.0.1:0", running.udp());
    let id = client.connect();
    announce_all(&client, id, torrents, Event::Started);
    // Many are still queued or in flight when their peer leaves.
    announce_all(&client, id, torrents, Event::Stopped);
    wait_until_idle(&running, 100_000).await;
    let ends = ends(&running).await;
    assert!(ends["cancelled"] > 0.0, "{ends:?}");
    for forwarder in &far.good {
        // One socket stands for many forwarders, so the events of a torrent are counted over all of
        // them.
        let mut events: HashMap<_, (i32, i32)> = HashMap::new();
        for received in forwarder.received() {
            let (started, stopped) = events.entry(received.hash).or_default();
            match received.event {
                Event::Started => *started += 1,
                Event::Stopped => *stopped += 1,
                other => panic!("{other:?}"),
            }
            assert!(*stopped <= *started, "stopped is never sent first");
        }
        assert!(events.values().all(|(started, stopped)| started == stopped));
    }
    running.stop().await;
}
