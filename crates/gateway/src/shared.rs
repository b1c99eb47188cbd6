//! What every part of a running gateway shares.

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

/// What every part shares. The pool owns what is scheduled; everything here is beside it.
pub(crate) struct Shared {
    pub(crate) permits: Permits,
    pub(crate) plan: ArcSwap<Plan>,
    roster: Mutex<Roster>,
    learned: Mutex<Learned>,
    /// Held for as long as the scheduler is told of new settings, so that they reach it in order.
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
    /// A new configuration is in force.
    pub(crate) changed: Notify,
    /// A minute and the calendar day that it is in.
    day: Mutex<(i64, u32)>,
}

/// What was in force before a reload.
pub(crate) struct Before {
    plan: Arc<Plan>,
    overlay: Overlay,
}

impl Shared {
    pub(crate) fn new(
        config: &Arc<GatewayConfig>,
        outbound: Outbound,
    ) -> Result<Arc<Shared>, Error> {
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

    /// Puts a new configuration in force, and says what was before. A bad one changes nothing.
    ///
    /// `address` is where the gateway listens, whatever the new configuration says.
    pub(crate) fn apply(
        &self,
        config: Arc<GatewayConfig>,
        address: SocketAddr,
    ) -> Result<Before, Error> {
        let keys = self.next_keys(&config)?;
        not_exposed(&config, &keys, address)?;
        warn_about_keys(&config, &keys);
        let plan = Plan::new(config, keys, &mut self.roster.lock());
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

    /// The keys of a new configuration. A reload never stops a gateway that requires keys from
    /// requiring them: otherwise, revoking the last key would admit everybody.
    fn next_keys(&self, config: &GatewayConfig) -> Result<Keys, Error> {
        let before = self.plan.load();
        // The default file of keys is no longer found once it is deleted.
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

    /// Puts back what was in force before, with what had been changed by hand.
    pub(crate) fn put_back(&self, before: Before) {
        let mut overlay = self.overlay.lock();
        *overlay = before.overlay;
        self.plan.store(before.plan);
        drop(overlay);
        self.refresh();
        self.look_again();
    }

    /// Has what depends on the configuration found out anew.
    fn look_again(&self) {
        self.day.lock().0 = i64::MIN;
        self.changed.notify_one();
    }

    /// What the scheduler is told now, with `overlay` over what is configured.
    pub(crate) fn scheduling(&self, overlay: &Overlay) -> Config {
        let learned = self.learned.lock();
        let plan = self.plan.load();
        let mut scheduling = plan.scheduling(Timestamp::now(), &self.seed, &learned);
        overlay.lay(&mut scheduling);
        scheduling
    }

    /// What was changed by hand.
    pub(crate) fn overlay(&self) -> Overlay {
        self.overlay.lock().clone()
    }

    /// Changes settings by hand, until the next reload.
    pub(crate) fn lay_over(&self, overlay: Overlay) -> Result<(), ConfigError> {
        let mut held = self.overlay.lock();
        self.permits.reconfigure(self.scheduling(&overlay))?;
        *held = overlay;
        Ok(())
    }

    /// Tells the scheduler what holds now: a rule began or ended, or a rate was learned.
    pub(crate) fn refresh(&self) {
        let overlay = self.overlay.lock();
        if let Err(error) = self.permits.reconfigure(self.scheduling(&overlay)) {
            tracing::error!(%error, "the scheduler keeps its settings");
        }
    }

    /// Takes in what an upstream's answer told about its limits.
    pub(crate) fn hear(&self, upstream: &Upstream, hints: &Hints) {
        let moved =
            self.learned
                .lock()
                .hear(upstream.target, &upstream.settings, hints, Instant::now());
        if moved {
            self.refresh();
        }
    }

    /// The calendar day. Days begin on a minute, so it is looked up once in each.
    pub(crate) fn today(&self) -> u32 {
        let now = Timestamp::now();
        let minute = now.as_second() / 60;
        let mut day = self.day.lock();
        if day.0 != minute {
            *day = (minute, times::day(now, &self.plan.load().zone));
        }
        day.1
    }

    /// The set of these targets.
    pub(crate) fn set_of(&self, targets: &[TargetId]) -> Option<TargetSet> {
        match targets {
            [] => None,
            [one] => Some(TargetSet::from(*one)),
            many => self.permits.targets(many).ok(),
        }
    }
}

/// All keys: those of the configuration and those of the file.
fn read_keys(config: &GatewayConfig) -> Result<Keys, Error> {
    let levels = config.scheduler_priority_levels;
    let file = config.keys_file.as_deref();
    let file = file.map(|path| KeyFile::read(path, levels)).transpose()?;
    let in_file = file.iter().flat_map(|file| &file.key);
    Ok(Keys::new(config.key.iter().chain(in_file), config))
}

/// Refuses to serve everybody beyond this machine.
fn not_exposed(config: &GatewayConfig, keys: &Keys, address: SocketAddr) -> Result<(), Error> {
    let mut addresses = [address, config.listen].into_iter();
    match addresses.find(|address| keys.are_open() && !is_loopback(*address)) {
        Some(address) => Err(Error::Exposed(address)),
        None => Ok(()),
    }
}

/// Warns of keys that may not be what the operator meant.
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

/// How many wait in each class, to tell an arrival its position without asking the pool.
pub(crate) struct Waiting {
    now: [AtomicU32; MAX_CLASSES],
    /// Requests that had to wait, ever.
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
    /// Joins those who wait; the guard leaves them. The second is how many were there before.
    pub(crate) fn join(shared: &Arc<Shared>, class: Class) -> (WaitingGuard, u32) {
        shared.waiting.ever.fetch_add(1, Ordering::Relaxed);
        let before = shared.waiting.now[usize::from(class.0)].fetch_add(1, Ordering::Relaxed);
        let guard = WaitingGuard {
            shared: shared.clone(),
            class,
        };
        (guard, before)
    }

    /// Requests that had to wait since the start.
    pub(crate) fn ever(&self) -> u64 {
        self.ever.load(Ordering::Relaxed)
    }
}

/// One who waits.
pub(crate) struct WaitingGuard {
    shared: Arc<Shared>,
    class: Class,
}

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.shared.waiting.now[usize::from(self.class.0)].fetch_sub(1, Ordering::Relaxed);
    }
}
