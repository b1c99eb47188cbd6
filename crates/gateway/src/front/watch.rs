//! Looks after answers that nobody reads and upstreams that say nothing.
//!
//! A body is only polled when its client has read what came before, so a body cannot notice that
//! its client stopped reading. One task looks at all of them once a second, while there are any.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::Notify;

use super::relay::Slot;

const EVERY: Duration = Duration::from_secs(1);

/// Every answer that is on its way.
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

    /// Looks after them for ever.
    pub(crate) async fn look(&self) {
        loop {
            if self.len() == 0 {
                self.some.notified().await;
            }
            tokio::time::sleep(EVERY).await;
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
