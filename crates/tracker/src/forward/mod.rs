//! The forward plane: sends clients' announces to other trackers, the *forwarders*, in the
//! background.
//!
//! [`Forwarding`] is its entrance. The announce threads hand announces to the submitter
//! ([`submit`]), which selects forwarders ([`select`]) and queues one job per forwarder in a pool.
//! The pool calls the handler ([`handler`]), which sends the request and stores the reported peers
//! in the swarm. A response to a client never waits for any of this.
//!
//! The pool has one bound for all jobs and three classes: events, first announces of a torrent,
//! other announces. Its tasks only wait for responses, so there are as many as requests may be in
//! flight; requests over HTTP are limited by [`workers`]. Torrents are announced again by our own
//! [`timers`]. A forwarder that is not known to respond is asked for one torrent at a time, so that
//! the dead entries of a public list cost nothing that others need.

mod handler;
mod in_flight;
mod job;
mod outage;
mod outcome;
mod own_addresses;
mod permits;
mod probe;
mod rate_limit;
mod runtime;
mod select;
mod submit;
mod timers;
mod workers;

pub(crate) use job::ForwardJob;
pub(crate) use outage::OutageDetector;
pub(crate) use runtime::ForwardRuntime;
pub(crate) use submit::PendingSubmissions;

use crate::active_config::ActiveConfig;
use crate::client::TrackerClient;
use crate::clock::Seconds;
use crate::config::TrackerConfig;
use crate::counters::Counters;
use crate::error::Error;
use crate::forwarders::ForwarderId;
use crate::request::AnnounceRequest;
use crate::state::TrackerState;
use crate::swarms::{AnnouncedPeer, Swarm};
use handler::ForwardHandler;
use headworks_core::{
    Backoff, Bound, ClassConfig, Config, KeySeed, Limits, OnSuspend, Policy, Pressure,
    TargetConfig, TargetState, Thresholds,
};
use headworks_pool::{Pool, Workers};
use headworks_service::shutdown::Shutdown;
use headworks_tracker_wire::{Announce, Event, InfoHash, PeerId};
use own_addresses::OwnAddresses;
use permits::{HttpPermits, UdpPermits};
use probe::Prober;
use rate_limit::{LastRejected, RateLimiter};
use select::Fanout;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use submit::{PendingAnnounce, SelectedForwards, Submission, SubmitQueue, Submitted, Submitter};
use timers::DueTimers;
use workers::HttpWorkers;

/// The fill of the queue, in percent and including the backlog, below which a forward is certain to
/// find room. All work of the announce can then be deferred.
const FULL: u32 = 100;
/// The time for which a torrent is not selected for again while a selection is on its way.
const SELECTION_TIME: Seconds = 30;

/// The first half of forwarding an announce: the part that needs its swarm.
pub(crate) enum Admission {
    /// First announces are rate-limited, and this one exceeds the rate.
    RateLimited,
    /// The client found the queue full a moment ago.
    RecentlyFull(Pressure),
    /// Forwarders are selected later.
    Deferred(PendingAnnounce),
    /// The queue may be full: one forward is tried at once.
    Selected(SelectedForwards),
}

/// The result of forwarding an announce, as far as it affects the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forwarded {
    /// At least one forwarder will be asked.
    Queued,
    /// No forwarder is asked.
    NotNeeded,
    /// The first announce of a torrent exceeds the rate.
    RateLimited,
    /// The first announce of a torrent found the queue full.
    QueueFull,
}

/// The forward plane.
pub(crate) struct Forwarding {
    pub(crate) outage: Arc<OutageDetector>,
    submitter: Submitter,
    queue: SubmitQueue,
    udp_permits: Arc<UdpPermits>,
    limiter: RateLimiter,
    last_rejected: LastRejected,
}

impl Forwarding {
    /// Starts the pool, the submit task and the probe task on the current runtime. `requests` is
    /// the most requests over HTTP at once that need no worker.
    pub(crate) fn start(
        state: &Arc<TrackerState>,
        client: TrackerClient,
        requests: usize,
        shutdown: &Shutdown,
    ) -> Result<Forwarding, Error> {
        let active = state.active();
        let random =
            || getrandom::u64().map_err(|e| Error::Threads(std::io::Error::other(e.to_string())));
        let outage = Arc::new(OutageDetector::new());
        outage.set_networks(active.networks());
        let client = Arc::new(client);
        let timers = Arc::<DueTimers>::default();
        let config = &active.config;
        let workers = Arc::new(HttpWorkers::new(
            config.forwarder_workers,
            config.max_forwarder_workers,
            thresholds(config),
        ));
        let udp_permits = Arc::<UdpPermits>::default();
        udp_permits.set_requests(udp_requests(&active));
        let mut own_id = *b"-HW0001-............";
        own_id[8..16].copy_from_slice(&random()?.to_be_bytes());
        let seed = KeySeed::new(random()?, random()?);
        let handler = ForwardHandler {
            state: state.clone(),
            client: client.clone(),
            in_flight: Arc::default(),
            outage: outage.clone(),
            timers: timers.clone(),
            workers: workers.clone(),
            http_permits: HttpPermits::new(requests),
            udp_permits: udp_permits.clone(),
            own_id: PeerId(own_id),
            own_addresses: OwnAddresses::default(),
            seed,
        };
        let pool = Pool::new(pool_config(&active), pool_workers(&active), handler)?;
        let for_fill = pool.clone();
        workers.set_fill(move |waiting| for_fill.pressure(waiting as u64).fill());
        let prober = Prober {
            outage: outage.clone(),
            pool: pool.clone(),
            state: state.clone(),
            client,
            timers: timers.clone(),
            probes: HashMap::new(),
        };
        prober.spawn(shutdown);
        let submitter = Submitter {
            pool,
            state: state.clone(),
            seed,
            timers,
            outage: outage.clone(),
            workers,
        };
        Ok(Forwarding {
            outage,
            queue: SubmitQueue::start(submitter.clone()),
            submitter,
            udp_permits,
            limiter: RateLimiter::new(Instant::now()),
            last_rejected: LastRejected::default(),
        })
    }

    pub(crate) fn pool(&self) -> &Pool<ForwardJob> {
        &self.submitter.pool
    }

    /// Returns the largest number of forwards that are not in the pool's queue: those that the
    /// submit queue still holds and those that wait for a worker.
    pub(crate) fn backlog(&self) -> u64 {
        self.queue.backlog() + self.waiting_for_worker()
    }

    /// Returns the number of forwards that wait for a worker.
    pub(crate) fn waiting_for_worker(&self) -> u64 {
        self.submitter.workers.waiting() as u64
    }

    /// Returns the number of workers.
    pub(crate) fn workers(&self) -> u64 {
        self.submitter.workers.count() as u64
    }

    /// Sets the timer of every torrent, spread over a minute: the list of forwarders has changed,
    /// or a snapshot was loaded.
    pub(crate) fn arm_all(&self) {
        let now = self.submitter.state.clock.now();
        let mut spread = 0;
        self.submitter.state.swarms.for_each_mut(|hash, swarm| {
            if swarm.record.is_some() {
                spread = (spread + 1) % 60;
                let at = swarm.due.max(now + spread);
                self.submitter.timers.arm(hash, swarm, at);
            }
        });
    }

    /// Queues the collected submissions. Call it when the responses are sent.
    pub(crate) fn submit_pending(&self, pending: &mut PendingSubmissions, counters: &Counters) {
        self.queue.push_all(pending, &self.submitter, counters);
    }

    /// Stops forwarding, after the announce threads have ended. Queued forwards are cancelled;
    /// running ones have `grace` to finish.
    pub(crate) async fn shutdown(&self, grace: Duration) {
        self.queue.flush().await;
        self.submitter.pool.clone().shutdown(grace).await;
    }

    /// Applies a new configuration to the pool, before it becomes the active one. Forwarders that
    /// it no longer lists receive nothing more; those that declined get another chance.
    pub(crate) fn reconfigure(&self, active: &ActiveConfig) -> Result<(), Error> {
        self.pool().reconfigure(pool_config(active))?;
        self.pool().set_workers(pool_workers(active));
        self.udp_permits.set_requests(udp_requests(active));
        self.outage.set_networks(active.networks());
        let config = &active.config;
        self.submitter.workers.reconfigure(
            config.forwarder_workers,
            config.max_forwarder_workers,
            thresholds(config),
        );
        for (id, forwarder) in active.listed_forwarders() {
            if forwarder.declined.swap(false, Ordering::Relaxed) {
                self.set_forwarder_state(id, TargetState::Active);
            }
        }
        Ok(())
    }

    /// Suspends, disables or enables a forwarder.
    pub(crate) fn set_forwarder_state(&self, forwarder: ForwarderId, state: TargetState) {
        self.pool().set_target(forwarder.target(), state);
    }

    /// Decides what becomes of an announce whose torrent is due, and notes it in the swarm. The
    /// caller holds the lock of the swarm's shard, so this takes no lock of the pool.
    pub(crate) fn admit(
        &self,
        request: &AnnounceRequest<'_>,
        first: bool,
        swarm: &mut Swarm,
    ) -> Admission {
        let (active, counters) = (request.active, request.counters);
        let pressure = self.submitter.pressure(self.queue.backlog());
        if first && pressure.limits() && !self.limiter.try_acquire(Instant::now(), &active.config) {
            counters.rate_limited.add(1);
            return Admission::RateLimited;
        }
        let announce = PendingAnnounce {
            hash: request.announce.info_hash,
            first,
            now: request.now,
            random: request.random,
        };
        if pressure.fill() < FULL {
            swarm.due = request.now + SELECTION_TIME;
            swarm.record_mut().begin_selection();
            return Admission::Deferred(announce);
        }
        if first && self.last_rejected.matches(request.client, Instant::now()) {
            return Admission::RecentlyFull(pressure);
        }
        let submitter = &self.submitter;
        let selected = submitter.select(&announce, active, swarm, pressure, counters);
        Admission::Selected(SelectedForwards::new(announce, selected))
    }

    /// Forwards an admitted announce. Except for one forward that may find the queue full,
    /// everything is left in `pending`.
    pub(crate) fn forward(
        &self,
        request: &AnnounceRequest<'_>,
        admission: Admission,
        pending: &mut PendingSubmissions,
    ) -> Forwarded {
        match admission {
            Admission::RateLimited => Forwarded::RateLimited,
            Admission::RecentlyFull(pressure) => self.drop_all(request, pressure),
            Admission::Deferred(announce) => {
                pending.push(Submission::Select(announce));
                Forwarded::Queued
            }
            Admission::Selected(forwards) => {
                let forwarded = self.try_one(request, forwards, pending);
                if forwarded == Forwarded::QueueFull {
                    self.last_rejected.record(request.client, Instant::now());
                }
                forwarded
            }
        }
    }

    /// Submits the first forward that finds room and leaves the others in `pending`.
    fn try_one(
        &self,
        request: &AnnounceRequest<'_>,
        mut forwards: SelectedForwards,
        pending: &mut PendingSubmissions,
    ) -> Forwarded {
        let submitted = self
            .submitter
            .submit_until(&mut forwards, 1, request.counters);
        if forwards.remaining() > 0 {
            pending.push(Submission::Submit(forwards));
            return Forwarded::Queued;
        }
        let limits = request.active.config.queue_rate_limit_threshold > 0;
        match submitted {
            Submitted { queued: 1.., .. } => Forwarded::Queued,
            Submitted { full: 1.., .. } if forwards.announce.first && limits => {
                Forwarded::QueueFull
            }
            Submitted { .. } => Forwarded::NotNeeded,
        }
    }

    /// Forwards `completed` to usable forwarders that know of the peer, and to others that respond,
    /// as many in all as an announce may go to. Everything is left in `pending`.
    pub(crate) fn completed(
        &self,
        request: &AnnounceRequest<'_>,
        announced: &[ForwarderId],
        pending: &mut PendingSubmissions,
    ) {
        let knows = |id: &ForwarderId| announced.binary_search(id).is_ok();
        let usable = request.active.listed_forwarders();
        let usable = usable.filter(|(id, forwarder)| {
            forwarder.is_usable() && (!forwarder.needs_probe() || knows(id))
        });
        let (first, others): (Vec<_>, Vec<_>) = usable.map(|(id, _)| id).partition(knows);
        let all = first.into_iter().chain(others);
        let limit = request.active.config.max_forwarders_per_announce;
        let events = all.take(limit).map(|id| ForwardJob::event(request, id));
        pending.push(Submission::Events(events.collect()));
    }

    /// Cancels the queued announces of a peer that has stopped.
    pub(crate) fn cancel_announces(&self, request: &AnnounceRequest<'_>) {
        let announce = request.announce;
        let swarms = &self.submitter.state.swarms;
        let forwarders = swarms.with_existing(&announce.info_hash, |swarm| {
            let peer = swarm.record.as_ref()?.peer(&announce.peer_id)?;
            let pending = peer.pending().collect::<Vec<_>>();
            request.may_change(peer).then_some(pending)
        });
        let forwarders = forwarders.flatten().unwrap_or_default();
        self.submitter.cancel(announce, forwarders);
    }

    /// Removes the timer of a torrent without local peers. The caller holds the lock of the swarm's
    /// shard.
    pub(crate) fn disarm(&self, hash: &InfoHash, swarm: &mut Swarm) {
        self.submitter.timers.disarm(hash, swarm);
    }

    /// Announces a torrent now, because another of its peers took the place of one that left.
    pub(crate) fn announce_now(&self, hash: &InfoHash) {
        self.submitter.timers.wake(hash);
    }

    /// Forwards `stopped` to the forwarders that the peer was announced to.
    pub(crate) fn stopped(&self, request: &AnnounceRequest<'_>, forwarders: &[ForwarderId]) {
        for forwarder in forwarders {
            self.submit_event(request, *forwarder);
        }
    }

    /// Forwards `stopped` for an announced peer that had to leave for the client's own.
    pub(crate) fn stop_replaced(&self, request: &AnnounceRequest<'_>, peer: &AnnouncedPeer) {
        let announce = Announce {
            event: Event::Stopped,
            ..peer.announce
        };
        let request = &AnnounceRequest {
            client: peer.client,
            announce: &announce,
            ..*request
        };
        let announced: Vec<ForwarderId> = peer.announced_to().collect();
        self.stopped(request, &announced);
    }

    /// Drops every forward of an announce without a try on the pool.
    fn drop_all(&self, request: &AnnounceRequest<'_>, pressure: Pressure) -> Forwarded {
        let forwarders = request.active.listed_forwarders();
        let usable = forwarders.filter(|(_, forwarder)| forwarder.is_usable());
        let (usable, fanout) = (
            usable.count(),
            Fanout::new(&request.active.config, pressure),
        );
        let dropped = usable.min(fanout.limit);
        request.counters.throttled.add((usable - dropped) as u64);
        if dropped == 0 {
            return Forwarded::NotNeeded;
        }
        request.counters.untried.add(dropped as u64);
        request.counters.dropped_full.add(dropped as u64);
        self.submitter.state.log_drops(dropped as u64);
        Forwarded::QueueFull
    }

    fn submit_event(&self, request: &AnnounceRequest<'_>, forwarder: ForwarderId) {
        let event = ForwardJob::event(request, forwarder);
        self.submitter.submit_event(event, request.counters);
    }
}

fn thresholds(config: &TrackerConfig) -> Thresholds {
    let mut thresholds = Thresholds::default();
    thresholds.scale = config.queue_scale_threshold_pct;
    thresholds.throttle = config.queue_throttle_threshold;
    thresholds.limit = config.queue_rate_limit_threshold;
    thresholds
}

/// The tasks of the pool: one per request that may be in flight. Requests over HTTP that wait for a
/// worker or a permit hold a task, too, so each HTTP forwarder adds its own.
fn pool_workers(active: &ActiveConfig) -> Workers {
    let config = &active.config;
    let http = (active.listed_forwarders()).filter(|(_, forwarder)| !forwarder.is_udp());
    let tasks = udp_requests(active) + http.count() * config.forwarder_concurrency as usize;
    let mut workers = Workers::new(tasks.max(1), tasks.max(1));
    workers.thresholds = thresholds(config);
    workers
}

/// The most requests over UDP at once.
fn udp_requests(active: &ActiveConfig) -> usize {
    let config = &active.config;
    let udp = (active.listed_forwarders()).filter(|(_, forwarder)| forwarder.is_udp());
    let all = udp.count() * config.forwarder_concurrency as usize;
    all.min(config.forwarder_in_flight)
}

fn pool_config(active: &ActiveConfig) -> Config {
    let config = &active.config;
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
        displaces: Some(job::ANNOUNCES),
        ..ClassConfig::weight(1)
    };
    let base = Duration::from_millis(config.forwarder_retry_base_ms);
    Config {
        policy: Policy::Strict,
        classes: vec![events, ClassConfig::weight(1), ClassConfig::weight(1)],
        bound: Bound::Shared(config.forwarder_queue_size),
        // One more than the bound of the queue, so that the limit of a single target is never what
        // a job meets first: such a refusal displaces nothing.
        max_waiting: Some(config.forwarder_queue_size + 1),
        delayed_bound: config.forwarder_queue_size.max(100_000),
        bookings: 0,
        targets: active.listed.iter().map(target).collect(),
        on_suspend: OnSuspend::Delay,
        backoff: Backoff::new(base, base * 64),
        attempts: config.forwarder_retry_attempts.max(1),
        ..Config::default()
    }
}

#[cfg(test)]
mod tests;
