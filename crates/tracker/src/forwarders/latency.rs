//! A forwarder's usual response time, and the timeouts that follow from it.

use parking_lot::Mutex;
use std::time::Duration;

/// The wait before the first retransmission of a UDP packet while the usual response time is
/// unknown (BEP 15).
const FIRST_RETRANSMIT: Duration = Duration::from_secs(15);
/// The shortest wait before a retransmission.
const MIN_RETRANSMIT: Duration = Duration::from_secs(2);
/// The shortest learned timeout.
const MIN_TIMEOUT: Duration = Duration::from_secs(10);

/// The usual response time of one forwarder: a moving mean and a moving mean deviation, as TCP
/// estimates its round-trip time (RFC 6298).
#[derive(Debug, Default)]
pub(crate) struct Latency(Mutex<Estimate>);

#[derive(Clone, Copy, Debug, Default)]
struct Estimate {
    /// Mean and deviation in seconds; unknown until the first response.
    usual: Option<(f32, f32)>,
    /// Timeouts since the last response.
    timeouts: u32,
}

impl Estimate {
    /// Returns a time that few responses exceed.
    fn upper(self) -> Option<Duration> {
        let (mean, deviation) = self.usual?;
        Some(Duration::from_secs_f32(mean + 4.0 * deviation))
    }
}

impl Latency {
    /// Records a response.
    pub(crate) fn record_response(&self, took: Duration) {
        let seconds = took.as_secs_f32();
        let mut estimate = self.0.lock();
        estimate.timeouts = 0;
        estimate.usual = Some(match estimate.usual {
            None => (seconds, seconds / 2.0),
            Some((mean, deviation)) => (
                mean + (seconds - mean) / 8.0,
                deviation + ((seconds - mean).abs() - deviation) / 4.0,
            ),
        });
    }

    /// Records a timeout. The next timeout is twice as long, because the forwarder may have become
    /// slower.
    pub(crate) fn record_timeout(&self) {
        let mut estimate = self.0.lock();
        estimate.timeouts = estimate.timeouts.saturating_add(1);
    }

    /// Returns the timeout of the next request: a few times the usual response time, and at most
    /// `limit`.
    pub(crate) fn timeout(&self, limit: Duration) -> Duration {
        let estimate = *self.0.lock();
        let Some(upper) = estimate.upper() else {
            return limit;
        };
        let timeout = (upper * 4).max(MIN_TIMEOUT);
        timeout
            .saturating_mul(1 << estimate.timeouts.min(10))
            .min(limit)
    }

    /// Returns the wait before a UDP packet is sent again.
    pub(crate) fn retransmit(&self) -> Duration {
        let upper = self.0.lock().upper();
        upper.map_or(FIRST_RETRANSMIT, |upper| {
            (upper * 2).clamp(MIN_RETRANSMIT, FIRST_RETRANSMIT)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_a_few_times_the_usual_response_time() {
        let (latency, limit) = (Latency::default(), Duration::from_secs(30));
        assert_eq!(latency.timeout(limit), limit, "nothing is known yet");
        assert_eq!(latency.retransmit(), FIRST_RETRANSMIT);
        for _ in 0..20 {
            latency.record_response(Duration::from_millis(50));
        }
        assert_eq!(latency.timeout(limit), MIN_TIMEOUT);
        assert_eq!(latency.retransmit(), MIN_RETRANSMIT);
        latency.record_timeout();
        assert_eq!(latency.timeout(limit), MIN_TIMEOUT * 2);
        for _ in 0..20 {
            latency.record_timeout();
        }
        assert_eq!(latency.timeout(limit), limit, "never beyond the limit");
        for _ in 0..50 {
            latency.record_response(Duration::from_secs(4));
        }
        let slow = latency.timeout(limit);
        assert!(slow > Duration::from_secs(15) && slow < Duration::from_secs(20));
        assert_eq!(latency.timeout(Duration::from_secs(1)).as_secs(), 1);
    }
}
