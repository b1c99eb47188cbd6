//! The bound of requests over HTTP that need no worker: events and probes.
//!
//! Each holds a descriptor. A list may have thousands of forwarders that never respond, and without
//! a bound a cold start would use up the descriptors of everything else.

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
