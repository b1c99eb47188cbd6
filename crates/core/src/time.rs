//! A point on the caller's clock.
//!
//! The core never reads a clock. A driver turns its own (monotonic, virtual, recorded) into
//! nanoseconds since a start of its choosing and hands them in with every call. A [`Time`] of one
//! driver means nothing to another. Arithmetic saturates: [`Time::MAX`] plus anything is still the
//! end of time, which nothing waits for.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// Nanoseconds since the driver's start. Saturates at both ends: 584 years are enough.
///
/// ```
/// use headworks_core::Time;
/// use std::time::Duration;
///
/// let due = Time::from_millis(1500) + Duration::from_millis(500);
/// assert_eq!(due, Time::from_secs(2));
/// assert_eq!(due.since(Time::from_secs(5)), Duration::ZERO, "not after it");
/// assert_eq!(Time::MAX + Duration::from_secs(1), Time::MAX);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The driver's start.
    pub const ZERO: Time = Time(0);
    /// Later than anything.
    pub const MAX: Time = Time(u64::MAX);

    /// The time `nanos` nanoseconds after the start.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Time(nanos)
    }

    /// The time `millis` milliseconds after the start.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Self {
        Time(millis.saturating_mul(1_000_000))
    }

    /// The time `secs` seconds after the start.
    #[must_use]
    pub const fn from_secs(secs: u64) -> Self {
        Time(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the start.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the start.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// How long after `earlier` this is; nothing if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Time) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(u64::from(duration.subsec_nanos()))
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, duration: Duration) -> Time {
        Time(self.0.saturating_add(nanos(duration)))
    }
}

impl AddAssign<Duration> for Time {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, duration: Duration) -> Time {
        Time(self.0.saturating_sub(nanos(duration)))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3} s", self.as_secs_f64())
    }
}
