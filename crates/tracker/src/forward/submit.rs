//! Submission of forwards to the pool.
//!
//! An announce may go to a hundred forwarders, but its response depends on one of them at most. The
//! announce threads therefore only collect [`PendingSubmissions`]. Once their responses are sent,
//! they move them into the [`SubmitQueue`], and a low-priority task submits the forwards: an
//! announce thread takes the pool's lock only if it has to. The same task submits the forwards of
//! torrents that are due by the [timers](super::timers).

use super::job::{self, ANNOUNCES, EVENTS, FIRST_ANNOUNCES, ForwardJob};
use super::outage::OutageDetector;
use super::select::{self, Fanout, Selected};
use super::timers::{Batch, DueTimers};
use super::workers::HttpWorkers;
use crate::active_config::ActiveConfig;
use crate::clock::Seconds;
use crate::config::AnnouncePeers;
use crate::counters::Counters;
use crate::forwarders::ForwarderId;
use crate::state::TrackerState;
use crate::swarms::Swarm;
use headworks_core::{Class, KeySeed, Pressure, Reason};
use headworks_pool::Pool;
use headworks_tracker_wire::{Announce, Event, InfoHash};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use std::vec;
use tokio::sync::mpsc::{self, error::TrySendError};
use tokio::sync::oneshot;

/// Submissions that may wait. When the queue is full, the announce thread runs its submission
/// itself, so announces never arrive faster than they can be submitted.
const QUEUE_SIZE: usize = 256;
/// The time for which a torrent that found the pool full is not forwarded.
const BACK_OFF: Seconds = 10;
/// The time after which the forwarders beyond the limit of an announce are asked, unless a client
/// announces before.
const LEFT_OUT_PAUSE: Seconds = 60;
/// The time for which a change is awaited before torrents are looked at: several forwarders are
/// often back at once.
const COALESCE: Duration = Duration::from_millis(10);
/// The torrents that are announced before other submissions get their turn. A hundred thousand may
/// be looked at again at once, when a forwarder responds for the first time; the announce threads
/// would have to run their submissions themselves meanwhile.
const BATCH: usize = 64;
/// The longest sleep of the timers.
const MAX_SLEEP: Duration = Duration::from_secs(3600);

/// A torrent whose forwarders are to be selected.
#[derive(Clone, Copy)]
pub(crate) struct PendingAnnounce {
    pub(super) hash: InfoHash,
    /// Whether the torrent was never forwarded before.
    pub(super) first: bool,
    pub(super) now: Seconds,
    pub(super) random: u32,
}

/// An announce with the forwards that have not been submitted.
pub(crate) struct SelectedForwards {
    pub(super) announce: PendingAnnounce,
    remaining: vec::IntoIter<ForwardJob>,
}

impl SelectedForwards {
    pub(super) fn new(announce: PendingAnnounce, jobs: Vec<ForwardJob>) -> SelectedForwards {
        SelectedForwards {
            announce,
            remaining: jobs.into_iter(),
        }
    }

    pub(super) fn remaining(&self) -> usize {
        self.remaining.len()
    }
}

/// The numbers of forwards that were queued and that found the pool full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Submitted {
    pub(super) queued: usize,
    pub(super) full: u64,
}

/// Work for the submit task.
pub(super) enum Submission {
    /// Selects forwarders for a torrent and submits the forwards.
    Select(PendingAnnounce),
    /// Submits forwards to forwarders that are already selected.
    Submit(SelectedForwards),
    /// Submits events.
    Events(Vec<ForwardJob>),
    /// Reports that everything queued before it is submitted.
    Flush(oneshot::Sender<()>),
}

impl Submission {
    /// Returns the largest number of forwards that this can become for one peer.
    fn max_forwards(&self, state: &TrackerState) -> u64 {
        let count = match self {
            Submission::Select(_) => {
                let active = state.active();
                let limit = active.config.max_forwarders_per_announce;
                active.listed_forwarders().count().min(limit)
            }
            Submission::Submit(forwards) => forwards.remaining(),
            Submission::Events(events) => events.len(),
            Submission::Flush(_) => 0,
        };
        count as u64
    }
}

/// Submissions that an announce thread collects until its responses are sent.
#[derive(Default)]
pub(crate) struct PendingSubmissions(Vec<Submission>);

impl PendingSubmissions {
    pub(super) fn push(&mut self, submission: Submission) {
        self.0.push(submission);
    }
}

/// A bounded queue in front of the task that submits forwards to the pool.
pub(super) struct SubmitQueue {
    sender: mpsc::Sender<(Submission, u64)>,
    /// Forwards that the queued submissions can become.
    backlog: Arc<AtomicU64>,
}

impl SubmitQueue {
    /// Starts the submit task on the current runtime.
    pub(super) fn start(submitter: Submitter) -> SubmitQueue {
        let (sender, mut receiver) = mpsc::channel(QUEUE_SIZE);
        let backlog = Arc::new(AtomicU64::new(0));
        let remaining = backlog.clone();
        let counters = submitter.state.new_counters();
        tokio::spawn(async move {
            loop {
                let received = tokio::select! {
                    biased;
                    received = receiver.recv() => received,
                    () = submitter.next_due() => {
                        submitter.submit_due(&counters).await;
                        continue;
                    }
                };
                let Some((submission, forwards)) = received else {
                    return;
                };
                submitter.run(submission, &counters);
                remaining.fetch_sub(forwards, Ordering::Release);
            }
        });
        SubmitQueue { sender, backlog }
    }

    /// Returns the largest number of forwards that the queued submissions can become.
    pub(super) fn backlog(&self) -> u64 {
        self.backlog.load(Ordering::Acquire)
    }

    /// Queues everything in `pending`, or runs it here if the queue is full.
    pub(super) fn push_all(
        &self,
        pending: &mut PendingSubmissions,
        submitter: &Submitter,
        counters: &Counters,
    ) {
        for submission in pending.0.drain(..) {
            let forwards = submission.max_forwards(&submitter.state);
            self.backlog.fetch_add(forwards, Ordering::Relaxed);
            let refused = self.sender.try_send((submission, forwards));
            if let Err(
                TrySendError::Full((submission, _)) | TrySendError::Closed((submission, _)),
            ) = refused
            {
                submitter.run(submission, counters);
                self.backlog.fetch_sub(forwards, Ordering::Release);
            }
        }
    }

    /// Waits until everything queued so far is submitted.
    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        // If the task has ended, the queue is empty.
        if self.sender.send((Submission::Flush(done), 0)).await.is_ok() {
            let _ = flushed.await;
        }
    }
}

/// Selects forwarders and submits forwards to the pool.
#[derive(Clone)]
pub(super) struct Submitter {
    pub(super) pool: Pool<ForwardJob>,
    pub(super) state: Arc<TrackerState>,
    pub(super) seed: KeySeed,
    pub(super) timers: Arc<DueTimers>,
    pub(super) outage: Arc<OutageDetector>,
    pub(super) workers: Arc<HttpWorkers>,
}

impl Submitter {
    fn run(&self, submission: Submission, counters: &Counters) {
        match submission {
            Submission::Select(announce) => {
                self.select_and_submit(announce, self.pressure(0), counters);
            }
            Submission::Submit(mut forwards) => {
                self.submit_until(&mut forwards, usize::MAX, counters);
            }
            Submission::Events(events) => {
                for event in events {
                    self.submit_event(event, counters);
                }
            }
            Submission::Flush(done) => drop(done.send(())),
        }
    }

    /// Returns the fill of the queue once `more` forwards are submitted. Forwards that wait for a
    /// worker count as queued.
    pub(super) fn pressure(&self, more: u64) -> Pressure {
        self.pool.pressure(more + self.workers.waiting() as u64)
    }

    /// Selects forwarders for a torrent; fewer if the pool is filling up. The caller holds the lock
    /// of the swarm's shard.
    pub(super) fn select(
        &self,
        announce: &PendingAnnounce,
        active: &ActiveConfig,
        swarm: &mut Swarm,
        pressure: Pressure,
        counters: &Counters,
    ) -> Vec<ForwardJob> {
        let limit = Fanout::new(&active.config, pressure).limit;
        let (now, random, down) = (announce.now, announce.random, self.outage.is_down());
        let Selected {
            jobs,
            left_out,
            awaits,
        } = select::select(now, random, active, swarm, limit, down);
        counters.throttled.add(left_out as u64);
        if awaits {
            self.timers.wait_for_forwarder(&announce.hash);
        }
        let pause = if left_out > 0 { LEFT_OUT_PAUSE } else { 0 };
        let at = swarm.due.max(now.saturating_add(pause));
        self.timers.arm(&announce.hash, swarm, at);
        jobs
    }

    /// Makes the selection that was announced in the swarm's record.
    fn select_and_submit(
        &self,
        announce: PendingAnnounce,
        pressure: Pressure,
        counters: &Counters,
    ) {
        let active = self.state.active();
        let select = |swarm: &mut Swarm| {
            if let Some(record) = &mut swarm.record {
                record.end_selection();
            }
            self.select(&announce, &active, swarm, pressure, counters)
        };
        let jobs = self.state.swarms.with_existing(&announce.hash, select);
        if let Some(jobs) = jobs {
            let mut forwards = SelectedForwards::new(announce, jobs);
            self.submit_until(&mut forwards, usize::MAX, counters);
        }
    }

    /// Waits until a torrent is due.
    async fn next_due(&self) {
        if self.timers.has_more() {
            return;
        }
        let now = self.state.clock.now();
        let wait = self.timers.next().map_or(MAX_SLEEP, |at| {
            Duration::from_secs(at.saturating_sub(now).into()).min(MAX_SLEEP)
        });
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = self.timers.changed() => tokio::time::sleep(COALESCE).await,
        }
    }

    /// Announces torrents that are due, as long as a local peer is there.
    async fn submit_due(&self, counters: &Counters) {
        let now = self.state.clock.now();
        let Batch { due, woken } = self.timers.take(now, BATCH);
        let due = due.into_iter().map(|(at, hash)| (Some(at), hash));
        let woken = woken.into_iter().map(|hash| (None, hash));
        for (at, hash) in due.chain(woken) {
            self.submit_torrent(now, at, &hash, counters);
            tokio::task::consume_budget().await;
        }
    }

    /// Announces a torrent. `at` is the time of its timer, if that is the cause.
    fn submit_torrent(
        &self,
        now: Seconds,
        at: Option<Seconds>,
        hash: &InfoHash,
        counters: &Counters,
    ) {
        let active = self.state.active();
        let pressure = self.pressure(0);
        let forwards = self.state.swarms.with_existing(hash, |swarm| {
            if let Some(at) = at {
                if swarm.timer != at {
                    return None;
                }
                swarm.timer = 0;
            }
            if !active.may_forward(hash) || swarm.local_peers() == 0 {
                return None;
            }
            if at.is_some() && swarm.due > now {
                self.timers.arm(hash, swarm, swarm.due);
                return None;
            }
            let record = swarm
                .record
                .as_ref()
                .filter(|record| !record.peers().is_empty())?;
            let announce = PendingAnnounce {
                hash: *hash,
                first: !record.was_forwarded(),
                now,
                random: fastrand::u32(..),
            };
            if pressure.fill() >= 100 {
                self.timers.arm(hash, swarm, now.saturating_add(BACK_OFF));
                return None;
            }
            let jobs = self.select(&announce, &active, swarm, pressure, counters);
            Some(SelectedForwards::new(announce, jobs))
        });
        if let Some(mut forwards) = forwards.flatten() {
            self.submit_until(&mut forwards, usize::MAX, counters);
        }
    }

    /// Submits forwards until `enough` of them are queued.
    pub(super) fn submit_until(
        &self,
        forwards: &mut SelectedForwards,
        enough: usize,
        counters: &Counters,
    ) -> Submitted {
        let class = match forwards.announce.first {
            true => FIRST_ANNOUNCES,
            false => ANNOUNCES,
        };
        let mut submitted = Submitted::default();
        let mut refused = Vec::new();
        while submitted.queued < enough
            && let Some(job) = forwards.remaining.next()
        {
            let result = match self.is_full_with_workers() {
                true => {
                    counters.untried.add(1);
                    Err(Reason::Full)
                }
                false => self.submit(job, class),
            };
            match result {
                Ok(()) => submitted.queued += 1,
                // The forwards of an announce share a class and a flow: if the queue is full for
                // one, it is full for the others.
                Err(Reason::Full) => {
                    let untried = forwards.remaining.len() as u64;
                    counters.untried.add(untried);
                    submitted.full += 1 + untried;
                    refused.push(job);
                    refused.extend(forwards.remaining.by_ref());
                }
                Err(reason) => {
                    submitted.full += u64::from(reason == Reason::TargetFull);
                    refused.push(job);
                }
            }
        }
        if !refused.is_empty() {
            self.revert(&forwards.announce, &refused, submitted);
        }
        if submitted.full > 0 {
            counters.dropped_full.add(submitted.full);
            self.state.log_drops(submitted.full);
        }
        submitted
    }

    /// Whether only the forwards that wait for a worker make the queue full. The pool does not know
    /// of them; if it is full by itself, it decides whose forwards to drop.
    fn is_full_with_workers(&self) -> bool {
        self.pressure(0).fill() >= 100 && self.pool.pressure(0).fill() < 100
    }

    /// Takes forwards that the pool refused out of the swarm's record.
    fn revert(&self, announce: &PendingAnnounce, refused: &[ForwardJob], submitted: Submitted) {
        // A torrent that no forwarder was asked for is tried with every announce, because its
        // clients have no peers yet.
        let back_off = submitted.full > 0 && !(announce.first && submitted.queued == 0);
        let pause = if back_off { BACK_OFF } else { 0 };
        let active = self.state.active();
        self.state.swarms.with_existing(&announce.hash, |swarm| {
            let Some(record) = &mut swarm.record else {
                return;
            };
            for job in refused {
                record.cancel_forward(job.stay, job.forwarder, job.previous);
                if job.probe {
                    active.forwarders[job.forwarder.index()].end_probe();
                }
            }
            swarm.due = announce.now + pause;
            let at = announce.now.saturating_add(BACK_OFF);
            self.timers.arm(&announce.hash, swarm, at);
        });
    }

    /// Submits an event.
    pub(super) fn submit_event(&self, event: ForwardJob, counters: &Counters) {
        if let Err(reason) = self.submit(event, EVENTS) {
            if matches!(reason, Reason::Full | Reason::TargetFull) {
                counters.dropped_full.add(1);
                self.state.log_drops(1);
            }
            let active = self.state.active();
            let name = &active.forwarders[event.forwarder.index()].name;
            tracing::debug!(forwarder = name, %reason, "event not forwarded");
        }
    }

    /// Submits one forward.
    pub(super) fn submit(&self, forward: ForwardJob, class: Class) -> Result<(), Reason> {
        let mut job = forward.into_job(class, &self.seed);
        if forward.is_announce() && self.state.active().config.announce_peers == AnnouncePeers::One
        {
            // Of the announces of a torrent that are delayed for one forwarder, one is enough for
            // all peers. Events are never merged.
            let name = (forward.announce.info_hash, forward.forwarder);
            job = job.delay_key(self.seed.key(&name));
        }
        let ticket = self.pool.submit(job);
        ticket.map(drop).map_err(|refused| refused.reason)
    }

    /// Cancels the queued announces of a peer to the given forwarders.
    pub(super) fn cancel(&self, announce: &Announce, forwarders: Vec<ForwarderId>) {
        for forwarder in forwarders {
            let key = job::key(announce, forwarder, Event::None, &self.seed);
            if let Some(ticket) = self.pool.find(key) {
                self.pool.cancel(ticket);
            }
        }
    }
}
