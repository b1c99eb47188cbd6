//! A 4-ary min-heap whose members can be re-keyed and removed.
//!
//! [`Positions`] remember where each member stands. Several heaps can share them as long as no
//! member is in two at once: a lane is either open in its flow queue or blocked in its target
//! group, never both. Four children per node keep a heap shallow: ten thousand members are seven
//! levels.

use crate::table::Id;
use std::marker::PhantomData;

/// Where each member stands in the heap that it is in.
#[derive(Clone, Debug)]
pub(crate) struct Positions<I> {
    at: Vec<u32>,
    id: PhantomData<I>,
}

const ABSENT: u32 = u32::MAX;

impl<I> Default for Positions<I> {
    fn default() -> Self {
        Positions {
            at: Vec::new(),
            id: PhantomData,
        }
    }
}

impl<I: Id> Positions<I> {
    #[inline]
    fn get(&self, id: I) -> Option<usize> {
        let at = *self.at.get(id.index())?;
        (at != ABSENT).then_some(at as usize)
    }

    #[inline(always)]
    fn set(&mut self, id: I, at: usize) {
        self.at[id.index()] = at as u32;
    }

    #[inline]
    fn enter(&mut self, id: I) {
        if self.at.len() <= id.index() {
            self.at.resize(id.index() + 1, ABSENT);
        }
    }

    /// Whether a member is in one of the heaps.
    #[inline]
    pub(crate) fn contains(&self, id: I) -> bool {
        self.get(id).is_some()
    }
}

/// The heap.
#[derive(Clone, Debug)]
pub(crate) struct Heap<K, I> {
    items: Vec<(K, I)>,
}

impl<K, I> Default for Heap<K, I> {
    fn default() -> Self {
        Heap { items: Vec::new() }
    }
}

impl<K: Copy + Ord, I: Id> Heap<K, I> {
    #[inline]
    pub(crate) fn first(&self) -> Option<(K, I)> {
        self.items.first().copied()
    }

    /// Adds a member.
    #[inline(always)]
    pub(crate) fn push(&mut self, positions: &mut Positions<I>, key: K, id: I) {
        positions.enter(id);
        self.items.push((key, id));
        let last = self.items.len() - 1;
        up(&mut self.items, positions, last);
    }

    /// Gives a member another key.
    #[inline(always)]
    pub(crate) fn rekey(&mut self, positions: &mut Positions<I>, key: K, id: I) {
        let at = positions.get(id).expect("a member has a position");
        let before = std::mem::replace(&mut self.items[at].0, key);
        if key == before {
            return;
        }
        if key < before {
            up(&mut self.items, positions, at);
        } else {
            down(&mut self.items, positions, at);
        }
    }

    /// Whether that member is the first.
    #[inline]
    pub(crate) fn is_first(&self, id: I) -> bool {
        self.items.first().is_some_and(|(_, first)| *first == id)
    }

    /// Adds a member, or gives it another key.
    #[inline(always)]
    pub(crate) fn set(&mut self, positions: &mut Positions<I>, key: K, id: I) {
        if positions.contains(id) {
            self.rekey(positions, key, id);
        } else {
            self.push(positions, key, id);
        }
    }

    /// Gives a member that key, adding it if need be, or takes it out.
    #[inline]
    pub(crate) fn update(&mut self, positions: &mut Positions<I>, key: Option<K>, id: I) {
        match key {
            Some(key) => self.set(positions, key, id),
            None if positions.contains(id) => self.remove(positions, id),
            None => {}
        }
    }

    /// Removes a member.
    #[inline(always)]
    pub(crate) fn remove(&mut self, positions: &mut Positions<I>, id: I) {
        let at = positions.get(id).expect("a member has a position");
        let (key, _) = self.items.swap_remove(at);
        positions.set(id, ABSENT as usize);
        if at < self.items.len() {
            if self.items[at].0 < key {
                up(&mut self.items, positions, at);
            } else {
                down(&mut self.items, positions, at);
            }
        }
    }
}

/// Moves the member at `at` up to where it belongs.
#[inline]
fn up<K: Copy + Ord, I: Id>(items: &mut [(K, I)], positions: &mut Positions<I>, mut at: usize) {
    let item = items[at];
    while at > 0 {
        let parent = (at - 1) / 4;
        if items[parent].0 <= item.0 {
            break;
        }
        items[at] = items[parent];
        positions.set(items[at].1, at);
        at = parent;
    }
    items[at] = item;
    positions.set(item.1, at);
}

/// Moves the member at `at` down to where it belongs.
#[inline]
fn down<K: Copy + Ord, I: Id>(items: &mut [(K, I)], positions: &mut Positions<I>, mut at: usize) {
    let item = items[at];
    loop {
        let first = at * 4 + 1;
        let end = items.len().min(first + 4);
        let Some(children) = items.get(first..end).filter(|some| !some.is_empty()) else {
            break;
        };
        let mut least = 0;
        for (child, (key, _)) in children.iter().enumerate().skip(1) {
            if *key < children[least].0 {
                least = child;
            }
        }
        let moved = children[least];
        if item.0 <= moved.0 {
            break;
        }
        items[at] = moved;
        positions.set(moved.1, at);
        at = first + least;
    }
    items[at] = item;
    positions.set(item.1, at);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::ids;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    ids! {
        TestId;
    }

    proptest! {
        #[test]
        fn agrees_with_a_sorted_map(ops in prop::collection::vec((0u8..3, 0u32..50, 0usize..20), 1..300)) {
            let mut heap = Heap::default();
            let mut positions = Positions::default();
            let mut model: BTreeMap<usize, u32> = BTreeMap::new();
            for (op, key, index) in ops {
                let id = TestId::from_index(index);
                prop_assert_eq!(positions.contains(id), model.contains_key(&index));
                match op {
                    0 | 1 => {
                        heap.set(&mut positions, key, id);
                        model.insert(index, key);
                    }
                    _ if model.remove(&index).is_some() => heap.remove(&mut positions, id),
                    _ => {}
                }
                let least = model.values().min().copied();
                prop_assert_eq!(heap.first().map(|(key, _)| key), least);
                if let Some((key, id)) = heap.first() {
                    prop_assert_eq!(model[&id.index()], key);
                }
            }
        }
    }
}
