//! What an owner can ask of a pool, whoever runs its work.

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::notice::Cancel;
use crate::shell::{Shell, Task};
use headworks_core::{
    Config, ConfigError, Core, FlowView, Key, Pressure, TargetConfig, TargetId, TargetSet,
    TargetState, Ticket, Time, View,
};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// What the pool's tasks share.
pub(crate) struct Inner<P> {
    pub(crate) shell: Shell<P>,
    pub(crate) clock: Clock,
    pub(crate) panics: AtomicU64,
    pub(crate) overruns: AtomicU64,
    pub(crate) wakes: AtomicU64,
}

impl<P> Inner<P> {
    pub(crate) fn new(shell: Shell<P>, clock: Clock) -> Arc<Self> {
        Arc::new(Inner {
            shell,
            clock,
            panics: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        })
    }
}

/// The tasks of a pool, which end with its last handle.
pub(crate) struct Tasks<P> {
    inner: Arc<Inner<P>>,
    pub(crate) tracker: TaskTracker,
    pub(crate) abort: CancellationToken,
}

impl<P> Drop for Tasks<P> {
    fn drop(&mut self) {
        // Nobody keeps time from here on: who still waited would wait for ever.
        let now = self.inner.clock.now();
        self.inner.shell.drain(now);
        self.inner.shell.close(now);
    }
}

/// What a shutdown left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Drained {
    /// Jobs that were still running when the grace period was over, and were dropped.
    pub abandoned: u64,
}

/// A handle on a pool: what [`Pool`](crate::Pool) and [`Permits`](crate::Permits) have in common.
pub struct Controls<P> {
    pub(crate) inner: Arc<Inner<P>>,
    pub(crate) tasks: Arc<Tasks<P>>,
}

impl<P> Clone for Controls<P> {
    fn clone(&self) -> Self {
        Controls {
            inner: self.inner.clone(),
            tasks: self.tasks.clone(),
        }
    }
}

impl<P> Controls<P> {
    pub(crate) fn new(inner: Arc<Inner<P>>) -> Self {
        let tasks = Arc::new(Tasks {
            inner: inner.clone(),
            tracker: TaskTracker::new(),
            abort: CancellationToken::new(),
        });
        Controls { inner, tasks }
    }

    /// Takes a job back, or tells whoever runs it to stop.
    pub fn cancel(&self, ticket: Ticket) -> Cancel {
        self.inner.shell.cancel(self.inner.clock.now(), ticket)
    }

    /// Takes a job back if it has not begun; one that runs is left alone.
    pub fn withdraw(&self, ticket: Ticket) -> Cancel {
        self.inner.shell.withdraw(self.inner.clock.now(), ticket)
    }

    /// The pool's time, to say when a job starts or expires.
    #[must_use]
    pub fn now(&self) -> Time {
        self.inner.clock.now()
    }

    /// Leases nothing until [`resume`](Self::resume). Admission goes on.
    pub fn pause(&self) {
        self.core(|core, _| core.pause());
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.core(|core, _| core.resume());
    }

    /// Takes new settings, without losing a job.
    ///
    /// # Errors
    /// The first setting that cannot work or be changed; then nothing has changed.
    pub fn reconfigure(&self, config: Config) -> Result<(), ConfigError> {
        self.core(|core, now| core.reconfigure(now, config))
    }

    /// The settings in force.
    #[must_use]
    pub fn config(&self) -> Config {
        self.core(|core, _| core.config().clone())
    }

    /// Adds a target to a pool at work: a host that was only just discovered. It is part of [`config`](Self::config)
    /// from then on, and a later [`reconfigure`](Self::reconfigure) must name it.
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
        self.core(|core, _| core.find(key))
    }

    /// A picture of the whole.
    #[must_use]
    pub fn inspect(&self) -> View {
        self.core(|core, _| core.inspect())
    }

    /// A picture of every flow that has jobs.
    #[must_use]
    pub fn flows(&self) -> Vec<FlowView> {
        self.core(|core, _| core.flows().collect())
    }

    /// How full the pool is, against its workers' thresholds, once `more` jobs wait that somebody is about to hand in. It
    /// waits for nobody.
    #[must_use]
    pub fn pressure(&self, more: u64) -> Pressure {
        self.inner.shell.pressure(more)
    }

    /// What the pool looks like in numbers.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics {
            view: self.inspect(),
            workers: self.inner.shell.workers(),
            panics: self.inner.panics.load(Ordering::Relaxed),
            overruns: self.inner.overruns.load(Ordering::Relaxed),
            wakes: self.inner.wakes.load(Ordering::Relaxed),
        }
    }

    /// Waits until nothing runs, waits or is delayed.
    pub async fn idle(&self) {
        poll_fn(
            |context| match self.inner.shell.poll_drained(context.waker()) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            },
        )
        .await;
    }

    /// Ends the pool.
    pub(crate) async fn end(&self, grace: Duration) -> Drained {
        let shell = &self.inner.shell;
        shell.drain(self.inner.clock.now());
        let in_time = tokio::time::timeout(grace, self.idle()).await.is_ok();
        let abandoned = if in_time { 0 } else { shell.running() };
        shell.stop_running();
        shell.close(self.inner.clock.now());
        self.tasks.tracker.close();
        if !in_time {
            // A handler that listens to its token may still end by itself.
            let _ = tokio::time::timeout(grace / 10, self.tasks.tracker.wait()).await;
            self.tasks.abort.cancel();
        }
        self.tasks.tracker.wait().await;
        Drained { abandoned }
    }

    fn core<R>(&self, what: impl FnOnce(&mut Core<Task<P>>, Time) -> R) -> R {
        let now = self.inner.clock.now();
        self.inner.shell.core(now, |core| what(core, now))
    }
}
