//! The pool's handler: sends one forward and records its result in the swarm.

use super::in_flight::InFlight;
use super::job::{EVENTS, ForwardJob};
use super::outage::{NetworkEvidence, OutageDetector};
use super::outcome::{ForwarderHealth, JobOutcome, Outcome, network_evidence};
use super::own_addresses::OwnAddresses;
use super::permits::{HttpPermits, UdpPermit, UdpPermits};
use super::timers::DueTimers;
use super::workers::{HttpWorkers, Worker};
use crate::address_scope::AddressScope;
use crate::client::{AnnounceQuery, ClientError, NUMWANT, TrackerClient};
use crate::clock::Seconds;
use crate::forwarders::ForwarderState;
use crate::state::TrackerState;
use crate::swarms::{PackedAddress, Swarm};
use headworks_core::{KeySeed, TargetState};
use headworks_pool::{EndReason, Handler, Health, Notice, Report, Run};
use headworks_tracker_wire::response::{AnnounceResponse, PeerList};
use headworks_tracker_wire::{Event, PeerId};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::SemaphorePermit;
use tokio::time::Instant;

/// The time until the next announce to a forwarder after the last attempt of a forward failed.
const AFTER_FAILURE: Seconds = 60;
/// The same, after a forwarder was suspended for silence: the torrent is due as soon as it is back.
const AFTER_SUSPENSION: Duration = Duration::from_secs(1);
/// The time after which an announce is tried again that found the `stopped` of its peer in flight.
const AFTER_STOPPED: Duration = Duration::from_secs(1);
/// The time after which a forward is tried again that found no permit. This costs no attempt.
const WITHOUT_PERMIT: Duration = Duration::from_secs(5);
/// The most silences in a row before a forwarder is suspended. `forwarder_fail_threshold` may be
/// lower.
const MAX_SILENCES: u32 = 3;

/// Sends forwards and records their results.
pub(super) struct ForwardHandler {
    pub(super) state: Arc<TrackerState>,
    pub(super) client: Arc<TrackerClient>,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) outage: Arc<OutageDetector>,
    pub(super) timers: Arc<DueTimers>,
    pub(super) workers: Arc<HttpWorkers>,
    pub(super) http_permits: HttpPermits,
    pub(super) udp_permits: Arc<UdpPermits>,
    /// The tracker's own peer id, sent where clients' ids are not revealed.
    pub(super) own_id: PeerId,
    pub(super) own_addresses: OwnAddresses,
    pub(super) seed: KeySeed,
}

/// The end of a forward, as the swarm's record needs it.
#[derive(Clone, Copy)]
struct ForwardEnd {
    /// The time until the next announce.
    next: Duration,
    answered: bool,
}

/// The permission to send a forward, held until its response is there.
enum Permission<'a> {
    NotNeeded,
    Udp(#[expect(dead_code, reason = "held, and given back when dropped")] UdpPermit),
    Permit(#[expect(dead_code, reason = "held, and given back when dropped")] SemaphorePermit<'a>),
    Worker(#[expect(dead_code, reason = "held, and given back when dropped")] Worker),
}

/// The reason why a forward is not sent now.
enum NotNow {
    Cancelled,
    /// Too many requests to forwarders that may never respond are in flight.
    NoPermit,
}

impl Handler<ForwardJob> for ForwardHandler {
    async fn run(&self, run: &mut Run<'_, ForwardJob>) -> Report {
        let job = run.payload;
        let _permission = match self.permission(run).await {
            Ok(permission) => permission,
            Err(NotNow::Cancelled) => return Report::failed(),
            Err(NotNow::NoPermit) => {
                return Report::retry_in(WITHOUT_PERMIT).target(Health::Unknown);
            }
        };
        if job.announce.event == Event::Stopped {
            return self.stop(run).await;
        }
        let Some(guard) = self.in_flight.begin(&job) else {
            return Report::retry_in(AFTER_STOPPED).target(Health::Unknown);
        };
        let report = if self.is_withdrawn(run) {
            Report::failed()
        } else {
            self.forward(run).await
        };
        if let Some(stopped) = guard.finish()
            && let Err(refused) = run.submit(stopped.into_job(EVENTS, &self.seed))
        {
            tracing::debug!(reason = %refused.reason, "stopped event not forwarded");
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
                match state {
                    TargetState::Active if !forwarder.needs_probe() => self.timers.wake_all(),
                    TargetState::Active | TargetState::Probation => self.timers.wake_one(),
                    _ => {}
                }
                self.outage.notify();
            }
            _ => {}
        }
    }
}

impl ForwardHandler {
    /// Sends `stopped`, in order with the announces of its peer. An announce in flight must arrive
    /// before it, or the forwarder would keep the peer. An announce of a peer that is back must
    /// arrive after it or replace it, or the forwarder would drop the peer.
    async fn stop(&self, run: &mut Run<'_, ForwardJob>) -> Report {
        let job = run.payload;
        let Some(_guard) = self.in_flight.begin_stop(&job) else {
            return Report::done().target(Health::Unknown);
        };
        // The mark makes the forwarder receive the `stopped` with which the peer leaves again.
        if self.mark_announced(&job).is_some() {
            return Report::done().target(Health::Unknown);
        }
        self.forward(run).await
    }

    /// Waits until the forward may be sent. Events must not wait for forwarders that hang, and
    /// neither must the search for those that respond: they need no worker.
    async fn permission(&self, run: &Run<'_, ForwardJob>) -> Result<Permission<'_>, NotNow> {
        let job = &run.payload;
        let forwarder = self.state.active().forwarders[job.forwarder.index()].clone();
        if forwarder.is_udp() {
            if !forwarder.needs_probe() {
                return Ok(Permission::NotNeeded);
            }
            let permit = self.udp_permits.try_acquire();
            return permit.map(Permission::Udp).ok_or(NotNow::NoPermit);
        }
        let permission = async {
            if job.probe || !job.is_announce() {
                let responds = !forwarder.needs_probe();
                return Permission::Permit(self.http_permits.acquire(responds).await);
            }
            let host = forwarder.host();
            Permission::Worker(self.workers.acquire(run.class, &host).await)
        };
        let permission = run.cancellation().run_until_cancelled(permission).await;
        permission.ok_or(NotNow::Cancelled)
    }

    /// Sends the forward, records its result and reports to the pool.
    async fn forward(&self, run: &mut Run<'_, ForwardJob>) -> Report {
        let job = run.payload;
        let forwarder = self.state.active().forwarders[job.forwarder.index()].clone();
        let began = Instant::now();
        // Boxed, because every task of the pool reserves room for its largest future.
        let result = Box::pin(self.send(&job, &forwarder)).await;
        let took = began.elapsed();
        count(&forwarder, &result, took);
        let (suspend, usual, threshold) = {
            let config = &self.state.active().config;
            (
                config.forwarder_suspend_seconds,
                config.announce_interval,
                config.forwarder_fail_threshold,
            )
        };
        let mut outcome = Outcome::of(&result, suspend, usual);
        let network = network_evidence(&result);
        let down = (self.outage).record(job.forwarder, || forwarder.network(), began, network);
        if down && network == NetworkEvidence::Silence {
            // Our own network is down, which tells nothing about the forwarder.
            return self.without_blame(run, &forwarder);
        }
        match outcome.forwarder {
            ForwarderHealth::Healthy => forwarder.rejections.record_answer(),
            ForwarderHealth::Rejected | ForwarderHealth::Declined => {
                let (torrent, rejections) = (&job.announce.info_hash, &forwarder.rejections);
                let of_all = rejections.record(torrent, job.client);
                outcome = outcome.of_rejection(of_all, rejections.has_answered());
            }
            _ => {}
        }
        let mut suspension = suspend;
        if outcome.forwarder == ForwarderHealth::Silent {
            let silences = threshold.min(MAX_SILENCES);
            let pause = forwarder.record_silence(silences, suspend);
            if let Some(pause) = pause.filter(|_| threshold > 0) {
                (outcome.forwarder, suspension) = (ForwarderHealth::Overloaded, pause);
            }
            if pause.is_some() && threshold > 0 && job.is_announce() {
                outcome.job = JobOutcome::Failed(AFTER_SUSPENSION);
            }
        } else if network == NetworkEvidence::Works
            && outcome.forwarder != ForwarderHealth::Unavailable
            && forwarder.record_response()
        {
            self.timers.wake_all();
        }
        if outcome.forwarder == ForwarderHealth::Declined {
            forwarder.declined.store(true, Ordering::Relaxed);
        }
        if let JobOutcome::RetryAfter(wait) = outcome.job
            && job.is_announce()
        {
            let at = self.now() + whole_seconds(wait);
            self.state
                .swarms
                .with_existing(&job.announce.info_hash, |swarm| {
                    swarm
                        .record_mut()
                        .delay_forward(job.stay, job.forwarder, at);
                });
        }
        let end = Self::end_of(outcome.job);
        run.payload.recorded |= end.is_some();
        let new = self.record(&job, &forwarder, &result, end);
        if result.is_ok() && job.is_announce() {
            forwarder.score.record_response(new, took);
        }
        if matches!(outcome.job, JobOutcome::Done(_)) {
            end_probe(&job, &forwarder);
        }
        report(outcome, suspension)
    }

    /// Reports a forward that failed because our own network is down.
    fn without_blame(&self, run: &mut Run<'_, ForwardJob>, forwarder: &ForwarderState) -> Report {
        if !run.payload.probe {
            return Report::retry().target(Health::Unknown);
        }
        run.payload.recorded = true;
        let end = Self::end_of(JobOutcome::Failed(AFTER_SUSPENSION));
        let silence = Err(ClientError::Timeout);
        self.record(&run.payload, forwarder, &silence, end);
        Report::failed().target(Health::Unknown)
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
        if cancellation.is_cancelled() || !self.state.active().may_forward(&job.announce.info_hash)
        {
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
            let record = swarm.record.as_mut()?;
            record.mark_announced(&announce.peer_id, job.forwarder)
        };
        let marked = self.state.swarms.with_existing(&announce.info_hash, mark);
        marked.flatten()
    }

    /// Removes the mark. Returns `false` if it is gone already.
    fn unmark_announced(&self, job: &ForwardJob) -> bool {
        let announce = &job.announce;
        let unmark = |swarm: &mut Swarm| {
            let record = swarm.record.as_mut()?;
            Some(record.unmark_announced(&announce.peer_id, job.forwarder))
        };
        let unmarked = self.state.swarms.with_existing(&announce.info_hash, unmark);
        unmarked.flatten() == Some(true)
    }

    /// Returns the end of a forward; `None` if it will be retried.
    fn end_of(outcome: JobOutcome) -> Option<ForwardEnd> {
        let (next, answered) = match outcome {
            JobOutcome::Done(next) => (next, true),
            JobOutcome::Failed(next) => (next, false),
            JobOutcome::Retry | JobOutcome::RetryAfter(_) => return None,
        };
        Some(ForwardEnd { next, answered })
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
                self.usable_peers(job, forwarder, list)
            }
            _ => Vec::new(),
        };
        // Events are not part of a forwarder's schedule.
        let end = end.filter(|_| job.is_announce());
        if peers.is_empty() && end.is_none() {
            return 0;
        }
        let (now, by) = (self.now(), self.state.count_by);
        let end = end.map(|ForwardEnd { next, answered }| {
            let due = self.timers.plan(now, whole_seconds(next));
            (due, answered)
        });
        let announced_ports = self.learn_own_addresses(job, forwarder, &peers);
        let (limit, own) = {
            let config = &self.state.active().config;
            let configured = config.public_addresses.iter().map(IpAddr::to_canonical);
            let own: Vec<_> = configured.chain(self.own_addresses.known()).collect();
            (config.max_cached_peers, own)
        };
        let by_its_word = self.own_addresses.learned_from(&forwarder.host());
        let is_own = |ip: &IpAddr| own.contains(ip) || by_its_word.contains(ip);
        let update = |swarm: &mut Swarm| {
            let mut new = 0;
            // Without a local peer nobody would ask for the cached ones.
            if swarm.local_peers() > 0 {
                let suspects = peers.iter().filter(|address| is_own(&address.ip()));
                let suspects = suspects.map(SocketAddr::port).collect();
                let local_ports = swarm.local_ports(&suspects);
                for address in &peers {
                    if is_own(&address.ip()) && local_ports.contains(&address.port()) {
                        continue;
                    }
                    let packed = PackedAddress::new(address.ip(), address.port());
                    let added = swarm.upsert_cached(now, packed, job.forwarder, limit, by);
                    new += usize::from(added);
                }
                // Entries from before the address was known to be ours.
                for port in announced_ports.iter().copied() {
                    for ip in &own {
                        swarm.remove_cached(PackedAddress::new(*ip, port), None, by);
                    }
                    for ip in &by_its_word {
                        let reporter = Some(job.forwarder);
                        swarm.remove_cached(PackedAddress::new(*ip, port), reporter, by);
                    }
                }
            }
            if let Some((due, answered)) = end
                && let Some(record) = &mut swarm.record
                && record.finish_forward(job.stay, job.forwarder, due, answered)
            {
                swarm.due = swarm.due.min(due);
                self.timers.arm(&job.announce.info_hash, swarm, due);
            }
            new
        };
        let hash = &job.announce.info_hash;
        let new = self.state.swarms.with_existing(hash, update);
        let new = new.unwrap_or_default();
        forwarder.counters.contributed.add(new as u64);
        new
    }

    /// Learns our own addresses from reported peers with the port of a peer that forwarders know.
    /// Returns the ports of those peers.
    fn learn_own_addresses(
        &self,
        job: &ForwardJob,
        forwarder: &ForwarderState,
        peers: &[SocketAddr],
    ) -> Vec<u16> {
        if peers.is_empty() {
            return vec![job.announce.port];
        }
        let hash = &job.announce.info_hash;
        let ports = self.state.swarms.with_existing(hash, |swarm| {
            let announced = swarm.record.as_ref().map(|record| record.peers());
            let announced = announced.unwrap_or_default().iter();
            announced.map(|peer| peer.announce.port).collect::<Vec<_>>()
        });
        let ports = ports.unwrap_or_default();
        let host = forwarder.host();
        for peer in peers.iter().filter(|peer| ports.contains(&peer.port())) {
            self.own_addresses.learn_from_peer(&host, *peer);
        }
        ports
    }

    /// Returns the peers that the client could connect to, without the client and ourselves, and
    /// learns our own addresses from them. A forwarder knows no peer in a network that it is not
    /// in; it must not be able to point clients at services in theirs.
    fn usable_peers(
        &self,
        job: &ForwardJob,
        forwarder: &ForwarderState,
        list: &PeerList,
    ) -> Vec<SocketAddr> {
        let (client, host) = (AddressScope::of(job.client), forwarder.host());
        let at = forwarder.scope();
        let usable = |ip: IpAddr| {
            let scope = AddressScope::of(ip);
            scope.is_reachable_from(client) && scope.is_reachable_from(at)
        };
        if let Some(ip) = list.external_ip.filter(|ip| usable(*ip)) {
            self.own_addresses.learn(&host, ip);
        }
        let own_ids = [Some(job.announce.peer_id), Some(self.own_id)];
        let mut peers = Vec::new();
        // A list that is longer than requested is not better.
        for (address, id) in list.peers.iter().take(NUMWANT as usize) {
            let ip = address.ip().to_canonical();
            if id.is_some() && own_ids.contains(id) || !usable(ip) || address.port() == 0 {
                continue;
            }
            peers.push(SocketAddr::new(ip, address.port()));
        }
        peers
    }

    fn now(&self) -> Seconds {
        self.state.clock.now()
    }

    /// Updates the swarm's record when the pool ended a forward whose result is not recorded: it
    /// was cancelled, dropped, or failed at its last attempt.
    fn ended(&self, job: &ForwardJob, reason: EndReason) {
        end_probe(job, &self.state.active().forwarders[job.forwarder.index()]);
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
                    record.finish_forward(job.stay, job.forwarder, due, false);
                    due
                }
                _ => {
                    record.cancel_forward(job.stay, job.forwarder, job.previous);
                    job.previous.due.max(self.now())
                }
            };
            swarm.due = swarm.due.min(due);
            let later = self.now() + AFTER_FAILURE;
            self.timers.arm(hash, swarm, due.max(later));
        });
    }
}

/// Lets another torrent probe the forwarder, if this forward was the probe.
fn end_probe(job: &ForwardJob, forwarder: &ForwarderState) {
    if job.probe {
        forwarder.end_probe();
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
                AnnounceResponse::Failure { reason, .. } => Some(forwarder.redact(reason)),
                _ => None,
            }
        }
        Err(error) => {
            counters.failures.add(1);
            if *error != ClientError::NoDescriptor {
                forwarder.score.record_failure(took);
            }
            Some(forwarder.redact(&error.to_string()))
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
        ForwarderHealth::Unknown => Health::Unknown,
        ForwarderHealth::Fault | ForwarderHealth::Silent => Health::Fault,
        ForwarderHealth::Overloaded => Health::Overloaded(suspend),
        ForwarderHealth::Unavailable | ForwarderHealth::Rejected | ForwarderHealth::Declined => {
            Health::Gone
        }
    })
}

/// Returns the seconds of a duration, at least one. The upper bound keeps sums with a time in
/// range.
fn whole_seconds(duration: Duration) -> Seconds {
    duration.as_secs().clamp(1, u64::from(Seconds::MAX / 4)) as Seconds
}
