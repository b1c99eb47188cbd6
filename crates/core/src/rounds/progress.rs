//! The numbers of one round, for progress displays and forecasts.
//!
//! A snapshot that [`Rounds`](super::Rounds) fills in; nothing is decided by it. `declared` may
//! still grow while the round above is open, so an [`eta`](Progress::eta) is one of what is known
//! so far.

use crate::Time;
use std::time::Duration;

/// The numbers of one round at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// The round, which is the depth of its nodes.
    pub round: u32,
    /// Nodes known to belong to it.
    pub declared: u64,
    /// Nodes that ended, well or not.
    pub ended: u64,
    /// Those of the ended that failed.
    pub failed: u64,
    /// Nodes in memory that could be leased now.
    pub ready: u64,
    /// Nodes being worked on.
    pub leased: u64,
    /// Nodes waiting for the time of their next attempt.
    pub delayed: u64,
    /// Attempts that were followed by another.
    pub retried: u64,
    /// When the round was entered.
    pub opened: Option<Time>,
    /// When its last node ended.
    pub closed: Option<Time>,
}

impl Progress {
    /// Nodes that have not ended.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.declared.saturating_sub(self.ended)
    }

    /// How much longer this round takes if it goes on as it did so far; `None` before the first
    /// node has ended.
    ///
    /// ```
    /// use headworks_core::rounds::{Discovered, Rounds};
    /// use headworks_core::Time;
    /// use std::time::Duration;
    ///
    /// let mut rounds = Rounds::default();
    /// rounds.seed(Time::ZERO, vec!["/a", "/b", "/c"].into())?;
    /// let lease = rounds.next(Time::ZERO).expect("a node");
    /// let now = Time::from_secs(10);
    /// let _ = rounds.finish(now, lease.id, Discovered::none());
    /// assert_eq!(rounds.progress().eta(now), Some(Duration::from_secs(20)));
    /// # Ok::<(), headworks_core::rounds::RoundsError>(())
    /// ```
    #[must_use]
    pub fn eta(&self, now: Time) -> Option<Duration> {
        if self.closed.is_some() {
            return Some(Duration::ZERO);
        }
        let elapsed = now.since(self.opened?).as_nanos();
        let left = (elapsed * u128::from(self.remaining())).checked_div(u128::from(self.ended))?;
        Some(Duration::from_nanos(
            u64::try_from(left).unwrap_or(u64::MAX),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eta_goes_by_the_rounds_own_rate() {
        let mut p = Progress {
            declared: 400,
            opened: Some(Time::from_secs(10)),
            ..Progress::default()
        };
        assert_eq!(p.eta(Time::from_secs(20)), None);
        p.ended = 100;
        assert_eq!(p.eta(Time::from_secs(20)), Some(Duration::from_secs(30)));
        p.ended = 400;
        p.closed = Some(Time::from_secs(50));
        assert_eq!(p.eta(Time::from_secs(90)), Some(Duration::ZERO));
    }
}
