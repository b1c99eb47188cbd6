//! A limit that follows the responses of a service.
//!
//! [`AdaptiveLimit`] owns a number and the rule of its change, nothing else: the caller counts its
//! calls against the number, decides which response is an overload, and passes the time. The number
//! never leaves its two bounds. A caller must not end an overload early by inventing
//! `counted_until`: with a time in the past, every rejection of one burst would cut the limit
//! again.

use crate::time::Time;

/// A limit between two bounds, cut by a factor after an overload and raised by successes: additive
/// or slow multiplicative increase, multiplicative decrease (Chiu and Jain, 1989).
///
/// Calls that ran together are rejected together. Overloads are therefore counted once until the
/// time that the caller gives with the first of them.
///
/// ```
/// use headworks_core::{AdaptiveLimit, Time};
///
/// let mut limit = AdaptiveLimit::new(1.0, 8.0);
/// let pause_ends = Time::from_secs(3);
/// assert!(limit.cut(Time::ZERO, pause_ends, 0.5));
/// assert!(!limit.cut(Time::from_secs(1), pause_ends, 0.5), "the same overload");
/// assert_eq!(limit.get(), 4.0);
/// limit.raise_to(4.25);
/// limit.raise_to(100.0);
/// assert_eq!(limit.get(), 8.0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveLimit {
    limit: f64,
    least: f64,
    most: f64,
    counted_until: Option<Time>,
}

impl AdaptiveLimit {
    /// Starts at the upper bound: nothing speaks against it yet.
    #[must_use]
    pub fn new(least: f64, most: f64) -> Self {
        AdaptiveLimit {
            limit: most,
            least: least.min(most),
            most,
            counted_until: None,
        }
    }

    /// The limit.
    #[must_use]
    pub fn get(&self) -> f64 {
        self.limit
    }

    /// Whether it is at its upper bound.
    #[must_use]
    pub fn is_at_most(&self) -> bool {
        self.limit >= self.most
    }

    /// An overload: multiplies the limit by `factor`. Further ones before `counted_until` are the
    /// same overload. Returns whether this one is new.
    pub fn cut(&mut self, now: Time, counted_until: Time, factor: f64) -> bool {
        if self.counted_until.is_some_and(|until| now < until) {
            return false;
        }
        self.counted_until = Some(counted_until);
        self.limit = (self.limit * factor).max(self.least);
        true
    }

    /// Replaces the bounds. A limit outside them moves to the nearer one.
    pub fn set_bounds(&mut self, least: f64, most: f64) {
        (self.least, self.most) = (least.min(most), most);
        self.limit = self.limit.clamp(self.least, self.most);
    }

    /// Lowers the limit to what the service itself states, down to its bound. Never raises it.
    pub fn lower_to(&mut self, limit: f64) {
        self.limit = limit.max(self.least).min(self.limit);
    }

    /// Raises the limit, up to its bound. Never lowers it.
    pub fn raise_to(&mut self, limit: f64) {
        self.limit = limit.clamp(self.limit, self.most);
    }
}
