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
use tokio::sync::{Notify, Semaphore};
use tokio_util::task::TaskTracker;

use crate::active_config::{ActiveConfig, UpstreamIds};
use crate::bookings::Bookings;
use crate::config::{GatewayConfig, is_loopback};
use crate::error::Error;
use crate::faults::Faults;
use crate::front::IdleTimeouts;
use crate::history::{RequestHistory, RequestIds};
use crate::keys::{KeyFile, Keys, is_missing};
use crate::learned_limits::LearnedLimits;
use crate::learned_outputs::LearnedOutputs;
use crate::overrides::Overrides;
use crate::request_log::RequestLog;
use crate::retry_hints::RetryHints;
use crate::time_rules;
use crate::upstream::{Hints, ListedModels, Upstream};
use crate::usage::{UsageLedger, UsageStore};

/// State of a running gateway. The pool owns everything about scheduling; this struct holds what
/// surrounds it.
pub(crate) struct Shared {
    pub(crate) permits: Permits,
    pub(crate) active: ArcSwap<ActiveConfig>,
    /// Scheduler settings in force: the configuration with time rules, learned rates and overrides.
    pub(crate) in_force: ArcSwap<Config>,
    upstream_ids: Mutex<UpstreamIds>,
    learned_limits: Mutex<LearnedLimits>,
    /// Changes made by hand. Locked while the scheduler is reconfigured, so that two changes reach
    /// it in order.
    overrides: Mutex<Overrides>,
    pub(crate) outbound: Outbound,
    pub(crate) seed: KeySeed,
    pub(crate) bookings: Bookings,
    pub(crate) faults: Faults,
    pub(crate) learned_outputs: LearnedOutputs,
    pub(crate) retry_hints: RetryHints,
    pub(crate) listed_models: ListedModels,
    pub(crate) history: RequestHistory,
    pub(crate) ledger: UsageLedger,
    pub(crate) log: Option<RequestLog>,
    pub(crate) idle_timeouts: Arc<IdleTimeouts>,
    pub(crate) queue_counts: QueueCounts,
    /// Large bodies that may be read at once.
    pub(crate) large_bodies: Semaphore,
    /// Tasks that read the rest of responses whose clients have left.
    pub(crate) abandoned: TaskTracker,
    pub(crate) started: Instant,
    /// Signals that a new configuration is in force.
    pub(crate) changed: Notify,
    /// A minute since the epoch, and the calendar day that contains it.
    day: Mutex<(i64, u32)>,
}

/// Configuration and manual changes that were in force before a reload.
pub(crate) struct PreviousConfig {
    active: Arc<ActiveConfig>,
    overrides: Overrides,
}

impl Shared {
    pub(crate) fn new(
        config: &Arc<GatewayConfig>,
        outbound: Outbound,
    ) -> Result<Arc<Shared>, Error> {
        // The seed is random per process, so that clients cannot craft requests whose fingerprints
        // collide.
        let seed = KeySeed::new(getrandom::u64()?, getrandom::u64()?);
        let mut upstream_ids = UpstreamIds::default();
        let keys = read_keys(config)?;
        check_not_exposed(config, &keys, config.listen)?;
        warn_about_keys(config, &keys);
        let active = ActiveConfig::new(config.clone(), keys, &mut upstream_ids);
        warn_about_rules(&active);
        let now = Timestamp::now();
        let learned_limits = LearnedLimits::default();
        let store = UsageStore::open(config.usage_file.as_deref())?;
        let scheduler_config = active.scheduler_config(now, &seed, &learned_limits);
        Ok(Arc::new(Shared {
            permits: Permits::new(scheduler_config.clone())?,
            in_force: ArcSwap::from_pointee(scheduler_config),
            ledger: UsageLedger::new(store, time_rules::day(now, &active.zone))?,
            active: ArcSwap::from_pointee(active),
            upstream_ids: Mutex::new(upstream_ids),
            learned_limits: Mutex::new(learned_limits),
            overrides: Mutex::default(),
            outbound,
            seed,
            bookings: Bookings::default(),
            faults: Faults::default(),
            learned_outputs: LearnedOutputs::default(),
            retry_hints: RetryHints::default(),
            listed_models: ListedModels::default(),
            history: RequestHistory::new(RequestIds::new(getrandom::u32()?)),
            log: config
                .request_log
                .as_deref()
                .map(RequestLog::create)
                .transpose()?,
            idle_timeouts: Arc::default(),
            queue_counts: QueueCounts::default(),
            large_bodies: Semaphore::new(
                std::thread::available_parallelism().map_or(1, usize::from),
            ),
            abandoned: TaskTracker::new(),
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
    ) -> Result<PreviousConfig, Error> {
        let keys = self.next_keys(&config)?;
        check_not_exposed(&config, &keys, address)?;
        warn_about_keys(&config, &keys);
        let active = ActiveConfig::new(config, keys, &mut self.upstream_ids.lock());
        warn_about_rules(&active);
        // The lock is held across `reconfigure` and the swap: a rule that begins in between would
        // otherwise overwrite the new settings with the old ones.
        let mut overrides = self.overrides.lock();
        let scheduler_config =
            active.scheduler_config(Timestamp::now(), &self.seed, &self.learned_limits.lock());
        // Upstreams that are gone are switched off last. Their queued requests then find the new
        // configuration in force and look for other upstreams there.
        let mut with_removed = scheduler_config.clone();
        let known = self.permits.config().targets;
        for (target, known) in with_removed.targets.iter_mut().zip(known) {
            if !target.enabled {
                *target = known;
            }
        }
        self.permits.reconfigure(with_removed)?;
        let before = PreviousConfig {
            overrides: std::mem::take(&mut *overrides),
            active: self.active.swap(Arc::new(active)),
        };
        self.reconfigure(scheduler_config)?;
        drop(overrides);
        self.invalidate_derived();
        Ok(before)
    }

    /// Reads the keys of a new configuration. A reload never turns off the requirement for a key:
    /// otherwise, revoking the last key would admit everybody.
    fn next_keys(&self, config: &GatewayConfig) -> Result<Keys, Error> {
        let before = self.active.load();
        // Without `keys_file`, the default file is used only if it exists. Deleting it must not
        // look like a configuration that never had keys.
        if let (None, Some(path)) = (&config.keys_file, &before.config.keys_file)
            && is_missing(path)
        {
            return Err(Error::KeyFileMissing(path.clone()));
        }
        let mut keys = read_keys(config)?;
        if before.keys.is_required() {
            keys.require();
        }
        Ok(keys)
    }

    /// Restores the configuration and the manual changes that were in force before a reload.
    pub(crate) fn restore(&self, before: PreviousConfig) {
        let mut overrides = self.overrides.lock();
        *overrides = before.overrides;
        self.active.store(before.active);
        drop(overrides);
        self.refresh();
        self.invalidate_derived();
    }

    /// Invalidates what is derived from the configuration: the current day and the timer of the
    /// rules.
    fn invalidate_derived(&self) {
        self.day.lock().0 = i64::MIN;
        self.changed.notify_one();
    }

    /// Scheduler settings at this moment: the configuration with its time rules, the learned rates,
    /// and `overrides` on top.
    pub(crate) fn scheduler_config(&self, overrides: &Overrides) -> Config {
        let learned_limits = self.learned_limits.lock();
        let active = self.active.load();
        let mut scheduler_config =
            active.scheduler_config(Timestamp::now(), &self.seed, &learned_limits);
        overrides.apply_to(&mut scheduler_config);
        scheduler_config
    }

    /// Applies scheduler settings and remembers them for explanations and statistics.
    fn reconfigure(&self, config: Config) -> Result<(), ConfigError> {
        self.permits.reconfigure(config.clone())?;
        self.in_force.store(Arc::new(config));
        Ok(())
    }

    /// Settings that were changed by hand.
    pub(crate) fn overrides(&self) -> Overrides {
        self.overrides.lock().clone()
    }

    /// Applies settings changed by hand. They hold until the next reload.
    pub(crate) fn apply_overrides(&self, overrides: Overrides) -> Result<(), ConfigError> {
        let mut current = self.overrides.lock();
        self.reconfigure(self.scheduler_config(&overrides))?;
        *current = overrides;
        Ok(())
    }

    /// Reconfigures the scheduler after a rule began or ended, or after a learned rate changed.
    pub(crate) fn refresh(&self) {
        let overrides = self.overrides.lock();
        if let Err(error) = self.reconfigure(self.scheduler_config(&overrides)) {
            tracing::error!(%error, "cannot reconfigure the scheduler; it keeps its previous settings");
        }
    }

    /// Updates the learned rates from the rate-limit headers of a response.
    pub(crate) fn learn_from(&self, upstream: &Upstream, hints: &Hints) {
        let active = self.active.load();
        let Some(limits) = active.pool_limits(upstream.target) else {
            return;
        };
        let now = Instant::now();
        let mut learned_limits = self.learned_limits.lock();
        let moved = learned_limits.update(upstream.target, limits, hints, now);
        drop(learned_limits);
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
            *day = (minute, time_rules::day(now, &self.active.load().zone));
        }
        day.1
    }

    /// Target set of a model group, or `None` if the group is empty.
    pub(crate) fn target_set(&self, targets: &[TargetId]) -> Option<TargetSet> {
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
fn check_not_exposed(
    config: &GatewayConfig,
    keys: &Keys,
    address: SocketAddr,
) -> Result<(), Error> {
    let mut addresses = [address, config.listen].into_iter();
    match addresses.find(|address| keys.is_open() && !is_loopback(*address)) {
        Some(address) => Err(Error::Exposed(address)),
        None => Ok(()),
    }
}

/// Logs a warning for settings that are probably not what the operator meant.
fn warn_about_keys(config: &GatewayConfig, keys: &Keys) {
    if config.open && !keys.is_open() {
        tracing::warn!("`gateway.open` has no effect: keys are or were configured");
    }
    if keys.admits_nobody() {
        tracing::warn!(
            "no keys: every request gets 401; create one with `headworks gateway key add --tenant NAME`, \
             or set `gateway.open` to serve everybody on this machine"
        );
    }
}

/// Logs a warning for rules that have no effect.
fn warn_about_rules(active: &ActiveConfig) {
    for tenant in active.unknown_tenants() {
        tracing::warn!(
            tenant,
            "a rule in `gateway.rule` names a tenant that is not in `gateway.tenant` and has no key: \
             correct the name, or create a key"
        );
    }
}

/// Number of queued requests per class. Tells a request its position without taking the pool's
/// lock.
pub(crate) struct QueueCounts {
    now: [AtomicU32; MAX_CLASSES],
    /// Requests queued since the start.
    ever: AtomicU64,
}

impl Default for QueueCounts {
    fn default() -> Self {
        QueueCounts {
            now: std::array::from_fn(|_| AtomicU32::new(0)),
            ever: AtomicU64::new(0),
        }
    }
}

impl QueueCounts {
    /// Adds a request to the count. The guard removes it again; the number is how many were queued
    /// before it.
    pub(crate) fn join(shared: &Arc<Shared>, class: Class) -> (QueuedGuard, u32) {
        shared.queue_counts.ever.fetch_add(1, Ordering::Relaxed);
        let before = shared.queue_counts.now[usize::from(class.0)].fetch_add(1, Ordering::Relaxed);
        let guard = QueuedGuard {
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
pub(crate) struct QueuedGuard {
    shared: Arc<Shared>,
    class: Class,
}

impl Drop for QueuedGuard {
    fn drop(&mut self) {
        self.shared.queue_counts.now[usize::from(self.class.0)].fetch_sub(1, Ordering::Relaxed);
    }
}
