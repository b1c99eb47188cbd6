//! Lock-free latency histograms and counters of an upstream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Upper bounds of the buckets, in seconds.
pub(crate) const BUCKET_BOUNDS: [f64; 12] = [
    0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];

/// A histogram of durations.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    counts: [AtomicU64; BUCKET_BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    pub(crate) fn record(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        let bucket = BUCKET_BOUNDS.iter().position(|bound| seconds <= *bound);
        self.counts[bucket.unwrap_or(BUCKET_BOUNDS.len())].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// Counts per bucket, and the sum in seconds.
    pub(crate) fn read(&self) -> (Vec<u64>, f64) {
        let counts = self
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        (
            counts.collect(),
            self.micros.load(Ordering::Relaxed) as f64 / 1e6,
        )
    }
}

/// Measurements of one upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamMetrics {
    /// Time until the head of the response.
    pub(crate) latency: Histogram,
    /// Time until the first byte of the body.
    pub(crate) first_token: Histogram,
    pub(crate) answered: AtomicU64,
    pub(crate) overloaded: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// When a refusal was logged last.
    refusal_logged: Mutex<Option<Instant>>,
}

/// How often the refusals of an upstream are logged at most.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

impl UpstreamMetrics {
    /// Whether a refusal is to be logged now.
    pub(crate) fn may_log_refusal(&self, now: Instant) -> bool {
        let mut logged = self.refusal_logged.lock();
        let is_due = |last| now.saturating_duration_since(last) >= LOG_INTERVAL;
        let may = logged.is_none_or(is_due);
        if may {
            *logged = Some(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_logged_once_per_minute() {
        let (metrics, now) = (UpstreamMetrics::default(), Instant::now());
        assert!(metrics.may_log_refusal(now) && !metrics.may_log_refusal(now));
        assert!(metrics.may_log_refusal(now + LOG_INTERVAL));
    }
}
