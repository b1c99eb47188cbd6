//! Detection of an outage of this machine's own network.

use crate::forwarders::ForwarderId;
use parking_lot::Mutex;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The number of different forwarders that must fail within [`WINDOW`], without a success by any.
const MIN_FORWARDERS: usize = 5;
/// The time for which results are remembered.
pub(super) const WINDOW: Duration = Duration::from_secs(30);
/// The most results remembered.
const MAX_RESULTS: usize = 1000;

/// Tells an outage of our own network from failing forwarders.
///
/// If every request within the window failed at network level, and they went to several forwarders,
/// our network is the likelier cause.
pub(crate) struct OutageDetector {
    recent: Mutex<VecDeque<RequestResult>>,
    down: AtomicBool,
    changed: Notify,
}

struct RequestResult {
    at: Instant,
    forwarder: ForwarderId,
    failed: bool,
}

impl OutageDetector {
    pub(super) fn new() -> OutageDetector {
        OutageDetector {
            recent: Mutex::default(),
            down: AtomicBool::new(false),
            changed: Notify::new(),
        }
    }

    /// Whether our own network is down.
    pub(crate) fn is_down(&self) -> bool {
        self.down.load(Ordering::Relaxed)
    }

    /// Records the result of a request. Returns whether it failed because our own network is down.
    pub(super) fn record(&self, forwarder: ForwarderId, failed: bool) -> bool {
        let at = Instant::now();
        let mut recent = self.recent.lock();
        recent.push_back(RequestResult {
            at,
            forwarder,
            failed,
        });
        while recent.front().is_some_and(|first| at - first.at > WINDOW)
            || recent.len() > MAX_RESULTS
        {
            recent.pop_front();
        }
        if !failed {
            return false;
        }
        let all_failed = recent.iter().all(|result| result.failed);
        let forwarders: BTreeSet<_> = recent.iter().map(|result| result.forwarder).collect();
        if all_failed
            && forwarders.len() >= MIN_FORWARDERS
            && !self.down.swap(true, Ordering::Relaxed)
        {
            self.changed.notify_one();
        }
        self.is_down()
    }

    /// Wakes the prober, because the state of a forwarder or the list of forwarders changed.
    pub(crate) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Waits until an outage begins or [`notify`](Self::notify) is called.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Forgets the recent results and returns their forwarders.
    pub(super) fn take_recent(&self) -> BTreeSet<ForwarderId> {
        let mut recent = self.recent.lock();
        recent.drain(..).map(|result| result.forwarder).collect()
    }

    /// Ends the outage.
    pub(super) fn end(&self) {
        self.take_recent();
        self.down.store(false, Ordering::Relaxed);
    }
}
