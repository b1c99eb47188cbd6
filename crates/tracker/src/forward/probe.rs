//! The task that probes disabled forwarders, and any forwarder while our own network is down.

use super::job::ForwardJob;
use super::outage::{OutageDetector, WINDOW};
use crate::client::TrackerClient;
use crate::forwarders::{ForwarderId, Status};
use crate::state::TrackerState;
use headworks_core::TargetState;
use headworks_pool::Pool;
use headworks_service::shutdown::Shutdown;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// The first pause between two probes while our own network is down; it doubles.
const OUTAGE_PAUSE: Duration = Duration::from_secs(2);
/// The longest pause between two probes of a disabled forwarder.
const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// The state of the probe task.
pub(super) struct Prober {
    outage: Arc<OutageDetector>,
    pool: Pool<ForwardJob>,
    state: Arc<TrackerState>,
    client: Arc<TrackerClient>,
    probes: HashMap<ForwarderId, Probe>,
}

/// The schedule of a disabled forwarder's probes.
struct Probe {
    next: Instant,
    /// The pause after that; it doubles.
    pause: Duration,
}

impl Prober {
    pub(super) fn new(
        outage: Arc<OutageDetector>,
        pool: Pool<ForwardJob>,
        state: Arc<TrackerState>,
        client: Arc<TrackerClient>,
    ) -> Prober {
        Prober {
            outage,
            pool,
            state,
            client,
            probes: HashMap::new(),
        }
    }

    /// Starts the task.
    pub(super) fn spawn(self, shutdown: &Shutdown) {
        let stop = shutdown.token();
        shutdown.spawn("tracker: probe forwarders", async move {
            stop.run_until_cancelled(self.run()).await;
        });
    }

    async fn run(mut self) {
        loop {
            if self.outage.is_down() {
                self.wait_for_network().await;
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
                self.probes.entry(id).or_insert(Probe {
                    next: now + pause,
                    pause: pause * 2,
                });
            } else if forwarder.status() == Status::Active {
                self.probes.remove(&id);
            }
        }
    }

    async fn probe_due(&mut self) {
        let now = Instant::now();
        let due = self.probes.iter().filter(|(_, probe)| probe.next <= now);
        let due: Vec<ForwarderId> = due.map(|(id, _)| *id).collect();
        for id in due {
            let active = self.state.active.load_full();
            let forwarder = &active.forwarders[id.index()];
            let timeout = active.config.forward_timeout;
            let reachable = forwarder.status() == Status::Disabled
                && self.client.probe(forwarder, timeout).await.is_ok();
            if reachable {
                tracing::info!(
                    forwarder = forwarder.name,
                    "forwarder reachable again: on probation"
                );
                self.pool.set_target(id.target(), TargetState::Probation);
            }
            if let Some(probe) = self.probes.get_mut(&id) {
                probe.next = Instant::now() + probe.pause;
                probe.pause = (probe.pause * 2).min(MAX_PAUSE);
            }
        }
    }

    /// Handles an outage of our own network. Forwarders are not to blame, so their states are
    /// restored. Nothing is sent until a probe of any forwarder succeeds.
    async fn wait_for_network(&mut self) {
        self.pool.pause();
        let blamed = self.outage.take_recent();
        tracing::warn!(
            forwarders = blamed.len(),
            "network down: every request to a forwarder failed"
        );
        for id in &blamed {
            let status = self.state.active().forwarders[id.index()].status();
            if matches!(status, Status::Suspended | Status::Disabled) {
                self.pool.set_target(id.target(), TargetState::Active);
            }
        }
        let mut pause = OUTAGE_PAUSE;
        for attempt in 0.. {
            tokio::time::sleep(pause).await;
            let active = self.state.active.load_full();
            let count = active.listed_forwarders().count().max(1);
            let forwarder = active.listed_forwarders().nth(attempt % count);
            // A reload removed every forwarder: there is nothing left to probe.
            let Some((_, forwarder)) = forwarder else {
                break;
            };
            let timeout = active.config.forward_timeout;
            if self.client.probe(forwarder, timeout).await.is_ok() {
                break;
            }
            pause = (pause * 2).min(WINDOW);
        }
        tracing::info!("network up again");
        self.outage.end();
        self.pool.resume();
    }
}
