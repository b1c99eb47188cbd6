//! A permit to run one job oneself, given back when dropped.
//!
//! [`Acquire`] and [`Permit`] each own one waiter of the driver, and through it one job: dropping
//! either gives both back, at any moment, also between the grant and the poll that would have seen
//! it. The slot is free as soon as that is done, so a permit must be held for as long as the work
//! lasts.

use crate::driver::{Message, Task, WaiterId};
use crate::handle::Shared;
use crate::notice::Denied;
use crate::report::Report;
use headworks_core::{Class, Cost, Flow, Lease, Outcome, TargetId, Ticket, Verdict};
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Waits for a permit. Dropping it gives up the place in the queue.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    shared: Arc<Shared<Infallible>>,
    wait: Wait,
}

enum Wait {
    Waiting(WaiterId, Ticket),
    Over(Option<Denied>),
}

impl Acquire {
    pub(crate) fn new(
        shared: Arc<Shared<Infallible>>,
        entered: Result<(WaiterId, Ticket), Denied>,
    ) -> Self {
        let wait = match entered {
            Ok((waiter, ticket)) => Wait::Waiting(waiter, ticket),
            Err(denied) => Wait::Over(Some(denied.jittered())),
        };
        Acquire { shared, wait }
    }

    /// The job that waits; `None` if it was refused, or has its answer.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self.wait {
            Wait::Waiting(_, ticket) => Some(ticket),
            Wait::Over(_) => None,
        }
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("ticket", &self.ticket())
            .finish_non_exhaustive()
    }
}

impl Future for Acquire {
    type Output = Result<Permit, Denied>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (waiter, ticket) = match &mut self.wait {
            Wait::Waiting(waiter, ticket) => (*waiter, *ticket),
            Wait::Over(denied) => {
                return Poll::Ready(Err(denied.take().expect("polled after it was ready")));
            }
        };
        let Some(message) = self.shared.driver.poll_waiter(waiter, context.waker()) else {
            return Poll::Pending;
        };
        self.wait = Wait::Over(None);
        Poll::Ready(match message {
            Message::Granted(lease) => Ok(Permit::new(self.shared.clone(), waiter, lease)),
            Message::Denied(denied) => {
                self.shared.driver.remove_waiter(waiter);
                Err(denied.jittered())
            }
            Message::Leave | Message::Drained => {
                unreachable!("job {ticket:?} is a caller's, which is granted or denied")
            }
        })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Wait::Waiting(waiter, ticket) = self.wait {
            self.shared
                .driver
                .abandon(self.shared.clock.now(), waiter, ticket);
        }
    }
}

/// Permission to run one job now, on one target. It ends when it is finished or dropped; a permit
/// that is dropped without a report keeps its charge.
///
/// ```
/// use headworks_pool::{Config, Cost, Job, Limits, Permits, Rate, Report};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let limits = Limits {
///     concurrent: Some(1),
///     cost: Some(Rate::per_second(100.0)),
///     ..Limits::default()
/// };
/// let permits = Permits::new(Config { limits, ..Config::default() })?;
/// let permit = permits.acquire(Job::new(()).cost(Cost(60))).await?;
/// assert!(permits.try_acquire(Job::new(())).is_err(), "one at once");
/// // The estimate was too high: the rest goes back into the bucket.
/// permit.finish(Report::done_at(Cost(20)));
///
/// let permit = permits.try_acquire(Job::new(()).cost(Cost(80)))?;
/// drop(permit); // frees the slot; without a report the charge stays
/// assert_eq!(permits.inspect().running, 0);
/// # Ok(())
/// # }
/// ```
#[must_use = "the slot is given back when this is dropped"]
pub struct Permit {
    shared: Arc<Shared<Infallible>>,
    waiter: WaiterId,
    lease: Option<Lease<Task<Infallible>>>,
}

impl Permit {
    pub(crate) fn new(
        shared: Arc<Shared<Infallible>>,
        waiter: WaiterId,
        lease: Lease<Task<Infallible>>,
    ) -> Self {
        Permit {
            shared,
            waiter,
            lease: Some(lease),
        }
    }

    fn lease(&self) -> &Lease<Task<Infallible>> {
        self.lease
            .as_ref()
            .expect("a permit has its lease until it is given back")
    }

    /// Where to run it.
    #[must_use]
    pub fn target(&self) -> TargetId {
        self.lease().target
    }

    /// The job.
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        self.lease().ticket
    }

    /// How urgent it was.
    #[must_use]
    pub fn class(&self) -> Class {
        self.lease().class
    }

    /// The flow that it is charged to.
    #[must_use]
    pub fn flow(&self) -> Flow {
        self.lease().flow
    }

    /// The cost that was charged.
    #[must_use]
    pub fn cost(&self) -> Cost {
        self.lease().cost
    }

    /// How long it waited.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.lease().waited
    }

    /// Whether it went ahead of others because of its age.
    #[must_use]
    pub fn aged(&self) -> bool {
        self.lease().aged
    }

    /// Cancelled when the job is [cancelled](crate::PoolHandle::cancel).
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.shared.driver.token(self.waiter)
    }

    /// Gives it back, with a report of how it went. To wait for another target or time, use
    /// [`reacquire`](Self::reacquire).
    pub fn finish(self, report: Report) {
        // If the report asks for another attempt, nobody waits for it: dropping the wait cancels
        // it.
        drop(self.reacquire(report));
    }

    /// Gives it back and waits again, as the report says: [elsewhere](Report::elsewhere), or
    /// [later](Report::retry).
    pub fn reacquire(mut self, report: Report) -> Acquire {
        let lease = self.lease.take().expect("a permit is given back once");
        let (shared, waiter, ticket) = (self.shared.clone(), self.waiter, lease.ticket);
        let now = shared.clock.now();
        let (outcome, verdict) = report.settle(now);
        let wait = match shared
            .driver
            .give_back(now, waiter, lease, outcome, verdict)
        {
            // The job ended with this report, so the waiter is gone already.
            Some(reason) => Wait::Over(Some(Denied::Ended(reason))),
            None => Wait::Waiting(waiter, ticket),
        };
        Acquire { shared, wait }
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            let now = self.shared.clock.now();
            self.shared.driver.give_back(
                now,
                self.waiter,
                lease,
                // The charge stays: nobody knows how much of the work was done.
                Outcome::Dropped,
                Verdict::Unknown,
            );
        }
    }
}
