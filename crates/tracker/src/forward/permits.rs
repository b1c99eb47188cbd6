//! The bounds of requests to forwarders that may never respond.
//!
//! Over HTTP, events and probes need no worker, but each holds a descriptor. Over UDP, each request
//! holds a task of the pool. A list may have thousands of forwarders that never respond. Without a
//! bound, a cold start would use up the descriptors and the tasks of everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The share of requests to forwarders that are known to respond, one in this many. They must not
/// wait for those that may hang.
const RESPONDING: usize = 4;

/// The permits for requests without a worker.
pub(super) struct HttpPermits {
    responding: Semaphore,
    others: Semaphore,
}

impl HttpPermits {
    /// Creates permits for a number of requests at once.
    pub(super) fn new(requests: usize) -> HttpPermits {
        let responding = (requests / RESPONDING).max(1);
        HttpPermits {
            responding: Semaphore::new(responding),
            others: Semaphore::new(requests.saturating_sub(responding).max(1)),
        }
    }

    /// Waits for the permit of a request to a forwarder. `responds` tells whether it is known to
    /// respond.
    pub(super) async fn acquire(&self, responds: bool) -> SemaphorePermit<'_> {
        let permits = match responds {
            true => &self.responding,
            false => &self.others,
        };
        let permit = permits.acquire().await;
        permit.expect("the semaphore is never closed")
    }
}

/// The permits for requests over UDP to forwarders that are not known to respond. Other requests
/// need none.
#[derive(Default)]
pub(super) struct UdpPermits {
    limit: AtomicUsize,
    in_use: AtomicUsize,
}

impl UdpPermits {
    /// Sets the number of requests over UDP at once, of which one share is kept for forwarders that
    /// respond.
    pub(super) fn set_requests(&self, requests: usize) {
        let limit = requests.saturating_sub(requests / RESPONDING).max(1);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Returns a permit if one is free. Nobody waits for one: the wait would hold a task of the
    /// pool, which is what the permits save.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<UdpPermit> {
        let limit = self.limit.load(Ordering::Relaxed);
        let add = |in_use: usize| (in_use < limit).then_some(in_use + 1);
        let added = (self.in_use).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        added.is_ok().then(|| UdpPermit(self.clone()))
    }
}

/// A permit in use. Dropping it gives it back.
pub(super) struct UdpPermit(Arc<UdpPermits>);

impl Drop for UdpPermit {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}
