//! The wait before another attempt.
//!
//! [`Backoff`] holds only its settings, so that it can be copied and shared; it counts no attempts
//! and keeps no state between calls. It draws no random numbers either: the caller hands one in,
//! which keeps a run repeatable. A delay is never longer than `max`, whatever the jitter. Callers
//! must not hand in the same number for all jobs, or those that failed together return together.

use std::time::Duration;

/// Exponential backoff with jitter.
///
/// The plain delay of attempt *n* is `base × factor^(n−1)`. The delay handed out lies within
/// `jitter` percent of it, on either side. The plain delay is capped at `max ÷ (1 + jitter)`, so
/// that `max` is never exceeded and yet the delays at the cap are as spread as all others: callers
/// that were rejected together do not return together.
///
/// ```
/// use headworks_core::Backoff;
/// use std::time::Duration;
///
/// let backoff = Backoff::default();
/// assert_eq!(backoff.bounds(1), (Duration::from_millis(375), Duration::from_millis(625)));
/// assert_eq!(backoff.bounds(2), (Duration::from_millis(750), Duration::from_millis(1250)));
/// assert_eq!(backoff.bounds(99), (Duration::from_secs(36), Duration::from_secs(60)));
///
/// let random = 0x9e37_79b9_7f4a_7c15; // from the caller's generator
/// let delay = backoff.delay(1, random);
/// assert!(Duration::from_millis(375) <= delay && delay <= Duration::from_millis(625));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backoff {
    /// The plain delay after the first failure. Default 500 ms.
    pub base: Duration,
    /// The factor by which each further failure multiplies the delay; 0 counts as 1. Default 2.
    pub factor: u32,
    /// No delay is longer than this. Default 60 s.
    pub max: Duration,
    /// How far a delay may lie from the plain one, in percent of it; at most 100. Default 25.
    pub jitter: u8,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            base: Duration::from_millis(500),
            factor: 2,
            max: Duration::from_secs(60),
            jitter: 25,
        }
    }
}

impl Backoff {
    /// Doubling delays from `base` up to `max`, with the default jitter.
    #[must_use]
    pub fn new(base: Duration, max: Duration) -> Self {
        Backoff {
            base,
            max,
            ..Backoff::default()
        }
    }

    /// How long to wait after attempt number `attempt` failed, counted from 1 (0 counts as 1).
    ///
    /// Always within [`bounds`](Self::bounds), and for the same attempt never shorter for a larger
    /// `random`.
    #[must_use]
    pub fn delay(&self, attempt: u32, random: u64) -> Duration {
        let (low, high) = self.bounds_nanos(attempt);
        let width = u128::from(high - low) + 1;
        let offset = (u128::from(random) * width) >> 64;
        Duration::from_nanos(low + u64::try_from(offset).unwrap_or(0))
    }

    /// The shortest and the longest delay after attempt number `attempt`. Neither falls as
    /// `attempt` grows, and the longest is at most `max`.
    #[must_use]
    pub fn bounds(&self, attempt: u32) -> (Duration, Duration) {
        let (low, high) = self.bounds_nanos(attempt);
        (Duration::from_nanos(low), Duration::from_nanos(high))
    }

    fn bounds_nanos(&self, attempt: u32) -> (u64, u64) {
        let jitter = u128::from(self.jitter.min(100));
        let cap = u128::from(nanos(self.max)) * 100 / (100 + jitter);
        let plain = u128::from(self.growth(attempt)).min(cap);
        let spread = plain * jitter / 100;
        // Both fit: plain + spread is at most `max`, which fits.
        (saturate(plain - spread), saturate(plain + spread))
    }

    /// `base × factor^(attempt−1)`, stopping at the end of the range or once `max` is passed.
    fn growth(&self, attempt: u32) -> u64 {
        let mut delay = nanos(self.base);
        let max = nanos(self.max);
        if self.factor <= 1 || delay == 0 {
            return delay;
        }
        for _ in 1..attempt {
            if delay >= max {
                break;
            }
            delay = delay.saturating_mul(u64::from(self.factor));
        }
        delay
    }
}

fn nanos(duration: Duration) -> u64 {
    saturate(duration.as_nanos())
}

fn saturate(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn any_duration() -> impl Strategy<Value = Duration> {
        prop_oneof![
            (0..100_000u64).prop_map(Duration::from_millis),
            any::<u64>().prop_map(Duration::from_nanos),
            Just(Duration::MAX),
        ]
    }

    prop_compose! {
        fn any_backoff()(base in any_duration(), factor in any::<u32>(), small in 0..4u32, max in any_duration(), jitter in any::<u8>(), pick in any::<bool>()) -> Backoff {
            Backoff { base, factor: if pick { factor } else { small }, max, jitter }
        }
    }

    proptest! {
        #[test]
        fn delay_lies_within_its_bounds(b in any_backoff(), attempt in any::<u32>(), random in any::<u64>()) {
            let (low, high) = b.bounds(attempt);
            let delay = b.delay(attempt, random);
            prop_assert!(low <= delay && delay <= high && high <= b.max);
        }

        #[test]
        fn bounds_never_fall(b in any_backoff(), attempt in 0..100u32) {
            let (low, high) = b.bounds(attempt);
            let (next_low, next_high) = b.bounds(attempt + 1);
            prop_assert!(low <= next_low && high <= next_high);
        }

        #[test]
        fn larger_random_never_waits_less(b in any_backoff(), attempt in any::<u32>(), x in any::<u64>(), y in any::<u64>()) {
            prop_assert!(b.delay(attempt, x.min(y)) <= b.delay(attempt, x.max(y)));
        }
    }

    #[test]
    fn extremes_of_random_reach_both_bounds() {
        let b = Backoff::default();
        for attempt in 0..40 {
            let (low, high) = b.bounds(attempt);
            assert_eq!(b.delay(attempt, 0), low);
            assert_eq!(b.delay(attempt, u64::MAX), high);
        }
    }

    #[test]
    fn without_jitter_the_delay_is_exact() {
        let b = Backoff {
            jitter: 0,
            ..Backoff::default()
        };
        let secs: Vec<f64> = (1..=9).map(|n| b.delay(n, 7).as_secs_f64()).collect();
        assert_eq!(secs, [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]);
    }
}
