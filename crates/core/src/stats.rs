//! Counters since the start.
//!
//! Each class has its own; the core only ever adds to them, and every admitted job is counted once
//! in [`Ended`]. A driver copies them where they can be read without stopping anything. They decide
//! nothing: no selection or forecast reads a counter.

use crate::event::Reason;
use std::time::Duration;

/// Counters of one class.
///
/// ```
/// use headworks_core::{Class, Config, Core, Job, Outcome, Time, Verdict};
///
/// let mut core = Core::new(Config::default(), Time::ZERO)?;
/// core.submit(Time::ZERO, Job::new(()).class(Class(3))).expect("room");
/// let lease = core.next(Time::from_secs(2)).expect("nothing is limited");
/// core.finish(Time::from_secs(3), lease, Outcome::DONE, Verdict::Fine);
///
/// let stats = core.stats(Class(3)).expect("it exists");
/// assert_eq!((stats.admitted, stats.granted, stats.ended.done), (1, 1, 1));
/// assert_eq!(stats.waits.sum().as_secs(), 2);
/// # Ok::<(), headworks_core::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassStats {
    /// Jobs admitted.
    pub admitted: u64,
    /// Leases given out.
    pub granted: u64,
    /// Cost charged with them.
    pub charged: u64,
    /// Leases that went ahead because of age.
    pub aged: u64,
    /// Attempts that are to be repeated.
    pub retried: u64,
    /// Jobs postponed because no place was free when they were due.
    pub postponed: u64,
    /// Jobs refused, by [`Reason::ALL`].
    pub refused: [u64; Reason::ALL.len()],
    /// How jobs ended.
    pub ended: Ended,
    /// How long jobs waited before a lease.
    pub waits: Waits,
}

impl ClassStats {
    /// Jobs refused, whatever the reason.
    #[must_use]
    pub fn refused_in_all(&self) -> u64 {
        self.refused.iter().sum()
    }
}

/// How jobs ended. Every admitted job ends in exactly one of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// Done.
    pub done: u64,
    /// Failed for good, or unservable.
    pub failed: u64,
    /// Merged with a delayed one.
    pub merged: u64,
    /// Not started in time.
    pub expired: u64,
    /// Cancelled.
    pub cancelled: u64,
    /// Gave up its place.
    pub shed: u64,
    /// Handed back by a drain.
    pub returned: u64,
}

/// A histogram of waits: four buckets to a doubling, from a microsecond to hours, so that a
/// quantile is at most a quarter too high.
///
/// ```
/// use headworks_core::Waits;
/// use std::time::Duration;
///
/// let mut waits = Waits::default();
/// for millis in 1..=100 {
///     waits.record(Duration::from_millis(millis));
/// }
/// assert_eq!(waits.count(), 100);
/// let p90 = waits.quantile(0.9);
/// assert!(p90 >= Duration::from_millis(90) && p90 <= Duration::from_millis(113));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    counts: [u64; Self::BUCKETS],
    /// In nanoseconds.
    sum: u128,
}

impl Default for Waits {
    fn default() -> Self {
        Waits {
            counts: [0; Self::BUCKETS],
            sum: 0,
        }
    }
}

impl Waits {
    const BUCKETS: usize = 144;

    /// Counts one wait.
    pub fn record(&mut self, wait: Duration) {
        self.record_nanos(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn record_nanos(&mut self, nanos: u64) {
        self.counts[Self::bucket(nanos)] += 1;
        self.sum += u128::from(nanos);
    }

    fn bucket(nanos: u64) -> usize {
        let micros = nanos / 1000 + 4;
        let log = micros.ilog2();
        let quarter = (micros >> (log - 2)) & 3;
        (((log - 2) * 4) as usize + quarter as usize).min(Self::BUCKETS - 1)
    }

    /// The longest wait that a bucket counts.
    fn upper(bucket: usize) -> Duration {
        let (log, quarter) = (bucket as u32 / 4 + 2, bucket as u64 % 4);
        Duration::from_micros(((5 + quarter) << (log - 2)) - 4)
    }

    /// How many waits were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All waits together.
    #[must_use]
    pub fn sum(&self) -> Duration {
        let (seconds, nanos) = (self.sum / 1_000_000_000, self.sum % 1_000_000_000);
        Duration::new(u64::try_from(seconds).unwrap_or(u64::MAX), nanos as u32)
    }

    /// The wait that a fraction `q` of all did not exceed.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Duration {
        let rank = (q.clamp(0.0, 1.0) * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return Self::upper(bucket);
            }
        }
        Duration::ZERO
    }

    /// Upper edges and counts of the buckets up to the last that counted anything.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let last = self
            .counts
            .iter()
            .rposition(|count| *count > 0)
            .map_or(0, |last| last + 1);
        self.counts[..last]
            .iter()
            .enumerate()
            .map(|(bucket, count)| (Self::upper(bucket), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_a_quarter_too_high() {
        let mut waits = Waits::default();
        for millis in 1..=1000 {
            waits.record(Duration::from_millis(millis));
        }
        for (q, millis) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0)] {
            let got = waits.quantile(q).as_secs_f64() * 1000.0;
            assert!(
                (millis..millis * 1.25).contains(&got),
                "{q}: {got} ms, not {millis}"
            );
        }
        assert_eq!(waits.count(), 1000);
    }

    #[test]
    fn the_longest_wait_has_a_bucket() {
        let mut waits = Waits::default();
        waits.record(Duration::MAX);
        waits.record(Duration::ZERO);
        assert_eq!(waits.count(), 2);
    }
}
