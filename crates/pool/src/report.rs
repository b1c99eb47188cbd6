//! A handler's report about an attempt.
//!
//! Its times are durations from now, because handlers do not know the core's clock; the worker
//! turns them into points in time when it gives the lease back. A report says two independent
//! things: what becomes of the job, and what the attempt says about its target.

use crate::clock::random;
use headworks_core::{Cost, Fault, Outcome, Time, Verdict};
use std::time::Duration;

/// How an attempt went, and what it says about the target.
///
/// ```
/// use headworks_pool::{Health, Report};
/// use std::time::Duration;
///
/// let done = Report::done();
/// let pause = Duration::from_secs(30);
/// let busy = Report::retry_in(pause).target(Health::Overloaded(pause));
/// # let _ = (done, busy);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Report {
    pub(crate) attempt: Attempt,
    pub(crate) health: Health,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Done(Option<Cost>),
    Retry(Fault),
    RetryIn(Fault, Duration),
    Elsewhere,
    Failed,
}

/// An attempt's verdict on its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works.
    Fine,
    /// It failed.
    Fault,
    /// It has too much to do, for that long.
    Overloaded(Duration),
    /// It does not exist, or will never serve us.
    Gone,
    /// Nothing either way.
    Unknown,
}

impl Report {
    const fn new(attempt: Attempt, health: Health) -> Self {
        Report { attempt, health }
    }

    /// Done, at the estimated cost; the target works.
    pub const fn done() -> Self {
        Self::new(Attempt::Done(None), Health::Fine)
    }

    /// Done, at that cost; the target works.
    pub const fn done_at(cost: Cost) -> Self {
        Self::new(Attempt::Done(Some(cost)), Health::Fine)
    }

    /// To be tried again after a pause; the target failed.
    pub const fn retry() -> Self {
        Self::new(Attempt::Retry(Fault::Temporary), Health::Fault)
    }

    /// To be tried again after that time, when the target has less to do. That costs no attempt.
    pub const fn retry_in(after: Duration) -> Self {
        Self::new(Attempt::RetryIn(Fault::Overload, after), Health::Fine)
    }

    /// The target would not take it and did nothing: to be tried at another.
    pub const fn elsewhere() -> Self {
        Self::new(Attempt::Elsewhere, Health::Fault)
    }

    /// Failed for good; that says nothing about the target.
    pub const fn failed() -> Self {
        Self::new(Attempt::Failed, Health::Unknown)
    }

    /// The same, but saying something else about the target.
    pub const fn target(self, health: Health) -> Self {
        Self::new(self.attempt, health)
    }

    pub(crate) fn settle(self, now: Time) -> (Outcome, Verdict) {
        let outcome = match self.attempt {
            Attempt::Done(cost) => Outcome::Done { cost },
            Attempt::Retry(fault) => Outcome::Retry {
                fault,
                random: random(),
            },
            Attempt::RetryIn(fault, after) => Outcome::RetryAt {
                fault,
                at: now + after,
            },
            Attempt::Elsewhere => Outcome::Elsewhere,
            Attempt::Failed => Outcome::Failed,
        };
        let verdict = match self.health {
            Health::Fine => Verdict::Fine,
            Health::Fault => Verdict::Fault,
            Health::Overloaded(time) => Verdict::Overload { until: now + time },
            Health::Gone => Verdict::Gone,
            Health::Unknown => Verdict::Unknown,
        };
        (outcome, verdict)
    }
}
