//! The intervals of heartbeats.

use std::time::Duration;

use crate::error::{Error, Result};

/// How often nodes send heartbeats, and when one is late. All nodes of a fleet must use the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timing {
    /// The interval of heartbeats. Default 5 s.
    pub heartbeat: Duration,
    /// After this time without a successful heartbeat, a node starts no call that others can see.
    /// Default 20 s.
    pub stop_after: Duration,
    /// After this time, it aborts calls in flight. Default 25 s.
    pub abort_after: Duration,
    /// After this time, others consider it lost. Default 30 s.
    pub lost_after: Duration,
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            heartbeat: Duration::from_secs(5),
            stop_after: Duration::from_secs(20),
            abort_after: Duration::from_secs(25),
            lost_after: Duration::from_secs(30),
        }
    }
}

impl Timing {
    /// The default intervals, all multiplied: for tests, and for slow networks.
    #[must_use]
    pub fn scaled(factor: f64) -> Timing {
        let Timing {
            heartbeat,
            stop_after,
            abort_after,
            lost_after,
        } = Timing::default();
        Timing {
            heartbeat: heartbeat.mul_f64(factor),
            stop_after: stop_after.mul_f64(factor),
            abort_after: abort_after.mul_f64(factor),
            lost_after: lost_after.mul_f64(factor),
        }
    }

    /// The time between two looks at a counter that counts at most.
    pub(crate) fn longest_gap(&self) -> Duration {
        self.heartbeat * 2
    }

    /// A node must stop before others may take over.
    pub(crate) fn check(&self) -> Result<()> {
        let ordered = self.heartbeat > Duration::ZERO
            && self.heartbeat * 2 <= self.stop_after
            && self.stop_after < self.abort_after
            && self.abort_after < self.lost_after;
        if ordered {
            Ok(())
        } else {
            Err(Error::Setting(
                "heartbeat intervals must satisfy 2 × heartbeat ≤ stop < abort < lost".to_owned(),
            ))
        }
    }
}
