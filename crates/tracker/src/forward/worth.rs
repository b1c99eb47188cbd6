//! What asking a forwarder is worth: new peers for an announce, and how long they take.

use parking_lot::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How much the latest announce counts against all before it.
const LATEST: f32 = 0.2;
/// How far a forwarder that fails is behind one that names nobody.
const FAILURE: f32 = -1.0;

/// What asking a forwarder was worth so far.
#[derive(Debug)]
pub(crate) struct Worth {
    averages: Mutex<Option<Averages>>,
    /// The score as bits, read without a lock for every announce.
    score: AtomicU32,
}

#[derive(Clone, Copy, Debug)]
struct Averages {
    peers: f32,
    seconds: f32,
}

impl Default for Worth {
    /// Whoever was never asked comes first: what it knows is worth finding out.
    fn default() -> Worth {
        Worth {
            averages: Mutex::new(None),
            score: AtomicU32::new(f32::INFINITY.to_bits()),
        }
    }
}

impl Worth {
    /// It answered after `took`, with so many peers that nobody had named before.
    pub(crate) fn answered(&self, new: usize, took: Duration) {
        self.learn(new as f32, took);
    }

    /// It did not answer.
    pub(crate) fn failed(&self, took: Duration) {
        self.learn(FAILURE, took);
    }

    fn learn(&self, peers: f32, took: Duration) {
        let latest = Averages {
            peers,
            seconds: took.as_secs_f32(),
        };
        let mut averages = self.averages.lock();
        let now = averages.map_or(latest, |before| Averages {
            peers: mix(before.peers, latest.peers),
            seconds: mix(before.seconds, latest.seconds),
        });
        *averages = Some(now);
        self.score.store(now.score().to_bits(), Ordering::Relaxed);
    }

    /// More is better.
    pub(crate) fn score(&self) -> f32 {
        f32::from_bits(self.score.load(Ordering::Relaxed))
    }

    /// New peers for an announce, and how long it takes, as they were lately.
    pub(crate) fn lately(&self) -> Option<(f32, f32)> {
        let averages = *self.averages.lock();
        averages.map(|averages| (averages.peers.max(0.0), averages.seconds))
    }
}

impl Averages {
    /// Peers count for less the later they come; a failure is the worse the longer it was waited
    /// for.
    fn score(self) -> f32 {
        match self.peers < 0.0 {
            true => self.peers * (1.0 + self.seconds),
            false => self.peers / (1.0 + self.seconds),
        }
    }
}

fn mix(before: f32, latest: f32) -> f32 {
    before + LATEST * (latest - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_new_peers_soon_are_worth_most() {
        let worth = |peers: &[usize], millis: u64| {
            let worth = Worth::default();
            for new in peers {
                worth.answered(*new, Duration::from_millis(millis));
            }
            worth.score()
        };
        assert!(worth(&[50, 40], 100) > worth(&[50, 40], 3000), "sooner");
        assert!(worth(&[50, 40], 100) > worth(&[5, 4], 100), "more");
        assert!(
            worth(&[0, 0, 50], 100) > worth(&[50, 0, 0, 0, 0, 0, 0, 0, 0, 0], 100),
            "lately"
        );
        assert!(Worth::default().score() > worth(&[200], 1), "unknown first");
        let failing = Worth::default();
        failing.failed(Duration::from_secs(30));
        assert!(failing.score() < worth(&[0], 30_000));
        assert_eq!(failing.lately(), Some((0.0, 30.0)));
    }
}
