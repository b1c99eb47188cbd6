//! The event queue of the simulation, in order of time, and in insertion order at equal times.

use headworks_core::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A scheduled event. The numbers are indices into tables of the simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SimEvent {
    /// The next request of a load, and its number.
    Arrival(u32, u64),
    /// The next line of the trace.
    Line,
    /// A client returns after a refusal.
    Return(u32),
    /// A target responds.
    Response(u32),
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(Time, u64, SimEvent)>>,
    set: u64,
}

impl EventQueue {
    pub(super) fn push(&mut self, at: Time, what: SimEvent) {
        self.set += 1;
        self.heap.push(Reverse((at, self.set, what)));
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Removes and returns the next event that is due at `now`.
    pub(super) fn pop_due(&mut self, now: Time) -> Option<SimEvent> {
        if self.next_at()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, what))| what)
    }
}
