//! Seconds since 1970 that never go back: the one place where the announce plane reads a clock.

use crate::swarm::Seconds;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

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

    pub(crate) fn now(&self) -> Seconds {
        self.base
            .saturating_add(self.start.elapsed().as_secs() as Seconds)
    }
}
