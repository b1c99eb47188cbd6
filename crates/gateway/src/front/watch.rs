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

use super::relay::Slot;

const EVERY: Duration = Duration::from_secs(1);

/// All responses in flight.
#[derive(Default)]
pub(crate) struct Watch {
    slots: Mutex<Slab<Weak<Slot>>>,
    some: Notify,
}

impl Watch {
    pub(super) fn add(&self, slot: &Arc<Slot>) -> usize {
        let mut slots = self.slots.lock();
        if slots.is_empty() {
            self.some.notify_one();
        }
        slots.insert(Arc::downgrade(slot))
    }

    pub(super) fn remove(&self, key: usize) {
        self.slots.lock().remove(key);
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.lock().len()
    }

    /// Checks the responses forever.
    pub(crate) async fn look(&self) {
        loop {
            if self.len() == 0 {
                self.some.notified().await;
            }
            tokio::time::sleep(EVERY).await;
            // The list is copied, so that the lock is not held while responses are ended.
            let slots: Vec<Weak<Slot>> = {
                let slots = self.slots.lock();
                slots.iter().map(|(_, slot)| slot.clone()).collect()
            };
            let now = Instant::now();
            for slot in slots.iter().filter_map(Weak::upgrade) {
                slot.examine(now);
            }
        }
    }
}
