//! Idle check: ends responses that are not read and upstreams that send nothing.
//!
//! A body is polled only when its client has read the data before it. It therefore cannot notice by
//! itself that its client stopped reading. One task checks all in-flight responses once per second,
//! and sleeps while nothing is in flight.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::Notify;

use super::relay::SharedRelay;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// All responses in flight.
#[derive(Default)]
pub(crate) struct IdleTimeouts {
    relays: Mutex<Slab<Weak<SharedRelay>>>,
    not_empty: Notify,
}

impl IdleTimeouts {
    pub(crate) fn add(&self, relay: &Arc<SharedRelay>) -> usize {
        let mut relays = self.relays.lock();
        if relays.is_empty() {
            self.not_empty.notify_one();
        }
        relays.insert(Arc::downgrade(relay))
    }

    pub(crate) fn remove(&self, key: usize) {
        self.relays.lock().remove(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.relays.lock().len()
    }

    /// Checks the responses forever.
    pub(crate) async fn run(&self) {
        loop {
            if self.len() == 0 {
                self.not_empty.notified().await;
            }
            tokio::time::sleep(CHECK_INTERVAL).await;
            // The list is copied, so that the lock is not held while responses are ended.
            let relays: Vec<Weak<SharedRelay>> = {
                let relays = self.relays.lock();
                relays.iter().map(|(_, relay)| relay.clone()).collect()
            };
            let now = Instant::now();
            for relay in relays.iter().filter_map(Weak::upgrade) {
                relay.end_if_overdue(now);
            }
        }
    }
}
