//! Permits: for callers that run the work themselves, as a proxy does.

use crate::clock::Clock;
use crate::controls::{Controls, Drained, Inner};
use crate::notice::Denied;
use crate::permit::{Acquire, Permit};
use crate::pool::keep_time;
use crate::shell::{Shell, Workers};
use futures_util::FutureExt;
use headworks_core::{Config, ConfigError, Job};
use std::convert::Infallible;
use std::ops::Deref;
use std::time::Duration;

/// Gives out leave to run jobs. Clones are handles on the same one; when the last is dropped, those who wait are told
/// ([`How::Returned`](crate::How::Returned)).
///
/// ```
/// use headworks_core::{Class, Config, Job, Limits};
/// use headworks_pool::{Permits, Report};
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
#[derive(Clone)]
pub struct Permits(Controls<Infallible>);

impl Deref for Permits {
    type Target = Controls<Infallible>;

    fn deref(&self) -> &Controls<Infallible> {
        &self.0
    }
}

impl Permits {
    /// Starts on the current tokio runtime.
    ///
    /// # Errors
    /// The first setting that cannot work.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(config: Config) -> Result<Self, ConfigError> {
        let clock = Clock::new();
        let shell = Shell::new(config, clock.now(), Workers::none(), Box::new(|_| {}))?;
        let controls = Controls::new(Inner::new(shell, clock));
        let timer = keep_time(controls.inner.clone(), |_| {});
        controls.tasks.tracker.spawn(timer);
        Ok(Permits(controls))
    }

    /// Waits for leave to run a job. The answer names the target.
    pub fn acquire(&self, job: Job<()>) -> Acquire {
        let entered = self.inner.shell.enter(self.inner.clock.now(), job);
        Acquire::new(self.inner.clone(), entered)
    }

    /// Leave to run a job, if it may run at once. It costs nobody else a place: where the queue is full, it is denied.
    ///
    /// # Errors
    /// The refusal, or [`Denied::WouldWait`].
    pub fn try_acquire(&self, job: Job<()>) -> Result<Permit, Denied> {
        let now = self.inner.clock.now();
        let entered = self.inner.shell.enter_without_waiting(now, job);
        let acquire = Acquire::new(self.inner.clone(), entered);
        acquire.now_or_never().unwrap_or(Err(Denied::WouldWait))
    }

    /// Ends it: nothing more is admitted, those who wait are told, and permits that are out may be given back within the
    /// grace period.
    pub async fn shutdown(self, grace: Duration) -> Drained {
        self.end(grace).await
    }
}
