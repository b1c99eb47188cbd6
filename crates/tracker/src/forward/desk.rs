//! One forward: ask, judge, and put what came of it into the swarm's record.

use super::flights::Flights;
use super::judge::{Fate, Judgement, Standing, judge};
use super::watch::Watch;
use super::{Ask, AskError, Asker, Forward, Station, seconds};
use crate::plane::Shared;
use crate::swarm::{Packed, Seconds, Swarm};
use headworks_core::{Class, Job, TargetId};
use headworks_pool::{EndReason, Handler, Health, Notice, Report, Run};
use headworks_tracker_wire::response::AnnounceResponse;
use headworks_tracker_wire::{Event, PeerId};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// When a forwarder is asked again after its last attempt failed.
const AFTER_FAILURE: Seconds = 60;

/// Runs forwards.
pub(super) struct Desk {
    pub(super) shared: Arc<Shared>,
    pub(super) asker: Arc<Asker>,
    pub(super) flights: Arc<Flights>,
    pub(super) watch: Arc<Watch>,
    /// Our own name, where no client's is told.
    pub(super) own: PeerId,
}

impl Handler<Forward> for Desk {
    async fn run(&self, run: &mut Run<'_, Forward>) -> Report {
        let forward = run.payload;
        if forward.announce.event == Event::Stopped {
            // What is being said of the peer goes first; `stopped` follows it.
            if self.flights.follow(&forward) {
                return Report::done().target(Health::Unknown);
            }
            let outcome = self.ask(&forward).await;
            return self.report(run, &outcome);
        }
        let aloft = self.flights.begin(&forward);
        let report = if self.is_taken_back(run) {
            Report::failed()
        } else {
            let outcome = self.ask(&forward).await;
            self.report(run, &outcome)
        };
        if let Some(stopped) = aloft.land() {
            let target = TargetId::new(u32::from(stopped.forwarder));
            let job = Job::new(stopped)
                .class(Class(0))
                .flow(run.flow)
                .targets(target);
            if let Err(refused) = run.submit(job) {
                tracing::debug!(reason = %refused.reason, "stopped is not passed on");
            }
        }
        report
    }

    fn notice(&self, notice: Notice<Forward>) {
        match notice {
            Notice::Ended {
                payload,
                reason: how,
                ..
            } => self.ended(&payload, how),
            Notice::Target { target, state } => {
                let plan = self.shared.plan();
                let Some(station) = plan.stations.get(target.index()) else {
                    return;
                };
                tracing::info!(forwarder = station.name, %state, trouble = station.trouble.lock().as_deref(), "forwarder");
                station.follow(state);
                self.watch.look();
            }
            _ => {}
        }
    }
}

impl Desk {
    fn station(&self, forward: &Forward) -> Arc<Station> {
        self.shared.plan().stations[usize::from(forward.forwarder)].clone()
    }

    async fn ask(&self, forward: &Forward) -> Result<AnnounceResponse, AskError> {
        let station = self.station(forward);
        let numbers = &station.numbers;
        let (timeout, ask_only) = {
            let config = &self.shared.plan().config;
            (config.forward_timeout, config.ask_only)
        };
        // Whoever was told of a peer before must hear of its leaving, whatever the mode is now.
        let ask = match ask_only && forward.is_announce() {
            true => Ask::only(&station, &forward.announce, self.own),
            false => Ask::new(&station, &forward.announce),
        };
        let began = Instant::now();
        numbers.requests.add(1);
        let outcome = self.asker.ask(&ask, timeout).await;
        let took = began.elapsed();
        match &outcome {
            Ok(reply) => {
                numbers.answers.add(1);
                numbers.micros.add(took.as_micros() as u64);
                let new = self.take_in(forward, &station, reply);
                if forward.is_announce() {
                    station.worth.answered(new, took);
                }
            }
            Err(_) => {
                numbers.failures.add(1);
                station.worth.failed(took);
            }
        }
        let trouble = match &outcome {
            Ok(AnnounceResponse::Failure { reason, .. }) => Some(reason.clone()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        *station.trouble.lock() = trouble;
        outcome
    }

    /// Whether the peer left before the forwarder hears of it. If not, it is noted that the
    /// forwarder must hear when it does. Whoever leaves takes announces back first and then looks
    /// who was told: so a note that is still there after that was seen by nobody, and one that is
    /// gone will be acted on.
    fn is_taken_back(&self, run: &Run<'_, Forward>) -> bool {
        let cancelled = run.cancellation();
        let forward = &run.payload;
        if cancelled.is_cancelled() {
            return true;
        }
        if !self.shared.plan().tells(&forward.announce) {
            return false;
        }
        // Not in its swarm: it left before this was handed in, when there was nothing to take back.
        let Some(noted) = self.tell(forward) else {
            return true;
        };
        cancelled.is_cancelled() && (!noted || self.untell(forward))
    }

    /// Notes that the forwarder is about to hear of the peer; `false` if that was noted before,
    /// nothing if the peer is gone.
    fn tell(&self, forward: &Forward) -> Option<bool> {
        let announce = &forward.announce;
        let tell = |swarm: &mut Swarm| {
            let known = swarm.has(&forward.at).then(|| swarm.known_mut())?;
            Some(known.tell(announce.peer_id, forward.forwarder))
        };
        let told = self.shared.swarms.with_known(&announce.info_hash, tell);
        told.flatten()
    }

    /// Takes the note back; `false` if somebody has seen it.
    fn untell(&self, forward: &Forward) -> bool {
        let announce = &forward.announce;
        let unseen = self.shared.swarms.with_known(&announce.info_hash, |swarm| {
            let known = swarm.known.as_mut()?;
            Some(known.take_back(announce.peer_id, forward.forwarder))
        });
        unseen.flatten() == Some(true)
    }

    fn report(
        &self,
        run: &mut Run<'_, Forward>,
        outcome: &Result<AnnounceResponse, AskError>,
    ) -> Report {
        let forward = run.payload;
        let (suspend, usual) = {
            let config = &self.shared.plan().config;
            (config.forwarder_suspend_seconds, config.announce_interval)
        };
        let judgement = judge(outcome, suspend, usual);
        let station = self.station(&forward);
        if self.watch.record(forward.forwarder, judgement.network) {
            // It is our own network that is down: that says nothing of anybody.
            return Report::retry_in(Duration::from_secs(1)).target(Health::Unknown);
        }
        if judgement.forwarder == Standing::Never {
            station.never.store(true, Ordering::Relaxed);
        }
        self.settle(&mut run.payload, judgement, suspend)
    }

    fn settle(&self, forward: &mut Forward, judgement: Judgement, suspend: Duration) -> Report {
        let health = match judgement.forwarder {
            Standing::Fine => Health::Fine,
            Standing::Fault => Health::Fault,
            Standing::Overloaded => Health::Overloaded(suspend),
            Standing::Gone | Standing::Never => Health::Gone,
        };
        let report = match judgement.forward {
            Fate::Done(next) => {
                self.arrive(forward, self.now() + seconds(next), true);
                Report::done()
            }
            Fate::Failed(next) => {
                self.arrive(forward, self.now() + seconds(next), false);
                Report::failed()
            }
            Fate::Retry => Report::retry(),
            Fate::Later(wait) => Report::retry_in(wait),
        };
        report.target(health)
    }

    fn now(&self) -> Seconds {
        self.shared.clock.now()
    }

    fn arrive(&self, forward: &mut Forward, due: Seconds, answered: bool) {
        forward.settled = true;
        if !forward.is_announce() {
            return;
        }
        let hash = &forward.announce.info_hash;
        self.shared.swarms.with_known(hash, |swarm| {
            if let Some(known) = &mut swarm.known {
                known.arrive(forward.forwarder, due, answered);
                swarm.due = swarm.due.min(due);
            }
        });
    }

    /// Remembers what an answer says beside its peers, and says how many of those are new.
    fn take_in(&self, forward: &Forward, station: &Station, reply: &AnnounceResponse) -> usize {
        let AnnounceResponse::Peers(peers) = reply else {
            return 0;
        };
        *station.numbers.interval.lock() = peers.interval.map(|s| Duration::from_secs(s.into()));
        if peers.tracker_id.is_some() {
            station.tracker_id.lock().clone_from(&peers.tracker_id);
        }
        let own = [Some(forward.announce.peer_id), Some(self.own)];
        let found = peers.peers.iter();
        let found = found.filter(|(_, id)| id.is_none() || !own.contains(id));
        let new = self.found(forward, found.map(|(at, _)| *at), peers.external_ip);
        station.numbers.contributed.add(new as u64);
        new
    }

    /// Takes in what a forwarder named: whoever can be connected to from here and is not the client
    /// itself. Says how many nobody had named before.
    fn found(
        &self,
        forward: &Forward,
        peers: impl Iterator<Item = SocketAddr>,
        own: Option<IpAddr>,
    ) -> usize {
        let (now, by) = (self.now(), self.shared.count_by);
        let most = self.shared.plan().config.max_cached_peers;
        let port = forward.announce.port;
        let peers =
            peers.filter(|at| is_peer(at.ip()) && !(Some(at.ip()) == own && at.port() == port));
        let packed: Vec<Packed> = peers.map(|at| Packed::new(at.ip(), at.port())).collect();
        let hash = &forward.announce.info_hash;
        let new = self.shared.swarms.with_known(hash, |swarm| {
            // Its last peer is gone: nobody would ask for what was found.
            if swarm.local_peers() == 0 {
                return 0;
            }
            let mut find = |at: &Packed| swarm.find(now, *at, forward.forwarder, most, by);
            packed.iter().filter(|at| find(at)).count()
        });
        new.unwrap_or_default()
    }

    /// A forward ended without a word of its own.
    fn ended(&self, forward: &Forward, how: EndReason) {
        if forward.settled || !forward.is_announce() {
            return;
        }
        let hash = &forward.announce.info_hash;
        self.shared.swarms.with_known(hash, |swarm| {
            let Some(known) = &mut swarm.known else {
                return;
            };
            let due = match how {
                EndReason::Failed => {
                    let due = self.now() + AFTER_FAILURE;
                    known.arrive(forward.forwarder, due, false);
                    due
                }
                _ => {
                    known.call_off(forward.forwarder, forward.before);
                    forward.before.due.max(self.now())
                }
            };
            swarm.due = swarm.due.min(due);
        });
    }
}

/// Whether an address can be a peer's. Forwarders lie, and clients should not be sent to nowhere or
/// to everybody.
fn is_peer(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast() || ip.octets()[0] == 0);
    !ip.is_unspecified() && !ip.is_multicast() && !broadcast
}
