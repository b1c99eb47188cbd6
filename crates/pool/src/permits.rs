//! Permits: for callers that run the work themselves, as a proxy does.
//!
//! There are no workers here: a job is granted as soon as the core allows it, because its caller
//! waits for it already. Callers own their work; the pool owns the order and the limits.

use crate::clock::Clock;
use crate::driver::{Driver, Runners, Workers};
use crate::handle::{Drained, PoolHandle, Shared, forward_to_handle};
use crate::notice::Denied;
use crate::permit::{Acquire, Permit};
use crate::pool::keep_time;
use headworks_core::{Config, ConfigError, Job};
use std::convert::Infallible;
use std::time::Duration;

/// Gives out permits to run jobs. Clones are handles on the same one; when the last is dropped,
/// callers that wait are told ([`EndReason::Returned`](crate::EndReason::Returned)).
///
/// ```
/// use headworks_pool::{Class, Config, Job, Limits, Permits, Report};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits { concurrent: Some(50), ..Limits::default() };
/// let permits = Permits::new(Config { limits, ..Config::default() })?;
/// let permit = permits.acquire(Job::new(()).class(Class(3))).await?;
/// // … run it on permit.target() …
/// permit.finish(Report::done());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Permits {
    handle: PoolHandle<Infallible>,
}

impl Permits {
    forward_to_handle!(all);

    /// A handle that watches, cancels and configures, but acquires nothing.
    #[must_use]
    pub fn handle(&self) -> PoolHandle<Infallible> {
        self.handle.clone()
    }

    /// Starts on the current tokio runtime.
    ///
    /// # Errors
    /// The first setting that cannot work.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        Permits::with_clock(config, Clock::new())
    }

    /// Starts with a clock that goes on while the machine is suspended, as limits with an
    /// [end](headworks_core::LocalLimits::until) need. `suspended` tells for how long the machine
    /// has been suspended since some fixed time; it is called whenever the clock is read.
    ///
    /// # Errors
    /// The first setting that cannot work.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn counting_suspension(
        config: Config,
        suspended: fn() -> Duration,
    ) -> Result<Self, ConfigError> {
        Permits::with_clock(config, Clock::counting(suspended))
    }

    fn with_clock(config: Config, clock: Clock) -> Result<Self, ConfigError> {
        let (now, listener) = (clock.now(), Box::new(|_| {}));
        let driver = Driver::new(config, now, Runners::Callers, Workers::none(), listener)?;
        let handle = PoolHandle::new(Shared::new(driver, clock));
        let timer = keep_time(handle.shared.clone(), |_| {});
        handle.tasks.tracker.spawn(timer);
        Ok(Permits { handle })
    }

    /// Waits for permission to run a job. The permit names the target.
    pub fn acquire(&self, job: Job<()>) -> Acquire {
        let shared = self.handle.shared.clone();
        let entered = shared.driver.enter(shared.clock.now(), job);
        Acquire::new(shared, entered)
    }

    /// A permit, if the job may run at once. It costs no other job its place: where the queue is
    /// full, it is denied.
    ///
    /// # Errors
    /// The refusal, or [`Denied::WouldWait`].
    pub fn try_acquire(&self, job: Job<()>) -> Result<Permit, Denied> {
        let shared = &self.handle.shared;
        let entered = shared.driver.try_enter(shared.clock.now(), job);
        entered
            .map(|(waiter, lease)| Permit::new(shared.clone(), waiter, lease))
            .map_err(Denied::jittered)
    }

    /// Ends it: nothing more is admitted, callers that wait are told, and permits that are out may
    /// be given back within the grace period.
    pub async fn shutdown(self, grace: Duration) -> Drained {
        self.handle.end(grace).await
    }
}
