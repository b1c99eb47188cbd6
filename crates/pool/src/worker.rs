//! Workers: tasks that run a handler, one job at a time.

use crate::controls::Inner;
use crate::notice::Notice;
use crate::report::Report;
use crate::shell::{SeatId, Task, Word};
use futures_util::FutureExt;
use headworks_core::{Class, Cost, Flow, Job, Lease, Refused, TargetId, Ticket};
use std::future::{Future, poll_fn};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// What a pool does with its jobs.
///
/// The payload is lent, not given: it survives a panic, a deadline and a retry, so that a handler can keep in it what
/// the last attempt came to.
pub trait Handler<P>: Send + Sync + 'static {
    /// Runs one attempt. A panic is a failed job, not a lost worker.
    fn run(&self, run: &mut Run<'_, P>) -> impl Future<Output = Report> + Send;

    /// How long an attempt may take. When it is over, the attempt is dropped and counts as a failed one.
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
    /// Who it is for.
    pub flow: Flow,
    /// What was charged.
    pub cost: Cost,
    /// Which attempt this is, counted from 1.
    pub attempt: u32,
    /// How long it waited.
    pub waited: Duration,
    aged: bool,
    inner: &'a Inner<P>,
    seat: SeatId,
}

impl<P> Run<'_, P> {
    /// Hands in more work for the pool that runs this.
    ///
    /// # Errors
    /// The refusal, with the job.
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value: boxing it would allocate"
    )]
    pub fn submit(&self, job: Job<P>) -> Result<Ticket, Refused<P>> {
        self.inner.submit(job)
    }

    /// Cancelled when somebody [cancels](crate::Controls::cancel) the job, or the pool's grace period is over.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.inner.shell.token(self.seat)
    }

    /// The lease, to be given back.
    #[inline]
    fn lease(self) -> Lease<Task<P>> {
        Lease {
            ticket: self.ticket,
            target: self.target,
            class: self.class,
            flow: self.flow,
            cost: self.cost,
            attempt: self.attempt,
            waited: self.waited,
            aged: self.aged,
            payload: Task::Work(self.payload),
        }
    }
}

/// A worker's life: its seat is given up however it ends.
pub(crate) struct Worker<P, H> {
    inner: Arc<Inner<P>>,
    handler: Arc<H>,
    seat: SeatId,
}

impl<P, H> Drop for Worker<P, H> {
    fn drop(&mut self) {
        let now = self.inner.clock.now();
        self.inner.shell.reclaim(now, self.seat);
        self.inner.shell.dismiss(now, self.seat);
    }
}

impl<P: Send + 'static, H: Handler<P>> Worker<P, H> {
    pub(crate) fn new(inner: Arc<Inner<P>>, handler: Arc<H>) -> Self {
        let seat = inner.shell.hire();
        Worker {
            inner,
            handler,
            seat,
        }
    }

    pub(crate) async fn work(self) {
        let Inner { shell, clock, .. } = &*self.inner;
        let mut word = shell.turn(clock.now(), self.seat, None);
        loop {
            let granted = match word {
                Some(word) => word,
                None => self.wait().await,
            };
            let Word::Granted(lease) = granted else {
                return;
            };
            let mut run = self.begin(lease);
            let report = self.attempt(&mut run).await;
            let now = clock.now();
            let (outcome, verdict) = report.settle(now, clock);
            word = shell.turn(now, self.seat, Some((run.lease(), outcome, verdict)));
        }
    }

    async fn wait(&self) -> Word<P> {
        poll_fn(
            |context| match self.inner.shell.poll_seat(self.seat, context.waker()) {
                Some(word) => Poll::Ready(word),
                None => Poll::Pending,
            },
        )
        .await
    }

    #[inline]
    fn begin(&self, lease: Lease<Task<P>>) -> Run<'_, P> {
        let Task::Work(payload) = lease.payload else {
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
            inner: &self.inner,
            seat: self.seat,
        }
    }

    async fn attempt(&self, run: &mut Run<'_, P>) -> Report {
        let deadline = self.handler.deadline(run);
        let attempt = AssertUnwindSafe(self.handler.run(run)).catch_unwind();
        let outcome = match deadline {
            None => Ok(attempt.await),
            Some(deadline) => tokio::time::timeout(deadline, attempt).await,
        };
        match outcome {
            Ok(Ok(report)) => report,
            Ok(Err(_panic)) => {
                self.inner.panics.fetch_add(1, Ordering::Relaxed);
                Report::failed()
            }
            Err(_elapsed) => {
                self.inner.overruns.fetch_add(1, Ordering::Relaxed);
                Report::retry()
            }
        }
    }
}
