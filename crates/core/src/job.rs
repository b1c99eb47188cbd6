//! A job, its lease, and how it ends.
//!
//! A [`Job`] is what scheduling needs to know of a piece of work, and an opaque payload that the
//! core carries and never looks at. A granted job leaves as a [`Lease`], which owns the payload
//! until it is [finished](crate::Core::finish): there is one lease per job at most, and one that is
//! dropped instead leaves its job running until it is [reclaimed](crate::Core::reclaim).

use crate::id::{Booking, Class, Cost, Flow, Key, TargetId, TargetSet, Ticket};
use crate::time::Time;
use std::time::Duration;

/// A piece of work to be scheduled. The payload is the application's and is never looked at.
///
/// ```
/// # use headworks_core::{Class, Cost, Flow, Job, Time};
/// let job = Job::new("translate page 7").class(Class(3)).flow(Flow(42));
/// let job = job.cost(Cost(1200)).expire_at(Time::from_secs(30));
/// assert_eq!(job.cost, Cost(1200));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job<P> {
    /// How urgent it is.
    pub class: Class,
    /// The flow that it is charged to.
    pub flow: Flow,
    /// The load that it is expected to put on its target.
    pub cost: Cost,
    /// The targets that may serve it.
    pub targets: TargetSet,
    /// At most one live job may have this key; a second is refused.
    pub key: Option<Key>,
    /// At most one *delayed* job may have this key; a second ends as merged.
    pub delay_key: Option<Key>,
    /// Not to be run before this.
    pub start_at: Option<Time>,
    /// Pointless after this, if it has not started by then.
    pub expire_at: Option<Time>,
    /// The same as `start_at`, counted from its submission; the later of both holds.
    pub start_in: Option<Duration>,
    /// The same as `expire_at`, counted from its submission; the earlier of both holds.
    pub expire_in: Option<Duration>,
    /// The place that an earlier refusal of this work booked.
    pub booking: Option<Booking>,
    /// Attempts in total; `None` for what the configuration says.
    pub attempts: Option<u32>,
    /// The work itself.
    pub payload: P,
}

impl<P> Job<P> {
    /// A job of the most urgent class, flow 0 and cost 1, for the first target.
    pub fn new(payload: P) -> Self {
        Job {
            class: Class(0),
            flow: Flow(0),
            cost: Cost(1),
            targets: TargetSet::default(),
            key: None,
            delay_key: None,
            start_at: None,
            expire_at: None,
            start_in: None,
            expire_in: None,
            booking: None,
            attempts: None,
            payload,
        }
    }

    /// The same job with another payload, made from the one it had.
    pub fn map<Q>(self, payload: impl FnOnce(P) -> Q) -> Job<Q> {
        Job {
            class: self.class,
            flow: self.flow,
            cost: self.cost,
            targets: self.targets,
            key: self.key,
            delay_key: self.delay_key,
            start_at: self.start_at,
            expire_at: self.expire_at,
            start_in: self.start_in,
            expire_in: self.expire_in,
            booking: self.booking,
            attempts: self.attempts,
            payload: payload(self.payload),
        }
    }

    /// Sets how urgent it is.
    #[must_use]
    pub fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Sets who it is for.
    #[must_use]
    pub fn flow(mut self, flow: Flow) -> Self {
        self.flow = flow;
        self
    }

    /// Sets what it will draw.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// Sets who may serve it.
    #[must_use]
    pub fn targets(mut self, targets: impl Into<TargetSet>) -> Self {
        self.targets = targets.into();
        self
    }

    /// Makes it the only live job of that name.
    #[must_use]
    pub fn key(mut self, key: Key) -> Self {
        self.key = Some(key);
        self
    }

    /// Makes it the only delayed job of that name.
    #[must_use]
    pub fn delay_key(mut self, key: Key) -> Self {
        self.delay_key = Some(key);
        self
    }

    /// Keeps it back until then.
    #[must_use]
    pub fn start_at(mut self, time: Time) -> Self {
        self.start_at = Some(time);
        self
    }

    /// Ends it at that time if it has not started.
    #[must_use]
    pub fn expire_at(mut self, time: Time) -> Self {
        self.expire_at = Some(time);
        self
    }

    /// Delays it by that time, counted from its submission.
    #[must_use]
    pub fn start_in(mut self, time: Duration) -> Self {
        self.start_in = Some(time);
        self
    }

    /// Ends it if it has not started within that time of its submission.
    #[must_use]
    pub fn expire_in(mut self, time: Duration) -> Self {
        self.expire_in = Some(time);
        self
    }

    /// Turns times that are counted from the submission into points in time.
    #[inline]
    pub(crate) fn resolve_times(&mut self, now: Time) {
        if let Some(time) = self.start_in.take() {
            self.start_at = self.start_at.max(Some(now + time));
        }
        if let Some(time) = self.expire_in.take() {
            let at = now + time;
            self.expire_at = Some(self.expire_at.map_or(at, |known| known.min(at)));
        }
    }

    /// Claims the place that an earlier refusal booked.
    #[must_use]
    pub fn booking(mut self, booking: Option<Booking>) -> Self {
        self.booking = booking;
        self
    }

    /// Bounds its attempts in total.
    #[must_use]
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = Some(attempts);
        self
    }
}

/// The right and the duty to run one job now on one target. Give it back with
/// [`Core::finish`](crate::Core::finish); one that is lost must be
/// [reclaimed](crate::Core::reclaim).
#[derive(Debug)]
#[must_use = "a lease must be finished"]
pub struct Lease<P> {
    /// The job that it is for. A job has at most one lease at a time, and its ticket is never used
    /// again, so a lease of a job that ended settles nothing.
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
    /// How long it waited, from when it was first ready to run.
    pub waited: Duration,
    /// Whether it went ahead of others because of its age.
    pub aged: bool,
    /// The work itself.
    pub payload: P,
}

/// How a leased job went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Done. The actual cost, where it is known, corrects what was charged.
    Done {
        /// The actual cost; `None` if as estimated.
        cost: Option<Cost>,
    },
    /// To be tried again after a pause.
    Retry {
        /// Why.
        fault: Fault,
        /// A random number, for the jitter.
        random: u64,
    },
    /// To be tried again at a time that the far side named.
    RetryAt {
        /// Why.
        fault: Fault,
        /// When.
        at: Time,
    },
    /// This target would not take it and did nothing: try the others, keeping its place.
    Elsewhere,
    /// Failed for good.
    Failed,
    /// The work was dropped without a word: its charge stays.
    Dropped,
    /// The work was never begun, because nobody waits for it any more: its charge is given back,
    /// and the job is cancelled, or handed back if the core drains.
    Unused,
}

impl Outcome {
    /// Done, at the estimated cost.
    pub const DONE: Outcome = Outcome::Done { cost: None };
}

/// The kind of failure after which another attempt is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// It may pass by itself.
    Temporary,
    /// The far side has too much to do; waiting for that costs no attempt.
    Overload,
}

/// The judgement of an attempt about its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// It works.
    Fine,
    /// It failed; enough of these in a row suspend it.
    Fault,
    /// It has too much to do until then, and is suspended.
    Overload {
        /// When it may be asked again.
        until: Time,
    },
    /// It does not exist or will never serve us: it is disabled.
    Gone,
    /// Nothing either way, as when the work was cancelled.
    Unknown,
}

/// The fate of a job whose lease was finished.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled<P> {
    /// The job ended as done.
    Done(P),
    /// The job ended as failed: for good, or after its last attempt.
    Failed(P),
    /// The job waits again, at its old place, for another target.
    Elsewhere,
    /// The job is delayed and will be tried again then.
    Delayed(Time),
    /// The job became delayed while another with its `delay_key` was: it ended as merged.
    Merged(P),
    /// The job ended as cancelled: it was not begun, or [`Core::cancel`](crate::Core::cancel) came
    /// while it ran and it was not done.
    Cancelled(P),
    /// The job was handed back because the core drains.
    Returned(P),
    /// The lease was no longer valid. Nothing changed.
    Stale(P),
}

/// The fate of a cancelled job.
#[derive(Debug, PartialEq, Eq)]
pub enum Cancelled<P> {
    /// It waited or was delayed, and is gone from the core.
    Removed(Job<P>),
    /// It runs; the driver tells the handler to stop, and the job ends when its lease is finished.
    Running,
    /// It had ended before.
    Ended,
}
