//! The one seam for time and chance.

use headworks_core::Time;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// Tokio's clock, which a test can stop, as nanoseconds since the pool's start.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    chance: AtomicU64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        let seed = RandomState::new().build_hasher().finish();
        Clock {
            start: Instant::now(),
            chance: AtomicU64::new(seed),
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

    /// A random number, good enough for jitter.
    pub(crate) fn random(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut word = self.chance.fetch_add(step, Ordering::Relaxed);
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}
