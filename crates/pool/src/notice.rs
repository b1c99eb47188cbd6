//! Reports about jobs that were not done, and about targets.
//!
//! Every job that was admitted and does not end by `Report::done` comes back in one notice, with
//! its payload. The exception are jobs whose handler is dropped at the end of a shutdown's grace
//! period, payload and all: [`Drained`](crate::Drained) counts them. Notices are delivered by the
//! thread whose call caused them, after the lock is released: a listener may call the pool, but one
//! that blocks delays that thread, and with it other notices.

use crate::clock::spread;
use headworks_core::{Booking, Reason, TargetId, TargetState, Ticket, Unservable};
use std::time::Duration;
use thiserror::Error;

/// Something that happened outside a handler's own report.
///
/// ```
/// use headworks_pool::{
///     Config, EndReason, Handler, Job, Notice, Pool, Report, Run, Workers,
/// };
/// use tokio::sync::mpsc;
///
/// struct Crawler {
///     failed: mpsc::UnboundedSender<String>,
/// }
///
/// impl Handler<String> for Crawler {
///     async fn run(&self, _run: &mut Run<'_, String>) -> Report {
///         Report::failed()
///     }
///
///     fn notice(&self, notice: Notice<String>) {
///         if let Notice::Ended { payload, reason: EndReason::Failed, .. } = notice {
///             let _ = self.failed.send(payload);
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (failed, mut failures) = mpsc::unbounded_channel();
/// let pool = Pool::new(Config::default(), Workers::new(1, 1), Crawler { failed })?;
/// pool.submit(Job::new("/missing".to_string()))?;
/// assert_eq!(failures.recv().await.as_deref(), Some("/missing"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Notice<P> {
    /// A job ended; its payload comes back.
    Ended {
        /// Its ticket, no longer valid.
        ticket: Ticket,
        /// The work.
        payload: P,
        /// Why.
        reason: EndReason,
    },
    /// A target changed its state.
    Target {
        /// Which.
        target: TargetId,
        /// To what.
        state: TargetState,
    },
}

/// Why a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum EndReason {
    /// It is done.
    #[error("done")]
    Done,
    /// It failed for good, or for the last time.
    #[error("failed")]
    Failed,
    /// Another job with its delay key was delayed already.
    #[error("merged with a delayed one")]
    Merged,
    /// It had not started in time.
    #[error("expired before its turn")]
    Expired,
    /// It was shed: another flow had a better claim on its place.
    #[error("shed for a flow with a better claim on its place")]
    Shed {
        /// When to try again.
        retry_after: Option<Duration>,
        /// The place booked for that time.
        booking: Option<Booking>,
    },
    /// It was cancelled.
    #[error("cancelled")]
    Cancelled,
    /// The pool drained before its turn.
    #[error("handed back, because the pool shuts down")]
    Returned,
    /// No target can serve it any more.
    #[error("{0}")]
    Unservable(Unservable),
}

impl EndReason {
    fn jittered(self) -> Self {
        match self {
            EndReason::Shed {
                retry_after,
                booking,
            } => EndReason::Shed {
                retry_after: retry_after.map(spread),
                booking,
            },
            other => other,
        }
    }
}

impl<P> Notice<P> {
    pub(crate) fn jittered(self) -> Self {
        match self {
            Notice::Ended {
                ticket,
                payload,
                reason,
            } => Notice::Ended {
                ticket,
                payload,
                reason: reason.jittered(),
            },
            other => other,
        }
    }
}

/// The result of cancelling a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancel {
    /// It had not begun, and is gone.
    Removed,
    /// It runs.
    Running,
    /// It had ended before.
    Ended,
}

/// Why a caller gets no permit.
///
/// ```
/// use headworks_pool::{Bound, Config, Denied, Job, Limits, Permits, Reason};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits { concurrent: Some(1), ..Limits::default() };
/// let config = Config { limits, bound: Bound::PerClass(1), ..Config::default() };
/// let permits = Permits::new(config)?;
/// let _running = permits.acquire(Job::new(())).await?;
/// let _waits = permits.acquire(Job::new(()));
/// match permits.acquire(Job::new(())).await {
///     Err(denied @ Denied::Refused { reason: Reason::Full, .. }) => {
///         // A server answers 429 with this, and hands the booking back when the client returns.
///         assert!(denied.retry_after().is_some());
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Denied {
    /// It was not admitted.
    #[error("refused: {reason}")]
    Refused {
        /// Why.
        reason: Reason,
        /// When to try again, where that would help.
        retry_after: Option<Duration>,
        /// The place booked for that time.
        booking: Option<Booking>,
    },
    /// It could not run at once, and the caller would not wait.
    #[error("it would have to wait for its turn")]
    WouldWait,
    /// It was admitted, but ended before its turn.
    #[error("{0}")]
    Ended(EndReason),
}

impl Denied {
    /// When to try again, where that would help.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Denied::Refused { retry_after, .. }
            | Denied::Ended(EndReason::Shed { retry_after, .. }) => *retry_after,
            // A caller that would not wait is told no time: it may try again at once.
            Denied::WouldWait | Denied::Ended(_) => None,
        }
    }

    /// The place that was booked for that time.
    #[must_use]
    pub fn booking(&self) -> Option<Booking> {
        match self {
            Denied::Refused { booking, .. } | Denied::Ended(EndReason::Shed { booking, .. }) => {
                *booking
            }
            Denied::WouldWait | Denied::Ended(_) => None,
        }
    }

    pub(crate) fn jittered(self) -> Self {
        match self {
            Denied::Refused {
                reason,
                retry_after,
                booking,
            } => Denied::Refused {
                reason,
                retry_after: retry_after.map(spread),
                booking,
            },
            Denied::Ended(reason) => Denied::Ended(reason.jittered()),
            Denied::WouldWait => Denied::WouldWait,
        }
    }
}
