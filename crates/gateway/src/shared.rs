//! State that all parts of a running gateway share.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::ArcSwap;
use headworks_core::{Class, Config, ConfigError, KeySeed, MAX_CLASSES, TargetId, TargetSet};
use headworks_pool::Permits;
use headworks_service::outbound::Outbound;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use crate::active_config::{ActiveConfig, RuleSource, UpstreamIds};
use crate::bookings::Bookings;
use crate::config::{GatewayConfig, UpstreamSettings, is_loopback};
use crate::error::Error;
use crate::faults::Faults;
use crate::fleet::{Fleet, FleetConfig, FleetKeys, FleetStores, KeyClock, Secrets, facts};
use crate::front::{BodyMemory, IdleTimeouts, LargeBodies};
use crate::history::{RequestHistory, RequestIds};
use crate::key_store::{FileKeyStore, KeyChange, KeyStore, KeyTable};
use crate::keys::{KeyFile, Keys, is_missing};
use crate::learned_limits::LearnedLimits;
use crate::learned_outputs::LearnedOutputs;
use crate::overrides::Overrides;
use crate::request_log::RequestLog;
use crate::retry_hints::RetryHints;
use crate::time_rules;
use crate::upstream::{Hints, ListedModels, Upstream};
use crate::usage::{SqliteUsageStore, UsageLedger};

/// State of a running gateway. The pool owns everything about scheduling; this struct holds what
/// surrounds it.
pub(crate) struct Shared {
    pub(crate) permits: Permits,
    pub(crate) active: ArcSwap<ActiveConfig>,
    /// Scheduler settings in force: the configuration with time rules, learned rates and overrides.
    pub(crate) in_force: ArcSwap<Config>,
    upstream_ids: Mutex<UpstreamIds>,
    /// Keys and tenants of the key store. Locked while keys are put in force, so that those of an
    /// earlier look never replace later ones.
    stored: Mutex<Stored>,
    pub(crate) clock: KeyClock,
    /// The fleet's keys; `None` if the key file is the store.
    pub(crate) fleet_keys: Option<Arc<FleetKeys>>,
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
    /// Whether usage could not be written the last time.
    pub(crate) usage_failed: AtomicBool,
    pub(crate) log: Option<RequestLog>,
    pub(crate) idle_timeouts: Arc<IdleTimeouts>,
    pub(crate) delayed_counts: DelayedCounts,
    pub(crate) queue_counts: QueueCounts,
    /// Memory of the request bodies that are held.
    pub(crate) body_memory: Arc<BodyMemory>,
    pub(crate) large_bodies: Arc<LargeBodies>,
    /// Tasks that read the rest of responses whose clients have left.
    pub(crate) abandoned: TaskTracker,
    pub(crate) started: Instant,
    /// Signals that a new configuration is in force.
    pub(crate) changed: Notify,
    /// The fleet that this process belongs to, if it does.
    pub(crate) fleet: Option<Arc<Fleet>>,
    /// A minute since the epoch, and the calendar day that contains it.
    day: Mutex<(i64, u32)>,
}

/// Configuration and manual changes that were in force before a reload.
pub(crate) struct PreviousConfig {
    active: Arc<ActiveConfig>,
    overrides: Overrides,
}

impl Shared {
    /// State of a gateway on its own, or with the limits and the stores of a fleet.
    pub(crate) fn new(
        config: &Arc<GatewayConfig>,
        fleet: Option<(&Arc<FleetConfig>, Secrets)>,
        stores: Option<FleetStores>,
        outbound: Outbound,
    ) -> Result<Arc<Shared>, Error> {
        // The seed is random per process, so that clients cannot craft requests whose fingerprints
        // collide.
        let seed = KeySeed::new(getrandom::u64()?, getrandom::u64()?);
        let mut upstream_ids = UpstreamIds::default();
        let stored = match &stores {
            Some(stores) => stores.first_stored(),
            None => Stored::read(config)?,
        };
        let keys = stored.keys(config);
        check_not_exposed(config, &keys, config.listen)?;
        warn_about_keys(config, &keys);
        let active = ActiveConfig::new(config.clone(), keys, &mut upstream_ids);
        warn_about_rules(&active);
        let clock = stores.as_ref().map_or(KeyClock::Local, FleetStores::clock);
        let now = clock.now();
        let today = time_rules::day(now, &active.zone);
        let ledger = match &stores {
            Some(stores) => stores.ledger(today),
            None => {
                let store = SqliteUsageStore::open(config.usage_file.as_deref())?;
                let totals = store.month_totals(today)?;
                UsageLedger::new(Arc::new(store), false, Some(&totals), today)
            }
        };
        let fleet_keys = stores.map(FleetStores::into_keys);
        let learned_limits = LearnedLimits::default();
        let scheduler_config = active.scheduler_config(now, &seed, &learned_limits);
        let permits = match fleet {
            // A share ends at a time, which passes while the machine is suspended.
            Some(_) => {
                Permits::counting_suspension(scheduler_config.clone(), headworks_fleet::suspended)?
            }
            None => Permits::new(scheduler_config.clone())?,
        };
        let fleet = fleet.map(|(config, secrets)| {
            let config = config.clone();
            Arc::new(Fleet::new(config, secrets, &scheduler_config))
        });
        if let Some(fleet) = &fleet {
            fleet.set_limits(&scheduler_config, &permits);
            fleet.set_gateway(config.request_timeout, active.fingerprint());
        }
        Ok(Arc::new(Shared {
            permits,
            fleet,
            in_force: ArcSwap::from_pointee(scheduler_config),
            ledger,
            usage_failed: AtomicBool::new(false),
            active: ArcSwap::from_pointee(active),
            upstream_ids: Mutex::new(upstream_ids),
            stored: Mutex::new(stored),
            clock,
            fleet_keys,
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
            delayed_counts: DelayedCounts::default(),
            body_memory: Arc::default(),
            // As many at once as there are CPUs. More would only delay each other and the serving
            // threads.
            large_bodies: LargeBodies::new(
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
        let mut stored = self.stored.lock();
        let next = self.next_stored(&config, &stored)?;
        let mut keys = next.keys(&config);
        if self.active.load().keys.is_required() {
            // A reload never turns off the requirement for a key: otherwise, revoking the last key
            // would admit everybody.
            keys.require();
        }
        check_not_exposed(&config, &keys, address)?;
        warn_about_keys(&config, &keys);
        let active = ActiveConfig::new(config, keys, &mut self.upstream_ids.lock());
        warn_about_rules(&active);
        // The lock is held across `reconfigure` and the swap: a rule that begins in between would
        // otherwise overwrite the new settings with the old ones.
        let mut overrides = self.overrides.lock();
        let scheduler_config = self.configure(&active, &self.learned_limits.lock());
        // Upstreams that are gone are switched off last. Their queued requests then find the new
        // configuration in force and look for other upstreams there.
        let mut with_removed = scheduler_config.clone();
        let known = self.permits.config().targets;
        for (target, known) in with_removed.targets.iter_mut().zip(known) {
            if !target.enabled {
                *target = known;
            }
        }
        self.share_limits(&with_removed);
        if let Err(error) = self.permits.reconfigure(with_removed) {
            self.share_limits(&self.in_force.load());
            return Err(error.into());
        }
        let before = PreviousConfig {
            overrides: std::mem::take(&mut *overrides),
            active: self.active.swap(Arc::new(active)),
        };
        *stored = next;
        self.reconfigure(scheduler_config)?;
        drop(overrides);
        self.invalidate_derived();
        self.describe_to_fleet();
        if let Some(fleet) = self.fleet.as_ref().filter(|_| !before.overrides.is_empty()) {
            fleet.outbox.change(facts::overrides(&Overrides::default()));
        }
        Ok(before)
    }

    /// The stored keys and tenants under a new configuration.
    fn next_stored(&self, config: &GatewayConfig, stored: &Stored) -> Result<Stored, Error> {
        if self.fleet_keys.is_some() {
            return Ok(stored.clone());
        }
        let before = self.active.load();
        // Without `keys_file`, the default file is used only if it exists. Deleting it must not
        // look like a configuration that never had keys.
        if let (None, Some(path)) = (&config.keys_file, &before.config.keys_file)
            && is_missing(path)
        {
            return Err(Error::KeyFileMissing(path.clone()));
        }
        Stored::read(config)
    }

    /// Puts changed keys and tenants of the fleet in force.
    pub(crate) fn put_stored(&self, table: KeyTable, had_changes: bool) {
        let next = Stored::of_fleet(table, had_changes);
        self.replace_stored(&mut self.stored.lock(), next);
    }

    /// Reads the key file again and puts its keys and tenants in force.
    pub(crate) fn read_key_file(&self) -> Result<(), Error> {
        // Locked first: of two threads, the one that reads later has the later keys.
        let mut stored = self.stored.lock();
        let next = Stored::read(&self.active.load().config)?;
        self.replace_stored(&mut stored, next);
        Ok(())
    }

    /// The stored keys and tenants that are in force.
    pub(crate) fn stored_keys(&self) -> Arc<KeyTable> {
        self.stored.lock().table.clone()
    }

    /// The store of the keys: the fleet's database, or the key file.
    pub(crate) fn key_store(&self) -> Result<Arc<dyn KeyStore>, Error> {
        if let Some(fleet) = &self.fleet_keys {
            return Ok(fleet.store.clone());
        }
        let active = self.active.load();
        let path = active.config.keys_file.as_deref();
        let path = path.ok_or(Error::NoKeyStore)?;
        Ok(Arc::new(FileKeyStore::new(path, active.levels())))
    }

    /// Stores a change and puts it in force on this node.
    pub(crate) async fn change_keys(
        self: &Arc<Self>,
        change: &KeyChange,
        actor: &str,
    ) -> Result<(), Error> {
        self.key_store()?.change(change, actor).await?;
        let refreshed = match &self.fleet_keys {
            Some(fleet) => fleet.refresh(self).await,
            None => {
                let shared = self.clone();
                let read = tokio::task::spawn_blocking(move || shared.read_key_file());
                read.await.unwrap_or(Ok(()))
            }
        };
        // The change is made. Within a second this node tries again to put it in force.
        if let Err(error) = refreshed {
            tracing::warn!(%error, "a change of keys is stored, but not yet in force here");
        }
        Ok(())
    }

    fn replace_stored(&self, stored: &mut Stored, next: Stored) {
        if *stored == next {
            return;
        }
        *stored = next;
        self.activate_stored(stored);
        tracing::info!(
            keys = stored.table.keys.len(),
            tenants = stored.table.tenants.len(),
            "stored keys changed"
        );
    }

    /// Builds the active configuration anew, with these keys and tenants.
    fn activate_stored(&self, stored: &Stored) {
        let overrides = self.overrides.lock();
        let active = self.active.load_full();
        let mut keys = stored.keys(&active.config);
        if active.keys.is_required() {
            keys.require();
        }
        let config = active.config.clone();
        let active = ActiveConfig::new(config, keys, &mut self.upstream_ids.lock());
        self.active.store(Arc::new(active));
        drop(overrides);
        // Tenants have weights and limits, and a rule has an effect on known tenants only.
        self.refresh();
    }

    /// Restores the configuration and the manual changes that were in force before a reload.
    pub(crate) fn restore(&self, before: PreviousConfig) {
        let mut stored = self.stored.lock();
        let mut overrides = self.overrides.lock();
        *overrides = before.overrides;
        self.active.store(before.active);
        drop(overrides);
        // Keys that were revoked since the reload stay so, also if it had named another file.
        if let Ok(next) = self.next_stored(&self.active.load().config, &stored) {
            *stored = next;
        }
        self.activate_stored(&stored);
        self.invalidate_derived();
        self.describe_to_fleet();
    }

    /// Has the fleet divide the limits of `config`. A limit that is new is shut until this process
    /// has a share of it, so this comes before the scheduler is reconfigured.
    fn share_limits(&self, config: &Config) {
        if let Some(fleet) = &self.fleet {
            fleet.set_limits(config, &self.permits);
        }
    }

    fn describe_to_fleet(&self) {
        if let Some(fleet) = &self.fleet {
            let active = self.active.load();
            fleet.set_gateway(active.config.request_timeout, active.fingerprint());
        }
    }

    /// Whether requests can be granted. A process of a fleet has nothing before its first share.
    pub(crate) fn is_ready(&self) -> bool {
        let is_shared = |_: &&Arc<Fleet>| self.active.load().config.scheduler_enabled;
        let fleet = self.fleet.as_ref().filter(is_shared);
        fleet.is_none_or(|fleet| fleet.is_ready())
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
        let mut scheduler_config = self.configure(&active, &learned_limits);
        overrides.apply_to(&mut scheduler_config);
        scheduler_config
    }

    /// The settings of a configuration with the time rules that hold now: by the clock of this
    /// machine, or by that of the fleet's allocator.
    fn configure(&self, active: &ActiveConfig, learned_limits: &LearnedLimits) -> Config {
        let rules = self.fleet.as_ref().and_then(|fleet| fleet.rules());
        let source = rule_source(rules.as_deref());
        active.scheduler_config(source, &self.seed, learned_limits)
    }

    /// Names of the time rules that the scheduler's settings have in them.
    pub(crate) fn rules_in_force(&self, active: &ActiveConfig) -> Vec<String> {
        let rules = self.fleet.as_ref().and_then(|fleet| fleet.rules());
        let names = active.rules_in_force(rule_source(rules.as_deref()));
        names.into_iter().map(str::to_owned).collect()
    }

    /// Applies scheduler settings and remembers them for explanations and statistics.
    fn reconfigure(&self, config: Config) -> Result<(), ConfigError> {
        self.share_limits(&config);
        if let Err(error) = self.permits.reconfigure(config.clone()) {
            self.share_limits(&self.in_force.load());
            return Err(error);
        }
        self.in_force.store(Arc::new(config));
        Ok(())
    }

    /// Settings that were changed by hand.
    pub(crate) fn overrides(&self) -> Overrides {
        self.overrides.lock().clone()
    }

    /// Applies settings changed by hand. They hold until the next reload, on all nodes of a fleet.
    pub(crate) fn apply_overrides(&self, overrides: Overrides) -> Result<(), ConfigError> {
        let fact = facts::overrides(&overrides);
        self.take_overrides(overrides)?;
        if let Some(fleet) = &self.fleet {
            fleet.outbox.change(fact);
        }
        Ok(())
    }

    /// Applies settings that were changed by hand, here or on another node.
    pub(crate) fn take_overrides(&self, overrides: Overrides) -> Result<(), ConfigError> {
        let mut current = self.overrides.lock();
        if *current == overrides {
            return Ok(());
        }
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

    /// Updates the learned rates from the rate-limit headers of a response. An overload that one
    /// tenant alone reports is not one of the pool: what it asks for may be too large.
    pub(crate) fn learn_from(&self, upstream: &Upstream, hints: &Hints, now: Instant) {
        let active = self.active.load();
        let Some(limits) = active.pool_limits(upstream.target) else {
            return;
        };
        let learns = limits.min_rps.is_some() || limits.min_tokens_per_sec.is_some();
        if !learns || (hints.overloaded && !upstream.health.overload_concerns_all(now)) {
            return;
        }
        // In a fleet, the allocator alone learns: if every node cut the rate after the same
        // overload, it would collapse.
        if let Some(fleet) = &self.fleet {
            if let Some(pool) = active.pool_name(upstream.target) {
                fleet.outbox.hint(pool, hints);
            }
            return;
        }
        if self.learn(upstream.target, limits, hints) {
            self.refresh();
        }
    }

    /// Names of the tenants with quotas.
    pub(crate) fn budgeted_tenants(&self) -> Vec<String> {
        let active = self.active.load();
        let tenants = active.tenants();
        let tenants = tenants
            .filter(|tenant| tenant.tokens_per_day.is_some() || tenant.tokens_per_month.is_some());
        tenants.map(|tenant| tenant.name.clone()).collect()
    }

    /// Updates the learned rates of a pool. Returns whether they changed.
    pub(crate) fn learn(&self, pool: TargetId, limits: &UpstreamSettings, hints: &Hints) -> bool {
        let now = self.permits.now();
        self.learned_limits.lock().update(pool, limits, hints, now)
    }

    /// The learned rates of a pool.
    pub(crate) fn learned_rates(&self, pool: TargetId) -> [Option<f64>; 2] {
        self.learned_limits.lock().rates(pool)
    }

    /// Takes the rates that the fleet's allocator has learned. Returns whether they changed.
    pub(crate) fn take_learned_rates(
        &self,
        pool: TargetId,
        limits: &UpstreamSettings,
        rates: [Option<f64>; 2],
    ) -> bool {
        self.learned_limits.lock().set(pool, limits, rates)
    }

    /// The current calendar day in the configured time zone. A day begins on a full minute, so the
    /// conversion is done once per minute and not for every request.
    pub(crate) fn today(&self) -> u32 {
        let now = self.clock.now();
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

/// The rules that the allocator of a fleet names, or those of this machine's clock.
fn rule_source(rules: Option<&Vec<String>>) -> RuleSource<'_> {
    match rules {
        Some(names) => RuleSource::Fleet(names),
        None => RuleSource::Clock(Timestamp::now()),
    }
}

/// Keys and tenants of the key store that are in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    table: Arc<KeyTable>,
    /// Whether keys were stored at any time; `None` if the store could not be read as yet.
    had_changes: Option<bool>,
}

impl Stored {
    /// Reads the key file, if there is one.
    fn read(config: &GatewayConfig) -> Result<Stored, Error> {
        let levels = config.scheduler_priority_levels;
        let file = config.keys_file.as_deref();
        let file = file.map(|path| KeyFile::read(path, levels)).transpose()?;
        Ok(Stored {
            table: Arc::new(file.unwrap_or_default().into()),
            had_changes: Some(false),
        })
    }

    pub(crate) fn of_fleet(table: KeyTable, had_changes: bool) -> Stored {
        Stored {
            table: Arc::new(table),
            had_changes: Some(had_changes),
        }
    }

    /// The store could not be read as yet.
    pub(crate) fn unknown() -> Stored {
        Stored {
            table: Arc::default(),
            had_changes: None,
        }
    }

    /// These keys, and those of the configuration.
    fn keys(&self, config: &GatewayConfig) -> Keys {
        let mut keys = Keys::new(&self.table, config);
        match self.had_changes {
            // Stored keys always win over `open`, also when the last one was revoked.
            Some(true) => keys.require(),
            Some(false) => {}
            None => keys.await_store(),
        }
        keys
    }
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
    if config.open && keys.is_required() {
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

/// Number of requests per tenant that wait for the end of a suspension. They hold no place in a
/// queue of the scheduler, so that a tenant's number is bounded here.
#[derive(Default)]
pub(crate) struct DelayedCounts(Mutex<HashMap<Arc<str>, usize>>);

impl DelayedCounts {
    /// Adds a request of a tenant, unless it has `most` already. The guard removes it again.
    pub(crate) fn join(
        shared: &Arc<Shared>,
        tenant: &Arc<str>,
        most: usize,
    ) -> Option<DelayedGuard> {
        let mut counts = shared.delayed_counts.0.lock();
        let count = counts.entry(tenant.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(DelayedGuard {
            shared: shared.clone(),
            tenant: tenant.clone(),
        })
    }
}

/// One delayed request. Dropping it decrements the count, however the wait ends.
pub(crate) struct DelayedGuard {
    shared: Arc<Shared>,
    tenant: Arc<str>,
}

impl Drop for DelayedGuard {
    fn drop(&mut self) {
        let mut counts = self.shared.delayed_counts.0.lock();
        if let Some(count) = counts.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.tenant);
            }
        }
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
