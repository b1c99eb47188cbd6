//! One forward: ask, judge, and put what came of it into the swarm's record.

use super::flights::Flights;
use super::judge::{Fate, Judgement, Standing, judge};
use super::watch::Watch;
use super::{Ask, AskError, Asker, Forward, Station, seconds};
use crate::plane::Shared;
use crate::swarm::{Packed, Seconds};
use headworks_core::{Class, Job, TargetId};
use headworks_pool::{Handler, Health, How, Notice, Report, Run};
use headworks_tracker_wire::Event;
use headworks_tracker_wire::answer::Reply;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// When a forwarder is asked again after its last attempt failed.
const AFTER_FAILURE: Seconds = 60;

/// Runs forwards.
pub(super) struct Desk {
    pub(super) shared: Arc<Shared>,
    pub(super) stations: Arc<[Station]>,
    pub(super) asker: Arc<Asker>,
    pub(super) flights: Arc<Flights>,
    pub(super) watch: Arc<Watch>,
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
        self.tell(&forward);
        let report = if run.cancellation().is_cancelled() {
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
            Notice::Ended { payload, how, .. } => self.ended(&payload, how),
            Notice::Target { target, state } => {
                let station = &self.stations[target.index()];
                tracing::info!(forwarder = station.name, %state, trouble = station.trouble.lock().as_deref(), "forwarder");
                station.follow(state);
                self.watch.look();
            }
            _ => {}
        }
    }
}

impl Desk {
    fn station(&self, forward: &Forward) -> &Station {
        &self.stations[usize::from(forward.forwarder)]
    }

    async fn ask(&self, forward: &Forward) -> Result<Reply, AskError> {
        let station = self.station(forward);
        let numbers = &station.numbers;
        let began = Instant::now();
        numbers.requests.add(1);
        let outcome = self.asker.ask(&Ask::new(station, &forward.announce)).await;
        match &outcome {
            Ok(_) => {
                numbers.answers.add(1);
                numbers.micros.add(began.elapsed().as_micros() as u64);
            }
            Err(_) => numbers.failures.add(1),
        }
        let trouble = match &outcome {
            Ok(Reply::Failure { reason, .. }) => Some(reason.clone()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        *station.trouble.lock() = trouble;
        outcome
    }

    /// The forwarder is about to hear of the peer: it must hear when it leaves.
    fn tell(&self, forward: &Forward) {
        let announce = &forward.announce;
        self.shared.swarms.with_known(&announce.info_hash, |swarm| {
            if swarm.local_peers() > 0 {
                swarm.known_mut().tell(announce.peer_id, forward.forwarder);
            }
        });
    }

    fn report(&self, run: &mut Run<'_, Forward>, outcome: &Result<Reply, AskError>) -> Report {
        let (forward, config) = (run.payload, &self.shared.config);
        let suspend = config.forwarder_suspend_seconds;
        let judgement = judge(outcome, suspend, config.announce_interval);
        let station = self.station(&forward);
        if let Ok(Reply::Peers(peers)) = outcome {
            *station.numbers.interval.lock() =
                peers.interval.map(|s| Duration::from_secs(s.into()));
            let own = peers.external_ip;
            let found = peers.peers.iter();
            let found = found.filter(|(_, id)| *id != Some(forward.announce.peer_id));
            self.found(&forward, found.map(|(at, _)| *at), own);
        }
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
        let forwarders = self.stations.len();
        let hash = &forward.announce.info_hash;
        self.shared.swarms.with_known(hash, |swarm| {
            if let Some(known) = &mut swarm.known {
                known.arrive(forward.forwarder, due, answered);
                swarm.due = swarm.due.min(known.earliest(forwarders).max(self.now()));
            }
        });
    }

    /// Takes in what a forwarder named: whoever can be connected to from here and is not the client itself.
    fn found(
        &self,
        forward: &Forward,
        peers: impl Iterator<Item = SocketAddr>,
        own: Option<IpAddr>,
    ) {
        let (now, config) = (self.now(), &self.shared.config);
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
            let most = config.max_cached_peers;
            let mut find =
                |at: &Packed| swarm.find(now, *at, forward.forwarder, most, config.count_by);
            packed.iter().filter(|at| find(at)).count()
        });
        let new = new.unwrap_or_default() as u64;
        self.station(forward).numbers.contributed.add(new);
    }

    /// A forward ended without a word of its own.
    fn ended(&self, forward: &Forward, how: How) {
        if forward.settled || !forward.is_announce() {
            return;
        }
        let forwarders = self.stations.len();
        let hash = &forward.announce.info_hash;
        self.shared.swarms.with_known(hash, |swarm| {
            let Some(known) = &mut swarm.known else {
                return;
            };
            match how {
                How::Failed => {
                    let due = self.now() + AFTER_FAILURE;
                    known.arrive(forward.forwarder, due, false);
                }
                _ => known.call_off(forward.forwarder, forward.before),
            }
            swarm.due = swarm.due.min(known.earliest(forwarders).max(self.now()));
        });
    }
}

/// Whether an address can be a peer's. Forwarders lie, and clients should not be sent to nowhere or to everybody.
fn is_peer(ip: IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast() || ip.octets()[0] == 0);
    !ip.is_unspecified() && !ip.is_multicast() && !broadcast
}
