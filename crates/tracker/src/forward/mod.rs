//! The forward plane: announces go on to other trackers, which are slow, refuse, or ask for
//! patience.
//!
//! A pool with one bound: events first, then first announces, then the rest. The announce plane
//! hands work in and goes on; what forwarders answer is put into the swarm's own record by
//! [`desk`].
//!
//! While a forward for a torrent and a forwarder is on its way, that forwarder is not asked for the
//! torrent again, whoever announces: what it answers is for all of them.

mod ask;
mod background;
mod choose;
mod clerk;
mod desk;
mod door;
mod flights;
mod http;
mod intake;
mod judge;
mod station;
mod udp;
mod watch;
mod worth;

pub(crate) use ask::{Ask, AskError, Asker};
pub(crate) use background::Background;
pub(crate) use clerk::Later;
pub(crate) use http::unpacked;
pub(crate) use station::{Station, Status};

use crate::config::TrackerConfig;
use crate::counters::Counters;
use crate::error::Error;
use crate::plan::Plan;
use crate::plane::{Call, Shared};
use crate::swarm::{Asked, Packed, Seconds, Swarms};
use clerk::Clerk;
use desk::Desk;
use door::{Limiter, TurnedAway};
use headworks_core::{
    Backoff, Bound, Class, ClassConfig, Config, KeySeed, Limits, OnSuspend, Policy, Reason,
    TargetConfig, TargetId, TargetState, Thresholds,
};
use headworks_pool::{Pool, Workers};
use headworks_service::shutdown::Shutdown;
use headworks_tracker_wire::{Announce, Event, PeerId};
use intake::Intake;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use watch::Watch;

/// What is to be passed on, and to whom.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forward {
    pub(crate) announce: Announce,
    pub(crate) client: IpAddr,
    /// The peer in its swarm.
    pub(crate) at: Packed,
    pub(crate) forwarder: u16,
    /// How the torrent stood with the forwarder before: as it will again if this comes to nothing.
    pub(crate) before: Asked,
    /// What came of it is in the swarm's record already.
    pub(crate) settled: bool,
}

impl Forward {
    /// The job's name: announces of a peer are one kind, whether it started or not.
    fn kind(&self) -> Event {
        match self.announce.event {
            Event::Started => Event::None,
            event => event,
        }
    }

    pub(crate) fn is_announce(&self) -> bool {
        self.kind() == Event::None
    }
}

/// What became of an announce that was to be passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// At least one forwarder will be asked.
    Queued,
    /// Nobody is to be asked now.
    Nothing,
    /// It is the first of its torrent, and those are held to a rate.
    Busy,
    /// It is the first of its torrent, and nothing could be queued.
    Full,
}

/// The forward plane.
pub(crate) struct Forwarding {
    pub(crate) watch: Arc<Watch>,
    intake: Intake,
    clerk: Clerk,
    limiter: Limiter,
    turned_away: TurnedAway,
}

impl Forwarding {
    /// Starts the pool and whoever watches over it.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        asker: Asker,
        shutdown: &Shutdown,
    ) -> Result<Forwarding, Error> {
        let plan = shared.plan();
        let random =
            || getrandom::u64().map_err(|e| Error::Threads(std::io::Error::other(e.to_string())));
        let watch = Arc::new(Watch::new());
        let mut own = *b"-HW0001-............";
        own[8..16].copy_from_slice(&random()?.to_be_bytes());
        let desk = Desk {
            shared: shared.clone(),
            asker: Arc::new(asker),
            flights: Arc::default(),
            watch: watch.clone(),
            own: PeerId(own),
        };
        let asker = desk.asker.clone();
        let pool = Pool::new(pool_config(&plan), workers(&plan.config), desk)?;
        let seed = KeySeed::new(random()?, random()?);
        watch::spawn(&watch, &pool, shared, &asker, shutdown);
        let intake = Intake {
            pool,
            shared: shared.clone(),
            seed,
        };
        Ok(Forwarding {
            watch,
            clerk: Clerk::start(intake.clone()),
            intake,
            limiter: Limiter::default(),
            turned_away: TurnedAway::default(),
        })
    }

    pub(crate) fn pool(&self) -> &Pool<Forward> {
        &self.intake.pool
    }

    fn swarms(&self) -> &Swarms {
        &self.intake.shared.swarms
    }

    /// Forwards that are on their way to the pool, at most.
    pub(crate) fn behind(&self) -> u64 {
        self.clerk.behind()
    }

    /// The clients have their answers: what was left for later is on its way to the pool from now
    /// on.
    pub(crate) fn hand_in(&self, later: &mut Later, counters: &Counters) {
        self.clerk.bring(later, &self.intake, counters);
    }

    /// Ends it when nobody announces any more: what waits is called off, and what runs may take so
    /// long.
    pub(crate) async fn shutdown(&self, grace: Duration) {
        self.clerk.caught_up().await;
        self.intake.pool.clone().shutdown(grace).await;
    }

    /// Makes room for a new plan: from then on it can be in force. Forwarders that it no longer
    /// lists are asked nothing more; those that wanted no more of us get another chance.
    pub(crate) fn make_room(&self, plan: &Plan) -> Result<(), Error> {
        self.intake.pool.reconfigure(pool_config(plan))?;
        self.intake.pool.set_workers(workers(&plan.config));
        for (number, station) in plan.forwarders() {
            if station.never.swap(false, Ordering::Relaxed) {
                self.set(number, TargetState::Active);
            }
        }
        Ok(())
    }

    /// Puts a forwarder into a state.
    pub(crate) fn set(&self, forwarder: u16, state: TargetState) {
        let target = TargetId::new(u32::from(forwarder));
        self.intake.pool.set_target(target, state);
    }

    /// A peer completed: every forwarder that can be asked hears of it.
    pub(crate) fn completed(&self, call: &Call<'_>) {
        for (forwarder, station) in call.plan.forwarders() {
            if station.is_usable() {
                self.event(call, forwarder);
            }
        }
    }

    /// Takes back the announces of a peer that have not begun.
    pub(crate) fn take_back(&self, announce: &Announce) {
        let hash = &announce.info_hash;
        let asked = self.swarms().with_known(hash, |swarm| {
            let known = swarm.known.as_ref()?;
            Some(known.all_asked().map(|(forwarder, _)| forwarder).collect())
        });
        let asked: Option<Vec<u16>> = asked.flatten();
        for forwarder in asked.unwrap_or_default() {
            let key = self.intake.key(announce, forwarder, Event::None);
            if let Some(ticket) = self.intake.pool.find(key) {
                self.intake.pool.cancel(ticket);
            }
        }
    }

    /// A peer left: the forwarders that were told of it hear that, too.
    pub(crate) fn stopped(&self, call: &Call<'_>, told: &[u16]) {
        for forwarder in told {
            self.event(call, *forwarder);
        }
    }

    fn event(&self, call: &Call<'_>, forwarder: u16) {
        let forward = self.forward(call, forwarder, Asked::default());
        if let Err(reason) = self.intake.submit(forward, Class(0)) {
            if matches!(reason, Reason::Full | Reason::TargetFull) {
                call.counters.dropped_full.add(1);
            }
            let name = &call.plan.stations[usize::from(forwarder)].name;
            tracing::debug!(forwarder = name, %reason, "an event is not passed on");
        }
    }

    fn forward(&self, call: &Call<'_>, forwarder: u16, before: Asked) -> Forward {
        Forward {
            announce: *call.announce,
            client: call.client,
            at: call.at(),
            forwarder,
            before,
            settled: false,
        }
    }
}

fn workers(config: &TrackerConfig) -> Workers {
    let mut thresholds = Thresholds::default();
    thresholds.scale = config.queue_scale_threshold_pct;
    thresholds.throttle = config.queue_throttle_threshold;
    thresholds.limit = config.queue_rate_limit_threshold;
    let mut workers = Workers::new(config.forwarder_workers, config.max_forwarder_workers);
    workers.thresholds = thresholds;
    workers
}

fn pool_config(plan: &Plan) -> Config {
    let config = &plan.config;
    let target = |listed: &bool| TargetConfig {
        enabled: *listed,
        limits: Limits {
            concurrent: Some(config.forwarder_concurrency),
            ..Limits::default()
        },
        fault_threshold: config.forwarder_fail_threshold,
        suspend_for: config.forwarder_suspend_seconds,
        ..TargetConfig::default()
    };
    let events = ClassConfig {
        displaces: Some(Class(2)),
        ..ClassConfig::weight(1)
    };
    let base = Duration::from_millis(config.forwarder_retry_base_ms);
    Config {
        policy: Policy::Strict,
        classes: vec![events, ClassConfig::weight(1), ClassConfig::weight(1)],
        bound: Bound::Shared(config.forwarder_queue_size),
        // More than there are places: who finds a target's own places taken displaces nobody.
        max_waiting: Some(config.forwarder_queue_size + 1),
        delayed_bound: config.forwarder_queue_size.max(100_000),
        bookings: 0,
        targets: plan.listed.iter().map(target).collect(),
        on_suspend: OnSuspend::Delay,
        backoff: Backoff::new(base, base * 64),
        attempts: config.forwarder_retry_attempts.max(1),
        ..Config::default()
    }
}

/// Seconds of a duration, at least one.
pub(crate) fn seconds(duration: Duration) -> Seconds {
    duration.as_secs().clamp(1, u64::from(Seconds::MAX / 4)) as Seconds
}
