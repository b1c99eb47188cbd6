//! A handle on a pool, and the parts that all handles share.
//!
//! All handles of a pool share the driver, the clock and the pool's tasks; the last of them to be
//! dropped drains the pool and lets its tasks end. Every method takes the lock for a few core calls
//! at most, so any of them may be called from async code. None may be called from inside the
//! driver.

use crate::clock::{Clock, spread};
use crate::driver::{Driver, Message, Task, WaiterId};
use crate::metrics::Metrics;
use crate::notice::{Cancel, EndReason};
use headworks_core::shares::Observed;
use headworks_core::{
    Config, ConfigError, Core, Flow, FlowView, Job, Key, LocalLimits, Pressure, Refused,
    TargetConfig, TargetId, TargetSet, TargetState, Ticket, Time, View,
};
use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// State shared by the pool's tasks and handles.
pub(crate) struct Shared<P> {
    pub(crate) driver: Driver<P>,
    pub(crate) clock: Clock,
    pub(crate) panics: AtomicU64,
    pub(crate) overruns: AtomicU64,
    pub(crate) wakes: AtomicU64,
}

impl<P> Shared<P> {
    pub(crate) fn new(driver: Driver<P>, clock: Clock) -> Arc<Self> {
        Arc::new(Shared {
            driver,
            clock,
            panics: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        })
    }

    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value: boxing it would allocate"
    )]
    pub(crate) fn submit(
        &self,
        job: Job<P>,
        watcher: Option<oneshot::Sender<EndReason>>,
    ) -> Result<Ticket, Refused<P>> {
        let answer = self.driver.submit(self.clock.now(), job, watcher);
        answer.map_err(|mut refused| {
            refused.retry_after = refused.retry_after.map(spread);
            refused
        })
    }
}

/// The tasks of a pool, which end with its last handle.
pub(crate) struct Tasks<P> {
    shared: Arc<Shared<P>>,
    pub(crate) tracker: TaskTracker,
    pub(crate) abort: CancellationToken,
}

impl<P> Drop for Tasks<P> {
    fn drop(&mut self) {
        // Nobody keeps time from here on: a caller that still waited would wait for ever.
        let now = self.shared.clock.now();
        self.shared.driver.drain(now);
        self.shared.driver.close(now);
    }
}

/// The result of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Jobs that were still running when the grace period was over, and were dropped.
    pub abandoned: u64,
}

/// A handle on a pool that submits nothing: it watches, cancels and configures.
/// [`Pool`](crate::Pool) and [`Permits`](crate::Permits) have all of its methods.
///
/// ```
/// use headworks_pool::{Config, Job, Permits, TargetId, TargetState, Time};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let permits = Permits::new(Config::default())?;
/// let handle = permits.handle(); // for an operator's console
/// handle.set_target(TargetId::new(0), TargetState::Suspended { until: Time::MAX });
/// let waits = permits.acquire(Job::new(()));
/// assert_eq!(handle.waiting_at(TargetId::new(0)), 1);
/// handle.set_target(TargetId::new(0), TargetState::Active);
/// assert!(waits.await.is_ok());
/// # Ok(())
/// # }
/// ```
pub struct PoolHandle<P> {
    pub(crate) shared: Arc<Shared<P>>,
    pub(crate) tasks: Arc<Tasks<P>>,
}

impl<P> Clone for PoolHandle<P> {
    fn clone(&self) -> Self {
        PoolHandle {
            shared: self.shared.clone(),
            tasks: self.tasks.clone(),
        }
    }
}

impl<P> fmt::Debug for PoolHandle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let view = self.inspect();
        f.debug_struct("PoolHandle")
            .field("waiting", &view.waiting)
            .field("delayed", &view.delayed)
            .field("running", &view.running)
            .finish_non_exhaustive()
    }
}

/// Waits for one message, and leaves no waiter behind if it is dropped.
struct DrainWaiter<'a, P> {
    shared: &'a Shared<P>,
    waiter: WaiterId,
}

impl<P> Drop for DrainWaiter<'_, P> {
    fn drop(&mut self) {
        self.shared.driver.remove_waiter(self.waiter);
    }
}

impl<P> PoolHandle<P> {
    pub(crate) fn new(shared: Arc<Shared<P>>) -> Self {
        let tasks = Arc::new(Tasks {
            shared: shared.clone(),
            tracker: TaskTracker::new(),
            abort: CancellationToken::new(),
        });
        PoolHandle { shared, tasks }
    }

    /// Cancels a job: it is taken back, or its runner is told to stop.
    pub fn cancel(&self, ticket: Ticket) -> Cancel {
        self.shared.driver.cancel(self.shared.clock.now(), ticket)
    }

    /// Takes a job back if it has not begun; one that runs is left alone.
    pub fn withdraw(&self, ticket: Ticket) -> Cancel {
        self.shared.driver.withdraw(self.shared.clock.now(), ticket)
    }

    /// The pool's time, for [`Job::start_at`](headworks_core::Job::start_at) and
    /// [`Job::expire_at`](headworks_core::Job::expire_at).
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared.clock.now()
    }

    /// Leases nothing until [`resume`](Self::resume). Admission goes on.
    pub fn pause(&self) {
        self.core(|core, _| core.pause());
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.core(|core, _| core.resume());
    }

    /// Applies new settings, without losing a job.
    ///
    /// # Errors
    /// The first setting that cannot work or be changed; then nothing has changed.
    pub fn reconfigure(&self, config: Config) -> Result<(), ConfigError> {
        self.core(|core, now| core.reconfigure(now, config))
    }

    /// The demand and the running jobs, as a node of a fleet reports them.
    #[must_use]
    pub fn observe(&self) -> Observed {
        self.shared.driver.read(Observed::of)
    }

    /// Replaces the limits and weights in force, without rebuilding the settings. They outlive
    /// [`reconfigure`](Self::reconfigure).
    ///
    /// ```
    /// use headworks_pool::{Config, Job, LocalLimits, LocalShare, Permits};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let permits = Permits::new(Config::default())?;
    /// let one = LocalShare { concurrent: Some(1), ..LocalShare::default() };
    /// permits.set_limits(LocalLimits { all: one, ..LocalLimits::default() });
    /// let _running = permits.acquire(Job::new(())).await?;
    /// assert!(permits.try_acquire(Job::new(())).is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_limits(&self, limits: LocalLimits) {
        self.core(|core, now| core.set_limits(now, limits));
    }

    /// The limits and weights that replace the configured ones.
    #[must_use]
    pub fn local_limits(&self) -> LocalLimits {
        self.shared.driver.read(|core| core.local_limits().clone())
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> Config {
        self.shared.driver.read(|core| core.config().clone())
    }

    /// Adds a target to a pool at work: a host that was only just discovered. It is part of
    /// [`config`](Self::config) from then on, and a later [`reconfigure`](Self::reconfigure) must
    /// name it.
    ///
    /// # Errors
    /// If one of its settings cannot work; then nothing has changed.
    pub fn add_target(&self, target: TargetConfig) -> Result<TargetId, ConfigError> {
        self.core(|core, now| core.add_target(now, target))
    }

    /// The set of these targets, for [`Job::targets`](headworks_core::Job::targets).
    ///
    /// # Errors
    /// If it is empty, too large, or names a target that does not exist.
    pub fn targets(&self, targets: &[TargetId]) -> Result<TargetSet, ConfigError> {
        self.core(|core, _| core.targets(targets))
    }

    /// Puts a target into a state.
    pub fn set_target(&self, target: TargetId, state: TargetState) {
        self.core(|core, now| core.set_target(now, target, state));
    }

    /// The live job with that key.
    #[must_use]
    pub fn find(&self, key: Key) -> Option<Ticket> {
        self.shared.driver.read(|core| core.find(key))
    }

    /// A picture of the whole.
    #[must_use]
    pub fn inspect(&self) -> View {
        self.shared.driver.read(Core::inspect)
    }

    /// A picture of every flow that has jobs.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowView> {
        self.shared.driver.read(|core| core.flows().collect())
    }

    /// A picture of a flow that has jobs, or is remembered.
    #[must_use]
    pub fn flow(&self, flow: Flow) -> Option<FlowView> {
        self.shared.driver.read(|core| core.flow(flow))
    }

    /// Jobs waiting that a target may serve, alone or among others.
    #[must_use]
    pub fn waiting_at(&self, target: TargetId) -> u64 {
        self.shared.driver.read(|core| core.waiting_at(target))
    }

    /// How full the pool is, against its workers' thresholds, once `more` jobs wait that somebody
    /// is about to submit. Takes no lock.
    #[must_use]
    pub fn pressure(&self, more: u64) -> Pressure {
        self.shared.driver.pressure(more)
    }

    /// The pool in numbers.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics {
            view: self.inspect(),
            workers: self.shared.driver.workers(),
            panics: self.shared.panics.load(Ordering::Relaxed),
            overruns: self.shared.overruns.load(Ordering::Relaxed),
            wakes: self.shared.wakes.load(Ordering::Relaxed),
        }
    }

    /// Waits until nothing runs, waits or is delayed.
    pub async fn idle(&self) {
        // Asked again after each message: a job may have been submitted since.
        while let Some(waiter) = self.shared.driver.wait_until_drained() {
            let watch = DrainWaiter {
                shared: &self.shared,
                waiter,
            };
            let drained = poll_fn(|context| {
                let message = watch.shared.driver.poll_waiter(waiter, context.waker());
                message.map_or(Poll::Pending, Poll::Ready)
            });
            if let Message::Drained = drained.await {
                return;
            }
        }
    }

    /// Ends the pool.
    pub(crate) async fn end(&self, grace: Duration) -> Drained {
        let Shared { driver, clock, .. } = &*self.shared;
        driver.drain(clock.now());
        let in_time = tokio::time::timeout(grace, self.idle()).await.is_ok();
        let abandoned = if in_time { 0 } else { driver.running() };
        driver.stop_running(clock.now());
        driver.close(clock.now());
        self.tasks.tracker.close();
        if !in_time {
            // A handler that listens to its token may still end by itself.
            let _ = tokio::time::timeout(grace / 10, self.tasks.tracker.wait()).await;
            // Handlers that ignore their tokens are dropped; their jobs are reclaimed as their
            // workers go.
            self.tasks.abort.cancel();
        }
        self.tasks.tracker.wait().await;
        Drained { abandoned }
    }

    fn core<R>(&self, what: impl FnOnce(&mut Core<Task<P>>, Time) -> R) -> R {
        let now = self.shared.clock.now();
        self.shared.driver.core(now, |core| what(core, now))
    }
}

/// Gives a type that has a `handle` the methods of [`PoolHandle`].
macro_rules! forward_to_handle {
    ($($(#[$meta:meta])* fn $name:ident(&self $(, $arg:ident: $type:ty)*) $(-> $returns:ty)?;)*) => {
        $(
            $(#[$meta])*
            #[doc = concat!("See [`PoolHandle::", stringify!($name), "`](crate::PoolHandle::", stringify!($name), ").")]
            pub fn $name(&self $(, $arg: $type)*) $(-> $returns)? {
                self.handle.$name($($arg),*)
            }
        )*

        /// Waits until nothing runs, waits or is delayed.
        pub async fn idle(&self) {
            self.handle.idle().await;
        }
    };
    (all) => {
        $crate::handle::forward_to_handle! {
            fn cancel(&self, ticket: headworks_core::Ticket) -> $crate::Cancel;
            fn withdraw(&self, ticket: headworks_core::Ticket) -> $crate::Cancel;
            #[must_use]
            fn now(&self) -> headworks_core::Time;
            fn pause(&self);
            fn resume(&self);
            #[doc = "Applies new settings.\n\n# Errors\nThe first setting that cannot work or be changed; then nothing has changed.\n\n"]
            fn reconfigure(&self, config: headworks_core::Config) -> Result<(), headworks_core::ConfigError>;
            #[must_use]
            fn observe(&self) -> headworks_core::shares::Observed;
            fn set_limits(&self, limits: headworks_core::LocalLimits);
            #[must_use]
            fn local_limits(&self) -> headworks_core::LocalLimits;
            #[must_use]
            fn config(&self) -> headworks_core::Config;
            #[doc = "Adds a target.\n\n# Errors\nIf one of its settings cannot work; then nothing has changed.\n\n"]
            fn add_target(&self, target: headworks_core::TargetConfig) -> Result<headworks_core::TargetId, headworks_core::ConfigError>;
            #[doc = "The set of these targets.\n\n# Errors\nIf it is empty, too large, or names a target that does not exist.\n\n"]
            fn targets(&self, targets: &[headworks_core::TargetId]) -> Result<headworks_core::TargetSet, headworks_core::ConfigError>;
            fn set_target(&self, target: headworks_core::TargetId, state: headworks_core::TargetState);
            #[must_use]
            fn find(&self, key: headworks_core::Key) -> Option<headworks_core::Ticket>;
            #[must_use]
            fn inspect(&self) -> headworks_core::View;
            #[must_use]
            fn flows(&self) -> Vec<headworks_core::FlowView>;
            #[must_use]
            fn flow(&self, flow: headworks_core::Flow) -> Option<headworks_core::FlowView>;
            #[must_use]
            fn waiting_at(&self, target: headworks_core::TargetId) -> u64;
            #[must_use]
            fn pressure(&self, more: u64) -> headworks_core::Pressure;
            #[must_use]
            fn metrics(&self) -> $crate::Metrics;
        }
    };
}
pub(crate) use forward_to_handle;
