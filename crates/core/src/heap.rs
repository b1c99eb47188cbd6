//! A 4-ary min-heap whose entries can be found again, re-keyed and removed.
//!
//! The heap tells its owner where each entry stands, by a function handed in with every call, so that
//! the position lives in the entry itself and costs no look-up. Four children a node keep it shallow: ten
//! thousand entries are seven levels.

use smallvec::SmallVec;

/// The position of what is in no heap.
pub(crate) const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(crate) struct Heap<K> {
    /// Most heaps are of one or two, of which there are many: those lie here.
    items: SmallVec<[(K, u32); 2]>,
}

impl<K> Default for Heap<K> {
    fn default() -> Self {
        Heap {
            items: SmallVec::new(),
        }
    }
}

impl<K: Copy + Ord> Heap<K> {
    #[inline]
    pub(crate) fn top(&self) -> Option<(K, u32)> {
        self.items.first().copied()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The entry at that position.
    pub(crate) fn get(&self, at: usize) -> Option<(K, u32)> {
        self.items.get(at).copied()
    }

    pub(crate) fn key(&self, at: u32) -> K {
        self.items[at as usize].0
    }

    #[inline]
    pub(crate) fn push(&mut self, key: K, id: u32, mut place: impl FnMut(u32, u32)) {
        self.items.push((key, id));
        self.up(self.items.len() - 1, &mut place);
    }

    /// Gives the entry at `at` another key.
    #[inline]
    pub(crate) fn rekey(&mut self, at: u32, key: K, mut place: impl FnMut(u32, u32)) {
        let at = at as usize;
        let smaller = key < self.items[at].0;
        self.items[at].0 = key;
        if smaller {
            self.up(at, &mut place);
        } else {
            self.down(at, &mut place);
        }
    }

    /// Removes the entry at `at`; its position becomes [`NOWHERE`].
    #[inline]
    pub(crate) fn remove(&mut self, at: u32, mut place: impl FnMut(u32, u32)) {
        let at = at as usize;
        let (key, id) = self.items.swap_remove(at);
        place(id, NOWHERE);
        if at < self.items.len() {
            if self.items[at].0 < key {
                self.up(at, &mut place);
            } else {
                self.down(at, &mut place);
            }
        }
    }

    /// Removes all; `forget` is told of each.
    pub(crate) fn clear(&mut self, mut forget: impl FnMut(u32)) {
        for (_, id) in self.items.drain(..) {
            forget(id);
        }
    }

    fn up(&mut self, mut at: usize, place: &mut impl FnMut(u32, u32)) {
        let item = self.items[at];
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.items[parent].0 <= item.0 {
                break;
            }
            self.set(at, self.items[parent], place);
            at = parent;
        }
        self.set(at, item, place);
    }

    fn down(&mut self, mut at: usize, place: &mut impl FnMut(u32, u32)) {
        let item = self.items[at];
        loop {
            let first = at * 4 + 1;
            let children = self.items.get(first..).unwrap_or_default();
            let Some(mut child) = children.first().copied() else {
                break;
            };
            let mut least = first;
            for (index, other) in children.iter().enumerate().take(4).skip(1) {
                if other.0 < child.0 {
                    (least, child) = (first + index, *other);
                }
            }
            if item.0 <= child.0 {
                break;
            }
            self.set(at, child, place);
            at = least;
        }
        self.set(at, item, place);
    }

    #[inline]
    fn set(&mut self, at: usize, item: (K, u32), place: &mut impl FnMut(u32, u32)) {
        self.items[at] = item;
        place(item.1, at as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_list(ops in prop::collection::vec((0u8..4, 0u32..40, 0u64..100), 1..300)) {
            let mut heap = Heap::default();
            let mut at = [NOWHERE; 40];
            let mut model: Vec<Option<u64>> = vec![None; 40];
            for (op, id, key) in ops {
                let slot = id as usize;
                match (op, model[slot]) {
                    (0 | 1, None) => { heap.push((key, id), id, |i, p| at[i as usize] = p); model[slot] = Some(key); }
                    (2, Some(_)) => { let p = at[slot]; heap.rekey(p, (key, id), |i, p| at[i as usize] = p); model[slot] = Some(key); }
                    (3, Some(_)) => { let p = at[slot]; heap.remove(p, |i, p| at[i as usize] = p); model[slot] = None; }
                    _ => {}
                }
                let least = model.iter().enumerate().filter_map(|(i, k)| k.map(|k| (k, i as u32))).min();
                prop_assert_eq!(heap.top().map(|(k, _)| k), least);
                for (i, k) in model.iter().enumerate() {
                    prop_assert_eq!(at[i] == NOWHERE, k.is_none());
                    if k.is_some() { prop_assert_eq!(heap.key(at[i]).1, i as u32); }
                }
            }
        }
    }
}
