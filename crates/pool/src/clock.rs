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
    /// Tells for how long the machine has been suspended, which tokio's clock does not count, and
    /// what that was at the start.
    suspended: Option<(fn() -> Duration, Duration)>,
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
            suspended: None,
        }
    }

    /// A clock that goes on while the machine is suspended.
    pub(crate) fn counting(suspended: fn() -> Duration) -> Self {
        Clock {
            start: Instant::now(),
            suspended: Some((suspended, suspended())),
        }
    }

    fn suspended(&self) -> Duration {
        self.suspended.map_or(Duration::ZERO, |(now, at_start)| {
            now().saturating_sub(at_start)
        })
    }

    #[inline]
    pub(crate) fn now(&self) -> Time {
        // In this order: a process that is stopped in between reads a time that is not too late.
        let elapsed = self.start.elapsed();
        Time::ZERO + elapsed + self.suspended()
    }

    pub(crate) fn instant(&self, time: Time) -> Instant {
        // Beyond thirty years, tokio's timers do not care.
        let far = Duration::from_secs(30 * 365 * 86_400);
        let since = time.since(Time::ZERO).saturating_sub(self.suspended());
        self.start + since.min(far)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_counts_suspension_goes_on_while_the_machine_sleeps() {
        use std::sync::atomic::{AtomicU64, Ordering};
        static SLEPT: AtomicU64 = AtomicU64::new(7);
        let clock = Clock::counting(|| Duration::from_secs(SLEPT.load(Ordering::Relaxed)));
        assert!(
            clock.now() < Time::from_secs(60),
            "what was before does not count"
        );
        SLEPT.store(7 + 3600, Ordering::Relaxed);
        let now = clock.now();
        assert!(now >= Time::from_secs(3600));
        let wait = clock.instant(now + Duration::from_secs(5)) - Instant::now();
        assert!(wait <= Duration::from_secs(5), "timers are set from now on");
    }

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
