//! Timers: a hierarchical wheel that keeps exact times.
//!
//! Six levels of 256 slots; the lowest level's slot is 2¹⁸ ns (about a quarter of a millisecond)
//! wide, the highest reaches the end of time. An entry moves down a level when its slot comes, at
//! most once a level, so a timer costs the same whether ten or ten million others run. Entries of
//! one slot lie side by side in memory, and are sorted when it comes: timers fire in the order of
//! their times, and at equal times in the order in which they were set.

use crate::table::RawId;
use crate::time::Time;

const TICK_BITS: u32 = 18;
const LEVELS: usize = 6;
const SLOTS: usize = 256;

/// A timer that was set. Valid until it fires or is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerId(RawId);

/// The wheel. The meaning of a timer is the caller's `T`.
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
    slots: Vec<Slot<T>>,
    occupied: [[u64; SLOTS / 64]; LEVELS],
    /// Where each timer is, by its id.
    places: Vec<Place>,
    /// Ids to be used again.
    free: Vec<RawId>,
    tick: u64,
    serial: u64,
    len: usize,
    /// No timer is due before this.
    next: Time,
    /// Entries that are being moved down or fired.
    moving: Vec<Entry<T>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry<T> {
    time: Time,
    /// The order in which timers were set.
    serial: u64,
    id: RawId,
    what: T,
}

/// Timers, and a time that none of them is before.
#[derive(Clone, Debug)]
struct Slot<T> {
    entries: Vec<Entry<T>>,
    least: Time,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    slot: u32,
    at: u32,
}

impl<T: Copy> Default for Wheel<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Copy> Wheel<T> {
    /// A wheel without timers, at time zero.
    #[must_use]
    pub fn new() -> Self {
        let empty = || Slot {
            entries: Vec::new(),
            least: Time::MAX,
        };
        Wheel {
            slots: std::iter::repeat_with(empty).take(LEVELS * SLOTS).collect(),
            occupied: [[0; SLOTS / 64]; LEVELS],
            places: Vec::new(),
            free: Vec::new(),
            tick: 0,
            serial: 0,
            len: 0,
            next: Time::MAX,
            moving: Vec::new(),
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
        let id = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place { slot: 0, at: 0 });
            RawId::from_index(self.places.len() - 1)
        });
        self.len += 1;
        self.serial += 1;
        self.next = self.next.min(time);
        self.link(Entry {
            time,
            serial: self.serial,
            id,
            what,
        });
        TimerId(id)
    }

    /// Takes a timer back. It must be running.
    pub fn cancel(&mut self, timer: TimerId) {
        let Place { slot, at } = self.places[timer.0.index()];
        let entries = &mut self.slots[slot as usize].entries;
        let gone = entries.swap_remove(at as usize);
        if let Some(moved) = entries.get(at as usize) {
            self.places[moved.id.index()].at = at;
        } else if entries.is_empty() {
            self.vacate(slot as usize);
        }
        self.release(timer.0);
        // Only the earliest timer decides when to wake; the others may go without a search.
        if gone.time <= self.next {
            self.next = self.find_next();
        }
    }

    /// A time before which no timer is due: the exact time of the next one, or an earlier one if
    /// timers were cancelled.
    #[must_use]
    pub fn next_at(&self) -> Option<Time> {
        (self.len > 0).then_some(self.next)
    }

    fn find_next(&self) -> Time {
        self.first()
            .map_or(Time::MAX, |slot| self.slots[slot].least)
    }

    /// Moves on to `now` and appends what is due to `due`, in order of time. Going back does
    /// nothing.
    pub fn advance(&mut self, now: Time, due: &mut Vec<(Time, T)>) {
        let end = tick(now);
        while let Some(slot) = self.first() {
            let start = self.start(slot);
            let lowest = slot < SLOTS;
            if start > end || (start == end && lowest && self.slots[slot].least > now) {
                break;
            }
            self.tick = self.tick.max(start);
            let mut moving = std::mem::take(&mut self.moving);
            std::mem::swap(&mut moving, &mut self.slots[slot].entries);
            self.vacate(slot);
            if lowest {
                self.fire(&mut moving, now, due);
            } else {
                // Each goes down to where it belongs now.
                moving.iter().for_each(|entry| self.link(*entry));
            }
            moving.clear();
            self.moving = moving;
        }
        self.tick = self.tick.max(end);
        self.next = self.find_next();
    }

    /// Fires what is due of a slot of the lowest level; what is due later in the same tick stays.
    fn fire(&mut self, moving: &mut [Entry<T>], now: Time, due: &mut Vec<(Time, T)>) {
        // One number compares faster than two.
        let order =
            |entry: &Entry<T>| u128::from(entry.time.as_nanos()) << 64 | u128::from(entry.serial);
        moving.sort_unstable_by_key(order);
        for entry in moving {
            if entry.time <= now {
                due.push((entry.time, entry.what));
                self.release(entry.id);
            } else {
                self.link(*entry);
            }
        }
    }

    /// The earliest slot that has timers: lower levels come before higher ones, and none lies
    /// behind us.
    fn first(&self) -> Option<usize> {
        let words = self.occupied.as_flattened();
        let index = words.iter().position(|word| *word != 0)?;
        Some(index * 64 + words[index].trailing_zeros() as usize)
    }

    /// The tick with which a slot begins.
    fn start(&self, slot: usize) -> u64 {
        let shift = 8 * (slot / SLOTS) as u32;
        let above = self.tick.checked_shr(shift + 8).unwrap_or(0);
        ((above << 8) | (slot % SLOTS) as u64) << shift
    }

    fn link(&mut self, entry: Entry<T>) {
        let tick = tick(entry.time).max(self.tick);
        let level = (63 - ((tick ^ self.tick) | 1).leading_zeros()) as usize / 8;
        let slot = level * SLOTS + (tick >> (8 * level)) as usize % SLOTS;
        let Slot { entries, least } = &mut self.slots[slot];
        if entries.is_empty() {
            self.occupied[level][slot % SLOTS / 64] |= 1 << (slot % 64);
        }
        self.places[entry.id.index()] = Place {
            slot: slot as u32,
            at: entries.len() as u32,
        };
        *least = entry.time.min(*least);
        entries.push(entry);
    }

    /// Notes that a slot has no timers any more.
    fn vacate(&mut self, slot: usize) {
        self.occupied[slot / SLOTS][slot % SLOTS / 64] &= !(1 << (slot % 64));
        self.slots[slot].least = Time::MAX;
    }

    fn release(&mut self, id: RawId) {
        self.free.push(id);
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
                        // A timer that was set in the past fires in the present tick: compare sets,
                        // then the order of the rest.
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
