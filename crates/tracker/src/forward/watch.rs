//! Who watches over the forwarders: brings healed ones back, and knows when it is our own network
//! that is down.

use super::{Asker, Forward, Status};
use crate::plane::Shared;
use headworks_core::{TargetId, TargetState};
use headworks_pool::Pool;
use headworks_service::shutdown::Shutdown;
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// So many forwarders that all failed within [`WINDOW`] are not to blame.
const FEW: usize = 5;
const WINDOW: Duration = Duration::from_secs(30);
/// While our network is down, one forwarder is tried this often, at first.
const TRY: Duration = Duration::from_secs(2);
/// The longest pause between two probes.
const LONGEST: Duration = Duration::from_secs(3600);

/// What the watch remembers.
pub(crate) struct Watch {
    recent: Mutex<VecDeque<(Instant, u16, bool)>>,
    down: AtomicBool,
    changed: Notify,
}

impl Watch {
    pub(super) fn new() -> Watch {
        Watch {
            recent: Mutex::default(),
            down: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Whether our own network is down.
    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// A forwarder was asked; says whether it is our own network that fails.
    pub(super) fn record(&self, forwarder: u16, failed: bool) -> bool {
        let now = Instant::now();
        let mut recent = self.recent.lock();
        recent.push_back((now, forwarder, failed));
        while recent.front().is_some_and(|(at, ..)| now - *at > WINDOW) || recent.len() > 1000 {
            recent.pop_front();
        }
        if !failed {
            return false;
        }
        let all_failed = recent.iter().all(|(_, _, failed)| *failed);
        let asked: BTreeSet<u16> = recent.iter().map(|(_, forwarder, _)| *forwarder).collect();
        if all_failed && asked.len() >= FEW && !self.down.swap(true, Ordering::Relaxed) {
            self.changed.notify_one();
        }
        self.is_down()
    }

    /// A forwarder's state changed.
    pub(crate) fn look(&self) {
        self.changed.notify_one();
    }

    /// The forwarders that failed within the window.
    fn accused(&self) -> BTreeSet<u16> {
        let mut recent = self.recent.lock();
        recent
            .drain(..)
            .map(|(_, forwarder, _)| forwarder)
            .collect()
    }
}

/// Starts the watch.
pub(super) fn spawn(
    watch: &Arc<Watch>,
    pool: &Pool<Forward>,
    shared: &Arc<Shared>,
    asker: &Arc<Asker>,
    shutdown: &Shutdown,
) {
    let warden = Warden {
        watch: watch.clone(),
        pool: pool.clone(),
        shared: shared.clone(),
        asker: asker.clone(),
        probes: HashMap::new(),
    };
    let stop = shutdown.token();
    shutdown.spawn("tracker: watch over forwarders", async move {
        stop.run_until_cancelled(warden.watch()).await;
    });
}

struct Warden {
    watch: Arc<Watch>,
    pool: Pool<Forward>,
    shared: Arc<Shared>,
    asker: Arc<Asker>,
    /// Disabled forwarders: when each is looked at next, and the pause after that.
    probes: HashMap<u16, (Instant, Duration)>,
}

impl Warden {
    async fn watch(mut self) {
        loop {
            if self.watch.is_down() {
                self.wait_for_network().await;
            }
            self.note_disabled();
            let next = self.probes.values().map(|(at, _)| *at).min();
            let far = Instant::now() + LONGEST;
            tokio::select! {
                () = self.watch.changed.notified() => {}
                () = tokio::time::sleep_until(next.unwrap_or(far)) => self.probe_due().await,
            }
        }
    }

    fn note_disabled(&mut self) {
        let (now, plan) = (Instant::now(), self.shared.plan());
        let pause = plan.config.forwarder_probe_seconds;
        let pause = pause.max(Duration::from_millis(100));
        self.probes
            .retain(|number, _| plan.listed[usize::from(*number)]);
        for (number, station) in plan.forwarders() {
            let never = station.never.load(Ordering::Relaxed);
            if station.status() == Status::Disabled && !never {
                let probe = (now + pause, pause * 2);
                self.probes.entry(number).or_insert(probe);
            } else if station.status() == Status::Active {
                self.probes.remove(&number);
            }
        }
    }

    async fn probe_due(&mut self) {
        let now = Instant::now();
        let due = self.probes.iter().filter(|(_, (at, _))| *at <= now);
        let due: Vec<u16> = due.map(|(number, _)| *number).collect();
        for number in due {
            let plan = self.shared.plan.load_full();
            let (station, most) = (
                &plan.stations[usize::from(number)],
                plan.config.forward_timeout,
            );
            let healed = station.status() == Status::Disabled
                && self.asker.probe(station, most).await.is_ok();
            if healed {
                tracing::info!(forwarder = station.name, "there again: on probation");
                self.set(number, TargetState::Probation);
            }
            if let Some((at, pause)) = self.probes.get_mut(&number) {
                *at = Instant::now() + *pause;
                *pause = (*pause * 2).min(LONGEST);
            }
        }
    }

    fn set(&self, number: u16, state: TargetState) {
        self.pool
            .set_target(TargetId::new(u32::from(number)), state);
    }

    /// Nobody is to blame for what our own network does: states are rolled back, nothing more goes
    /// out, and one forwarder at a time is tried until one answers.
    async fn wait_for_network(&mut self) {
        self.pool.pause();
        let accused = self.watch.accused();
        tracing::warn!(
            forwarders = accused.len(),
            "all of them failed: this machine's network is down"
        );
        for number in &accused {
            let status = self.shared.plan().stations[usize::from(*number)].status();
            if matches!(status, Status::Suspended | Status::Disabled) {
                self.set(*number, TargetState::Active);
            }
        }
        let mut pause = TRY;
        for turn in 0.. {
            tokio::time::sleep(pause).await;
            let plan = self.shared.plan.load_full();
            let count = plan.forwarders().count().max(1);
            let station = plan.forwarders().nth(turn % count);
            // With nobody left to try there is nobody to blame, either.
            let Some((_, station)) = station else { break };
            let most = plan.config.forward_timeout;
            if self.asker.probe(station, most).await.is_ok() {
                break;
            }
            pause = (pause * 2).min(WINDOW);
        }
        tracing::info!("this machine's network is back");
        self.watch.accused();
        self.watch.down.store(false, Ordering::Relaxed);
        self.pool.resume();
    }
}
