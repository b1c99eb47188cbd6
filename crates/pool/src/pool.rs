//! The pool: a core, its workers and its timer, under tokio.
//!
//! All tasks of a pool are tracked and end with its last handle. The timer task is the only one
//! that sleeps; it wakes when the core or the scaler has something to do, and at no other time.
//! After the start it alone adds and stops workers, so their number never races with itself.

use crate::clock::Clock;
use crate::driver::{Driver, Runners, Timer, Workers};
use crate::handle::{Drained, PoolHandle, Shared, forward_to_handle};
use crate::job_handle::JobHandle;
use crate::worker::{Handler, Worker};
use headworks_core::{Config, ConfigError, Job, Refused, Scale, Ticket};
use std::fmt;
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A pool of workers. Clones are handles on the same one; when the last is dropped, jobs that wait
/// are handed back ([`EndReason::Returned`](crate::EndReason::Returned)) and the workers leave once
/// they have finished what they run.
pub struct Pool<P> {
    handle: PoolHandle<P>,
}

impl<P> Clone for Pool<P> {
    fn clone(&self) -> Self {
        Pool {
            handle: self.handle.clone(),
        }
    }
}

impl<P> fmt::Debug for Pool<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Pool").field(&self.handle).finish()
    }
}

impl<P> Pool<P> {
    forward_to_handle!(all);

    /// A handle that watches, cancels and configures, but submits nothing.
    #[must_use]
    pub fn handle(&self) -> PoolHandle<P> {
        self.handle.clone()
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
        let workers = workers.at_least_one();
        let clock = Clock::new();
        let listener = {
            let handler = handler.clone();
            move |notice: crate::Notice<P>| handler.notice(notice.jittered())
        };
        let listener = Box::new(listener);
        let driver = Driver::new(config, clock.now(), Runners::Workers, workers, listener)?;
        let handle = PoolHandle::new(Shared::new(driver, clock));
        let set = WorkerSet {
            shared: handle.shared.clone(),
            handler,
            tracker: handle.tasks.tracker.clone(),
            abort: handle.tasks.abort.clone(),
        };
        // Before the first submit, so that the first job does not wait for the scaler.
        for _ in 0..workers.base {
            set.spawn_worker();
        }
        handle.tasks.tracker.spawn(set.keep_time());
        Ok(Pool { handle })
    }

    /// Submits work for the workers. Answers at once, with the core's own verdict.
    ///
    /// # Errors
    /// The refusal, with the job.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value: boxing it would allocate"
    )]
    pub fn submit(&self, job: Job<P>) -> Result<Ticket, Refused<P>> {
        self.handle.shared.submit(job, None)
    }

    /// Submits work that somebody waits for.
    ///
    /// ```
    /// # use headworks_pool::{Config, EndReason, Handler, Job, Pool, Report, Run, Workers};
    /// # struct Nothing;
    /// # impl Handler<u32> for Nothing {
    /// #     async fn run(&self, _run: &mut Run<'_, u32>) -> Report { Report::done() }
    /// # }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = Pool::new(Config::default(), Workers::new(1, 1), Nothing)?;
    /// let job = pool.spawn(Job::new(7))?;
    /// assert_eq!(job.await, EndReason::Done);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The refusal, with the job.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value: boxing it would allocate"
    )]
    pub fn spawn(&self, job: Job<P>) -> Result<JobHandle<P>, Refused<P>> {
        let (watcher, ended) = oneshot::channel();
        let ticket = self.handle.shared.submit(job, Some(watcher))?;
        Ok(JobHandle {
            ticket,
            ended,
            handle: self.handle.clone(),
        })
    }

    /// Applies new numbers of workers. Workers missing below the base start at once; all others
    /// start and stop at the scaler's pace.
    pub fn set_workers(&self, workers: Workers) {
        let Shared { driver, clock, .. } = &*self.handle.shared;
        driver.set_workers(clock.now(), workers.at_least_one());
    }

    /// Ends the pool: nothing more is admitted, jobs that wait are handed back
    /// ([`EndReason::Returned`](crate::EndReason::Returned)), those that run may finish within the
    /// grace period, are told to stop after it, and then dropped.
    ///
    /// A handler is dropped where it awaits. One that blocks its thread is waited for, because no
    /// program can stop a thread; run such work in `tokio::task::spawn_blocking`.
    pub async fn shutdown(self, grace: Duration) -> Drained {
        self.handle.end(grace).await
    }
}

/// Ends the pool if its timer task is dropped, as it is when its runtime ends: without it, callers
/// on other runtimes would wait for ever.
struct TimerGuard<P>(Arc<Shared<P>>);

impl<P> Drop for TimerGuard<P> {
    fn drop(&mut self) {
        let now = self.0.clock.now();
        self.0.driver.drain(now);
        self.0.driver.close(now);
    }
}

/// Sleeps until the core or the scaler wants to be called, and no longer.
pub(crate) fn keep_time<P>(
    shared: Arc<Shared<P>>,
    scale: impl Fn(Scale),
) -> impl Future<Output = ()> {
    let guard = TimerGuard(shared);
    let mut sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
    poll_fn(move |context| {
        let shared = &guard.0;
        shared.wakes.fetch_add(1, Ordering::Relaxed);
        loop {
            let polled = (shared.driver).poll_timer(shared.clock.now(), context.waker());
            let at = match polled {
                Timer::Leave => return Poll::Ready(()),
                Timer::At { at, scale: wish } => {
                    scale(wish);
                    at
                }
            };
            // Nothing to wait for: the driver wakes this task when that changes, and an idle pool
            // sleeps for good.
            let Some(at) = at else { return Poll::Pending };
            sleep.as_mut().reset(shared.clock.instant(at));
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    })
}

/// Starts and stops workers.
struct WorkerSet<P, H> {
    shared: Arc<Shared<P>>,
    handler: Arc<H>,
    tracker: TaskTracker,
    abort: CancellationToken,
}

impl<P: Send + 'static, H: Handler<P>> WorkerSet<P, H> {
    fn spawn_worker(&self) {
        let worker = Worker::new(self.shared.clone(), self.handler.clone());
        let abort = self.abort.clone();
        let life = async move { abort.run_until_cancelled(worker.work()).await };
        self.tracker.spawn(life);
    }

    fn keep_time(self) -> impl Future<Output = ()> {
        keep_time(self.shared.clone(), move |scale| match scale {
            Scale::Up => self.spawn_worker(),
            Scale::Down => {
                self.shared.driver.stop_idle_worker(self.shared.clock.now());
            }
            Scale::Hold => {}
        })
    }
}
