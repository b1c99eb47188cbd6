//! A 4-ary min-heap whose members can be re-keyed and removed.
//!
//! [`Positions`] remember where each member stands. Several heaps can share them as long as no
//! member is in two at once: the open lanes of all flow queues share one, the blocked lanes of all
//! target groups another. Four children per node keep a heap shallow: ten thousand members are
//! eight levels.

use crate::table::Id;

/// Where each member stands in the heap that it is in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Positions {
    at: Vec<u32>,
}

const ABSENT: u32 = u32::MAX;

impl Positions {
    #[inline]
    fn get(&self, id: impl Id) -> Option<usize> {
        let at = *self.at.get(id.index())?;
        (at != ABSENT).then_some(at as usize)
    }

    #[inline(always)]
    fn set(&mut self, id: impl Id, at: usize) {
        self.at[id.index()] = at as u32;
    }

    #[inline]
    fn enter(&mut self, id: impl Id) {
        if self.at.len() <= id.index() {
            self.at.resize(id.index() + 1, ABSENT);
        }
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

    #[inline(always)]
    fn push(&mut self, positions: &mut Positions, key: K, id: I) {
        positions.enter(id);
        self.items.push((key, id));
        let last = self.items.len() - 1;
        up(&mut self.items, positions, last);
    }

    #[inline(always)]
    fn rekey(&mut self, positions: &mut Positions, key: K, at: usize) {
        let before = std::mem::replace(&mut self.items[at].0, key);
        // Frequent: a queue is put where it belongs after every change, whether its rank changed or
        // not.
        if key == before {
            return;
        }
        if key < before {
            up(&mut self.items, positions, at);
        } else {
            down(&mut self.items, positions, at);
        }
    }

    /// Sets the key of a member, adding it if it is absent; `None` removes it.
    #[inline(always)]
    pub(crate) fn update(&mut self, positions: &mut Positions, key: Option<K>, id: I) {
        match (key, positions.get(id)) {
            (Some(key), Some(at)) => self.rekey(positions, key, at),
            (Some(key), None) => self.push(positions, key, id),
            (None, Some(at)) => self.remove(positions, id, at),
            (None, None) => {}
        }
    }

    #[inline(always)]
    fn remove(&mut self, positions: &mut Positions, id: I, at: usize) {
        let (key, _) = self.items.swap_remove(at);
        positions.set(id, ABSENT as usize);
        if at < self.items.len() {
            // The last member took its place, and may belong further up or down.
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
fn up<K: Copy + Ord, I: Id>(items: &mut [(K, I)], positions: &mut Positions, mut at: usize) {
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
fn down<K: Copy + Ord, I: Id>(items: &mut [(K, I)], positions: &mut Positions, mut at: usize) {
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
                prop_assert_eq!(positions.get(id).is_some(), model.contains_key(&index));
                match op {
                    0 | 1 => {
                        heap.update(&mut positions, Some(key), id);
                        model.insert(index, key);
                    }
                    _ => {
                        heap.update(&mut positions, None, id);
                        model.remove(&index);
                    }
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
