//! A submitted job that can be awaited.
//!
//! The pool owns the job; the handle only hears of its end, over a channel that the driver answers
//! after it has released the lock. So a handle may be dropped at any time, by the job itself too.

use crate::handle::PoolHandle;
use crate::notice::{Cancel, EndReason};
use headworks_core::Ticket;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::oneshot;

/// A job that was submitted with [`Pool::spawn`](crate::Pool::spawn). Awaited, it says why the job
/// ended: [`EndReason::Done`], or why not. Dropped, the job goes on.
///
/// ```
/// use headworks_pool::{Cancel, Config, EndReason, Handler, Job, Pool, Report, Run, Workers};
/// use std::time::Duration;
///
/// struct Mailer;
///
/// impl Handler<&'static str> for Mailer {
///     async fn run(&self, run: &mut Run<'_, &'static str>) -> Report {
///         match run.payload {
///             "nobody" => Report::failed(),
///             _ => Report::done(),
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let pool = Pool::new(Config::default(), Workers::new(1, 1), Mailer)?;
/// assert_eq!(pool.spawn(Job::new("alice"))?.await, EndReason::Done);
/// assert_eq!(pool.spawn(Job::new("nobody"))?.await, EndReason::Failed);
///
/// let later = pool.spawn(Job::new("bob").start_in(Duration::from_secs(3600)))?;
/// assert_eq!(later.cancel(), Cancel::Removed);
/// assert_eq!(later.await, EndReason::Cancelled);
/// # Ok(())
/// # }
/// ```
#[must_use = "awaited, it says how the job ended"]
pub struct JobHandle<P> {
    pub(crate) ticket: Ticket,
    pub(crate) ended: oneshot::Receiver<EndReason>,
    pub(crate) handle: PoolHandle<P>,
}

impl<P> JobHandle<P> {
    /// The job's ticket.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Cancels the job: it is taken back, or its handler is told to stop.
    pub fn cancel(&self) -> Cancel {
        self.handle.cancel(self.ticket)
    }
}

impl<P> Future for JobHandle<P> {
    type Output = EndReason;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<EndReason> {
        // A job that is lost with its worker, when the pool's grace period is over, tells nobody
        // any more.
        let ended = Pin::new(&mut self.ended).poll(context);
        ended.map(|ended| ended.unwrap_or(EndReason::Failed))
    }
}

impl<P> fmt::Debug for JobHandle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle")
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}
