//! A forwarder's score: how many new peers an announce to it yields, and how fast.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The weight of the latest announce in the exponentially weighted moving averages.
const LATEST_WEIGHT: f32 = 0.2;
/// The peers that a failure counts as, so that a failing forwarder ranks below one that knows
/// nobody.
const FAILURE_PEERS: f32 = -1.0;

/// The score of one forwarder.
#[derive(Debug)]
pub(crate) struct Score {
    averages: Mutex<Option<Averages>>,
    /// The bits of the current value. Selection reads it for every forwarder, without the lock.
    value: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
struct Averages {
    peers: f32,
    seconds: f32,
}

impl Default for Score {
    /// Creates the score of a forwarder that was never asked. It ranks first, because its yield is
    /// still unknown.
    fn default() -> Score {
        Score {
            averages: Mutex::new(None),
            value: AtomicU32::new(f32::INFINITY.to_bits()),
        }
    }
}

impl Score {
    /// Records a response with `new` peers that no forwarder had reported before.
    pub(crate) fn record_response(&self, new: usize, took: Duration) {
        self.record(new as f32, took);
    }

    /// Records a request without a usable response.
    pub(crate) fn record_failure(&self, took: Duration) {
        self.record(FAILURE_PEERS, took);
    }

    fn record(&self, peers: f32, took: Duration) {
        let latest = Averages {
            peers,
            seconds: took.as_secs_f32(),
        };
        let mut averages = self.averages.lock();
        let now = averages.map_or(latest, |before| Averages {
            peers: moving_average(before.peers, latest.peers),
            seconds: moving_average(before.seconds, latest.seconds),
        });
        *averages = Some(now);
        self.value.store(now.score().to_bits(), Ordering::Relaxed);
    }

    /// Returns the current score; higher is better.
    pub(crate) fn value(&self) -> f32 {
        f32::from_bits(self.value.load(Ordering::Relaxed))
    }

    /// Returns the average number of new peers per announce and the average seconds per announce.
    pub(crate) fn averages(&self) -> Option<(f32, f32)> {
        let averages = *self.averages.lock();
        averages.map(|averages| (averages.peers.max(0.0), averages.seconds))
    }
}

impl Averages {
    /// Discounts peers by the time they took. A failure counts more the longer it took.
    fn score(self) -> f32 {
        match self.peers < 0.0 {
            true => self.peers * (1.0 + self.seconds),
            false => self.peers / (1.0 + self.seconds),
        }
    }
}

fn moving_average(before: f32, latest: f32) -> f32 {
    before + LATEST_WEIGHT * (latest - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_new_peers_soon_score_highest() {
        let score = |peers: &[usize], millis: u64| {
            let score = Score::default();
            for new in peers {
                score.record_response(*new, Duration::from_millis(millis));
            }
            score.value()
        };
        assert!(score(&[50, 40], 100) > score(&[50, 40], 3000), "faster");
        assert!(score(&[50, 40], 100) > score(&[5, 4], 100), "more");
        assert!(
            score(&[0, 0, 50], 100) > score(&[50, 0, 0, 0, 0, 0, 0, 0, 0, 0], 100),
            "more recent"
        );
        assert!(Score::default().value() > score(&[200], 1), "unknown first");
        let failing = Score::default();
        failing.record_failure(Duration::from_secs(30));
        assert!(failing.value() < score(&[0], 30_000));
        assert_eq!(failing.averages(), Some((0.0, 30.0)));
    }
}
