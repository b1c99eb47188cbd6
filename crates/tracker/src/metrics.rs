//! Prometheus metrics.

use crate::announce::AnnounceHandler;
use crate::forwarders::{SkipReason, Status};
use crate::stats::queue;
use headworks_core::ClassStats;
use headworks_service::metrics::{Collect, Exposition, Family};
use std::sync::Arc;

const QUEUE_DEPTH: Family = Family::gauge("queue_depth", "Queued forwards.");
const QUEUE_CAPACITY: Family = Family::gauge("queue_capacity", "Capacity of the forward queue.");
const QUEUE_FILL: Family = Family::gauge(
    "queue_fill_pct",
    "Queued forwards in percent of the capacity.",
);
const QUEUE_DROPPED: Family = Family::counter(
    "queue_dropped_full",
    "Forwards dropped because the queue was full.",
);
const QUEUE_LIMITED: Family = Family::counter(
    "queue_rate_limited",
    "First announces rejected by the rate limit.",
);
const QUEUE_THROTTLED: Family = Family::counter(
    "queue_throttled_forwarders",
    "Forwarders left out because the queue was filling up.",
);
const WORKERS: Family = Family::gauge("forwarder_workers", "Workers that send forwards.");
const STATUS: Family = Family::gauge(
    "forwarder_status",
    "1 for the current status of a forwarder, 0 for the others.",
);
const REQUESTS: Family = Family::counter("requests", "Requests by transport and kind.");
const TORRENTS: Family = Family::gauge("headworks_tracker_torrents", "Torrents.");
const PEERS: Family = Family::gauge("headworks_tracker_peers", "Local peers.");
const FORWARDER_REQUESTS: Family = Family::counter(
    "headworks_tracker_forwarder_requests_total",
    "Requests to a forwarder.",
);
const FORWARDER_FAILURES: Family = Family::counter(
    "headworks_tracker_forwarder_failures_total",
    "Requests to a forwarder that failed.",
);
const UNIQUE_PEERS: Family = Family::counter(
    "headworks_tracker_forwarder_unique_peers_total",
    "Peers that a forwarder was the first to report.",
);
const BAD_REQUESTS: Family =
    Family::counter("headworks_tracker_bad_requests_total", "Invalid requests.");
const UNSENT: Family = Family::counter(
    "headworks_tracker_udp_unsent_total",
    "UDP responses that the socket did not accept.",
);
const CONNECTIONS: Family = Family::counter(
    "headworks_tracker_connections_total",
    "Connections accepted.",
);
const DROPPED: Family = Family::counter(
    "headworks_tracker_connections_dropped_total",
    "Connections closed because there were too many or because they were idle.",
);
const ACCEPT_FAILURES: Family = Family::counter(
    "headworks_tracker_accept_failures_total",
    "Failures to accept a connection, because the system had no descriptor left.",
);
const LISTS: Family = Family::counter(
    "headworks_tracker_list_fetches_total",
    "Fetches of lists of forwarders by result.",
);
const SKIPPED: Family = Family::gauge(
    "headworks_tracker_list_entries_skipped",
    "Entries of lists of forwarders that are not used, by reason.",
);
const PAGES: Family = Family::counter(
    "headworks_tracker_pages_built_total",
    "Pages for operators that were built.",
);
const NOT_STORED: Family = Family::counter(
    "headworks_tracker_not_stored_total",
    "Announces of peers that were answered but not stored, because of a limit.",
);
const NETWORK_DOWN: Family = Family::gauge(
    "headworks_tracker_network_down",
    "1 while an outage of this machine's own network is assumed.",
);
const OUTAGES: Family = Family::counter(
    "headworks_tracker_outages_total",
    "Outages of this machine's own network that were assumed.",
);

const OFFERED: Family = Family::counter(
    "headworks_tracker_forwards_offered_total",
    "Forwards that were offered to the queue.",
);
const FORWARDS: Family = Family::counter(
    "headworks_tracker_forwards_total",
    "Forwards by end. With the queued and running ones they add up to the offered ones.",
);

/// Returns all metrics, for the tracker's own `/metrics`.
pub(crate) fn render(announces: &AnnounceHandler) -> String {
    let mut out = Exposition::default();
    write_unprefixed(announces, &mut out);
    write_prefixed(announces, &mut out);
    out.to_string()
}

/// Writes the metrics with the names of the predecessor.
fn write_unprefixed(announces: &AnnounceHandler, out: &mut Exposition) {
    let (queue, totals) = (queue(announces), announces.state.totals());
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
    for (_, forwarder) in announces.state.active().listed_forwarders() {
        for status in Status::LISTED {
            let labels = [("name", forwarder.name.as_str()), ("status", status.name())];
            let value = f64::from(u8::from(forwarder.status() == status));
            out.family(&STATUS).sample(&labels, value);
        }
    }
}

/// Writes the metrics with our own prefix.
fn write_prefixed(announces: &AnnounceHandler, out: &mut Exposition) {
    let (state, totals) = (&announces.state, announces.state.totals());
    let (torrents, peers) = state.swarms.totals();
    out.family(&TORRENTS).sample(&[], torrents as f64);
    out.family(&PEERS).sample(&[], peers as f64);
    out.family(&BAD_REQUESTS)
        .sample(&[("transport", "http")], totals.http_bad as f64);
    out.family(&BAD_REQUESTS)
        .sample(&[("transport", "udp")], totals.udp_bad as f64);
    out.family(&UNSENT).sample(&[], totals.udp_unsent as f64);
    out.family(&CONNECTIONS)
        .sample(&[], totals.connections as f64);
    out.family(&DROPPED)
        .sample(&[], totals.connections_dropped as f64);
    out.family(&ACCEPT_FAILURES)
        .sample(&[], totals.accept_failures as f64);
    for (result, count) in [
        ("ok", totals.lists_fetched),
        ("failed", totals.lists_failed),
    ] {
        out.family(&LISTS)
            .sample(&[("result", result)], count as f64);
    }
    for reason in SkipReason::ALL {
        let count = state.active().skipped.count(reason);
        out.family(&SKIPPED)
            .sample(&[("reason", reason.name())], count as f64);
    }
    out.family(&PAGES).sample(&[], totals.pages_built as f64);
    out.family(&NOT_STORED)
        .sample(&[], totals.not_stored as f64);
    let down = f64::from(u8::from(announces.forwarding.outage.is_down()));
    out.family(&NETWORK_DOWN).sample(&[], down);
    let outages = announces.forwarding.outage.outages.get();
    out.family(&OUTAGES).sample(&[], outages as f64);
    write_forwards(announces, out);
    for (_, forwarder) in state.active().listed_forwarders() {
        let (labels, counters) = ([("name", forwarder.name.as_str())], &forwarder.counters);
        out.family(&FORWARDER_REQUESTS)
            .sample(&labels, counters.requests.get() as f64);
        out.family(&FORWARDER_FAILURES)
            .sample(&labels, counters.failures.get() as f64);
        out.family(&UNIQUE_PEERS)
            .sample(&labels, counters.contributed.get() as f64);
    }
}

fn write_forwards(announces: &AnnounceHandler, out: &mut Exposition) {
    let view = announces.forwarding.pool().inspect();
    let sum = |count: fn(&ClassStats) -> u64| -> f64 {
        view.classes
            .iter()
            .map(|class| count(&class.stats))
            .sum::<u64>() as f64
    };
    let untried = announces.state.totals().untried as f64;
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

/// The collector for the admin listener. It has only prefixed names, because other applications
/// share that page.
pub(crate) struct TrackerCollector(pub(crate) Arc<AnnounceHandler>);

impl Collect for TrackerCollector {
    fn collect(&self, out: &mut Exposition) {
        write_prefixed(&self.0, out);
    }
}
