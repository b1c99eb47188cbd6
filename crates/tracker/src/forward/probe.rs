//! The task that probes disabled forwarders, and any forwarder while our own network is in doubt.

use super::job::ForwardJob;
use super::outage::{Network, OutageDetector};
use super::outcome::network_evidence;
use super::timers::DueTimers;
use crate::active_config::ActiveConfig;
use crate::client::TrackerClient;
use crate::forwarders::{ForwarderId, ForwarderState, Status};
use crate::state::TrackerState;
use futures_util::future::join_all;
use headworks_core::TargetState;
use headworks_pool::Pool;
use headworks_service::shutdown::Shutdown;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause between two rounds of probes while our own network is down; it doubles.
const OUTAGE_PAUSE: Duration = Duration::from_secs(2);
/// The longest such pause.
const MAX_OUTAGE_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause between two probes of a disabled forwarder.
const MAX_PAUSE: Duration = Duration::from_secs(3600);
/// The number of forwarders in one round of probes.
const ROUND: usize = 8;
/// The number of those, while our own network is in doubt, that responded recently.
const RECENT: usize = ROUND / 2;
/// The longest timeout of a probe.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The state of the probe task.
pub(super) struct Prober {
    pub(super) outage: Arc<OutageDetector>,
    pub(super) pool: Pool<ForwardJob>,
    pub(super) state: Arc<TrackerState>,
    pub(super) client: Arc<TrackerClient>,
    pub(super) timers: Arc<DueTimers>,
    pub(super) probes: HashMap<ForwarderId, Probe>,
}

/// The schedule of a disabled forwarder's probes.
pub(super) struct Probe {
    next: Instant,
    /// The pause after that; it doubles.
    pause: Duration,
}

impl Prober {
    /// Starts the task.
    pub(super) fn spawn(self, shutdown: &Shutdown) {
        let stop = shutdown.token();
        shutdown.spawn("tracker: probe forwarders", async move {
            stop.run_until_cancelled(self.run()).await;
        });
    }

    async fn run(mut self) {
        loop {
            if self.outage.network() == Network::InDoubt {
                self.examine_network().await;
            }
            self.update_probes();
            let next = self.probes.values().map(|probe| probe.next).min();
            let latest = Instant::now() + MAX_PAUSE;
            tokio::select! {
                () = self.outage.changed() => {}
                () = tokio::time::sleep_until(next.unwrap_or(latest)) => self.probe_due().await,
            }
        }
    }

    /// Schedules probes of forwarders that were disabled, and drops those of others.
    fn update_probes(&mut self) {
        let (now, active) = (Instant::now(), self.state.active());
        let pause = active.config.forwarder_probe_seconds;
        let pause = pause.max(Duration::from_millis(100));
        self.probes.retain(|id, _| active.listed[id.index()]);
        for (id, forwarder) in active.listed_forwarders() {
            let declined = forwarder.declined.load(Ordering::Relaxed);
            if forwarder.status() == Status::Disabled && !declined {
                let probe = self.probes.entry(id).or_insert(Probe {
                    next: now + pause,
                    pause: pause * 2,
                });
                *forwarder.next_probe.lock() = Some(probe.next);
            } else if forwarder.status() == Status::Active {
                self.probes.remove(&id);
            }
        }
    }

    async fn probe_due(&mut self) {
        let now = Instant::now();
        let due = self.probes.iter().filter(|(_, probe)| probe.next <= now);
        let due: Vec<ForwarderId> = due.map(|(id, _)| *id).collect();
        let active = self.state.active.load_full();
        for some in due.chunks(ROUND) {
            let checks = some.iter().map(|id| {
                let forwarder = &active.forwarders[id.index()];
                async {
                    forwarder.status() == Status::Disabled && self.probe(forwarder, &active).await
                }
            });
            for (id, reachable) in some.iter().zip(join_all(checks).await) {
                if reachable {
                    let name = &active.forwarders[id.index()].name;
                    tracing::info!(forwarder = name, "forwarder reachable again: on probation");
                    self.pool.set_target(id.target(), TargetState::Probation);
                }
            }
        }
        for id in due {
            if let Some(probe) = self.probes.get_mut(&id) {
                probe.next = Instant::now() + probe.pause;
                probe.pause = (probe.pause * 2).min(MAX_PAUSE);
            }
        }
    }

    /// Whether a forwarder can be used. Any sign of life is noted.
    async fn probe(&self, forwarder: &ForwarderState, active: &ActiveConfig) -> bool {
        let timeout = active.config.forward_timeout.min(TIMEOUT);
        let result = self.client.probe(forwarder, timeout).await;
        if network_evidence(&result) == super::outage::NetworkEvidence::Works {
            self.outage.refute();
        }
        result.is_ok()
    }

    /// Finds out whether our own network is down, and waits until it is up again. Forwarders are
    /// not to blame for an outage, so their states are restored.
    async fn examine_network(&mut self) {
        self.probe_round(0).await;
        let Some(blamed) = self.outage.declare() else {
            return;
        };
        tracing::warn!(
            forwarders = blamed.len(),
            "network down: no forwarder can be reached"
        );
        self.forgive(&blamed);
        let mut pause = OUTAGE_PAUSE;
        for round in 1.. {
            // A reload may have removed every forwarder: there is nothing left to probe then.
            if self.state.active().listed_forwarders().next().is_none() {
                self.outage.refute();
            }
            if self.outage.network() == Network::Up {
                break;
            }
            tokio::select! {
                () = self.outage.changed() => continue,
                () = tokio::time::sleep(pause) => {}
            }
            self.probe_round(round).await;
            pause = (pause * 2).min(MAX_OUTAGE_PAUSE);
        }
        // Again, because some were suspended at the moment of the first time.
        self.forgive(&blamed);
        tracing::info!("network up again");
        self.timers.wake_all();
    }

    /// Restores forwarders that were blamed for an outage of our own network.
    fn forgive(&self, blamed: &[ForwarderId]) {
        let active = self.state.active();
        for id in blamed {
            let forwarder = &active.forwarders[id.index()];
            forwarder.forgive();
            if matches!(forwarder.status(), Status::Suspended | Status::Disabled) {
                self.pool.set_target(id.target(), TargetState::Active);
            }
        }
    }

    /// Probes several forwarders at once.
    async fn probe_round(&self, round: usize) {
        let active = self.state.active.load_full();
        let all: Vec<_> = active.listed_forwarders().map(|(_, f)| &**f).collect();
        let mut probes: futures_util::stream::FuturesUnordered<_> = choose(&all, round)
            .into_iter()
            .map(|forwarder| self.probe(forwarder, &active))
            .collect();
        // The first sign of life is enough.
        while futures_util::StreamExt::next(&mut probes).await.is_some() {
            if self.outage.network() == Network::Up {
                return;
            }
        }
    }
}

/// Chooses the forwarders of a round of probes, each in another network as far as there are enough:
/// the owner of some must not be able to have only theirs probed. Half of them responded recently,
/// in later rounds the next ones; the other half is random.
fn choose<'a>(all: &[&'a ForwarderState], round: usize) -> Vec<&'a ForwarderState> {
    let mut recent: Vec<_> = (all.iter().copied())
        .filter(|forwarder| forwarder.last_response().is_some())
        .collect();
    recent.sort_by_key(|forwarder| Reverse(forwarder.last_response()));
    let mut networks = HashSet::new();
    let (mut distinct, same): (Vec<_>, Vec<_>) = recent
        .into_iter()
        .partition(|forwarder| networks.insert(forwarder.network()));
    let first = round * RECENT % distinct.len().max(1);
    distinct.rotate_left(first);
    distinct.truncate(RECENT);
    let mut random: Vec<_> = all.to_vec();
    fastrand::shuffle(&mut random);
    let mut chosen = distinct;
    let networks = chosen.iter().map(|forwarder| forwarder.network());
    let mut networks: HashSet<_> = networks.collect();
    let (elsewhere, others): (Vec<_>, Vec<_>) = random
        .into_iter()
        .partition(|forwarder| networks.insert(forwarder.network()));
    let is_new = |chosen: &[&ForwarderState], other: &ForwarderState| {
        !chosen.iter().any(|one| std::ptr::eq(*one, other))
    };
    for forwarder in elsewhere.into_iter().chain(same).chain(others) {
        if chosen.len() < ROUND && is_new(&chosen, forwarder) {
            chosen.push(forwarder);
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forwarders::Forwarder;

    fn state(uri: &str) -> ForwarderState {
        ForwarderState::new(&Forwarder::at(uri), uri).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_forwarders_of_one_owner_are_not_the_only_ones_probed() {
        let mut all = Vec::new();
        for number in 0..20 {
            all.push(state(&format!("udp://t{number}.example{number}:1")));
            all[number].record_response();
            tokio::time::advance(Duration::from_secs(60)).await;
        }
        for number in 0..20 {
            // Its intervals are short, so they always responded last.
            all.push(state(&format!("udp://t{number}.evil.example:1")));
            all[20 + number].record_response();
        }
        let all: Vec<_> = all.iter().collect();
        let mut probed = HashSet::new();
        for round in 0..6 {
            let chosen = choose(&all, round);
            assert_eq!(chosen.len(), ROUND);
            let of_one = chosen.iter().filter(|one| one.name.contains("evil"));
            assert!(of_one.count() <= 1, "round {round}");
            probed.extend(chosen.iter().take(RECENT).map(|one| one.network()));
        }
        assert_eq!(probed.len(), 21, "all that responded had their turn");
    }

    #[test]
    fn a_round_is_full_if_there_are_enough_forwarders() {
        let all: Vec<_> = (1..=9)
            .map(|port| state(&format!("udp://192.0.2.1:{port}")))
            .collect();
        all[3].record_response();
        let all: Vec<_> = all.iter().collect();
        let chosen = choose(&all, 0);
        assert_eq!(
            (chosen.len(), chosen[0].name.as_str()),
            (ROUND, "udp://192.0.2.1:4")
        );
        assert_eq!(choose(&all[..2], 5).len(), 2);
        assert!(choose(&[], 1).is_empty());
    }
}
