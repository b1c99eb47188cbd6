//! Many torrents and many forwarders at once: nothing is lost, nothing is told twice, and every
//! forward is accounted for.
//!
//! `HEADWORKS_FULL=1` makes it ten thousand torrents.

use crate::support::{Client, Forwarder, Manner, Running, announce, http_uri, listed};
use headworks_tracker_wire::{Event, udp};
use std::collections::HashMap;

const FORWARDERS: usize = 100;
/// Of them, so many refuse everything.
const REFUSING: usize = 4;
/// Announces on their way at once.
const BURST: u32 = 50;

fn torrents() -> u32 {
    match std::env::var_os("HEADWORKS_FULL") {
        Some(_) => 10_000,
        None => 400,
    }
}

/// Announces a peer of each torrent, over UDP.
fn tell(client: &Client, id: u64, torrents: u32, event: Event) {
    for first in (0..torrents).step_by(BURST as usize) {
        let last = (first + BURST).min(torrents);
        for torrent in first..last {
            let mut packet = Vec::new();
            let told = announce(torrent, 1, event);
            udp::write_announce(id, torrent, &told, b"", &mut packet);
            client.0.send_to(&packet, client.1).unwrap();
        }
        for _ in first..last {
            client.receive().expect("an answer to each");
        }
    }
}

/// Four UDP trackers, each under many names, and some HTTP trackers that refuse.
struct FarSide {
    good: Vec<Forwarder>,
    refusing: Vec<Forwarder>,
}

impl FarSide {
    async fn new() -> FarSide {
        let good = (0..4).map(|_| Forwarder::udp(Manner::Peers(vec![])));
        let refusing = (0..REFUSING).map(|_| Forwarder::http(Manner::status(418)));
        FarSide {
            good: futures_util::future::join_all(good).await,
            refusing: futures_util::future::join_all(refusing).await,
        }
    }

    fn listed(&self) -> String {
        let one = |n: usize| format!("udp://{}/announce?n={n}", self.good[n % 4].address);
        let good = (0..FORWARDERS - REFUSING).map(one);
        listed(good.chain(self.refusing.iter().map(http_uri)))
    }

    fn logged(all: &[Forwarder]) -> usize {
        all.iter().map(|one| one.heard().len()).sum()
    }
}

/// What became of all forwards, by our counters.
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

/// All requests, by our counters.
async fn requests(running: &Running) -> u64 {
    let stats = running.stats().await;
    let requests = stats.lines().filter_map(|line| {
        let parts = line.strip_prefix("forwarder ")?.split(", ");
        let count = parts.into_iter().nth(1)?.strip_suffix(" requests")?;
        count.parse::<u64>().ok()
    });
    requests.sum()
}

async fn quiet(running: &Running, capacity: usize) {
    let text = format!("queue: depth 0, capacity {capacity}, fill 0.0 %, delayed 0, running 0");
    running.shows("/stats", &text).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_forward_is_accounted_for() {
    let (torrents, far) = (torrents(), FarSide::new().await);
    // The refusing ones are not suspended: each of their forwards fails for itself.
    let settings = format!(
        "forwarder_queue_size = 1000\nforwarder_fail_threshold = 0\n{}",
        far.listed()
    );
    let running = Running::start(&settings);
    let client = Client::at("127.0.0.1:0", running.udp());
    let id = client.connect();
    tell(&client, id, torrents, Event::Started);
    quiet(&running, 1000).await;

    let offered = running
        .metric("headworks_tracker_forwards_offered_total")
        .await;
    let throttled = running.metric("queue_throttled_forwarders").await;
    let limited = running.metric("queue_rate_limited").await;
    let all = f64::from(torrents) * FORWARDERS as f64;
    assert_eq!(offered + throttled + limited * FORWARDERS as f64, all);
    let ends = ends(&running).await;
    assert_eq!(offered, ends.values().sum::<f64>(), "{ends:?}");
    assert_eq!(ends["dropped"], running.metric("queue_dropped_full").await);
    assert!(throttled > 0.0, "the queue was under pressure");

    let (done, refused) = (FarSide::logged(&far.good), FarSide::logged(&far.refusing));
    assert_eq!(ends["done"], done as f64, "their logs have what was done");
    assert_eq!(ends["failed"], refused as f64, "and what failed");
    assert_eq!(requests(&running).await, (done + refused) as u64);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_hears_started_hears_stopped_after_it() {
    let (torrents, far) = (torrents(), FarSide::new().await);
    let settings = format!(
        "forwarder_queue_size = 100000\nforwarder_fail_threshold = 0\n{}",
        far.listed()
    );
    let running = Running::start(&settings);
    let client = Client::at("127.0.0.1:0", running.udp());
    let id = client.connect();
    tell(&client, id, torrents, Event::Started);
    // Many are still waiting or on their way when their peer leaves.
    tell(&client, id, torrents, Event::Stopped);
    quiet(&running, 100_000).await;
    let ends = ends(&running).await;
    assert!(ends["cancelled"] > 0.0, "{ends:?}");
    for forwarder in &far.good {
        // One socket has many forwarders' names: what is told of a torrent to all of them must
        // pair.
        let mut told: HashMap<_, (i32, i32)> = HashMap::new();
        for heard in forwarder.heard() {
            let (started, stopped) = told.entry(heard.hash).or_default();
            match heard.event {
                Event::Started => *started += 1,
                Event::Stopped => *stopped += 1,
                other => panic!("{other:?}"),
            }
            assert!(*stopped <= *started, "stopped is never said first");
        }
        assert!(told.values().all(|(started, stopped)| started == stopped));
    }
    running.stop().await;
}
