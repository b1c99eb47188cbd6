//! The tracker for Prometheus.

use crate::forward::Status;
use crate::plane::Plane;
use crate::stats::queue;
use headworks_core::ClassStats;
use headworks_service::metrics::{Collect, Exposition, Family};
use std::sync::Arc;
use std::sync::atomic::Ordering;

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

const OFFERED: Family = Family::counter(
    "headworks_tracker_forwards_offered_total",
    "Forwards that were to be queued.",
);
const FORWARDS: Family = Family::counter(
    "headworks_tracker_forwards_total",
    "Forwards, by how they ended. Together with what waits and runs they are all that were offered.",
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
    for (_, station) in plane.shared.plan().forwarders() {
        for status in Status::LISTED {
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
    let down = f64::from(u8::from(plane.forwarding.watch.is_down()));
    out.family(&NETWORK_DOWN).sample(&[], down);
    forwards(plane, out);
    for (_, station) in shared.plan().forwarders() {
        let (labels, numbers) = ([("name", station.name.as_str())], &station.numbers);
        out.family(&ASKED)
            .sample(&labels, numbers.requests.get() as f64);
        out.family(&FAILED)
            .sample(&labels, numbers.failures.get() as f64);
        out.family(&UNIQUE)
            .sample(&labels, numbers.contributed.get() as f64);
    }
}

fn forwards(plane: &Plane, out: &mut Exposition) {
    let view = plane.forwarding.pool().inspect();
    let sum = |count: fn(&ClassStats) -> u64| -> f64 {
        view.classes
            .iter()
            .map(|class| count(&class.stats))
            .sum::<u64>() as f64
    };
    let untried = plane.shared.totals().untried as f64;
    let offered = untried + sum(|stats| stats.admitted + stats.refused_in_all());
    out.family(&OFFERED).sample(&[], offered);
    for (end, count) in [
        ("done", sum(|stats| stats.ended.done)),
        ("failed", sum(|stats| stats.ended.failed)),
        ("merged", sum(|stats| stats.ended.merged)),
        ("cancelled", sum(|stats| stats.ended.cancelled)),
        (
            "dropped",
            untried + sum(|stats| stats.ended.shed + stats.ended.expired + stats.refused_in_all()),
        ),
        ("returned", sum(|stats| stats.ended.returned)),
    ] {
        out.family(&FORWARDS).sample(&[("end", end)], count);
    }
}

/// What the admin listener shows: only names that are ours alone.
pub(crate) struct Collector(pub(crate) Arc<Plane>);

impl Collect for Collector {
    fn collect(&self, out: &mut Exposition) {
        own(&self.0, out);
    }
}
