//! Failed connections to one server of a capacity pool.
//!
//! The scheduler judges a pool as a whole. A pool may have several servers, and one that cannot be
//! reached must neither suspend the others nor cost every request a connect timeout. So the
//! failures of each server are counted here, and the pool is only blamed if none of its servers can
//! be reached.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::SuspendRule;

/// Outcomes of the connections to one server.
#[derive(Debug, Default)]
pub(crate) struct Connects {
    /// Failures since the last success.
    failed: AtomicU32,
    /// Until when the server is avoided.
    down_until: Mutex<Option<Instant>>,
}

impl Connects {
    /// Whether the last connection failed.
    pub(crate) fn is_failing(&self) -> bool {
        self.failed.load(Ordering::Relaxed) > 0
    }

    /// How long the server is still avoided, if it is.
    pub(crate) fn down_for(&self, now: Instant) -> Option<Duration> {
        if !self.is_failing() {
            return None;
        }
        let down_until = *self.down_until.lock();
        down_until.and_then(|until| {
            until
                .checked_duration_since(now)
                .filter(|left| !left.is_zero())
        })
    }

    /// Begins a call. If the server was avoided, the call probes it: others avoid it for as long
    /// again, unless the call succeeds.
    pub(crate) fn begin(&self, rule: SuspendRule, now: Instant) {
        if self.is_failing() {
            let mut down_until = self.down_until.lock();
            if down_until.is_some() {
                *down_until = Some(now + rule.suspend_for);
            }
        }
    }

    /// Records a failed connection.
    pub(crate) fn failed(&self, rule: SuspendRule, now: Instant) {
        let failed = self
            .failed
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        if rule.threshold > 0 && failed >= rule.threshold {
            *self.down_until.lock() = Some(now + rule.suspend_for);
        }
    }

    /// Records that the server could be reached.
    pub(crate) fn reached(&self) {
        if self.is_failing() {
            *self.down_until.lock() = None;
            self.failed.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_avoided_after_failures_in_a_row_and_probed_by_one() {
        let (connects, now) = (Connects::default(), Instant::now());
        let rule = SuspendRule {
            threshold: 2,
            suspend_for: Duration::from_secs(5),
        };
        connects.failed(rule, now);
        connects.reached();
        connects.failed(rule, now);
        assert!(connects.is_failing() && connects.down_for(now).is_none());
        connects.failed(rule, now);
        assert_eq!(connects.down_for(now), Some(rule.suspend_for));
        let later = now + rule.suspend_for;
        assert!(connects.down_for(later).is_none(), "one may probe it");
        connects.begin(rule, later);
        assert!(connects.down_for(later).is_some(), "others wait");
        connects.reached();
        assert!(connects.down_for(later).is_none() && !connects.is_failing());
    }
}
