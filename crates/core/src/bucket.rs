//! A token bucket that refills continuously and may be in debt.
//!
//! All arithmetic is in whole numbers of 10⁻¹⁵ cost, so that a bucket is exact, the same on every
//! machine, and never drifts.

use crate::id::Cost;
use crate::time::Time;
use std::time::Duration;

/// The bucket's units per cost of 1: micro-cost per second × nanoseconds.
const UNIT: i128 = 1_000_000_000_000_000;

/// A rate and its burst.
///
/// ```
/// # use headworks_core::{Cost, Rate};
/// let rate = Rate::per_second(100.0);
/// assert_eq!(rate.burst(), Cost(100)); // one second's worth
/// assert_eq!(Rate::per_second(0.2).burst(), Cost(1)); // at least one
/// assert_eq!(rate.with_burst(Cost(200)).burst(), Cost(200));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Rate {
    micros: u64,
    burst: Cost,
    refund: bool,
}

impl Rate {
    /// A rate per second, with a burst of one second's worth, at least 1. The lowest rate is one
    /// per million seconds, which also stands for zero, negative numbers and what is not a number;
    /// the highest is a million million per second, which also stands for infinity.
    pub fn per_second(rate: f64) -> Self {
        // NaN becomes 0 in the conversion.
        let micros = ((rate * 1e6).round().clamp(1.0, 1e18) as u64).max(1);
        Rate {
            micros,
            burst: Cost((micros / 1_000_000).max(1)),
            refund: true,
        }
    }

    /// One per interval, and never two at once.
    pub fn every(interval: Duration) -> Self {
        Rate::per_second(1.0 / interval.as_secs_f64().max(1e-9)).with_burst(Cost(1))
    }

    /// The same rate with another burst, at least 1.
    pub fn with_burst(self, burst: Cost) -> Self {
        Rate {
            burst: Cost(burst.0.max(1)),
            ..self
        }
    }

    /// The same rate for a provider that reserves up front: a surplus of the estimate is not
    /// refunded.
    pub const fn without_refund(self) -> Self {
        Rate {
            refund: false,
            ..self
        }
    }

    /// The cost that may start at once after a pause.
    #[must_use]
    pub const fn burst(self) -> Cost {
        self.burst
    }

    /// The rate per second.
    #[must_use]
    pub fn as_per_second(self) -> f64 {
        self.micros as f64 / 1e6
    }
}

/// The bucket: starts full.
///
/// ```
/// use headworks_core::{Cost, Rate, Time, TokenBucket};
///
/// let mut bucket = TokenBucket::new(Rate::per_second(2.0), Time::ZERO);
/// assert!(bucket.try_take(Time::ZERO, Cost(2)).is_ok());
/// let at = bucket.try_take(Time::ZERO, Cost(1)).unwrap_err();
/// assert_eq!(at, Time::from_millis(500));
/// assert!(bucket.try_take(at, Cost(1)).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct TokenBucket {
    rate: Rate,
    level: i128,
    at: Time,
}

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub fn new(rate: Rate, now: Time) -> Self {
        TokenBucket {
            rate,
            level: full(rate),
            at: now,
        }
    }

    /// Applies a new rate from now on, keeping the level or the debt. A full bucket stays full.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        self.level = if self.is_full(now) {
            full(rate)
        } else {
            self.level.min(full(rate))
        };
        self.rate = rate;
    }

    #[inline]
    fn refill(&mut self, now: Time) {
        let nanos = i128::from(now.as_nanos().saturating_sub(self.at.as_nanos()));
        if nanos > 0 {
            self.at = now;
            let gained = nanos * i128::from(self.rate.micros);
            self.level = full(self.rate).min(self.level.saturating_add(gained));
        }
    }

    /// Takes `cost` if there is enough.
    ///
    /// # Errors
    /// The time at which there will be enough.
    pub fn try_take(&mut self, now: Time, cost: Cost) -> Result<(), Time> {
        match self.ready_at(now, cost) {
            None => {
                self.charge(now, cost);
                Ok(())
            }
            Some(at) => Err(at),
        }
    }

    /// When there is enough for `cost`, if there is not now; more than the burst needs a full
    /// bucket.
    #[inline]
    pub(crate) fn ready_at(&mut self, now: Time, cost: Cost) -> Option<Time> {
        self.refill(now);
        let missing = units(cost).min(full(self.rate)).saturating_sub(self.level);
        (missing > 0).then(|| now + self.time_for(missing))
    }

    /// The earliest time at which `cost` can have passed in all, in any number of charges.
    pub(crate) fn passed_at(&mut self, now: Time, cost: Cost) -> Time {
        self.refill(now);
        now + self.time_for(units(cost).saturating_sub(self.level))
    }

    fn time_for(&self, missing: i128) -> Duration {
        let micros = i128::from(self.rate.micros);
        let nanos = missing.max(0).saturating_add(micros - 1) / micros;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Takes `cost`, into debt if need be.
    #[inline]
    pub(crate) fn charge(&mut self, now: Time, cost: Cost) {
        self.refill(now);
        self.level = self.level.saturating_sub(units(cost));
    }

    /// Gives `cost` back, up to the burst.
    pub(crate) fn refund(&mut self, now: Time, cost: Cost) {
        self.refill(now);
        self.level = full(self.rate).min(self.level.saturating_add(units(cost)));
    }

    /// Whether a surplus of an estimate is refunded.
    pub(crate) fn refunds(&self) -> bool {
        self.rate.refund
    }

    pub(crate) fn is_full(&mut self, now: Time) -> bool {
        self.refill(now);
        self.level >= full(self.rate)
    }

    /// The level; negative when in debt.
    pub(crate) fn level(&self) -> f64 {
        self.level as f64 / UNIT as f64
    }
}

#[inline]
fn units(cost: Cost) -> i128 {
    i128::from(cost.0) * UNIT
}

/// The level of a full one.
#[inline]
fn full(rate: Rate) -> i128 {
    units(rate.burst)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refills_exactly() {
        let mut bucket = TokenBucket::new(Rate::per_second(3.0), Time::ZERO);
        bucket.charge(Time::ZERO, Cost(3));
        let at = bucket.ready_at(Time::ZERO, Cost(1)).expect("empty");
        assert_eq!(at, Time::from_nanos(333_333_334));
        assert_eq!(bucket.ready_at(at, Cost(1)), None);
        assert!(
            bucket
                .ready_at(Time::from_nanos(333_333_333), Cost(1))
                .is_none(),
            "time that goes back is ignored"
        );
    }

    #[test]
    fn larger_than_the_burst_waits_for_full_and_leaves_debt() {
        let mut bucket = TokenBucket::new(Rate::per_second(10.0), Time::ZERO);
        assert_eq!(bucket.ready_at(Time::ZERO, Cost(50)), None);
        bucket.charge(Time::ZERO, Cost(50));
        assert_eq!(
            bucket.ready_at(Time::ZERO, Cost(0)),
            Some(Time::from_secs(4))
        );
        assert_eq!(
            bucket.ready_at(Time::ZERO, Cost(50)),
            Some(Time::from_secs(5))
        );
    }

    #[test]
    fn a_refund_stops_at_the_burst() {
        let mut bucket = TokenBucket::new(Rate::per_second(10.0), Time::ZERO);
        bucket.charge(Time::ZERO, Cost(5));
        bucket.refund(Time::ZERO, Cost(500));
        assert_eq!(bucket.level(), 10.0);
    }

    #[test]
    fn a_new_rate_keeps_the_debt() {
        let mut bucket = TokenBucket::new(Rate::per_second(10.0), Time::ZERO);
        bucket.charge(Time::ZERO, Cost(30));
        bucket.set_rate(Time::from_secs(1), Rate::per_second(1.0));
        assert_eq!(bucket.level(), -10.0);
    }
}
