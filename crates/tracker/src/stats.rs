//! The tracker in numbers, for people, programs and Prometheus.

use crate::forward::Status;
use crate::plane::Plane;
use headworks_service::metrics::{Collect, Exposition, Family};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The tracker in numbers. The queue's fields are called what the system before this one called them.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stats {
    torrents: u64,
    peers: u64,
    requests: Requests,
    queue: Queue,
    forwarders: Vec<ForwarderStats>,
}

#[derive(Clone, Debug, Serialize)]
struct Requests {
    http_announces: u64,
    http_scrapes: u64,
    http_bad: u64,
    udp_connects: u64,
    udp_announces: u64,
    udp_scrapes: u64,
    udp_bad: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
struct Queue {
    depth: u64,
    capacity: u64,
    fill_pct: f64,
    delayed: u64,
    running: u64,
    active_workers: u64,
    max_workers: u64,
    dropped_full: u64,
    rate_limited: u64,
    throttled_forwarders: u64,
}

#[derive(Clone, Debug, Serialize)]
struct ForwarderStats {
    name: String,
    status: &'static str,
    requests: u64,
    answers: u64,
    failures: u64,
    unique_peers_contributed: u64,
    average_response_ms: Option<f64>,
    interval_seconds: Option<u64>,
    last_trouble: Option<String>,
}

impl Stats {
    pub(crate) fn of(plane: &Plane) -> Stats {
        let totals = plane.shared.totals();
        let (mut torrents, mut peers) = (0, 0);
        plane.shared.swarms.each(|_, swarm| {
            torrents += 1;
            peers += swarm.local_peers() as u64;
        });
        Stats {
            torrents,
            peers,
            requests: Requests {
                http_announces: totals.http_announces,
                http_scrapes: totals.http_scrapes,
                http_bad: totals.http_bad,
                udp_connects: totals.udp_connects,
                udp_announces: totals.udp_announces,
                udp_scrapes: totals.udp_scrapes,
                udp_bad: totals.udp_bad,
            },
            queue: queue(plane),
            forwarders: forwarders(plane),
        }
    }
}

fn queue(plane: &Plane) -> Queue {
    let totals = plane.shared.totals();
    let config = &plane.shared.config;
    let counted = Queue {
        capacity: config.forwarder_queue_size as u64,
        max_workers: config.max_forwarder_workers as u64,
        dropped_full: totals.dropped_full,
        rate_limited: totals.rate_limited,
        throttled_forwarders: totals.throttled,
        ..Queue::default()
    };
    let Some(forwarding) = &plane.forwarding else {
        return counted;
    };
    let metrics = forwarding.pool.metrics();
    let view = metrics.view;
    Queue {
        depth: view.waiting,
        fill_pct: 100.0 * view.waiting as f64 / view.capacity.max(1) as f64,
        delayed: view.delayed,
        running: view.running,
        active_workers: metrics.workers,
        // What lost its place to an event had found the queue full, too.
        dropped_full: counted.dropped_full
            + view
                .classes
                .iter()
                .map(|class| class.stats.ended.shed)
                .sum::<u64>(),
        ..counted
    }
}

fn forwarders(plane: &Plane) -> Vec<ForwarderStats> {
    let Some(forwarding) = &plane.forwarding else {
        return Vec::new();
    };
    let one = |station: &crate::forward::Station| {
        let numbers = &station.numbers;
        let answers = numbers.answers.get();
        let average = numbers.micros.get() as f64 / 1000.0 / answers.max(1) as f64;
        ForwarderStats {
            name: station.name.clone(),
            status: station.status().word(),
            requests: numbers.requests.get(),
            answers,
            failures: numbers.failures.get(),
            unique_peers_contributed: numbers.contributed.get(),
            average_response_ms: (answers > 0).then_some((average * 10.0).round() / 10.0),
            interval_seconds: numbers.interval.lock().map(|interval| interval.as_secs()),
            last_trouble: station.trouble.lock().clone(),
        }
    };
    forwarding.stations.iter().map(one).collect()
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats {
            torrents,
            peers,
            requests: r,
            queue: q,
            forwarders,
        } = self;
        writeln!(f, "torrents: {torrents}\npeers: {peers}")?;
        writeln!(
            f,
            "http: {} announces, {} scrapes, {} bad",
            r.http_announces, r.http_scrapes, r.http_bad
        )?;
        writeln!(
            f,
            "udp: {} connects, {} announces, {} scrapes, {} bad",
            r.udp_connects, r.udp_announces, r.udp_scrapes, r.udp_bad
        )?;
        writeln!(
            f,
            "queue: depth {}, capacity {}, fill {:.1} %, delayed {}, running {}",
            q.depth, q.capacity, q.fill_pct, q.delayed, q.running
        )?;
        writeln!(
            f,
            "workers: {} active, {} max",
            q.active_workers, q.max_workers
        )?;
        writeln!(
            f,
            "dropped_full: {}\nrate_limited: {}\nthrottled_forwarders: {}",
            q.dropped_full, q.rate_limited, q.throttled_forwarders
        )?;
        for one in forwarders {
            write!(
                f,
                "forwarder {}: {}, {} requests, {} answers, {} failures, {} unique peers",
                one.name,
                one.status,
                one.requests,
                one.answers,
                one.failures,
                one.unique_peers_contributed
            )?;
            if let Some(average) = one.average_response_ms {
                write!(f, ", {average:.1} ms")?;
            }
            if let Some(trouble) = &one.last_trouble {
                write!(f, ", last trouble: {trouble}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

const QUEUE_DEPTH: Family = Family::gauge("queue_depth", "Forwards that wait.");
const QUEUE_CAPACITY: Family = Family::gauge("queue_capacity", "Forwards that may wait.");
const QUEUE_FILL: Family = Family::gauge(
    "queue_fill_pct",
    "Forwards that wait, in percent of those that may.",
);
const QUEUE_DROPPED: Family = Family::counter(
    "queue_dropped_full",
    "Forwards dropped because the queue was full.",
);
const QUEUE_LIMITED: Family = Family::counter(
    "queue_rate_limited",
    "First announces refused because the queue was too full.",
);
const QUEUE_THROTTLED: Family = Family::counter(
    "queue_throttled_forwarders",
    "Forwarders left out because the queue was too full.",
);
const WORKERS: Family = Family::gauge("forwarder_workers", "Workers that ask forwarders.");
const STATUS: Family = Family::gauge("forwarder_status", "1 for the status that a forwarder has.");
const REQUESTS: Family = Family::counter("requests", "Requests by transport and kind.");
const TORRENTS: Family = Family::gauge(
    "headworks_tracker_torrents",
    "Torrents, as the last purge left them.",
);
const PEERS: Family = Family::gauge(
    "headworks_tracker_peers",
    "Local peers, as the last purge left them.",
);
const ASKED: Family = Family::counter(
    "headworks_tracker_forwarder_requests_total",
    "Requests to a forwarder.",
);
const FAILED: Family = Family::counter(
    "headworks_tracker_forwarder_failures_total",
    "Requests to a forwarder that failed.",
);
const UNIQUE: Family = Family::counter(
    "headworks_tracker_forwarder_unique_peers_total",
    "Peers that a forwarder was the first to name.",
);
const BAD: Family = Family::counter(
    "headworks_tracker_bad_requests_total",
    "Requests that were none.",
);
const UNSENT: Family = Family::counter(
    "headworks_tracker_udp_unsent_total",
    "Answers that the system did not take.",
);
const CONNECTIONS: Family =
    Family::counter("headworks_tracker_connections_total", "Connections taken.");
const DROPPED: Family = Family::counter(
    "headworks_tracker_connections_dropped_total",
    "Connections closed because there were too many, or for being silent.",
);
const NETWORK_DOWN: Family = Family::gauge(
    "headworks_tracker_network_down",
    "1 while our own network is taken to be down.",
);

/// Everything, for the tracker's own `/metrics`.
pub(crate) fn metrics(plane: &Plane) -> String {
    let mut out = Exposition::default();
    bare(plane, &mut out);
    own(plane, &mut out);
    out.to_string()
}

/// The names of the system before this one, exactly.
fn bare(plane: &Plane, out: &mut Exposition) {
    let (queue, totals) = (queue(plane), plane.shared.totals());
    out.family(&QUEUE_DEPTH).sample(&[], queue.depth as f64);
    out.family(&QUEUE_CAPACITY)
        .sample(&[], queue.capacity as f64);
    out.family(&QUEUE_FILL).sample(&[], queue.fill_pct);
    out.family(&QUEUE_DROPPED)
        .sample(&[], queue.dropped_full as f64);
    out.family(&QUEUE_LIMITED)
        .sample(&[], queue.rate_limited as f64);
    out.family(&QUEUE_THROTTLED)
        .sample(&[], queue.throttled_forwarders as f64);
    out.family(&WORKERS)
        .sample(&[], queue.active_workers as f64);
    for (transport, kind, count) in [
        ("http", "announce", totals.http_announces),
        ("http", "scrape", totals.http_scrapes),
        ("udp", "connect", totals.udp_connects),
        ("udp", "announce", totals.udp_announces),
        ("udp", "scrape", totals.udp_scrapes),
    ] {
        out.family(&REQUESTS)
            .sample(&[("transport", transport), ("kind", kind)], count as f64);
    }
    let stations = plane
        .forwarding
        .iter()
        .flat_map(|forwarding| forwarding.stations.iter());
    for station in stations {
        for status in Status::ALL {
            let labels = [("name", station.name.as_str()), ("status", status.word())];
            let is = f64::from(u8::from(station.status() == status));
            out.family(&STATUS).sample(&labels, is);
        }
    }
}

fn own(plane: &Plane, out: &mut Exposition) {
    let (shared, totals) = (&plane.shared, plane.shared.totals());
    let (torrents, peers) = &shared.sizes;
    out.family(&TORRENTS)
        .sample(&[], torrents.load(Ordering::Relaxed) as f64);
    out.family(&PEERS)
        .sample(&[], peers.load(Ordering::Relaxed) as f64);
    out.family(&BAD)
        .sample(&[("transport", "http")], totals.http_bad as f64);
    out.family(&BAD)
        .sample(&[("transport", "udp")], totals.udp_bad as f64);
    out.family(&UNSENT).sample(&[], totals.udp_unsent as f64);
    out.family(&CONNECTIONS)
        .sample(&[], totals.connections as f64);
    out.family(&DROPPED)
        .sample(&[], totals.connections_dropped as f64);
    let Some(forwarding) = &plane.forwarding else {
        return;
    };
    let down = f64::from(u8::from(forwarding.watch.is_down()));
    out.family(&NETWORK_DOWN).sample(&[], down);
    for station in forwarding.stations.iter() {
        let (labels, numbers) = ([("name", station.name.as_str())], &station.numbers);
        out.family(&ASKED)
            .sample(&labels, numbers.requests.get() as f64);
        out.family(&FAILED)
            .sample(&labels, numbers.failures.get() as f64);
        out.family(&UNIQUE)
            .sample(&labels, numbers.contributed.get() as f64);
    }
}

/// What the admin listener shows: only names that are ours alone.
pub(crate) struct Collector(pub(crate) Arc<Plane>);

impl Collect for Collector {
    fn collect(&self, out: &mut Exposition) {
        own(&self.0, out);
    }
}
