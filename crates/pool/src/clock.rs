//! The one place for time and randomness.

use headworks_core::Time;
use std::time::Duration;
use tokio::time::Instant;

/// Tokio's clock, which a test can pause, as nanoseconds since the pool's start.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
}

/// Up to a tenth longer, so that clients that were rejected together do not return together. A
/// booking is kept for longer than that.
pub(crate) fn stretch(time: Duration) -> Duration {
    time + time / 10_000 * fastrand::u32(..1000)
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
