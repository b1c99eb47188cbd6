//! What the console shows of the tracker.

use crate::access;
use crate::explain::explain;
use crate::forward::{Station, Status};
use crate::plane::Plane;
use crate::stats::{self, Queue};
use futures_util::future::BoxFuture;
use headworks_core::TargetState;
use headworks_service::panel::{
    Action, Args, Body, Cell, Done, Explanation, Health, Line, LineKind, Paged, Panel, PanelError,
    Parameter, ParameterKind, Row, Series, Snapshot, Unit, Widget,
};
use headworks_tracker_wire::{Counts, InfoHash};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Torrents that are shown: the largest.
const TORRENTS: usize = 50;
/// Looking for them may take one part in so many of the time.
const SHARE: u32 = 100;

/// The tracker's panel.
pub(crate) struct TrackerPanel {
    plane: Arc<Plane>,
    largest: Mutex<Largest>,
}

/// The largest torrents, as they were last looked for.
#[derive(Default)]
struct Largest {
    next: Option<Instant>,
    torrents: Vec<(usize, InfoHash, Counts, usize)>,
}

impl TrackerPanel {
    pub(crate) fn new(plane: Arc<Plane>) -> TrackerPanel {
        TrackerPanel {
            plane,
            largest: Mutex::default(),
        }
    }
}

impl Panel for TrackerPanel {
    fn name(&self) -> &str {
        "tracker"
    }

    fn snapshot(&self) -> Snapshot {
        let queue = stats::queue(&self.plane);
        // Looking through them counts them.
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
            title: "For how many seconds".into(),
            kind: ParameterKind::Whole,
            required: false,
            now: None,
        };
        vec![
            Action {
                name: "suspend".into(),
                title: "Suspend".into(),
                doc: "Leaves a forwarder alone for a while; what waits for it waits longer.".into(),
                destructive: false,
                parameters: vec![forwarder(), seconds],
            },
            Action {
                name: "enable".into(),
                title: "Enable".into(),
                doc: "Asks a suspended or disabled forwarder again.".into(),
                destructive: false,
                parameters: vec![forwarder()],
            },
        ]
    }

    fn act<'a>(
        &'a self,
        action: &'a str,
        args: &'a Args,
    ) -> BoxFuture<'a, Result<Done, PanelError>> {
        let done = self.take(action, args);
        Box::pin(async move { done })
    }

    fn explains(&self) -> Option<&str> {
        Some("torrent")
    }

    fn explain<'a>(&'a self, subject: &'a str) -> BoxFuture<'a, Result<Explanation, PanelError>> {
        let hash = access::hash(subject.trim());
        let told = hash.and_then(|hash| explain(&self.plane, &hash));
        Box::pin(async move { told.ok_or_else(|| PanelError::unknown_subject(subject)) })
    }
}

impl TrackerPanel {
    fn take(&self, action: &str, args: &Args) -> Result<Done, PanelError> {
        let name = args.get("forwarder").and_then(|name| name.as_str());
        let name = name.unwrap_or_default();
        let (plan, forwarding) = (self.plane.shared.plan(), &self.plane.forwarding);
        let found = plan.find(name);
        let (number, station) =
            found.ok_or_else(|| PanelError::argument("forwarder", "there is none of that name"))?;
        match action {
            "suspend" => {
                let seconds = args.get("seconds").and_then(serde_json::Value::as_u64);
                let usual = plan.config.forwarder_suspend_seconds;
                let time = seconds.map_or(usual, Duration::from_secs);
                let until = forwarding.pool().now() + time;
                forwarding.set(number, TargetState::Suspended { until });
                let time = headworks_service::config::show_duration(time);
                Ok(Done::new(format!("{name} is left alone for {time}")))
            }
            "enable" => {
                station.never.store(false, Ordering::Relaxed);
                forwarding.set(number, TargetState::Active);
                Ok(Done::new(format!("{name} is asked again")))
            }
            other => Err(PanelError::unknown_action(other)),
        }
    }

    fn health(&self, queue: &Queue) -> Health {
        let plan = self.plane.shared.plan();
        let all = plan.forwarders().count();
        let out = plan.forwarders().filter(|(_, s)| !s.is_usable()).count();
        let limit = f64::from(plan.config.queue_rate_limit_threshold);
        if self.plane.forwarding.watch.is_down() {
            return Health::Bad("every forwarder fails: this machine's network is down".into());
        }
        if limit > 0.0 && queue.fill_pct >= limit {
            return Health::Warning("the queue is full: new torrents are held to a rate".into());
        }
        match out {
            0 => Health::Good,
            out if out == all => Health::Warning("no forwarder can be asked".into()),
            out => Health::Warning(format!("{out} of {all} forwarders cannot be asked")),
        }
    }

    fn load(&self, queue: &Queue) -> Series {
        let totals = self.plane.shared.totals();
        let total = |name: &str, value: u64| line(name, LineKind::Total, value as f64, None);
        Series {
            unit: Unit::Count,
            lines: vec![
                total("announces over HTTP", totals.http_announces),
                total("announces over UDP", totals.udp_announces),
                total("scrapes", totals.http_scrapes + totals.udp_scrapes),
                total("refused", queue.rate_limited),
                total("dropped", queue.dropped_full),
            ],
        }
    }

    fn fill(&self, queue: &Queue) -> Series {
        let config = &self.plane.shared.plan().config;
        let level = |name: &str, value: f64, limit: Option<f64>| {
            line(name, LineKind::Level, value, limit.filter(|l| *l > 0.0))
        };
        let percent = |threshold: u8| Some(f64::from(threshold) * queue.capacity as f64 / 100.0);
        let waiting = queue.depth as f64;
        Series {
            unit: Unit::Count,
            lines: vec![
                level(
                    "waiting, until fewer are asked",
                    waiting,
                    percent(config.queue_throttle_threshold),
                ),
                level(
                    "waiting, until torrents are held back",
                    waiting,
                    percent(config.queue_rate_limit_threshold),
                ),
                level("waiting, until full", waiting, Some(queue.capacity as f64)),
                level("delayed", queue.delayed as f64, None),
                level(
                    "running",
                    queue.running as f64,
                    Some(queue.max_workers as f64),
                ),
            ],
        }
    }

    fn size(&self) -> Series {
        let (torrents, peers) = &self.plane.shared.sizes;
        let level = |name: &str, value: usize| line(name, LineKind::Level, value as f64, None);
        Series {
            unit: Unit::Count,
            lines: vec![
                level("torrents", torrents.load(Ordering::Relaxed)),
                level("local peers", peers.load(Ordering::Relaxed)),
            ],
        }
    }

    fn forwarders(&self) -> Paged {
        let plan = self.plane.shared.plan();
        let now = self.plane.forwarding.pool().now();
        let rows = plan.forwarders().map(|(_, station)| {
            let left = station.until.lock().map(|until| until.since(now));
            Row::new(&station.name, forwarder(station, left))
        });
        let names = [
            ("forwarder", Unit::Count),
            ("state", Unit::Count),
            ("suspended for", Unit::Seconds),
            ("last trouble", Unit::Count),
            ("requests", Unit::Count),
            ("failures", Unit::Count),
            ("latency", Unit::Seconds),
            ("unique peers", Unit::Count),
            ("new peers an announce", Unit::Count),
        ];
        Paged::new(&names, rows.collect(), None)
    }

    fn torrents(&self) -> Paged {
        let mut largest = self.largest.lock();
        let now = Instant::now();
        if largest.next.is_none_or(|next| next <= now) {
            largest.torrents = self.look_for_largest();
            let pause = (now.elapsed() * SHARE).max(Duration::from_secs(1));
            largest.next = Some(now + pause);
        }
        let rows = largest.torrents.iter().map(|(local, hash, counts, found)| {
            let numbers = [
                *local as f64,
                *found as f64,
                f64::from(counts.complete),
                f64::from(counts.incomplete),
            ];
            let cells = [Cell::Text(hash.to_string())].into_iter();
            Row::new(
                hash.to_string(),
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

    fn look_for_largest(&self) -> Vec<(usize, InfoHash, Counts, usize)> {
        let shared = &self.plane.shared;
        let (mut largest, by) = (Vec::new(), shared.count_by);
        let (mut torrents, mut peers) = (0, 0);
        shared.swarms.each(|hash, swarm| {
            let found = swarm.known.as_ref().map_or(0, |known| known.len());
            let local = swarm.local_peers();
            (torrents, peers) = (torrents + 1, peers + local);
            largest.push((local, *hash, swarm.counts(by), found));
            if largest.len() >= 4 * TORRENTS {
                keep_largest(&mut largest);
            }
        });
        keep_largest(&mut largest);
        shared.sizes.0.store(torrents, Ordering::Relaxed);
        shared.sizes.1.store(peers, Ordering::Relaxed);
        largest
    }
}

fn keep_largest(torrents: &mut Vec<(usize, InfoHash, Counts, usize)>) {
    torrents
        .sort_unstable_by_key(|(local, hash, _, found)| (std::cmp::Reverse(local + found), *hash));
    torrents.truncate(TORRENTS);
}

fn forwarder(station: &Station, suspended: Option<Duration>) -> Vec<Cell> {
    let health = match station.status() {
        Status::Active => Health::Good,
        Status::Disabled => Health::Bad(Status::Disabled.word().to_owned()),
        status => Health::Warning(status.word().to_owned()),
    };
    let trouble = station.trouble.lock().clone();
    let lately = station.worth.lately();
    let number = |number: Option<f64>| number.map_or(Cell::Empty, Cell::Number);
    vec![
        station.name.as_str().into(),
        Cell::Health(health),
        number(suspended.map(|left| left.as_secs_f64())),
        trouble.map_or(Cell::Empty, Cell::Text),
        (station.numbers.requests.get() as f64).into(),
        (station.numbers.failures.get() as f64).into(),
        number(lately.map(|(_, seconds)| f64::from(seconds))),
        (station.numbers.contributed.get() as f64).into(),
        number(lately.map(|(peers, _)| f64::from(peers))),
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
