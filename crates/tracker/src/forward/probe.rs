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
use std::collections::HashMap;
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

    /// Probes several forwarders at once, those that responded last first.
    async fn probe_round(&self, round: usize) {
        let active = self.state.active.load_full();
        let mut forwarders: Vec<_> = active.listed_forwarders().map(|(_, f)| f).collect();
        forwarders.sort_by_key(|forwarder| std::cmp::Reverse(forwarder.last_response()));
        let healthy = forwarders.iter().filter(|f| f.last_response().is_some());
        // Without any, each round takes others.
        let skip = match healthy.count() {
            0 => round * ROUND % forwarders.len().max(1),
            _ => 0,
        };
        let some = forwarders.iter().cycle().skip(skip);
        let some = some.take(ROUND.min(forwarders.len()));
        let mut probes: futures_util::stream::FuturesUnordered<_> = some
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
