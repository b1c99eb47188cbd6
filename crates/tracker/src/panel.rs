//! The tracker's panel in the console.

use crate::access;
use crate::announce::AnnounceHandler;
use crate::explain::explain;
use crate::forwarders::{ForwarderState, Status};
use crate::stats::{self, Queue};
use futures_util::future::BoxFuture;
use headworks_core::TargetState;
use headworks_service::panel::{
    Action, ActionResult, Args, Body, Cell, Explanation, Health, Line, LineKind, Paged, Panel,
    PanelError, Parameter, ParameterKind, Row, Series, Snapshot, Unit, Widget,
};
use headworks_tracker_wire::{Counts, InfoHash};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The number of torrents listed, the largest ones.
const MAX_TORRENTS: usize = 50;
/// The search for the largest torrents takes at most one part in this many of the time, because it
/// locks every shard in turn.
const SEARCH_SHARE: u32 = 100;

/// The tracker's panel.
pub(crate) struct TrackerPanel {
    announces: Arc<AnnounceHandler>,
    largest: Mutex<Largest>,
}

/// The result of the last search for the largest torrents.
#[derive(Default)]
struct Largest {
    next: Option<Instant>,
    torrents: Vec<TorrentSize>,
}

/// One torrent in the list of the largest.
struct TorrentSize {
    hash: InfoHash,
    local: usize,
    cached: usize,
    counts: Counts,
}

impl TrackerPanel {
    pub(crate) fn new(announces: Arc<AnnounceHandler>) -> TrackerPanel {
        TrackerPanel {
            announces,
            largest: Mutex::default(),
        }
    }
}

impl Panel for TrackerPanel {
    fn name(&self) -> &str {
        "tracker"
    }

    fn snapshot(&self) -> Snapshot {
        let queue = stats::queue(&self.announces);
        let torrents = self.torrents();
        Snapshot {
            title: "Tracker".into(),
            health: self.health(&queue),
            widgets: vec![
                Widget::new("load", "Requests", Body::Series(self.load(&queue))),
                Widget::new("fill", "Forward queue", Body::Series(self.fill(&queue))),
                Widget::new("size", "Torrents and peers", Body::Series(self.size())),
                Widget::new("forwarders", "Forwarders", Body::Table(self.forwarders())),
                Widget::new("torrents", "Largest torrents", Body::Table(torrents)),
            ],
        }
    }

    fn actions(&self) -> Vec<Action> {
        let forwarder = || Parameter {
            name: "forwarder".into(),
            title: "Forwarder".into(),
            kind: ParameterKind::Row("forwarders".into()),
            required: true,
            now: None,
        };
        let seconds = Parameter {
            name: "seconds".into(),
            title: "Seconds".into(),
            kind: ParameterKind::Whole,
            required: false,
            now: None,
        };
        vec![
            Action {
                name: "suspend".into(),
                title: "Suspend".into(),
                doc: "Sends nothing to a forwarder for a while. Its queued forwards wait.".into(),
                destructive: false,
                parameters: vec![forwarder(), seconds],
            },
            Action {
                name: "enable".into(),
                title: "Enable".into(),
                doc: "Uses a suspended or disabled forwarder again.".into(),
                destructive: false,
                parameters: vec![forwarder()],
            },
        ]
    }

    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, Result<ActionResult, PanelError>> {
        let done = self.run(action, args);
        Box::pin(async move { done })
    }

    fn explains(&self) -> Option<&str> {
        Some("torrent")
    }

    fn explain<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Explanation, PanelError>> {
        let hash = access::parse_hash(subject.trim());
        let explanation = hash.and_then(|hash| explain(&self.announces, &hash));
        Box::pin(async move { explanation.ok_or_else(|| PanelError::unknown_subject(subject)) })
    }
}

impl TrackerPanel {
    fn run(&self, action: &str, args: &Args) -> Result<ActionResult, PanelError> {
        let name = args.get("forwarder").and_then(|name| name.as_str());
        let name = name.unwrap_or_default();
        let (active, forwarding) = (self.announces.state.active(), &self.announces.forwarding);
        let found = active.find_forwarder(name);
        let (id, forwarder) =
            found.ok_or_else(|| PanelError::argument("forwarder", "no forwarder has that name"))?;
        match action {
            "suspend" => {
                let seconds = args.get("seconds").and_then(serde_json::Value::as_u64);
                let usual = active.config.forwarder_suspend_seconds;
                let time = seconds.map_or(usual, Duration::from_secs);
                let until = forwarding.pool().now() + time;
                forwarding.set_forwarder_state(id, TargetState::Suspended { until });
                let time = headworks_service::config::format_duration(time);
                Ok(ActionResult::new(format!("{name} is suspended for {time}")))
            }
            "enable" => {
                forwarder.declined.store(false, Ordering::Relaxed);
                forwarding.set_forwarder_state(id, TargetState::Active);
                Ok(ActionResult::new(format!("{name} is enabled")))
            }
            other => Err(PanelError::unknown_action(other)),
        }
    }

    fn health(&self, queue: &Queue) -> Health {
        let active = self.announces.state.active();
        let all = active.listed_forwarders().count();
        let unusable = active
            .listed_forwarders()
            .filter(|(_, forwarder)| !forwarder.is_usable())
            .count();
        let limit = f64::from(active.config.queue_rate_limit_threshold);
        if self.announces.forwarding.outage.is_down() {
            return Health::Bad("network down: every request to a forwarder failed".into());
        }
        if limit > 0.0 && queue.fill_pct >= limit {
            return Health::Warning(
                "the forward queue is filling up: new torrents are rate-limited".into(),
            );
        }
        match unusable {
            0 => Health::Good,
            unusable if unusable == all => Health::Warning("all forwarders are unavailable".into()),
            unusable => Health::Warning(format!("{unusable} of {all} forwarders are unavailable")),
        }
    }

    fn load(&self, queue: &Queue) -> Series {
        let totals = self.announces.state.totals();
        let total = |name: &str, value: u64| line(name, LineKind::Total, value as f64, None);
        Series {
            unit: Unit::Count,
            lines: vec![
                total("announces over HTTP", totals.http_announces),
                total("announces over UDP", totals.udp_announces),
                total("scrapes", totals.http_scrapes + totals.udp_scrapes),
                total("rejected", queue.rate_limited),
                total("forwards dropped", queue.dropped_full),
            ],
        }
    }

    fn fill(&self, queue: &Queue) -> Series {
        let config = &self.announces.state.active().config;
        let level = |name: &str, value: f64, limit: Option<f64>| {
            line(name, LineKind::Level, value, limit.filter(|l| *l > 0.0))
        };
        let percent = |threshold: u8| Some(f64::from(threshold) * queue.capacity as f64 / 100.0);
        let queued = queue.depth as f64;
        Series {
            unit: Unit::Count,
            lines: vec![
                level(
                    "queued, of throttle threshold",
                    queued,
                    percent(config.queue_throttle_threshold),
                ),
                level(
                    "queued, of rate limit threshold",
                    queued,
                    percent(config.queue_rate_limit_threshold),
                ),
                level("queued, of capacity", queued, Some(queue.capacity as f64)),
                level("delayed", queue.delayed as f64, None),
                level("running", queue.running as f64, None),
            ],
        }
    }

    fn size(&self) -> Series {
        let (torrents, peers) = self.announces.state.swarms.totals();
        let level = |name: &str, value: usize| line(name, LineKind::Level, value as f64, None);
        Series {
            unit: Unit::Count,
            lines: vec![level("torrents", torrents), level("local peers", peers)],
        }
    }

    fn forwarders(&self) -> Paged {
        let active = self.announces.state.active();
        let now = self.announces.forwarding.pool().now();
        let rows = active.listed_forwarders().map(|(_, forwarder)| {
            let until = *forwarder.suspended_until.lock();
            let left = until.map(|until| until.since(now));
            Row::new(&forwarder.name, forwarder_cells(forwarder, left))
        });
        let names = [
            ("forwarder", Unit::Count),
            ("state", Unit::Count),
            ("suspended for", Unit::Seconds),
            ("last error", Unit::Count),
            ("requests", Unit::Count),
            ("failures", Unit::Count),
            ("latency", Unit::Seconds),
            ("unique peers", Unit::Count),
            ("new peers per announce", Unit::Count),
        ];
        Paged::new(&names, rows.collect(), None)
    }

    fn torrents(&self) -> Paged {
        let mut largest = self.largest.lock();
        let now = Instant::now();
        if largest.next.is_none_or(|next| next <= now) {
            largest.torrents = self.find_largest();
            let pause = (now.elapsed() * SEARCH_SHARE).max(Duration::from_secs(1));
            largest.next = Some(now + pause);
        }
        let rows = largest.torrents.iter().map(|torrent| {
            let numbers = [
                torrent.local as f64,
                torrent.cached as f64,
                f64::from(torrent.counts.complete),
                f64::from(torrent.counts.incomplete),
            ];
            let cells = [Cell::Text(torrent.hash.to_string())].into_iter();
            Row::new(
                torrent.hash.to_string(),
                cells.chain(numbers.map(Cell::Number)).collect(),
            )
        });
        let names = [
            ("torrent", Unit::Count),
            ("local peers", Unit::Count),
            ("peers from forwarders", Unit::Count),
            ("complete", Unit::Count),
            ("incomplete", Unit::Count),
        ];
        Paged::new(&names, rows.collect(), None)
    }

    /// Finds the largest torrents.
    fn find_largest(&self) -> Vec<TorrentSize> {
        let state = &self.announces.state;
        let (mut largest, by) = (Vec::new(), state.count_by);
        state.swarms.for_each(|hash, swarm| {
            let local = swarm.local_peers();
            largest.push(TorrentSize {
                hash: *hash,
                local,
                cached: swarm.cached_peers(),
                counts: swarm.counts(by),
            });
            if largest.len() >= 4 * MAX_TORRENTS {
                keep_largest(&mut largest);
            }
        });
        keep_largest(&mut largest);
        largest
    }
}

fn keep_largest(torrents: &mut Vec<TorrentSize>) {
    torrents.sort_unstable_by_key(|torrent| {
        let peers = torrent.local + torrent.cached;
        (std::cmp::Reverse(peers), torrent.hash)
    });
    torrents.truncate(MAX_TORRENTS);
}

fn forwarder_cells(forwarder: &ForwarderState, suspended: Option<Duration>) -> Vec<Cell> {
    let health = match forwarder.status() {
        Status::Active => Health::Good,
        Status::Disabled => Health::Bad(Status::Disabled.name().to_owned()),
        status => Health::Warning(status.name().to_owned()),
    };
    let last_error = forwarder.last_error.lock().clone();
    let averages = forwarder.score.averages();
    let number = |number: Option<f64>| number.map_or(Cell::Empty, Cell::Number);
    vec![
        forwarder.name.as_str().into(),
        Cell::Health(health),
        number(suspended.map(|left| left.as_secs_f64())),
        last_error.map_or(Cell::Empty, Cell::Text),
        (forwarder.counters.requests.get() as f64).into(),
        (forwarder.counters.failures.get() as f64).into(),
        number(averages.map(|(_, seconds)| f64::from(seconds))),
        (forwarder.counters.contributed.get() as f64).into(),
        number(averages.map(|(peers, _)| f64::from(peers))),
    ]
}

fn line(name: &str, kind: LineKind, value: f64, limit: Option<f64>) -> Line {
    Line {
        name: name.to_owned(),
        kind,
        value,
        limit,
    }
}
