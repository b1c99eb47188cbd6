//! The pool's handler: sends one forward and records its result in the swarm.

use super::in_flight::InFlight;
use super::job::{EVENTS, ForwardJob};
use super::outage::OutageDetector;
use super::outcome::{ForwarderHealth, JobOutcome, Outcome};
use crate::client::{AnnounceQuery, ClientError, TrackerClient};
use crate::clock::Seconds;
use crate::forwarders::ForwarderState;
use crate::state::TrackerState;
use crate::swarms::{PackedAddress, Swarm};
use headworks_core::Job;
use headworks_pool::{EndReason, Handler, Health, Notice, Report, Run};
use headworks_tracker_wire::response::{AnnounceResponse, PeerList};
use headworks_tracker_wire::{Event, PeerId};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The time until the next announce to a forwarder after the last attempt of a forward failed.
const AFTER_FAILURE: Seconds = 60;

/// Sends forwards and records their results.
pub(super) struct ForwardHandler {
    pub(super) state: Arc<TrackerState>,
    pub(super) client: Arc<TrackerClient>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) outage: Arc<OutageDetector>,
    /// The tracker's own peer id, sent where clients' ids are not revealed.
    pub(super) own_id: PeerId,
}

/// The end of a forward, as the swarm's record needs it.
#[derive(Clone, Copy)]
struct ForwardEnd {
    due: Seconds,
    answered: bool,
}

impl Handler<ForwardJob> for ForwardHandler {
    async fn run(&self, run: &mut Run<'_, ForwardJob>) -> Report {
        let job = run.payload;
        if job.announce.event == Event::Stopped {
            // An announce in flight must arrive before `stopped`, or the forwarder would keep the
            // peer.
            if self.in_flight.defer(&job) {
                return Report::done().target(Health::Unknown);
            }
            return self.forward(run).await;
        }
        let guard = self.in_flight.begin(&job);
        let report = if self.is_withdrawn(run) {
            Report::failed()
        } else {
            self.forward(run).await
        };
        if let Some(stopped) = guard.finish() {
            let job = Job::new(stopped)
                .class(EVENTS)
                .flow(run.flow)
                .targets(stopped.forwarder.target());
            if let Err(refused) = run.submit(job) {
                tracing::debug!(reason = %refused.reason, "stopped event not forwarded");
            }
        }
        report
    }

    fn notice(&self, notice: Notice<ForwardJob>) {
        match notice {
            Notice::Ended {
                payload, reason, ..
            } => self.ended(&payload, reason),
            Notice::Target { target, state } => {
                let active = self.state.active();
                let Some(forwarder) = active.forwarders.get(target.index()) else {
                    return;
                };
                let last_error = forwarder.last_error.lock().clone();
                tracing::info!(forwarder = forwarder.name, %state, last_error, "forwarder state changed");
                forwarder.set_status(state);
                self.outage.notify();
            }
            _ => {}
        }
    }
}

impl ForwardHandler {
    /// Sends the forward, records its result and reports to the pool.
    async fn forward(&self, run: &mut Run<'_, ForwardJob>) -> Report {
        let job = run.payload;
        let forwarder = self.state.active().forwarders[job.forwarder.index()].clone();
        let began = Instant::now();
        let result = self.send(&job, &forwarder).await;
        let took = began.elapsed();
        count(&forwarder, &result, took);
        let (suspend, usual) = {
            let config = &self.state.active().config;
            (config.forwarder_suspend_seconds, config.announce_interval)
        };
        let outcome = Outcome::of(&result, suspend, usual);
        if self.outage.record(job.forwarder, outcome.network_failure) {
            // Our own network is down, which tells nothing about the forwarder.
            return Report::retry_in(Duration::from_secs(1)).target(Health::Unknown);
        }
        if outcome.forwarder == ForwarderHealth::Declined {
            forwarder.declined.store(true, Ordering::Relaxed);
        }
        let end = self.end_of(outcome.job);
        run.payload.recorded |= end.is_some();
        let new = self.record(&job, &forwarder, &result, end);
        if result.is_ok() && job.is_announce() {
            forwarder.score.record_response(new, took);
        }
        report(outcome, suspend)
    }

    async fn send(
        &self,
        job: &ForwardJob,
        forwarder: &ForwarderState,
    ) -> Result<AnnounceResponse, ClientError> {
        let (timeout, ask_only) = {
            let config = &self.state.active().config;
            (config.forward_timeout, config.ask_only)
        };
        // Events are sent in full even in `ask_only` mode: a peer that was announced before a
        // reload turned it on must be stopped under its own id.
        let query = match ask_only && job.is_announce() {
            true => AnnounceQuery::anonymous(forwarder, &job.announce, self.own_id),
            false => AnnounceQuery::new(forwarder, &job.announce),
        };
        forwarder.counters.requests.add(1);
        self.client.announce(&query, timeout).await
    }

    /// Whether the peer left before the announce is sent. If not, the peer is marked as announced
    /// to the forwarder.
    ///
    /// A client that stops first cancels its queued announces and then takes the marks. So a mark
    /// that is still there after a cancellation was not seen, and a mark that is gone will be
    /// followed by `stopped`.
    fn is_withdrawn(&self, run: &Run<'_, ForwardJob>) -> bool {
        let cancellation = run.cancellation();
        let job = &run.payload;
        if cancellation.is_cancelled() {
            return true;
        }
        if !self.state.active().reveals_peer(&job.announce) {
            return false;
        }
        // A peer that is not in its swarm left before this job was submitted, when there was
        // nothing to cancel.
        let Some(newly_marked) = self.mark_announced(job) else {
            return true;
        };
        cancellation.is_cancelled() && (!newly_marked || self.unmark_announced(job))
    }

    /// Marks the peer as announced to the forwarder. Returns `false` if it was marked before, and
    /// `None` if it has left.
    fn mark_announced(&self, job: &ForwardJob) -> Option<bool> {
        let announce = &job.announce;
        let mark = |swarm: &mut Swarm| {
            let present = swarm.contains(&job.address);
            let record = present.then(|| swarm.record_mut())?;
            Some(record.mark_announced(announce.peer_id, job.forwarder))
        };
        let marked = self.state.swarms.with_existing(&announce.info_hash, mark);
        marked.flatten()
    }

    /// Removes the mark. Returns `false` if it is gone already.
    fn unmark_announced(&self, job: &ForwardJob) -> bool {
        let announce = &job.announce;
        let unmark = |swarm: &mut Swarm| {
            let record = swarm.record.as_mut()?;
            Some(record.unmark_announced(announce.peer_id, job.forwarder))
        };
        let unmarked = self.state.swarms.with_existing(&announce.info_hash, unmark);
        unmarked.flatten() == Some(true)
    }

    /// Returns the end of a forward; `None` if it will be retried.
    fn end_of(&self, outcome: JobOutcome) -> Option<ForwardEnd> {
        let (next, answered) = match outcome {
            JobOutcome::Done(next) => (next, true),
            JobOutcome::Failed(next) => (next, false),
            JobOutcome::Retry | JobOutcome::RetryAfter(_) => return None,
        };
        let due = self.now() + whole_seconds(next);
        Some(ForwardEnd { due, answered })
    }

    /// Stores reported peers and the end of the forward in the swarm's record, under one lock.
    /// Returns the number of peers that no forwarder had reported before.
    fn record(
        &self,
        job: &ForwardJob,
        forwarder: &ForwarderState,
        result: &Result<AnnounceResponse, ClientError>,
        end: Option<ForwardEnd>,
    ) -> usize {
        let peers = match result {
            Ok(AnnounceResponse::Peers(list)) => {
                remember_fields(forwarder, list);
                self.usable_peers(job, list)
            }
            _ => Vec::new(),
        };
        // Events are not part of a forwarder's schedule.
        let end = end.filter(|_| job.is_announce());
        if peers.is_empty() && end.is_none() {
            return 0;
        }
        let (now, by) = (self.now(), self.state.count_by);
        let limit = self.state.active().config.max_cached_peers;
        let update = |swarm: &mut Swarm| {
            let mut new = 0;
            // Without a local peer nobody would ask for the cached ones.
            if swarm.local_peers() > 0 {
                for address in &peers {
                    let added = swarm.upsert_cached(now, *address, job.forwarder, limit, by);
                    new += usize::from(added);
                }
            }
            if let Some(ForwardEnd { due, answered }) = end
                && let Some(record) = &mut swarm.record
            {
                record.finish_forward(job.forwarder, due, answered);
                swarm.due = swarm.due.min(due);
            }
            new
        };
        let hash = &job.announce.info_hash;
        let new = self.state.swarms.with_existing(hash, update);
        let new = new.unwrap_or_default();
        forwarder.counters.contributed.add(new as u64);
        new
    }

    /// Returns the peers that clients could connect to, without the announced client and ourselves.
    fn usable_peers(&self, job: &ForwardJob, list: &PeerList) -> Vec<PackedAddress> {
        let own_ids = [Some(job.announce.peer_id), Some(self.own_id)];
        let peers = list.peers.iter();
        let peers = peers.filter(|(_, id)| id.is_none() || !own_ids.contains(id));
        let peers = peers.map(|(address, _)| *address).filter(|address| {
            let is_client =
                Some(address.ip()) == list.external_ip && address.port() == job.announce.port;
            is_peer(address.ip()) && !is_client
        });
        let packed = peers.map(|address| PackedAddress::new(address.ip(), address.port()));
        packed.collect()
    }

    fn now(&self) -> Seconds {
        self.state.clock.now()
    }

    /// Updates the swarm's record when the pool ended a forward whose result is not recorded: it
    /// was cancelled, dropped, or failed at its last attempt.
    fn ended(&self, job: &ForwardJob, reason: EndReason) {
        if job.recorded || !job.is_announce() {
            return;
        }
        let hash = &job.announce.info_hash;
        self.state.swarms.with_existing(hash, |swarm| {
            let Some(record) = &mut swarm.record else {
                return;
            };
            let due = match reason {
                EndReason::Failed => {
                    let due = self.now() + AFTER_FAILURE;
                    record.finish_forward(job.forwarder, due, false);
                    due
                }
                _ => {
                    record.cancel_forward(job.forwarder, job.previous);
                    job.previous.due.max(self.now())
                }
            };
            swarm.due = swarm.due.min(due);
        });
    }
}

/// Updates a forwarder's counters and its last error.
fn count(
    forwarder: &ForwarderState,
    result: &Result<AnnounceResponse, ClientError>,
    took: Duration,
) {
    let counters = &forwarder.counters;
    let error = match result {
        Ok(response) => {
            counters.answers.add(1);
            counters.micros.add(took.as_micros() as u64);
            match response {
                AnnounceResponse::Failure { reason, .. } => Some(reason.clone()),
                _ => None,
            }
        }
        Err(error) => {
            counters.failures.add(1);
            forwarder.score.record_failure(took);
            Some(error.to_string())
        }
    };
    *forwarder.last_error.lock() = error;
}

/// Remembers the fields of a response that concern the forwarder.
fn remember_fields(forwarder: &ForwarderState, list: &PeerList) {
    let interval = list.interval.map(|s| Duration::from_secs(s.into()));
    *forwarder.counters.interval.lock() = interval;
    if list.tracker_id.is_some() {
        forwarder.tracker_id.lock().clone_from(&list.tracker_id);
    }
}

/// Translates an outcome for the pool.
fn report(outcome: Outcome, suspend: Duration) -> Report {
    let report = match outcome.job {
        JobOutcome::Done(_) => Report::done(),
        JobOutcome::Failed(_) => Report::failed(),
        JobOutcome::Retry => Report::retry(),
        JobOutcome::RetryAfter(wait) => Report::retry_in(wait),
    };
    report.target(match outcome.forwarder {
        ForwarderHealth::Healthy => Health::Fine,
        ForwarderHealth::Fault => Health::Fault,
        ForwarderHealth::Overloaded => Health::Overloaded(suspend),
        ForwarderHealth::Unavailable | ForwarderHealth::Declined => Health::Gone,
    })
}

/// Whether an address can belong to a peer. A forwarder must not be able to send clients to
/// broadcast or multicast addresses.
fn is_peer(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast() || ip.octets()[0] == 0);
    !ip.is_unspecified() && !ip.is_multicast() && !broadcast
}

/// Returns the seconds of a duration, at least one. The upper bound keeps sums with a time in
/// range.
fn whole_seconds(duration: Duration) -> Seconds {
    duration.as_secs().clamp(1, u64::from(Seconds::MAX / 4)) as Seconds
}
