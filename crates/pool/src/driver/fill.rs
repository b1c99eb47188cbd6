//! How full the queue is, readable without the lock.
//!
//! The tracker asks for every announce: a read must not wait for a thread that holds the lock and
//! lost its processor. Only the holder of the lock writes. A reader may see numbers of two moments,
//! so it must not derive a decision from them that has to be exact.

use super::state::State;
use headworks_core::{Pressure, Thresholds};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Written under the lock. Each number is right by itself; together they may be of two moments.
#[derive(Debug, Default)]
pub(super) struct Fill {
    waiting: AtomicU64,
    capacity: AtomicU64,
    /// Three percentages, one byte each.
    thresholds: AtomicU32,
}

impl Fill {
    #[inline]
    pub(super) fn set_waiting(&self, waiting: u64) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    pub(super) fn set_all<P>(&self, state: &State<P>) {
        let Thresholds {
            scale,
            throttle,
            limit,
            ..
        } = state.scaling.thresholds;
        let packed = u32::from_be_bytes([0, scale, throttle, limit]);
        self.thresholds.store(packed, Ordering::Relaxed);
        self.capacity
            .store(state.core.capacity(), Ordering::Relaxed);
        self.set_waiting(state.core.waiting());
    }

    /// The pressure once `more` jobs wait.
    pub(super) fn pressure(&self, more: u64) -> Pressure {
        let packed = self.thresholds.load(Ordering::Relaxed);
        let [_, scale, throttle, limit] = packed.to_be_bytes();
        let mut thresholds = Thresholds::default();
        (thresholds.scale, thresholds.throttle, thresholds.limit) = (scale, throttle, limit);
        let waiting = self.waiting.load(Ordering::Relaxed).saturating_add(more);
        let capacity = self.capacity.load(Ordering::Relaxed);
        thresholds.at(waiting as usize, capacity as usize)
    }
}
