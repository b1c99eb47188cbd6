//! Detection of an outage of this machine's own network.

use crate::counters::Count;
use crate::forwarders::ForwarderId;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, Ordering};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The number of different forwarders that must be silent, without a sign of life by any.
const MIN_FORWARDERS: usize = 5;

/// The meaning of a request's result for our own network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NetworkEvidence {
    /// Something came back: a response, a refusal, or that the host does not exist.
    Works,
    /// Nothing came back, or there was no way out.
    Silence,
    /// Nothing can be concluded.
    Unclear,
}

/// The condition of our own network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Network {
    Up = 0,
    /// Several forwarders were silent and nothing refutes an outage yet. Work goes on.
    InDoubt = 1,
    Down = 2,
}

/// Tells an outage of our own network from silent forwarders.
///
/// Public lists are full of dead trackers, so silence alone proves little. A sign of life from
/// anywhere proves that the network works, and refutes every silence that began before it. When
/// enough forwarders are silent without one, the prober asks others before it declares an outage.
pub(crate) struct OutageDetector {
    evidence: Mutex<Evidence>,
    network: AtomicU8,
    /// Outages declared so far.
    pub(crate) outages: Count,
    changed: Notify,
}

#[derive(Default)]
struct Evidence {
    /// The time of the last sign of life.
    alive: Option<Instant>,
    /// Silent forwarders, with the time at which the request began.
    silent: BTreeMap<ForwarderId, Instant>,
    /// The end of the last outage.
    outage_end: Option<Instant>,
}

impl OutageDetector {
    pub(super) fn new() -> OutageDetector {
        OutageDetector {
            evidence: Mutex::default(),
            network: AtomicU8::new(Network::Up as u8),
            outages: Count::default(),
            changed: Notify::new(),
        }
    }

    /// Whether our own network is down.
    pub(crate) fn is_down(&self) -> bool {
        self.network() == Network::Down
    }

    pub(super) fn network(&self) -> Network {
        match self.network.load(Ordering::Relaxed) {
            0 => Network::Up,
            1 => Network::InDoubt,
            _ => Network::Down,
        }
    }

    /// Records the result of a request that began at `began`. Returns whether our own network is
    /// down, or was when the request began, so that a silence says nothing about the forwarder.
    pub(super) fn record(
        &self,
        forwarder: ForwarderId,
        began: Instant,
        result: NetworkEvidence,
    ) -> bool {
        match result {
            NetworkEvidence::Works => {
                self.refute();
                false
            }
            NetworkEvidence::Unclear => self.is_down(),
            NetworkEvidence::Silence => {
                let mut evidence = self.evidence.lock();
                if evidence.outage_end.is_some_and(|end| began < end) {
                    return true;
                }
                if evidence.alive.is_some_and(|alive| alive >= began) {
                    return self.is_down();
                }
                evidence.silent.insert(forwarder, began);
                if evidence.silent.len() >= MIN_FORWARDERS && self.network() == Network::Up {
                    self.network
                        .store(Network::InDoubt as u8, Ordering::Relaxed);
                    self.changed.notify_one();
                }
                self.is_down()
            }
        }
    }

    /// Notes a sign of life: the network works.
    pub(super) fn refute(&self) {
        let mut evidence = self.evidence.lock();
        evidence.alive = Some(Instant::now());
        evidence.silent.clear();
        if self.network() == Network::Down {
            evidence.outage_end = evidence.alive;
        }
        if self.network() != Network::Up {
            self.network.store(Network::Up as u8, Ordering::Relaxed);
            self.changed.notify_one();
        }
    }

    /// Declares an outage if nothing has refuted it, and returns the forwarders that were blamed
    /// for it.
    pub(super) fn declare(&self) -> Option<Vec<ForwarderId>> {
        let evidence = self.evidence.lock();
        if self.network() != Network::InDoubt {
            return None;
        }
        self.network.store(Network::Down as u8, Ordering::Relaxed);
        self.outages.add(1);
        Some(evidence.silent.keys().copied().collect())
    }

    /// Wakes the prober, because the state of a forwarder or the list of forwarders changed.
    pub(crate) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Waits until the network's condition changes or [`notify`](Self::notify) is called.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn silent(detector: &OutageDetector, forwarders: std::ops::Range<u16>, began: Instant) {
        for forwarder in forwarders {
            detector.record(ForwarderId(forwarder), began, NetworkEvidence::Silence);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_refutes_every_silence_that_began_before_it() {
        let (detector, began) = (OutageDetector::new(), Instant::now());
        silent(&detector, 0..4, began);
        assert_eq!(detector.network(), Network::Up, "too few");
        tokio::time::advance(Duration::from_secs(1)).await;
        detector.record(ForwarderId(9), began, NetworkEvidence::Works);
        tokio::time::advance(Duration::from_secs(29)).await;
        silent(&detector, 0..8, began);
        assert_eq!(detector.network(), Network::Up);
        // Requests that began since.
        silent(&detector, 0..5, Instant::now());
        assert_eq!(detector.network(), Network::InDoubt);
        assert!(!detector.is_down(), "work goes on while in doubt");
        detector.record(ForwarderId(9), began, NetworkEvidence::Works);
        assert_eq!(detector.declare(), None, "refuted in time");
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_that_nothing_refutes_is_declared() {
        let (detector, began) = (OutageDetector::new(), Instant::now());
        silent(&detector, 0..5, began);
        let blamed = detector.declare().unwrap();
        assert_eq!(blamed.len(), 5);
        assert!(detector.is_down());
        assert!(detector.record(ForwarderId(7), began, NetworkEvidence::Silence));
        tokio::time::advance(Duration::from_secs(9)).await;
        detector.refute();
        assert_eq!(detector.network(), Network::Up);
        let silence = NetworkEvidence::Silence;
        let late = detector.record(ForwarderId(8), began, silence);
        assert!(late, "it began in the outage");
        assert!(!detector.record(ForwarderId(8), Instant::now(), silence));
    }
}
