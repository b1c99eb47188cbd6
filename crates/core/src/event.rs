//! Events and refusals: what happens to jobs and targets outside the caller's own calls, and why a
//! job was not admitted.
//!
//! The core queues events until [`Core::poll_event`](crate::Core::poll_event) takes them; it never
//! drops one, so a driver must poll after every call. A job that ended is handed back in its event,
//! exactly once. A ticket in an event that ends a job is no longer valid.

use crate::id::{Booking, TargetId, Ticket};
use crate::job::Job;
use crate::targets::TargetState;
use crate::time::Time;
use std::fmt;
use std::time::Duration;

/// Something that happened. Jobs that ended are handed back.
///
/// ```
/// use headworks_core::{Config, Core, Event, Job, Time};
///
/// let mut core = Core::new(Config::default(), Time::ZERO)?;
/// core.submit(Time::ZERO, Job::new("report").expire_at(Time::from_secs(1))).expect("room");
/// core.advance(Time::from_secs(1));
/// match core.poll_event() {
///     Some(Event::Expired { job, .. }) => assert_eq!(job.payload, "report"),
///     other => panic!("{other:?}"),
/// }
/// assert!(core.poll_event().is_none(), "each is told once");
/// # Ok::<(), headworks_core::ConfigError>(())
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<P> {
    /// It had not started by its `expire_at`, and ended.
    Expired {
        /// Its ticket, no longer valid.
        ticket: Ticket,
        /// The job.
        job: Job<P>,
    },
    /// It gave up its place to a flow that held less than its share, or to a more urgent class, and
    /// ended.
    Shed {
        /// Its ticket, no longer valid.
        ticket: Ticket,
        /// The job.
        job: Job<P>,
        /// When to come back.
        retry_after: Option<Duration>,
        /// The place booked for that time.
        booking: Option<Booking>,
    },
    /// It was due, but there was no place: it stays delayed.
    Postponed {
        /// Its ticket.
        ticket: Ticket,
        /// When it is due next.
        until: Time,
    },
    /// It became delayed while another with its `delay_key` was, and ended.
    Merged {
        /// Its ticket, no longer valid.
        ticket: Ticket,
        /// The job.
        job: Job<P>,
    },
    /// It can no longer be served, and ended.
    Failed {
        /// Its ticket, no longer valid.
        ticket: Ticket,
        /// The job.
        job: Job<P>,
        /// Why.
        reason: Unservable,
    },
    /// The core drains: the job is handed back unserved.
    Returned {
        /// Its ticket, no longer valid.
        ticket: Ticket,
        /// The job.
        job: Job<P>,
    },
    /// A target changed its state.
    TargetChanged {
        /// Which.
        target: TargetId,
        /// To what.
        state: TargetState,
    },
}

/// Why a waiting job can no longer be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Unservable {
    /// Every target that could have served it is disabled.
    NoTarget,
    /// Its target was suspended, and the configuration says to end its jobs then.
    Suspended,
    /// A limit became smaller than its cost.
    TooLarge,
}

impl fmt::Display for Unservable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unservable::NoTarget => "no target is left that could serve it",
            Unservable::Suspended => "its target is suspended",
            Unservable::TooLarge => "it costs more than the limit now allows",
        })
    }
}

/// Why a job was not admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Reason {
    /// No place is free in its class, or in all if they share one bound.
    Full,
    /// The places for its only target are taken.
    TargetFull,
    /// No place is free among the delayed.
    DelayedFull,
    /// A live job has its key.
    Duplicate,
    /// A delayed job has its delay key.
    Merged,
    /// It costs more than a limit will ever allow.
    TooLarge,
    /// Every target that could serve it is disabled, or it names none that exists.
    NoTarget,
    /// Its targets are suspended, and it may not wait for them: its deadline comes first, or the
    /// configuration says so.
    Suspended,
    /// Its class does not exist.
    UnknownClass,
    /// Its time was over before it came.
    Expired,
    /// It is expected to expire before its turn.
    DeadlineUnreachable,
    /// The core drains.
    Draining,
}

impl Reason {
    /// Every reason, in the order in which statistics count them.
    pub const ALL: [Reason; 12] = [
        Reason::Full,
        Reason::TargetFull,
        Reason::DelayedFull,
        Reason::Duplicate,
        Reason::Merged,
        Reason::TooLarge,
        Reason::NoTarget,
        Reason::Suspended,
        Reason::UnknownClass,
        Reason::Expired,
        Reason::DeadlineUnreachable,
        Reason::Draining,
    ];

    /// The word for it in metrics, headers and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Full => "full",
            Reason::TargetFull => "target_full",
            Reason::DelayedFull => "delayed_full",
            Reason::Duplicate => "duplicate",
            Reason::Merged => "merged",
            Reason::TooLarge => "too_large",
            Reason::NoTarget => "no_target",
            Reason::Suspended => "suspended",
            Reason::UnknownClass => "unknown_class",
            Reason::Expired => "expired",
            Reason::DeadlineUnreachable => "deadline_unreachable",
            Reason::Draining => "draining",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A job that was not admitted, handed back.
///
/// ```
/// use headworks_core::{Config, Core, Job, Key, Reason, Time};
///
/// let mut core = Core::new(Config::default(), Time::ZERO)?;
/// let job = || Job::new("mail").key(Key(1));
/// core.submit(Time::ZERO, job()).expect("room");
/// let refused = core.submit(Time::ZERO, job()).expect_err("the first one lives");
/// assert_eq!(refused.reason, Reason::Duplicate);
/// assert_eq!(refused.retry_after, None, "waiting does not help");
/// assert_eq!(refused.job.payload, "mail", "it is handed back");
/// # Ok::<(), headworks_core::ConfigError>(())
/// ```
#[derive(PartialEq, Eq)]
pub struct Refused<P> {
    /// Why.
    pub reason: Reason,
    /// When to retry, where that would help.
    pub retry_after: Option<Duration>,
    /// The place that was booked for that time; hand it in as [`Job::booking`].
    pub booking: Option<Booking>,
    /// The job.
    pub job: Job<P>,
}

impl<P> fmt::Display for Refused<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {}", self.reason)?;
        match self.retry_after {
            Some(after) => write!(f, "; retry in {:.1} s", after.as_secs_f64()),
            None => Ok(()),
        }
    }
}

impl<P> fmt::Debug for Refused<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the payload, so that a refusal is an error whatever its job carries.
        f.debug_struct("Refused")
            .field("reason", &self.reason)
            .field("retry_after", &self.retry_after)
            .field("booking", &self.booking)
            .finish_non_exhaustive()
    }
}

impl<P> std::error::Error for Refused<P> {}
