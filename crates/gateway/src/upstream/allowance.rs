//! Allowance: what a provider says is left of its rate limit, and when it is full again.
//!
//! OpenAI and Anthropic state the limit, the rest of it and the time of the reset in the headers of
//! every response. Both are token buckets: between now and the reset, the allowance grows steadily.

use std::time::{Duration, Instant};

/// A rate limit as the headers of a response state it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct StatedLimit {
    pub(crate) limit: Option<f64>,
    pub(crate) remaining: Option<f64>,
    /// Time until the allowance is full again.
    pub(crate) reset: Option<Duration>,
}

/// The rest of a rate limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    remaining: f64,
    /// Allowance after the reset, if it is known.
    limit: Option<f64>,
    at: Instant,
    reset: Instant,
}

impl Allowance {
    /// `None` if the headers say too little.
    pub(super) fn new(stated: StatedLimit, now: Instant) -> Option<Allowance> {
        Some(Allowance {
            remaining: stated.remaining?,
            limit: stated.limit,
            at: now,
            reset: now + stated.reset?,
        })
    }

    /// When `needed` will be there, if it is not now.
    pub(super) fn ready_at(&self, needed: f64, now: Instant) -> Option<Instant> {
        // More than the limit is never there: then a full allowance has to do.
        let needed = self.limit.map_or(needed, |limit| needed.min(limit));
        let missing = needed - self.remaining;
        if missing <= 0.0 || self.reset <= now {
            return None;
        }
        let whole = self.reset - self.at;
        let ready = match self.limit {
            Some(limit) if limit > self.remaining => {
                let part = missing / (limit - self.remaining);
                self.at + whole.mul_f64(part.clamp(0.0, 1.0))
            }
            _ => self.reset,
        };
        Some(ready).filter(|ready| *ready > now)
    }

    /// When it is full again.
    pub(super) fn full_at(&self) -> Instant {
        self.reset
    }

    /// Takes what a request needs.
    pub(super) fn take(&mut self, needed: f64) {
        self.remaining -= needed;
        // The limit is as far away as before, so that what was taken grows back after the reset.
        self.limit = self.limit.map(|limit| limit - needed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allowance_grows_steadily_until_its_reset() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let stated = StatedLimit {
            limit: Some(100.0),
            remaining: Some(0.0),
            reset: Some(Duration::from_secs(60)),
        };
        let empty = Allowance::new(stated, now).unwrap();
        assert_eq!(empty.ready_at(50.0, now), Some(after(30)));
        assert_eq!(empty.ready_at(50.0, after(30)), None);
        assert_eq!(
            empty.ready_at(1000.0, now),
            Some(after(60)),
            "never more than the limit"
        );
        assert_eq!(empty.ready_at(1000.0, after(60)), None);
        let unknown = StatedLimit {
            limit: None,
            ..stated
        };
        let unknown = Allowance::new(unknown, now).unwrap();
        assert_eq!(unknown.ready_at(1.0, now), Some(after(60)));
        let two = StatedLimit {
            remaining: Some(2.0),
            ..stated
        };
        let mut two = Allowance::new(two, now).unwrap();
        for _ in 0..2 {
            assert_eq!(two.ready_at(1.0, now), None);
            two.take(1.0);
        }
        assert!(two.ready_at(1.0, now).is_some(), "two were left");
    }
}
