//! A token bucket that refills continuously and may be in debt.
//!
//! All arithmetic is in whole numbers of 10⁻¹⁵ cost, so that a bucket is exact, the same on every
//! machine, and never drifts. The level is at most the burst, and has no lower bound: a job larger
//! than the burst leaves debt behind, which the rate pays off.
//!
//! A bucket belongs to a [gate](crate::Limits), or as a [`TokenBucket`] to a program that limits
//! work of its own. Time must not go back between calls; an earlier `now` refills nothing.

use crate::id::Cost;
use crate::time::Time;
use std::time::Duration;

/// The bucket's units per cost of 1: micro-cost per second × nanoseconds.
const UNIT: i128 = 1_000_000_000_000_000;

/// The bucket's units per millionth of a cost.
const MICRO: i128 = UNIT / 1_000_000;

/// A fraction of 1, in billionths.
pub(crate) const WHOLE: u64 = 1_000_000_000;

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
    /// Millionths beyond the whole burst. Only a share has any.
    burst_micros: u32,
    refund: bool,
    /// A share of a limit: its bucket starts empty, and no change of the share adds to it.
    share: bool,
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
            burst_micros: 0,
            refund: true,
            share: false,
        }
    }

    /// A share of a rate, in millionths per second, and of its burst, in millionths.
    ///
    /// A share of 0 is shut: a gate with it grants nothing. The burst may be a fraction, so that
    /// the shares of all nodes add up to the configured burst. The bucket of a share starts empty
    /// and never fills by a change of the share, or every change would grant a burst anew.
    ///
    /// ```
    /// # use headworks_core::Rate;
    /// let third = Rate::share(33_333_333, 333_333);
    /// assert_eq!((third.micros_per_second(), third.burst_in_micros()), (33_333_333, 333_333));
    /// assert!(Rate::share(0, 0).is_shut() && !third.is_shut());
    /// ```
    pub const fn share(micros_per_second: u64, burst_micros: u64) -> Self {
        Rate {
            micros: micros_per_second,
            burst: Cost(burst_micros / 1_000_000),
            burst_micros: (burst_micros % 1_000_000) as u32,
            refund: true,
            share: true,
        }
    }

    /// A fraction of this rate and of its burst as a [`share`](Self::share), rounded down.
    /// `billionths` is the fraction, at most 1.
    pub(crate) fn part(self, billionths: u64) -> Self {
        let part = |whole: u64| {
            let part = u128::from(whole) * u128::from(billionths.min(WHOLE)) / u128::from(WHOLE);
            part as u64
        };
        Rate {
            refund: self.refund,
            ..Rate::share(part(self.micros), part(self.burst_in_micros()))
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
            burst_micros: 0,
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

    /// Whether a surplus of an estimate is refunded.
    #[must_use]
    pub const fn refunds(self) -> bool {
        self.refund
    }

    /// The cost that may start at once after a pause. A share's burst is rounded down.
    #[must_use]
    pub const fn burst(self) -> Cost {
        self.burst
    }

    /// The burst in millionths of a cost.
    #[must_use]
    pub const fn burst_in_micros(self) -> u64 {
        let whole = self.burst.0.saturating_mul(1_000_000);
        whole.saturating_add(self.burst_micros as u64)
    }

    /// The rate in millionths per second.
    #[must_use]
    pub const fn micros_per_second(self) -> u64 {
        self.micros
    }

    /// Whether it is a [`share`](Self::share) of a rate.
    #[must_use]
    pub const fn is_share(self) -> bool {
        self.share
    }

    /// Whether nothing may ever start at this rate.
    #[must_use]
    pub const fn is_shut(self) -> bool {
        self.micros == 0
    }

    /// The rate per second.
    #[must_use]
    pub fn as_per_second(self) -> f64 {
        self.micros as f64 / 1e6
    }
}

/// The bucket: starts full, unless its rate is a [`share`](Rate::share).
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
    /// A full bucket; an empty one for a share.
    #[must_use]
    pub fn new(rate: Rate, now: Time) -> Self {
        TokenBucket {
            rate,
            level: if rate.share { 0 } else { full(rate) },
            at: now,
        }
    }

    /// Applies a new rate from now on, keeping the level or the debt. A full bucket stays full,
    /// unless the new rate is a share: a share grants nothing that was not there.
    pub fn set_rate(&mut self, now: Time, rate: Rate) {
        // A bucket that was full had nothing charged to it lately, so it may start full under the
        // new rate too.
        self.level = if self.is_full(now) && !rate.share {
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
        // More than the burst will never be there at once; a full bucket is enough, and the rest
        // becomes debt.
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
        if micros == 0 {
            // The sum with any time is the end of time: nothing is waited for.
            return if missing > 0 {
                Duration::MAX
            } else {
                Duration::ZERO
            };
        }
        let nanos = missing.max(0).saturating_add(micros - 1) / micros;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// Takes `cost`, into debt if need be.
    #[inline]
    pub(crate) fn charge(&mut self, now: Time, cost: Cost) {
        self.refill(now);
        // Into debt if need be: what was granted is spent, whether there was enough or not.
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
    units(rate.burst) + i128::from(rate.burst_micros) * MICRO
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
    fn a_share_starts_empty_and_never_fills_by_a_change() {
        let (small, large) = (
            Rate::share(1_000_000, 500_000),
            Rate::share(9_000_000, 4_500_000),
        );
        let mut bucket = TokenBucket::new(small, Time::ZERO);
        assert_eq!(bucket.level(), 0.0);
        let second = Time::from_secs(1);
        assert!(bucket.is_full(second));
        bucket.set_rate(second, large);
        assert_eq!(bucket.level(), 0.5, "raising a burst grants no tokens");
        bucket.set_rate(second, small);
        bucket.set_rate(second, large);
        assert_eq!(bucket.level(), 0.5);
        let mut configured = TokenBucket::new(Rate::per_second(10.0), Time::ZERO);
        configured.set_rate(Time::ZERO, Rate::share(0, 0));
        configured.set_rate(Time::ZERO, large);
        assert_eq!(configured.level(), 0.0, "a shut bucket keeps nothing");
    }

    #[test]
    fn a_fractional_burst_holds_back_what_is_missing() {
        let mut bucket = TokenBucket::new(Rate::share(1_000_000, 250_000), Time::ZERO);
        // A job that is larger than the burst waits for a full bucket and leaves debt.
        let at = bucket.ready_at(Time::ZERO, Cost(1));
        assert_eq!(at, Some(Time::from_millis(250)));
        bucket.charge(Time::from_millis(250), Cost(1));
        assert_eq!(bucket.level(), -0.75);
    }

    #[test]
    fn a_rate_of_zero_is_waited_for_until_the_end_of_time() {
        let mut bucket = TokenBucket::new(Rate::share(0, 0), Time::ZERO);
        bucket.charge(Time::ZERO, Cost(1));
        assert_eq!(
            bucket.ready_at(Time::from_secs(9), Cost(1)),
            Some(Time::MAX)
        );
        assert_eq!(bucket.passed_at(Time::from_secs(9), Cost(1)), Time::MAX);
    }

    #[test]
    fn a_new_rate_keeps_the_debt() {
        let mut bucket = TokenBucket::new(Rate::per_second(10.0), Time::ZERO);
        bucket.charge(Time::ZERO, Cost(30));
        bucket.set_rate(Time::from_secs(1), Rate::per_second(1.0));
        assert_eq!(bucket.level(), -10.0);
    }
}
