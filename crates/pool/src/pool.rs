//! The pool: a core, its workers and its timer, under tokio.

use crate::clock::Clock;
use crate::controls::{Controls, Drained, Inner};
use crate::shell::{Shell, Timer, Workers};
use crate::worker::{Handler, Worker};
use headworks_core::{Config, ConfigError, Job, Refused, Scale, Ticket};
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// A pool of workers. Clones are handles on the same one; when the last is dropped, what waits is handed back
/// ([`How::Returned`](crate::How::Returned)) and the workers leave once they have finished what they run.
pub struct Pool<P>(Controls<P>);

impl<P> Clone for Pool<P> {
    fn clone(&self) -> Self {
        Pool(self.0.clone())
    }
}

impl<P> Deref for Pool<P> {
    type Target = Controls<P>;

    fn deref(&self) -> &Controls<P> {
        &self.0
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
            let (handler, jitter) = (handler.clone(), clock.jitter());
            move |notice: crate::Notice<P>| handler.notice(notice.jittered(&jitter))
        };
        let shell = Shell::new(config, clock.now(), workers, Box::new(listener))?;
        let controls = Controls::new(Inner::new(shell, clock));
        let crew = Crew {
            inner: controls.inner.clone(),
            handler,
            tracker: controls.tasks.tracker.clone(),
            abort: controls.tasks.abort.clone(),
        };
        for _ in 0..workers.base {
            crew.hire();
        }
        controls.tasks.tracker.spawn(crew.keep_time());
        Ok(Pool(controls))
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
        self.inner.submit(job)
    }

    /// Takes new numbers of workers; they come and go at the scaler's pace.
    pub fn set_workers(&self, workers: Workers) {
        let now = self.inner.clock.now();
        self.inner.shell.set_workers(now, workers.at_least_one());
    }

    /// Ends the pool: nothing more is admitted, what waits is handed back ([`How::Returned`](crate::How::Returned)),
    /// what runs may finish within the grace period and is told to stop after it, then dropped.
    pub async fn shutdown(self, grace: Duration) -> Drained {
        self.end(grace).await
    }
}

impl<P> Inner<P> {
    #[expect(
        clippy::result_large_err,
        reason = "a refusal hands the job back by value: boxing it would allocate"
    )]
    pub(crate) fn submit(&self, job: Job<P>) -> Result<Ticket, Refused<P>> {
        let answer = self.shell.submit(self.clock.now(), job);
        answer.map_err(|mut refused| {
            refused.retry_after = refused.retry_after.map(|after| self.clock.jittered(after));
            refused
        })
    }
}

/// Sleeps until the core or the scaler wants to be called, and no longer.
pub(crate) fn keep_time<P>(
    inner: Arc<Inner<P>>,
    scale: impl Fn(Scale),
) -> impl Future<Output = ()> {
    let mut sleep = Box::pin(tokio::time::sleep(Duration::ZERO));
    poll_fn(move |context| {
        inner.wakes.fetch_add(1, Ordering::Relaxed);
        loop {
            let at = match inner.shell.poll_timer(inner.clock.exact(), context.waker()) {
                Timer::Leave => return Poll::Ready(()),
                Timer::At { at, scale: wish } => {
                    scale(wish);
                    at
                }
            };
            let Some(at) = at else { return Poll::Pending };
            sleep.as_mut().reset(inner.clock.instant(at));
            if sleep.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    })
}

/// The workers, and who hires them.
struct Crew<P, H> {
    inner: Arc<Inner<P>>,
    handler: Arc<H>,
    tracker: TaskTracker,
    abort: CancellationToken,
}

impl<P: Send + 'static, H: Handler<P>> Crew<P, H> {
    fn hire(&self) {
        let worker = Worker::new(self.inner.clone(), self.handler.clone());
        let abort = self.abort.clone();
        let life = async move { abort.run_until_cancelled(worker.work()).await };
        self.tracker.spawn(life);
    }

    fn keep_time(self) -> impl Future<Output = ()> {
        keep_time(self.inner.clone(), move |scale| match scale {
            Scale::Up => self.hire(),
            Scale::Down => {
                self.inner.shell.dismiss_idle(self.inner.clock.now());
            }
            Scale::Hold => {}
        })
    }
}
