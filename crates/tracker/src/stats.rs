//! Statistics for `/stats`, as text and as JSON.

use crate::announce::AnnounceHandler;
use crate::clock::Seconds;
use crate::forwarders::ForwarderState;
use crate::swarms::Peer;
use headworks_tracker_wire::compact;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;

/// The most clients listed.
const MAX_CLIENTS: usize = 10_000;

/// The statistics. The names of the queue's fields are those of the predecessor, which dashboards
/// rely on.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Stats {
    torrents: u64,
    peers: u64,
    requests: Requests,
    queue: Queue,
    /// The fields of the predecessor, which had no sections.
    #[serde(flatten)]
    flat: FlatQueue,
    forwarders: Vec<ForwarderStats>,
    /// Present only for a request with the admin token.
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<Vec<ClientStats>>,
}

#[derive(Clone, Debug, Serialize)]
struct ClientStats {
    address: SocketAddr,
    torrent: String,
    seeder: bool,
    heard_seconds_ago: Seconds,
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
pub(crate) struct Queue {
    pub(crate) depth: u64,
    pub(crate) capacity: u64,
    pub(crate) fill_pct: f64,
    pub(crate) delayed: u64,
    pub(crate) running: u64,
    pub(crate) active_workers: u64,
    pub(crate) max_workers: u64,
    pub(crate) dropped_full: u64,
    pub(crate) rate_limited: u64,
    pub(crate) throttled_forwarders: u64,
}

#[derive(Clone, Debug, Serialize)]
struct FlatQueue {
    queue_depth: u64,
    queue_capacity: u64,
    queue_fill_pct: f64,
    queue_dropped_full: u64,
    queue_rate_limited: u64,
    queue_throttled_forwarders: u64,
    forwarder_workers: u64,
    active_workers: u64,
    max_workers: u64,
    dropped_full: u64,
    rate_limited: u64,
    throttled_forwarders: u64,
}

impl FlatQueue {
    fn of(queue: &Queue) -> FlatQueue {
        FlatQueue {
            queue_depth: queue.depth,
            queue_capacity: queue.capacity,
            queue_fill_pct: queue.fill_pct,
            queue_dropped_full: queue.dropped_full,
            queue_rate_limited: queue.rate_limited,
            queue_throttled_forwarders: queue.throttled_forwarders,
            forwarder_workers: queue.active_workers,
            active_workers: queue.active_workers,
            max_workers: queue.max_workers,
            dropped_full: queue.dropped_full,
            rate_limited: queue.rate_limited,
            throttled_forwarders: queue.throttled_forwarders,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
struct ForwarderStats {
    name: String,
    status: &'static str,
    requests: u64,
    answers: u64,
    failures: u64,
    unique_peers_contributed: u64,
    /// A moving average.
    new_peers_per_announce: Option<f64>,
    average_response_ms: Option<f64>,
    interval_seconds: Option<u64>,
    last_trouble: Option<String>,
}

impl Stats {
    pub(crate) fn of(announces: &AnnounceHandler) -> Stats {
        let totals = announces.state.totals();
        let (torrents, peers) = announces.state.swarms.totals();
        let queue = queue(announces);
        Stats {
            torrents: torrents as u64,
            peers: peers as u64,
            requests: Requests {
                http_announces: totals.http_announces,
                http_scrapes: totals.http_scrapes,
                http_bad: totals.http_bad,
                udp_connects: totals.udp_connects,
                udp_announces: totals.udp_announces,
                udp_scrapes: totals.udp_scrapes,
                udp_bad: totals.udp_bad,
            },
            flat: FlatQueue::of(&queue),
            queue,
            forwarders: forwarders(announces),
            clients: None,
        }
    }

    /// Returns the page as text and as JSON.
    pub(crate) fn render(&self) -> (Vec<u8>, Vec<u8>) {
        let json = serde_json::to_vec_pretty(self).unwrap_or_default();
        (self.to_string().into_bytes(), json)
    }

    /// Adds the clients' addresses, up to a limit.
    pub(crate) fn add_clients(&mut self, announces: &AnnounceHandler) {
        let now = announces.state.clock.now();
        let mut clients = Vec::new();
        announces.state.swarms.for_each_while(|hash, swarm| {
            let torrent = hash.to_string();
            let mut add = |address, peer: Peer| {
                if clients.len() < MAX_CLIENTS {
                    clients.push(ClientStats {
                        address,
                        torrent: torrent.clone(),
                        seeder: peer.seeder,
                        heard_seconds_ago: now.saturating_sub(peer.last_announce),
                    });
                }
            };
            for (address, peer) in swarm.v4.iter() {
                add(compact::unpack4(&address), peer);
            }
            for (address, peer) in swarm.v6.iter() {
                add(compact::unpack6(&address), peer);
            }
            clients.len() < MAX_CLIENTS
        });
        self.clients = Some(clients);
    }
}

/// Returns the state of the forward queue.
pub(crate) fn queue(announces: &AnnounceHandler) -> Queue {
    let totals = announces.state.totals();
    let config = &announces.state.active().config;
    let counted = Queue {
        capacity: config.forwarder_queue_size as u64,
        max_workers: config.max_forwarder_workers as u64,
        dropped_full: totals.dropped_full,
        rate_limited: totals.rate_limited,
        throttled_forwarders: totals.throttled,
        ..Queue::default()
    };
    // Read before the pool: a forward that is submitted in between is counted twice rather than not
    // at all.
    let backlog = announces.forwarding.backlog();
    let view = announces.forwarding.pool().inspect();
    let waiting = announces.forwarding.waiting_for_worker();
    let depth = view.waiting + backlog;
    Queue {
        depth,
        fill_pct: 100.0 * depth as f64 / view.capacity.max(1) as f64,
        delayed: view.delayed,
        running: view.running.saturating_sub(waiting),
        active_workers: announces.forwarding.workers(),
        // A forward displaced by an event was dropped because the queue was full, too.
        dropped_full: counted.dropped_full
            + view
                .classes
                .iter()
                .map(|class| class.stats.ended.shed)
                .sum::<u64>(),
        ..counted
    }
}

fn forwarders(announces: &AnnounceHandler) -> Vec<ForwarderStats> {
    let one = |forwarder: &ForwarderState| {
        let counters = &forwarder.counters;
        let answers = counters.answers.get();
        let average = counters.micros.get() as f64 / 1000.0 / answers.max(1) as f64;
        ForwarderStats {
            name: forwarder.name.clone(),
            status: forwarder.status().name(),
            requests: counters.requests.get(),
            answers,
            failures: counters.failures.get(),
            unique_peers_contributed: counters.contributed.get(),
            new_peers_per_announce: forwarder
                .score
                .averages()
                .map(|(peers, _)| round_to_tenths(peers.into())),
            average_response_ms: (answers > 0).then_some(round_to_tenths(average)),
            interval_seconds: counters.interval.lock().map(|interval| interval.as_secs()),
            last_trouble: forwarder.last_error.lock().clone(),
        }
    };
    let active = announces.state.active();
    let listed = active.listed_forwarders();
    listed.map(|(_, forwarder)| one(forwarder)).collect()
}

fn round_to_tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stats {
            torrents,
            peers,
            requests: r,
            queue: q,
            forwarders,
            clients,
            flat: _,
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
            if let Some(error) = &one.last_trouble {
                write!(f, ", last error: {error}")?;
            }
            writeln!(f)?;
        }
        for one in clients.iter().flatten() {
            let kind = if one.seeder { "seeder" } else { "leecher" };
            writeln!(
                f,
                "client {}: {kind} of {}, last announce {} s ago",
                one.address, one.torrent, one.heard_seconds_ago
            )?;
        }
        Ok(())
    }
}
