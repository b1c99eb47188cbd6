//! The pool: a core, its workers and its timer, under tokio.

use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::notice::Denied;
use crate::permit::Acquire;
use crate::shell::{Shell, Timer, Workers};
use crate::worker::{Handler, Run, Worker};
use crate::{Notice, Report};
use headworks_core::{
    Config, ConfigError, FlowView, Job, Key, Pressure, Refused, Scale, TargetConfig, TargetId,
    TargetSet, TargetState, Ticket, Time, View,
};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use tokio_util::task::TaskTracker;

/// What the pool's tasks share.
pub(crate) struct Inner<P> {
    pub(crate) shell: Shell<P>,
    pub(crate) clock: Clock,
    pub(crate) panics: AtomicU64,
    pub(crate) overruns: AtomicU64,
    pub(crate) wakes: AtomicU64,
}

/// A pool. Clones are handles on the same one; when the last is dropped, what waits is handed back
/// ([`How::Returned`](crate::How::Returned)) and the workers leave once they have finished what they run.
pub struct Pool<P> {
    inner: Arc<Inner<P>>,
    tasks: Arc<Tasks<P>>,
}

impl<P> Clone for Pool<P> {
    fn clone(&self) -> Self {
        Pool {
            inner: self.inner.clone(),
            tasks: self.tasks.clone(),
        }
    }
}

struct Tasks<P> {
    inner: Arc<Inner<P>>,
    tracker: TaskTracker,
    abort: tokio_util::sync::CancellationToken,
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

/// For pools that only give out permits.
struct CallersOnly;

impl<P: Send + 'static> Handler<P> for CallersOnly {
    async fn run(&self, _run: &mut Run<'_, P>) -> Report {
        Report::failed()
    }
}

impl Pool<()> {
    /// A pool without workers: it gives out permits to [callers](Pool::acquire).
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn permits(config: Config) -> Result<Self, ConfigError> {
        Pool::new(config, Workers::new(0, 0), CallersOnly)
    }
}

impl<P: Send + 'static> Pool<P> {
    /// Starts a pool on the current tokio runtime.
    ///
    /// # Errors
    /// The first setting that cannot work.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn new(
        config: Config,
        workers: Workers,
        handler: impl Handler<P>,
    ) -> Result<Self, ConfigError> {
        let handler = Arc::new(handler);
        let listener = {
            let handler = handler.clone();
            move |notice: Notice<P>| handler.notice(notice)
        };
        let clock = Clock::new();
        let inner = Arc::new(Inner {
            shell: Shell::new(config, clock.now(), workers, Box::new(listener))?,
            clock,
            panics: AtomicU64::new(0),
            overruns: AtomicU64::new(0),
            wakes: AtomicU64::new(0),
        });
        let tracker = TaskTracker::new();
        let abort = tokio_util::sync::CancellationToken::new();
        let crew = Crew {
            inner: inner.clone(),
            handler,
            tracker: tracker.clone(),
            abort: abort.clone(),
        };
        for _ in 0..workers.base {
            crew.hire();
        }
        tracker.spawn(crew.keep_time());
        let tasks = Arc::new(Tasks {
            inner: inner.clone(),
            tracker,
            abort,
        });
        Ok(Pool { inner, tasks })
    }

    /// Hands in work for the workers. Answers at once, with the core's own verdict.
    ///
    /// # Errors
    /// The refusal, with the job.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value: boxing it would allocate"
    )]
    pub fn submit(&self, job: Job<P>) -> Result<Ticket, Refused<P>> {
        self.inner.shell.submit(self.inner.clock.now(), job)
    }

    /// Waits for leave to run a job oneself. The answer names the target.
    pub fn acquire(&self, job: Job<()>) -> Acquire<P> {
        let entered = self.inner.shell.enter(self.inner.clock.now(), job);
        Acquire::new(self.inner.clone(), entered)
    }

    /// Leave to run a job oneself, if it may run at once. It costs nobody else a place: where the queue is full, it is
    /// denied.
    ///
    /// # Errors
    /// The refusal; or, if it would have to wait, [`Denied::Ended`] with [`How::Cancelled`](crate::How::Cancelled).
    pub fn try_acquire(&self, job: Job<()>) -> Result<crate::Permit<P>, Denied> {
        use futures_util::FutureExt;
        let cancelled = Denied::Ended(crate::How::Cancelled);
        let now = self.inner.clock.now();
        let entered = self.inner.shell.enter_without_waiting(now, job);
        let acquire = Acquire::new(self.inner.clone(), entered);
        acquire.now_or_never().unwrap_or(Err(cancelled))
    }

    /// Takes a job back, or tells its handler to stop. `false` if it had ended.
    pub fn cancel(&self, ticket: Ticket) -> bool {
        self.inner.shell.cancel(self.inner.clock.now(), ticket)
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

    /// Takes new numbers of workers; they come and go at the scaler's pace.
    pub fn set_workers(&self, workers: Workers) {
        self.inner
            .shell
            .set_workers(self.inner.clock.now(), workers);
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

    /// The set of these targets, for [`Job::targets`].
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

    /// How full the pool is, against its workers' thresholds.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        self.inner.shell.pressure()
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

    /// Ends the pool: nothing more is admitted, what waits is handed back ([`How::Returned`](crate::How::Returned)),
    /// what runs may finish within the grace period and is told to stop after it, then dropped.
    pub async fn shutdown(self, grace: Duration) -> Drained {
        let shell = &self.inner.shell;
        shell.drain(self.inner.clock.now());
        let drained = poll_fn(|context| match shell.poll_drained(context.waker()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        let in_time = tokio::time::timeout(grace, drained).await.is_ok();
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

    fn core<R>(
        &self,
        what: impl FnOnce(&mut headworks_core::Core<crate::shell::Task<P>>, Time) -> R,
    ) -> R {
        let now = self.inner.clock.now();
        self.inner.shell.core(now, |core| what(core, now))
    }
}

/// The workers and the task that keeps time for all.
struct Crew<P, H> {
    inner: Arc<Inner<P>>,
    handler: Arc<H>,
    tracker: TaskTracker,
    abort: tokio_util::sync::CancellationToken,
}

impl<P: Send + 'static, H: Handler<P>> Crew<P, H> {
    fn hire(&self) {
        let worker = Worker::new(self.inner.clone(), self.handler.clone());
        let abort = self.abort.clone();
        self.tracker
            .spawn(async move { abort.run_until_cancelled(worker.work()).await });
    }

    /// Sleeps until the core or the scaler wants to be called, and no longer.
    fn keep_time(self) -> impl Future<Output = ()> {
        let mut sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
        poll_fn(move |context| {
            self.inner.wakes.fetch_add(1, Ordering::Relaxed);
            loop {
                let now = self.inner.clock.now();
                let (at, scale) = match self.inner.shell.poll_timer(now, context.waker()) {
                    Timer::Leave => return Poll::Ready(()),
                    Timer::At { at, scale } => (at, scale),
                };
                match scale {
                    Scale::Up => self.hire(),
                    Scale::Down => {
                        self.inner.shell.dismiss_idle(now);
                    }
                    Scale::Hold => {}
                }
                let Some(at) = at else { return Poll::Pending };
                sleep.as_mut().reset(self.inner.clock.instant(at));
                if sleep.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
            }
        })
    }
}
