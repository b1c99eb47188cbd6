//! The tracker's clock: the only module that reads the system time.

use std::time::{SystemTime, UNIX_EPOCH};
use tokio::time::Instant;

/// Seconds since 1970, or a number of seconds. Overflows in 2106.
///
/// Four bytes instead of eight, because every peer and every cached peer stores one.
pub(crate) type Seconds = u32;

/// A clock that never goes back.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    base: Seconds,
}

impl Clock {
    pub(crate) fn new() -> Clock {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        Clock {
            start: Instant::now(),
            base: since.map_or(1, |since| since.as_secs() as Seconds),
        }
    }

    /// Returns the system time at the start plus the monotonic time since, so that a clock
    /// adjustment cannot expire every peer at once.
    pub(crate) fn now(&self) -> Seconds {
        self.base
            .saturating_add(self.start.elapsed().as_secs() as Seconds)
    }
}
