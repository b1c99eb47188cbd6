//! Detection of an outage of this machine's own network.

use crate::counters::Count;
use crate::forwarders::ForwarderId;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::time::Instant;

/// The number of different forwarders that must be silent, without a sign of life by any, and of
/// networks that they are in: one owner must not be able to feign an outage. If the list has fewer
/// networks, all of them must be silent.
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
    /// The number of silent networks from which our own one is in doubt.
    min_networks: AtomicUsize,
    /// Outages declared so far.
    pub(crate) outages: Count,
    changed: Notify,
}

#[derive(Default)]
struct Evidence {
    /// The time of the last sign of life.
    alive: Option<Instant>,
    /// Silent forwarders, with their networks.
    silent: BTreeMap<ForwarderId, String>,
    /// The end of the last outage.
    outage_end: Option<Instant>,
}

impl OutageDetector {
    pub(super) fn new() -> OutageDetector {
        OutageDetector {
            evidence: Mutex::default(),
            network: AtomicU8::new(Network::Up as u8),
            min_networks: AtomicUsize::new(MIN_FORWARDERS),
            outages: Count::default(),
            changed: Notify::new(),
        }
    }

    /// Sets the number of networks that the listed forwarders are in.
    pub(super) fn set_networks(&self, networks: usize) {
        let networks = networks.min(MIN_FORWARDERS);
        self.min_networks.store(networks, Ordering::Relaxed);
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

    /// Records the result of a request that began at `began`, to a forwarder in a network. Returns
    /// whether our own network is down, or was when the request began, so that a silence says
    /// nothing about the forwarder.
    pub(super) fn record(
        &self,
        forwarder: ForwarderId,
        network: impl FnOnce() -> String,
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
                evidence.silent.insert(forwarder, network());
                let networks: HashSet<_> = evidence.silent.values().collect();
                let enough = evidence.silent.len() >= MIN_FORWARDERS
                    && networks.len() >= self.min_networks.load(Ordering::Relaxed);
                if enough && self.network() == Network::Up {
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

    /// Records a result of a forwarder in a network of its own.
    fn record(
        detector: &OutageDetector,
        forwarder: u16,
        began: Instant,
        result: NetworkEvidence,
    ) -> bool {
        let network = || forwarder.to_string();
        detector.record(ForwarderId(forwarder), network, began, result)
    }

    fn silent(detector: &OutageDetector, forwarders: std::ops::Range<u16>, began: Instant) {
        for forwarder in forwarders {
            record(detector, forwarder, began, NetworkEvidence::Silence);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_sign_of_life_refutes_every_silence_that_began_before_it() {
        let (detector, began) = (OutageDetector::new(), Instant::now());
        silent(&detector, 0..4, began);
        assert_eq!(detector.network(), Network::Up, "too few");
        tokio::time::advance(Duration::from_secs(1)).await;
        record(&detector, 9, began, NetworkEvidence::Works);
        tokio::time::advance(Duration::from_secs(29)).await;
        silent(&detector, 0..8, began);
        assert_eq!(detector.network(), Network::Up);
        // Requests that began since.
        silent(&detector, 0..5, Instant::now());
        assert_eq!(detector.network(), Network::InDoubt);
        assert!(!detector.is_down(), "work goes on while in doubt");
        record(&detector, 9, began, NetworkEvidence::Works);
        assert_eq!(detector.declare(), None, "refuted in time");
    }

    #[tokio::test(start_paused = true)]
    async fn the_silence_of_one_network_is_no_outage() {
        let detector = OutageDetector::new();
        let silence = NetworkEvidence::Silence;
        for forwarder in 0..50 {
            let network = || "evil.example".to_owned();
            detector.record(ForwarderId(forwarder), network, Instant::now(), silence);
        }
        assert_eq!(detector.network(), Network::Up);
        for forwarder in 50..54 {
            record(&detector, forwarder, Instant::now(), silence);
        }
        assert_eq!(detector.network(), Network::InDoubt);
        // A short list may have one network only.
        let detector = OutageDetector::new();
        detector.set_networks(1);
        for forwarder in 0..5 {
            assert_eq!(detector.network(), Network::Up);
            let network = || "192.168.1.0".to_owned();
            detector.record(ForwarderId(forwarder), network, Instant::now(), silence);
        }
        assert_eq!(detector.network(), Network::InDoubt);
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_that_nothing_refutes_is_declared() {
        let (detector, began) = (OutageDetector::new(), Instant::now());
        silent(&detector, 0..5, began);
        let blamed = detector.declare().unwrap();
        assert_eq!(blamed.len(), 5);
        assert!(detector.is_down());
        assert!(record(&detector, 7, began, NetworkEvidence::Silence));
        tokio::time::advance(Duration::from_secs(9)).await;
        detector.refute();
        assert_eq!(detector.network(), Network::Up);
        let silence = NetworkEvidence::Silence;
        let late = record(&detector, 8, began, silence);
        assert!(late, "it began in the outage");
        assert!(!record(&detector, 8, Instant::now(), silence));
    }
}
