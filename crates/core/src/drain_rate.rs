//! How fast places are freed by grants.
//!
//! [`DrainRate`] is a running mean of the intervals between grants, of the queue behind one bound
//! or one target. Its owner tells it of every grant and of the moment the queue runs empty: the
//! time of an empty queue is no interval. It must not be told of jobs that leave in any other way,
//! or cancellations would look like speed and hints would shrink.

use crate::time::Time;
use std::time::Duration;

/// The wait that is named before any interval has been measured.
pub(crate) const UNKNOWN: Duration = Duration::from_secs(1);

/// The number of intervals that the mean is taken over, once there were as many.
const REMEMBERED: u32 = 128;

/// The mean deviation of the intervals between random times, as a part of their mean.
const RANDOM: f64 = 0.736;

/// How fast places are freed by grants.
///
/// Only grants count. A job that expires, is cancelled, shed or delayed frees a place as well, but
/// says nothing about how fast the targets serve.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DrainRate {
    /// Mean time between two grants, in nanoseconds.
    interval: Option<f64>,
    /// Mean square of that time.
    square: f64,
    /// How far an interval is from the mean, on average.
    deviation: f64,
    /// The number of intervals that the mean is taken over.
    seen: u32,
    /// When the last grant was, if jobs were left waiting, or the time since when jobs are known
    /// to wait.
    last: Option<Time>,
}

impl DrainRate {
    /// A job was granted; `still` jobs wait. A queue that is empty says nothing about its speed.
    pub(crate) fn grant(&mut self, now: Time, still: u64) {
        if let Some(before) = self.last {
            let took = now.as_nanos().saturating_sub(before.as_nanos()) as f64;
            self.seen = REMEMBERED.min(self.seen + 1);
            // A plain mean at first, a moving one once there are enough: the first interval is not
            // weighted more than others.
            let part = 1.0 / f64::from(self.seen);
            let mean = self.interval.get_or_insert(took);
            *mean += (took - *mean) * part;
            self.deviation += ((took - *mean).abs() - self.deviation) * part;
            self.square += (took * took - self.square) * part;
        }
        self.last = (still > 0).then_some(now);
    }

    /// Jobs wait, though none was granted yet. Without this, the first interval after a start would
    /// be missing: slots that were filled together are freed together, after all of their time.
    pub(crate) fn blocked(&mut self, now: Time) {
        self.last.get_or_insert(now);
    }

    /// Nothing waits any more: the time until the next grant is not an interval.
    pub(crate) fn emptied(&mut self) {
        self.last = None;
    }

    /// The mean time between two grants, if that is known.
    pub(crate) fn interval(&self) -> Option<Duration> {
        self.interval
            .map(|nanos| Duration::from_nanos(nanos as u64))
    }

    /// When the next grant is to be expected.
    pub(crate) fn next_grant(&self, now: Time) -> Duration {
        let Some(interval) = self.interval() else {
            return UNKNOWN;
        };
        let since = self.last.map_or(Duration::ZERO, |last| now.since(last));
        // Half an interval at least: a grant that is overdue says that it is late, not that it
        // comes now.
        interval.saturating_sub(since).max(interval / 2)
    }

    /// How long until `missing` places are freed, of all `places`; `None` before any was.
    pub(crate) fn time_for(&self, now: Time, missing: f64, places: usize) -> Option<Duration> {
        let interval = self.interval?;
        let late = match missing > 0.0 {
            // The larger of two reasons to be late: chance over many intervals, or the long
            // interval that we are in.
            true => self.spare(missing, places).max(self.gap_left(now)),
            false => 0.0,
        };
        Some(nanoseconds(missing.max(0.0) * interval + late))
    }

    /// How long before its time a place has to be kept, so that one is freed in between.
    pub(crate) fn lead(&self, missing: f64, places: usize) -> Duration {
        let interval = self.interval.unwrap_or(0.0);
        let gap = self.gap() - interval;
        nanoseconds(self.spare(missing, places).max(gap) + interval)
    }

    /// The time beyond the mean until `missing` places are freed: at random times that is rarely
    /// more than twice the root of their number, at even ones nothing; and the mean is a guess,
    /// too.
    fn spare(&self, missing: f64, places: usize) -> f64 {
        let random = 2.0 * missing.sqrt() * self.unevenness();
        let spare = (random + missing / 16.0).min(places as f64 / 4.0);
        spare * self.interval.unwrap_or(0.0)
    }

    /// The interval that a random moment falls into, on average: longer than the mean interval,
    /// because long intervals have more moments. Where slots are freed all together, it is the
    /// time from one round to the next.
    fn gap(&self) -> f64 {
        self.square / self.interval.unwrap_or(1.0).max(1.0)
    }

    /// How much later than a mean interval from now the next grant is. An interval that is longer
    /// than expected already is expected to last as long again.
    fn gap_left(&self, now: Time) -> f64 {
        let since = self
            .last
            .map_or(0.0, |last| now.since(last).as_nanos() as f64);
        let gap = self.gap();
        let left = if since > gap { since } else { gap - since };
        left - self.interval.unwrap_or(0.0)
    }

    /// How uneven intervals are: 0 if they are all alike, 1 if they are as uneven as those of
    /// random times. Little is known from few intervals.
    fn unevenness(&self) -> f64 {
        let seen = self.deviation / self.interval.unwrap_or(1.0).max(1.0) / RANDOM;
        let unknown = 1.0 / f64::from(self.seen.max(1)).sqrt();
        seen.max(unknown).min(1.0)
    }
}

fn nanoseconds(nanos: f64) -> Duration {
    Duration::try_from_secs_f64(nanos / 1e9).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_intervals_count_alike() {
        let mut drain = DrainRate::default();
        // Two slots that are freed together, every second.
        for freed in 0..6 {
            drain.grant(Time::from_secs(freed / 2), 5);
        }
        assert_eq!(drain.interval(), Some(Duration::from_millis(400)));
    }

    #[test]
    fn the_wait_before_the_first_grant_counts() {
        let mut drain = DrainRate::default();
        drain.blocked(Time::ZERO);
        for _ in 0..4 {
            drain.grant(Time::from_secs(2), 5);
        }
        assert_eq!(drain.interval(), Some(Duration::from_millis(500)));
    }

    #[test]
    fn slots_that_are_freed_together_are_waited_for_together() {
        let mut drain = DrainRate::default();
        for freed in 0..400 {
            drain.grant(Time::from_secs(freed / 50), 5);
        }
        let now = Time::from_secs(7);
        for (missing, round) in [(1.0, 1), (49.0, 1), (51.0, 2), (101.0, 3)] {
            let told = drain.time_for(now, missing, 1000).expect("it is known");
            let true_time = Duration::from_secs(round);
            assert!(
                told.as_secs_f64() > 0.85 * true_time.as_secs_f64(),
                "{missing}: {told:?}, but they are freed after {true_time:?}"
            );
            assert!(told < true_time + Duration::from_millis(1_300), "{told:?}");
        }
    }
}
