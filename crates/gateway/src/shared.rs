//! State that all parts of a running gateway share.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use headworks_core::{Class, Config, ConfigError, KeySeed, MAX_CLASSES, TargetId, TargetSet};
use headworks_pool::Permits;
use headworks_service::outbound::Outbound;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::books::{Bookings, Ids, Journal, Ledger, RequestLog, UsageStore};
use crate::config::{GatewayConfig, is_loopback};
use crate::error::Error;
use crate::faults::Faults;
use crate::front::Watch;
use crate::keys::{KeyFile, Keys, is_missing};
use crate::learn::Learned;
use crate::overlay::Overlay;
use crate::plan::{Plan, Roster};
use crate::times;
use crate::upstream::{Hints, Upstream};

/// State of a running gateway. The pool owns everything about scheduling; this struct holds what
/// surrounds it.
pub(crate) struct Shared {
    pub(crate) permits: Permits,
    pub(crate) plan: ArcSwap<Plan>,
    roster: Mutex<Roster>,
    learned: Mutex<Learned>,
    /// Changes made by hand. Locked while the scheduler is reconfigured, so that two changes reach
    /// it in order.
    overlay: Mutex<Overlay>,
    pub(crate) outbound: Outbound,
    pub(crate) seed: KeySeed,
    pub(crate) bookings: Bookings,
    pub(crate) faults: Faults,
    pub(crate) journal: Journal,
    pub(crate) ledger: Ledger,
    pub(crate) log: Option<RequestLog>,
    pub(crate) watch: Arc<Watch>,
    pub(crate) waiting: Waiting,
    pub(crate) started: Instant,
    /// Signals that a new configuration is in force.
    pub(crate) changed: Notify,
    /// A minute since the epoch, and the calendar day that contains it.
    day: Mutex<(i64, u32)>,
}

/// Configuration and manual changes that were in force before a reload.
pub(crate) struct Before {
    plan: Arc<Plan>,
    overlay: Overlay,
}

impl Shared {
    pub(crate) fn new(
        config: &Arc<GatewayConfig>,
        outbound: Outbound,
    ) -> Result<Arc<Shared>, Error> {
        // The seed is random per process, so that clients cannot craft requests whose fingerprints
        // collide.
        let seed = KeySeed::new(getrandom::u64()?, getrandom::u64()?);
        let mut roster = Roster::default();
        let keys = read_keys(config)?;
        not_exposed(config, &keys, config.listen)?;
        warn_about_keys(config, &keys);
        let plan = Plan::new(config.clone(), keys, &mut roster);
        let now = Timestamp::now();
        let learned = Learned::default();
        let store = UsageStore::open(config.usage_file.as_deref())?;
        Ok(Arc::new(Shared {
            permits: Permits::new(plan.scheduling(now, &seed, &learned))?,
            ledger: Ledger::new(store, times::day(now, &plan.zone))?,
            plan: ArcSwap::from_pointee(plan),
            roster: Mutex::new(roster),
            learned: Mutex::new(learned),
            overlay: Mutex::default(),
            outbound,
            seed,
            bookings: Bookings::default(),
            faults: Faults::default(),
            journal: Journal::new(Ids::new(getrandom::u32()?)),
            log: config
                .request_log
                .as_deref()
                .map(RequestLog::create)
                .transpose()?,
            watch: Arc::default(),
            waiting: Waiting::default(),
            started: Instant::now(),
            changed: Notify::new(),
            day: Mutex::new((i64::MIN, 0)),
        }))
    }

    /// Applies a new configuration and returns the previous one. A configuration that cannot be
    /// used changes nothing.
    ///
    /// `address` is the address in use. It counts beside the one in the new configuration, which
    /// takes effect only after a restart.
    pub(crate) fn apply(
        &self,
        config: Arc<GatewayConfig>,
        address: SocketAddr,
    ) -> Result<Before, Error> {
        let keys = self.next_keys(&config)?;
        not_exposed(&config, &keys, address)?;
        warn_about_keys(&config, &keys);
        let plan = Plan::new(config, keys, &mut self.roster.lock());
        // The lock is held across `reconfigure` and the swap: a rule that begins in between would
        // otherwise overwrite the new settings with the old ones.
        let mut overlay = self.overlay.lock();
        let scheduling = plan.scheduling(Timestamp::now(), &self.seed, &self.learned.lock());
        self.permits.reconfigure(scheduling)?;
        let before = Before {
            overlay: std::mem::take(&mut *overlay),
            plan: self.plan.swap(Arc::new(plan)),
        };
        drop(overlay);
        self.look_again();
        Ok(before)
    }

    /// Reads the keys of a new configuration. A reload never turns off the requirement for a key:
    /// otherwise, revoking the last key would admit everybody.
    fn next_keys(&self, config: &GatewayConfig) -> Result<Keys, Error> {
        let before = self.plan.load();
        // Without `keys_file`, the default file is used only if it exists. Deleting it must not
        // look like a configuration that never had keys.
        if let (None, Some(path)) = (&config.keys_file, &before.config.keys_file)
            && is_missing(path)
        {
            return Err(Error::KeyFileMissing(path.clone()));
        }
        let mut keys = read_keys(config)?;
        if before.keys.are_required() {
            keys.require();
        }
        Ok(keys)
    }

    /// Restores the configuration and the manual changes that were in force before a reload.
    pub(crate) fn put_back(&self, before: Before) {
        let mut overlay = self.overlay.lock();
        *overlay = before.overlay;
        self.plan.store(before.plan);
        drop(overlay);
        self.refresh();
        self.look_again();
    }

    /// Invalidates what is derived from the configuration: the current day and the timer of the
    /// rules.
    fn look_again(&self) {
        self.day.lock().0 = i64::MIN;
        self.changed.notify_one();
    }

    /// Scheduler settings at this moment: the configuration with its time rules, the learned rates,
    /// and `overlay` on top.
    pub(crate) fn scheduling(&self, overlay: &Overlay) -> Config {
        let learned = self.learned.lock();
        let plan = self.plan.load();
        let mut scheduling = plan.scheduling(Timestamp::now(), &self.seed, &learned);
        overlay.lay(&mut scheduling);
        scheduling
    }

    /// Settings that were changed by hand.
    pub(crate) fn overlay(&self) -> Overlay {
        self.overlay.lock().clone()
    }

    /// Applies settings changed by hand. They hold until the next reload.
    pub(crate) fn lay_over(&self, overlay: Overlay) -> Result<(), ConfigError> {
        let mut held = self.overlay.lock();
        self.permits.reconfigure(self.scheduling(&overlay))?;
        *held = overlay;
        Ok(())
    }

    /// Reconfigures the scheduler after a rule began or ended, or after a learned rate changed.
    pub(crate) fn refresh(&self) {
        let overlay = self.overlay.lock();
        if let Err(error) = self.permits.reconfigure(self.scheduling(&overlay)) {
            tracing::error!(%error, "the scheduler keeps its settings");
        }
    }

    /// Updates the learned rates from the rate-limit headers of a response.
    pub(crate) fn hear(&self, upstream: &Upstream, hints: &Hints) {
        let moved =
            self.learned
                .lock()
                .hear(upstream.target, &upstream.settings, hints, Instant::now());
        if moved {
            self.refresh();
        }
    }

    /// The current calendar day in the configured time zone. A day begins on a full minute, so the
    /// conversion is done once per minute and not for every request.
    pub(crate) fn today(&self) -> u32 {
        let now = Timestamp::now();
        let minute = now.as_second() / 60;
        let mut day = self.day.lock();
        if day.0 != minute {
            *day = (minute, times::day(now, &self.plan.load().zone));
        }
        day.1
    }

    /// Target set of a model group, or `None` if the group is empty.
    pub(crate) fn set_of(&self, targets: &[TargetId]) -> Option<TargetSet> {
        match targets {
            [] => None,
            [one] => Some(TargetSet::from(*one)),
            many => self.permits.targets(many).ok(),
        }
    }
}

/// Reads all keys: those in the configuration and those in the key file.
fn read_keys(config: &GatewayConfig) -> Result<Keys, Error> {
    let levels = config.scheduler_priority_levels;
    let file = config.keys_file.as_deref();
    let file = file.map(|path| KeyFile::read(path, levels)).transpose()?;
    let in_file = file.iter().flat_map(|file| &file.key);
    Ok(Keys::new(config.key.iter().chain(in_file), config))
}

/// Fails if the gateway would serve other machines without a key.
fn not_exposed(config: &GatewayConfig, keys: &Keys, address: SocketAddr) -> Result<(), Error> {
    let mut addresses = [address, config.listen].into_iter();
    match addresses.find(|address| keys.are_open() && !is_loopback(*address)) {
        Some(address) => Err(Error::Exposed(address)),
        None => Ok(()),
    }
}

/// Logs a warning for settings that are probably not what the operator meant.
fn warn_about_keys(config: &GatewayConfig, keys: &Keys) {
    if config.open && !keys.are_open() {
        tracing::warn!(
            "`gateway.open` has no effect: keys are configured, or were since the start"
        );
    }
    if keys.admit_nobody() {
        tracing::warn!(
            "no keys: every request is answered with 401; make one with `headworks gateway key add --tenant NAME`, \
             or set `gateway.open` to answer everybody on this machine"
        );
    }
}

/// Number of queued requests per class. Tells a request its position without taking the pool's
/// lock.
pub(crate) struct Waiting {
    now: [AtomicU32; MAX_CLASSES],
    /// Requests queued since the start.
    ever: AtomicU64,
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting {
            now: std::array::from_fn(|_| AtomicU32::new(0)),
            ever: AtomicU64::new(0),
        }
    }
}

impl Waiting {
    /// Adds a request to the count. The guard removes it again; the number is how many were queued
    /// before it.
    pub(crate) fn join(shared: &Arc<Shared>, class: Class) -> (WaitingGuard, u32) {
        shared.waiting.ever.fetch_add(1, Ordering::Relaxed);
        let before = shared.waiting.now[usize::from(class.0)].fetch_add(1, Ordering::Relaxed);
        let guard = WaitingGuard {
            shared: shared.clone(),
            class,
        };
        (guard, before)
    }

    /// Requests that were queued since the start.
    pub(crate) fn ever(&self) -> u64 {
        self.ever.load(Ordering::Relaxed)
    }
}

/// One queued request. Dropping it decrements the count, however the wait ends.
pub(crate) struct WaitingGuard {
    shared: Arc<Shared>,
    class: Class,
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.shared.waiting.now[usize::from(self.class.0)].fetch_sub(1, Ordering::Relaxed);
    }
}
