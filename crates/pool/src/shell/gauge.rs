//! How full the queue is, to be read without the lock.
//!
//! Whoever only looks must not wait for a thread that has the lock and was sent to the back of the processor's queue.

use super::state::State;
use headworks_core::{Pressure, Thresholds};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Written under the lock. Each number is right by itself; together they may be of two moments.
#[derive(Default)]
pub(super) struct Gauge {
    waiting: AtomicU64,
    places: AtomicU64,
    /// Three percentages, a byte each.
    thresholds: AtomicU32,
}

impl Gauge {
    /// Notes how many wait.
    pub(super) fn waiting(&self, waiting: u64) {
        self.waiting.store(waiting, Ordering::Relaxed);
    }

    /// Notes everything.
    pub(super) fn set<P>(&self, state: &State<P>) {
        let Thresholds {
            scale,
            throttle,
            limit,
            ..
        } = state.scaling.thresholds;
        let packed = u32::from_be_bytes([0, scale, throttle, limit]);
        self.thresholds.store(packed, Ordering::Relaxed);
        let places = state.core.capacity();
        self.places.store(places, Ordering::Relaxed);
        self.waiting(state.core.waiting());
    }

    /// How full it is with so many more.
    pub(super) fn pressure(&self, more: u64) -> Pressure {
        let packed = self.thresholds.load(Ordering::Relaxed);
        let [_, scale, throttle, limit] = packed.to_be_bytes();
        let mut thresholds = Thresholds::default();
        (thresholds.scale, thresholds.throttle, thresholds.limit) = (scale, throttle, limit);
        let waiting = self.waiting.load(Ordering::Relaxed) + more;
        let places = self.places.load(Ordering::Relaxed);
        thresholds.at(waiting as usize, places as usize)
    }
}
