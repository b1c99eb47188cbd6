//! The only clock of this crate: CLOCK_BOOTTIME, which goes on while the machine is suspended.

use std::ops::Add;
use std::time::Duration;

/// A point in time on this machine's CLOCK_BOOTTIME. It cannot be compared between machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootInstant(Duration);

impl BootInstant {
    /// Reads the clock.
    #[must_use]
    pub fn now() -> BootInstant {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(now.tv_nsec).unwrap_or_default();
        BootInstant(Duration::new(seconds, nanos))
    }

    /// Returns the time since `earlier`, or zero if that is later.
    #[must_use]
    pub fn since(self, earlier: BootInstant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the time since boot, for storage in an atomic.
    pub(crate) fn as_nanos(self) -> u64 {
        // 2^64 nanoseconds are 584 years of uptime.
        u64::try_from(self.0.as_nanos()).unwrap_or(u64::MAX)
    }

    pub(crate) fn from_nanos(nanos: u64) -> BootInstant {
        BootInstant(Duration::from_nanos(nanos))
    }
}

/// Returns for how long this machine has been suspended since it was started.
#[must_use]
pub fn suspended() -> Duration {
    // In this order: a process that is stopped in between does not miss anything.
    let awake = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(awake.tv_sec).unwrap_or_default();
    let nanos = u32::try_from(awake.tv_nsec).unwrap_or_default();
    BootInstant::now().since(BootInstant(Duration::new(seconds, nanos)))
}

impl Add<Duration> for BootInstant {
    type Output = BootInstant;

    fn add(self, duration: Duration) -> BootInstant {
        BootInstant(self.0.saturating_add(duration))
    }
}
