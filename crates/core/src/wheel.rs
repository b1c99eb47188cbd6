//! Timers: a hierarchical wheel that keeps exact times.
//!
//! Six levels of 256 slots; the lowest level's slot is 2²⁰ ns (about a millisecond) wide, the highest
//! reaches the end of time. An entry moves down a level when its slot comes, at most once a level, so a
//! timer costs the same whether ten or ten million others run. Entries of one slot are sorted when it
//! comes: timers fire in the order of their times, and at equal times in the order in which they were set.

use crate::time::Time;

const TICK_BITS: u32 = 20;
const LEVELS: usize = 6;
const SLOTS: usize = 256;
const NIL: u32 = u32::MAX;

/// A timer that was set. Valid until it fires or is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(u32);

impl TimerId {
    pub(crate) const NONE: TimerId = TimerId(NIL);

    pub(crate) fn is_none(self) -> bool {
        self.0 == NIL
    }
}

/// The wheel. What a timer means is the caller's `T`.
///
/// ```
/// # use headworks_core::{Time, Wheel};
/// let mut wheel = Wheel::new();
/// wheel.set(Time::from_millis(20), "later");
/// let soon = wheel.set(Time::from_millis(10), "soon");
/// wheel.cancel(soon);
/// assert_eq!(wheel.next_at(), Some(Time::from_millis(20)));
/// let mut due = Vec::new();
/// wheel.advance(Time::from_secs(1), &mut due);
/// assert_eq!(due, [(Time::from_millis(20), "later")]);
/// ```
#[derive(Clone, Debug)]
pub struct Wheel<T> {
    nodes: Vec<Node<T>>,
    free: u32,
    slots: Box<[[Slot; SLOTS]; LEVELS]>,
    occupied: [[u64; SLOTS / 64]; LEVELS],
    tick: u64,
    len: usize,
    /// No timer is due before this.
    next: Time,
}

#[derive(Clone, Copy, Debug)]
struct Node<T> {
    time: Time,
    prev: u32,
    next: u32,
    slot: u16,
    what: T,
}

/// A list of timers, and a time that none of them is before.
#[derive(Clone, Copy, Debug)]
struct Slot {
    head: u32,
    tail: u32,
    least: Time,
}

const EMPTY: Slot = Slot {
    head: NIL,
    tail: NIL,
    least: Time::MAX,
};

impl<T: Copy> Default for Wheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Wheel<T> {
    /// A wheel without timers, at time zero.
    #[must_use]
    pub fn new() -> Self {
        Wheel {
            nodes: Vec::new(),
            free: NIL,
            slots: Box::new([[EMPTY; SLOTS]; LEVELS]),
            occupied: [[0; SLOTS / 64]; LEVELS],
            tick: 0,
            len: 0,
            next: Time::MAX,
        }
    }

    /// How many timers run.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Sets a timer. One in the past fires at the next [`advance`](Self::advance).
    pub fn set(&mut self, time: Time, what: T) -> TimerId {
        let node = Node {
            time,
            prev: NIL,
            next: NIL,
            slot: 0,
            what,
        };
        let id = if self.free == NIL {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let id = self.free;
            self.free = self.nodes[id as usize].next;
            self.nodes[id as usize] = node;
            id
        };
        self.len += 1;
        self.next = self.next.min(time);
        self.link(id);
        TimerId(id)
    }

    /// Takes a timer back. It must be running.
    pub fn cancel(&mut self, timer: TimerId) {
        let time = self.nodes[timer.0 as usize].time;
        self.unlink(timer.0);
        self.release(timer.0);
        if time <= self.next {
            self.next = self.find_next();
        }
    }

    /// A time before which no timer is due: the exact time of the next one, or an earlier one if timers were cancelled.
    #[must_use]
    #[inline]
    pub fn next_at(&self) -> Option<Time> {
        (self.len > 0).then_some(self.next)
    }

    fn find_next(&self) -> Time {
        self.first()
            .map_or(Time::MAX, |(level, slot)| self.slots[level][slot].least)
    }

    /// Moves on to `now` and appends what is due to `due`, in order of time. Going back does nothing.
    pub fn advance(&mut self, now: Time, due: &mut Vec<(Time, T)>) {
        let end = tick(now);
        while let Some((level, slot)) = self.first() {
            let start = self.start(level, slot);
            if start > end || (start == end && level == 0 && self.slots[0][slot].least > now) {
                break;
            }
            self.tick = self.tick.max(start);
            if level > 0 {
                self.cascade(level, slot);
            } else {
                self.fire(slot, now, due);
            }
        }
        self.tick = self.tick.max(end);
        self.next = self.find_next();
    }

    /// Moves a slot's timers down to where they belong now.
    fn cascade(&mut self, level: usize, slot: usize) {
        let mut id = self.take(level, slot);
        while id != NIL {
            let next = self.nodes[id as usize].next;
            self.link(id);
            id = next;
        }
    }

    /// Fires what is due of a slot of the lowest level; what is due later in the same tick stays.
    fn fire(&mut self, slot: usize, now: Time, due: &mut Vec<(Time, T)>) {
        let from = due.len();
        let mut id = self.take(0, slot);
        while id != NIL {
            let node = self.nodes[id as usize];
            if node.time <= now {
                due.push((node.time, node.what));
                self.release(id);
            } else {
                self.link(id);
            }
            id = node.next;
        }
        if due.len() - from > 1 {
            due[from..].sort_by_key(|(time, _)| *time);
        }
    }

    /// The earliest slot that has timers: lower levels come before higher ones, and none lies behind us.
    fn first(&self) -> Option<(usize, usize)> {
        for (level, words) in self.occupied.iter().enumerate() {
            for (index, word) in words.iter().enumerate() {
                if *word != 0 {
                    return Some((level, index * 64 + word.trailing_zeros() as usize));
                }
            }
        }
        None
    }

    /// The tick with which a slot begins.
    fn start(&self, level: usize, slot: usize) -> u64 {
        let shift = 8 * level as u32;
        let above = self.tick.checked_shr(shift + 8).unwrap_or(0);
        ((above << 8) | slot as u64) << shift
    }

    fn link(&mut self, id: u32) {
        let time = self.nodes[id as usize].time;
        let tick = tick(time).max(self.tick);
        let level = (63 - ((tick ^ self.tick) | 1).leading_zeros()) as usize / 8;
        let index = (tick >> (8 * level)) as usize % SLOTS;
        let slot = &mut self.slots[level][index];
        let tail = slot.tail;
        slot.tail = id;
        slot.least = slot.least.min(time);
        if tail == NIL {
            slot.head = id;
            self.occupied[level][index / 64] |= 1 << (index % 64);
        } else {
            self.nodes[tail as usize].next = id;
        }
        let node = &mut self.nodes[id as usize];
        node.prev = tail;
        node.next = NIL;
        node.slot = (level * SLOTS + index) as u16;
    }

    fn unlink(&mut self, id: u32) {
        let Node {
            prev, next, slot, ..
        } = self.nodes[id as usize];
        let (level, index) = (usize::from(slot) / SLOTS, usize::from(slot) % SLOTS);
        if prev == NIL {
            self.slots[level][index].head = next;
        } else {
            self.nodes[prev as usize].next = next;
        }
        if next == NIL {
            self.slots[level][index].tail = prev;
        } else {
            self.nodes[next as usize].prev = prev;
        }
        if self.slots[level][index].head == NIL {
            self.take(level, index);
        }
    }

    /// Empties a slot and returns its first timer.
    fn take(&mut self, level: usize, index: usize) -> u32 {
        self.occupied[level][index / 64] &= !(1 << (index % 64));
        std::mem::replace(&mut self.slots[level][index], EMPTY).head
    }

    fn release(&mut self, id: u32) {
        self.nodes[id as usize].next = self.free;
        self.free = id;
        self.len -= 1;
    }
}

fn tick(time: Time) -> u64 {
    time.as_nanos() >> TICK_BITS
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(ops in prop::collection::vec((0u8..5, any::<u64>(), 0u32..60), 1..400)) {
            let mut wheel = Wheel::new();
            let mut model = BTreeMap::new();
            let mut ids = BTreeMap::new();
            let mut now = Time::ZERO;
            for (serial, (op, random, shift)) in ops.into_iter().enumerate() {
                let span = random >> shift.max(4);
                match op {
                    0..=2 => {
                        let at = if op == 2 { Time::from_nanos(span) } else { Time::from_nanos(now.as_nanos().saturating_add(span)) };
                        ids.insert(serial, (at, wheel.set(at, serial)));
                        model.insert((at, serial), ());
                    }
                    3 => {
                        let Some((&s, &(at, id))) = ids.iter().nth(random as usize % ids.len().max(1)) else { continue };
                        ids.remove(&s);
                        model.remove(&(at, s));
                        wheel.cancel(id);
                    }
                    _ => {
                        now = now.max(Time::from_nanos(now.as_nanos().saturating_add(span >> 8)));
                        let mut due = Vec::new();
                        wheel.advance(now, &mut due);
                        let later = model.split_off(&(Time::from_nanos(now.as_nanos().saturating_add(1)), 0));
                        let expected: Vec<usize> = model.keys().map(|(_, s)| *s).collect();
                        model = later;
                        let mut fired: Vec<usize> = due.iter().map(|(_, s)| *s).collect();
                        // What was set in the past fires in the present tick: compare sets, then the order of the rest.
                        prop_assert!(due.windows(2).all(|w| w[0].0 <= w[1].0 || tick(w[0].0) != tick(w[1].0)));
                        fired.sort_unstable();
                        let mut sorted = expected.clone();
                        sorted.sort_unstable();
                        prop_assert_eq!(fired, sorted);
                        for s in expected { ids.remove(&s); }
                    }
                }
                prop_assert_eq!(wheel.len(), model.len());
                let first = model.keys().next().map(|(t, _)| *t);
                prop_assert_eq!(wheel.next_at().is_some(), first.is_some());
                if let (Some(at), Some(first)) = (wheel.next_at(), first) { prop_assert!(at <= first); }
            }
        }
    }

    #[test]
    fn the_next_time_is_exact() {
        let mut wheel = Wheel::new();
        for nanos in [90_000_000_000, 3_600_000_000_001, 5, 1_048_577] {
            wheel.set(Time::from_nanos(nanos), ());
        }
        let mut due = Vec::new();
        let mut at = Vec::new();
        while let Some(next) = wheel.next_at() {
            at.push(next.as_nanos());
            wheel.advance(next, &mut due);
        }
        assert_eq!(at, [5, 1_048_577, 90_000_000_000, 3_600_000_000_001]);
    }
}
