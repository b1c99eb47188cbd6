//! The one place for time and randomness.
//!
//! [`Clock`] turns tokio's clock, which a test can pause, into the core's [`Time`]. It belongs to
//! one pool: its times mean nothing to another. Nothing else in this crate reads a clock or draws a
//! random number, and the driver behind the lock is given both.

use headworks_core::{LONGEST, Time};
use std::cmp::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// Tokio's clock, which a test can pause, as nanoseconds since the pool's start.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
}

/// A random number, for the jitter of a retry.
pub(crate) fn random() -> u64 {
    fastrand::u64(..)
}

/// Spreads a retry hint, so that clients that were rejected together do not return together: up to
/// a tenth longer, which a booking is kept for, but never beyond the longest forecast. A forecast
/// that has reached that is up to a tenth shorter instead. A hint beyond it is not a forecast but
/// the end of a suspension.
pub(crate) fn spread(time: Duration) -> Duration {
    let part = fastrand::u32(..1000);
    match time.cmp(&LONGEST) {
        Ordering::Less => (time + time / 10_000 * part).min(LONGEST),
        // At the longest forecast there is no room above, and all alike would return together.
        Ordering::Equal => time - time / 10_000 * part,
        Ordering::Greater => time + time / 10_000 * part,
    }
}

impl Clock {
    pub(crate) fn new() -> Self {
        Clock {
            start: Instant::now(),
        }
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        Time::ZERO + self.start.elapsed()
    }

    pub(crate) fn instant(&self, time: Time) -> Instant {
        // Beyond thirty years, tokio's timers do not care.
        let far = Duration::from_secs(30 * 365 * 86_400);
        self.start + time.since(Time::ZERO).min(far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_hint_is_never_beyond_the_longest_forecast() {
        for seconds in [1, 60, 110, 115, 119, 120] {
            let time = Duration::from_secs(seconds);
            let told: Vec<Duration> = (0..1000).map(|_| spread(time)).collect();
            assert!(told.iter().all(|told| *told <= LONGEST), "{told:?}");
            assert!(told.iter().any(|other| *other != told[0]), "all alike");
            let least = if time == LONGEST { time * 9 / 10 } else { time };
            assert!(told.iter().all(|told| *told >= least), "{told:?}");
        }
        assert!(spread(LONGEST * 2) >= LONGEST * 2, "a suspension");
    }
}
