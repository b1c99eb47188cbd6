//! A 4-ary min-heap whose entries can be found again, re-keyed and removed.
//!
//! The heap tells its owner where each entry stands, by a function handed in with every call, so that
//! the position lives in the entry itself and costs no look-up. Four children a node keep it shallow: ten
//! thousand entries are seven levels.

use smallvec::SmallVec;
use std::marker::PhantomData;
use std::ops::DerefMut;

/// The position of what is in no heap.
pub(crate) const NOWHERE: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(crate) struct Heap<K, I = Vec<(K, u32)>> {
    items: I,
    key: PhantomData<K>,
}

impl<K, I: Default> Default for Heap<K, I> {
    fn default() -> Self {
        Heap {
            items: I::default(),
            key: PhantomData,
        }
    }
}

/// A heap of which there are very many, most of one entry: that lies in the heap itself.
pub(crate) type SmallHeap<K> = Heap<K, SmallVec<[(K, u32); 1]>>;

/// Where the entries of a heap lie.
pub(crate) trait Items<T>: DerefMut<Target = [T]> {
    fn push(&mut self, item: T);
    fn swap_remove(&mut self, at: usize) -> T;
    fn clear(&mut self);
}

impl<T> Items<T> for Vec<T> {
    #[inline]
    fn push(&mut self, item: T) {
        self.push(item);
    }
    #[inline]
    fn swap_remove(&mut self, at: usize) -> T {
        self.swap_remove(at)
    }
    fn clear(&mut self) {
        self.clear();
    }
}

impl<T> Items<T> for SmallVec<[T; 1]> {
    #[inline]
    fn push(&mut self, item: T) {
        self.push(item);
    }
    #[inline]
    fn swap_remove(&mut self, at: usize) -> T {
        self.swap_remove(at)
    }
    fn clear(&mut self) {
        self.clear();
    }
}

impl<K: Copy + Ord, I: Items<(K, u32)>> Heap<K, I> {
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
        let last = self.items.len();
        self.items.push((key, id));
        let items = &mut self.items[..];
        if last == 0 || items[(last - 1) / 4].0 <= key {
            place(id, last as u32);
        } else {
            up(items, last, &mut place);
        }
    }

    /// Gives the entry at `at` another key.
    #[inline]
    pub(crate) fn rekey(&mut self, at: u32, key: K, mut place: impl FnMut(u32, u32)) {
        let (items, at) = (&mut self.items[..], at as usize);
        let smaller = key < items[at].0;
        items[at].0 = key;
        if smaller {
            up(items, at, &mut place);
        } else {
            down(items, at, &mut place);
        }
    }

    /// Removes the entry at `at`; its position becomes [`NOWHERE`].
    #[inline]
    pub(crate) fn remove(&mut self, at: u32, mut place: impl FnMut(u32, u32)) {
        let at = at as usize;
        let (key, id) = self.items.swap_remove(at);
        place(id, NOWHERE);
        let items = &mut self.items[..];
        if at < items.len() {
            if items[at].0 < key {
                up(items, at, &mut place);
            } else {
                down(items, at, &mut place);
            }
        }
    }

    /// Removes all; `forget` is told of each.
    pub(crate) fn clear(&mut self, mut forget: impl FnMut(u32)) {
        for (_, id) in self.items.iter() {
            forget(*id);
        }
        self.items.clear();
    }
}

/// Moves the entry at `at` up to where it belongs. Both ways work on a slice: where the entries lie is found out once.
#[inline]
fn up<K: Copy + Ord>(items: &mut [(K, u32)], mut at: usize, place: &mut impl FnMut(u32, u32)) {
    let item = items[at];
    while at > 0 {
        let parent = (at - 1) / 4;
        if items[parent].0 <= item.0 {
            break;
        }
        items[at] = items[parent];
        place(items[at].1, at as u32);
        at = parent;
    }
    items[at] = item;
    place(item.1, at as u32);
}

/// Moves the entry at `at` down to where it belongs.
#[inline]
fn down<K: Copy + Ord>(items: &mut [(K, u32)], mut at: usize, place: &mut impl FnMut(u32, u32)) {
    let item = items[at];
    loop {
        let first = at * 4 + 1;
        let end = items.len().min(first + 4);
        if first >= end {
            break;
        }
        let mut least = first;
        for other in first + 1..end {
            if items[other].0 < items[least].0 {
                least = other;
            }
        }
        if item.0 <= items[least].0 {
            break;
        }
        items[at] = items[least];
        place(items[at].1, at as u32);
        at = least;
    }
    items[at] = item;
    place(item.1, at as u32);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_a_sorted_list(ops in prop::collection::vec((0u8..4, 0u32..40, 0u64..100), 1..300)) {
            let mut heap = SmallHeap::default();
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
