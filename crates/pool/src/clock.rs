//! The one place for time and randomness.

use headworks_core::Time;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Tokio's clock, which a test can pause, as nanoseconds since the pool's start.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    jitter: Jitter,
}

/// A source of random numbers, good enough to spread retries (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Jitter(Arc<AtomicU64>);

impl Jitter {
    pub(crate) fn random(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut word = self.0.fetch_add(step, Ordering::Relaxed);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Up to a tenth longer, so that clients that were rejected together do not return together. A
    /// booking is kept for longer than that.
    pub(crate) fn stretch(&self, time: Duration) -> Duration {
        let tenth = u32::try_from(self.random() >> 40).unwrap_or(0) % 1000;
        time + time / 10_000 * tenth
    }
}

impl Clock {
    pub(crate) fn new() -> Self {
        let seed = RandomState::new().build_hasher().finish();
        Clock {
            start: Instant::now(),
            jitter: Jitter(Arc::new(AtomicU64::new(seed))),
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

    pub(crate) fn jitter(&self) -> &Jitter {
        &self.jitter
    }
}
