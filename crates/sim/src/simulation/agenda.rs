//! What is going to happen, in order of time, and at equal times in the order in which it was set.

use headworks_core::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One thing that is going to happen. The numbers are places in the simulation's own tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Happening {
    /// The next request of a load, and its number.
    Arrival(u32, u64),
    /// The next line of the trace.
    Line,
    /// A client comes back.
    Return(u32),
    /// A far side answers.
    Answer(u32),
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(Time, u64, Happening)>>,
    set: u64,
}

impl Agenda {
    pub(super) fn set(&mut self, at: Time, what: Happening) {
        self.set += 1;
        self.heap.push(Reverse((at, self.set, what)));
    }

    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }

    pub(super) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// What happens at `now`, if anything does.
    pub(super) fn take(&mut self, now: Time) -> Option<Happening> {
        if self.next_at()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse((_, _, what))| what)
    }
}
