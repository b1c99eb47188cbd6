//! Permits: leave to run one job oneself, given back when dropped.

use crate::controls::Inner;
use crate::notice::Denied;
use crate::report::Report;
use crate::shell::{SeatId, Task, Word};
use headworks_core::{Class, Cost, Flow, Lease, Outcome, TargetId, Ticket, Verdict};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Waits for a permit. Dropping it gives up the place.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire {
    inner: Arc<Inner<Infallible>>,
    wait: Wait,
}

enum Wait {
    Seated(SeatId, Ticket),
    Over(Option<Denied>),
}

impl Acquire {
    pub(crate) fn new(
        inner: Arc<Inner<Infallible>>,
        entered: Result<(SeatId, Ticket), Denied>,
    ) -> Self {
        let wait = match entered {
            Ok((seat, ticket)) => Wait::Seated(seat, ticket),
            Err(denied) => Wait::Over(Some(denied.jittered(&inner.clock.jitter()))),
        };
        Acquire { inner, wait }
    }

    /// The job that waits; `None` if it was refused, or has its answer.
    #[must_use]
    pub fn ticket(&self) -> Option<Ticket> {
        match self.wait {
            Wait::Seated(_, ticket) => Some(ticket),
            Wait::Over(_) => None,
        }
    }
}

impl Future for Acquire {
    type Output = Result<Permit, Denied>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (seat, ticket) = match &mut self.wait {
            Wait::Seated(seat, ticket) => (*seat, *ticket),
            Wait::Over(denied) => {
                return Poll::Ready(Err(denied.take().expect("polled after it was ready")));
            }
        };
        let Some(word) = self.inner.shell.poll_seat(seat, context.waker()) else {
            return Poll::Pending;
        };
        self.wait = Wait::Over(None);
        Poll::Ready(match word {
            Word::Granted(lease) => Ok(Permit {
                inner: self.inner.clone(),
                seat,
                lease: Some(lease),
            }),
            Word::Denied(denied) => {
                self.inner.shell.stand_up(seat);
                Err(denied.jittered(&self.inner.clock.jitter()))
            }
            Word::Leave => {
                unreachable!("only workers are told to leave; job {ticket:?} is a caller's")
            }
        })
    }
}

impl Drop for Acquire {
    fn drop(&mut self) {
        if let Wait::Seated(seat, ticket) = self.wait {
            self.inner
                .shell
                .abandon(self.inner.clock.now(), seat, ticket);
        }
    }
}

/// Leave to run one job now, on one target. It ends when it is finished or dropped; dropped without a word, it keeps
/// its charge.
#[must_use = "the slot is given back when this is dropped"]
pub struct Permit {
    inner: Arc<Inner<Infallible>>,
    seat: SeatId,
    lease: Option<Lease<Task<Infallible>>>,
}

impl Permit {
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

    /// Who it is for.
    #[must_use]
    pub fn flow(&self) -> Flow {
        self.lease().flow
    }

    /// What was charged.
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

    /// Cancelled when somebody [cancels](crate::Controls::cancel) the job.
    #[must_use]
    pub fn cancellation(&self) -> CancellationToken {
        self.inner.shell.token(self.seat)
    }

    /// Gives it back, and says how it went. To wait for another target or time, use [`again`](Self::again).
    pub fn finish(self, report: Report) {
        // A report that asks to be repeated, and nobody who waits for that: dropping the wait cancels it.
        drop(self.again(report));
    }

    /// Gives it back and waits again, as the report says: [elsewhere](Report::elsewhere), or [later](Report::retry).
    pub fn again(mut self, report: Report) -> Acquire {
        let lease = self.lease.take().expect("a permit is given back once");
        let (inner, seat, ticket) = (self.inner.clone(), self.seat, lease.ticket);
        let now = inner.clock.now();
        let (outcome, verdict) = report.settle(now, &inner.clock);
        let wait = match inner.shell.give_back(now, seat, lease, outcome, verdict) {
            Some(how) => Wait::Over(Some(Denied::Ended(how))),
            None => Wait::Seated(seat, ticket),
        };
        Acquire { inner, wait }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take() {
            let now = self.inner.clock.now();
            self.inner
                .shell
                .give_back(now, self.seat, lease, Outcome::Dropped, Verdict::Unknown);
        }
    }
}
