//! Workers: tasks that run a handler, one job at a time.
//!
//! A worker owns its waiter and, while it runs a job, the payload that it lends to the handler. It
//! gives the lease back and takes the next one in a single acquisition of the lock. A panic
//! anywhere in the handler is caught here and is a failed job; a worker that is dropped has its job
//! reclaimed.

use crate::driver::{Message, Task, WaiterId, Work};
use crate::handle::Shared;
use crate::notice::{EndReason, Notice};
use crate::report::Report;
use futures_util::FutureExt;
use headworks_core::{Class, Cost, Flow, Job, Lease, Refused, TargetId, Ticket};
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// Runs the jobs of a pool.
///
/// The payload is lent, not given: it survives a panic, a deadline and a retry, so that a handler
/// can keep the result of the last attempt in it.
///
/// ```
/// use headworks_pool::{Config, EndReason, Handler, Health, Job, Pool, Report, Run, Workers};
/// use std::time::Duration;
///
/// struct Fetch;
///
/// impl Handler<u32> for Fetch {
///     async fn run(&self, run: &mut Run<'_, u32>) -> Report {
///         run.payload += 1; // survives the retry
///         match run.payload {
///             1 => Report::retry_in(Duration::from_millis(1)).target(Health::Fine),
///             _ => Report::done(),
///         }
///     }
///
///     fn deadline(&self, _run: &Run<'_, u32>) -> Option<Duration> {
///         Some(Duration::from_secs(30))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(Config::default(), Workers::new(1, 4), Fetch)?;
/// assert_eq!(pool.spawn(Job::new(0))?.await, EndReason::Done);
/// # Ok(())
/// # }
/// ```
pub trait Handler<P>: Send + Sync + 'static {
    /// Runs one attempt. A panic is a failed job, not a lost worker.
    fn run(&self, run: &mut Run<'_, P>) -> impl Future<Output = Report> + Send;

    /// How long an attempt may take. When that is over, the attempt is dropped and counts as a
    /// failed one.
    fn deadline(&self, _run: &Run<'_, P>) -> Option<Duration> {
        None
    }

    /// Something happened outside [`run`](Self::run). Must not block.
    fn notice(&self, _notice: Notice<P>) {}
}

/// A job that runs.
#[non_exhaustive]
pub struct Run<'a, P> {
    /// The work itself.
    pub payload: P,
    /// The job.
    pub ticket: Ticket,
    /// Where to run it.
    pub target: TargetId,
    /// How urgent it was.
    pub class: Class,
    /// The flow that it is charged to.
    pub flow: Flow,
    /// The cost that was charged.
    pub cost: Cost,
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
    /// How long it waited.
    pub waited: Duration,
    aged: bool,
    watcher: Option<oneshot::Sender<EndReason>>,
    shared: &'a Shared<P>,
    waiter: WaiterId,
}

impl<P: fmt::Debug> fmt::Debug for Run<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("payload", &self.payload)
            .field("ticket", &self.ticket)
            .field("target", &self.target)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

impl<'a, P> Run<'a, P> {
    #[inline]
    fn new(shared: &'a Shared<P>, waiter: WaiterId, lease: Lease<Task<P>>) -> Self {
        let Task::Work(Work { payload, watcher }) = lease.payload else {
            unreachable!("a worker is given work")
        };
        Run {
            payload,
            ticket: lease.ticket,
            target: lease.target,
            class: lease.class,
            flow: lease.flow,
            cost: lease.cost,
            attempt: lease.attempt,
            waited: lease.waited,
            aged: lease.aged,
            watcher,
            shared,
            waiter,
        }
    }

    /// Submits more work to the pool that runs this.
    ///
    /// # Errors
    /// The refusal, with the job.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value: boxing it would allocate"
    )]
    pub fn submit(&self, job: Job<P>) -> Result<Ticket, Refused<P>> {
        self.shared.submit(job, None)
    }

    /// Cancelled when the job is [cancelled](crate::PoolHandle::cancel), or when the pool's grace
    /// period is over.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.shared.driver.token(self.waiter)
    }

    /// The lease, to be given back.
    #[inline]
    fn into_lease(self) -> Lease<Task<P>> {
        Lease {
            ticket: self.ticket,
            target: self.target,
            class: self.class,
            flow: self.flow,
            cost: self.cost,
            attempt: self.attempt,
            waited: self.waited,
            aged: self.aged,
            payload: Task::Work(Work {
                payload: self.payload,
                watcher: self.watcher,
            }),
        }
    }
}

/// A worker, which is removed however it ends.
pub(crate) struct Worker<P, H> {
    shared: Arc<Shared<P>>,
    handler: Arc<H>,
    waiter: WaiterId,
}

impl<P, H> Drop for Worker<P, H> {
    fn drop(&mut self) {
        let now = self.shared.clock.now();
        self.shared.driver.remove_worker(now, self.waiter);
    }
}

impl<P: Send + 'static, H: Handler<P>> Worker<P, H> {
    pub(crate) fn new(shared: Arc<Shared<P>>, handler: Arc<H>) -> Self {
        let waiter = shared.driver.add_worker();
        Worker {
            shared,
            handler,
            waiter,
        }
    }

    pub(crate) async fn work(self) {
        let Shared { driver, clock, .. } = &*self.shared;
        let mut message = driver.finish_and_next(clock.now(), self.waiter, None);
        loop {
            let granted = match message {
                Some(message) => message,
                None => self.wait().await,
            };
            // Told to leave: the scaler has no use for this worker, or the pool ends.
            let Message::Granted(lease) = granted else {
                return;
            };
            // A handler that never waits must not keep its thread from the other tasks.
            tokio::task::consume_budget().await;
            let mut run = Run::new(&self.shared, self.waiter, lease);
            let report = self.attempt(&mut run).await;
            let now = clock.now();
            let (outcome, verdict) = report.settle(now);
            let done = Some((run.into_lease(), outcome, verdict));
            message = driver.finish_and_next(now, self.waiter, done);
        }
    }

    async fn wait(&self) -> Message<P> {
        poll_fn(|context| {
            let message = (self.shared.driver).poll_waiter(self.waiter, context.waker());
            message.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    async fn attempt(&self, run: &mut Run<'_, P>) -> Report {
        // The handler's synchronous parts are inside, too: wherever it panics, the job has failed
        // and the worker goes on.
        let attempt = AssertUnwindSafe(async {
            match self.handler.deadline(run) {
                None => Ok(self.handler.run(run).await),
                Some(deadline) => tokio::time::timeout(deadline, self.handler.run(run)).await,
            }
        });
        match attempt.catch_unwind().await {
            Ok(Ok(report)) => report,
            // Too slow is temporary, a panic is not: the same input would panic again.
            Ok(Err(_elapsed)) => {
                self.shared.overruns.fetch_add(1, Ordering::Relaxed);
                Report::retry()
            }
            Err(_panic) => {
                self.shared.panics.fetch_add(1, Ordering::Relaxed);
                Report::failed()
            }
        }
    }
}
