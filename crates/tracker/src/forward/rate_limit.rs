//! Admission of first announces: a rate limit, and a short memory of the client that found the
//! queue full.

use crate::client_counts::network;
use crate::config::TrackerConfig;
use headworks_core::{Cost, Rate, Time, TokenBucket};
use parking_lot::Mutex;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The time for which a client that found the queue full is rejected without another try.
const REJECTION_MEMORY: Duration = Duration::from_millis(100);

/// The rate of first announces. Its bucket starts full.
pub(super) struct RateLimiter {
    start: Instant,
    bucket: Mutex<Option<TokenBucket>>,
}

impl RateLimiter {
    pub(super) fn new(now: Instant) -> RateLimiter {
        RateLimiter {
            start: now,
            bucket: Mutex::new(None),
        }
    }

    /// Takes a token. Returns `false` if the bucket is empty.
    pub(super) fn try_acquire(&self, now: Instant, config: &TrackerConfig) -> bool {
        let burst = Cost(config.rate_limit_initial_burst.max(1).into());
        let rate = Rate::per_second(config.rate_limit_initial_per_sec).with_burst(burst);
        let now = Time::ZERO + now.saturating_duration_since(self.start);
        let mut bucket = self.bucket.lock();
        let bucket = bucket.get_or_insert_with(|| TokenBucket::new(rate, now));
        // A reload may have changed it.
        bucket.set_rate(now, rate);
        bucket.try_take(now, Cost(1)).is_ok()
    }
}

/// The network of the last client that found the queue full. A client that announces a thousand
/// torrents at once is rejected from here, without a thousand attempts on the pool while other
/// clients wait.
#[derive(Default)]
pub(super) struct LastRejected(Mutex<Option<(u64, Instant)>>);

impl LastRejected {
    pub(super) fn record(&self, client: IpAddr, now: Instant) {
        *self.0.lock() = Some((network(client), now));
    }

    /// Whether this client found the queue full a moment ago.
    pub(super) fn matches(&self, client: IpAddr, now: Instant) -> bool {
        let last = *self.0.lock();
        last.is_some_and(|(last, at)| {
            last == network(client) && now.saturating_duration_since(at) < REJECTION_MEMORY
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rejection_is_remembered_for_a_moment() {
        let (last, start) = (LastRejected::default(), Instant::now());
        let [one, other] = [1, 2].map(|last| IpAddr::from([127, 0, 0, last]));
        assert!(!last.matches(one, start));
        last.record(one, start);
        assert!(last.matches(one, start + REJECTION_MEMORY / 2) && !last.matches(other, start));
        assert!(!last.matches(one, start + REJECTION_MEMORY));
    }

    #[test]
    fn a_burst_is_followed_by_the_rate() {
        let start = Instant::now();
        let limiter = RateLimiter::new(start);
        let mut config = TrackerConfig::default();
        (
            config.rate_limit_initial_per_sec,
            config.rate_limit_initial_burst,
        ) = (10.0, 3);
        let admitted = |after: u64, tries: usize| {
            let now = start + Duration::from_millis(after);
            (0..tries)
                .filter(|_| limiter.try_acquire(now, &config))
                .count()
        };
        assert_eq!(admitted(0, 10), 3);
        assert_eq!(admitted(250, 10), 2);
        assert_eq!(admitted(60_000, 10), 3, "no more than the burst");
    }
}
