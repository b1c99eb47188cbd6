//! Things with stable small numbers, reused when free.
//!
//! What is removed stays where it is until its number is used again: nothing is moved, so taking a job out costs nothing
//! beyond noting that its place is free.

use crate::index::BITS;
use std::ops::{Index, IndexMut};

/// What lies in a table says itself whether it is still in use: a list of who is would be one more place to look at.
pub(crate) trait Slot {
    fn is_live(&self) -> bool;

    /// It is no longer in use. The rest of it stays as it is.
    fn end(&mut self);
}

#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table {
            items: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T: Slot> Table<T> {
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let mut item = Some(item);
        let (id, new) = self.claim(|| item.take().expect("it is asked for once"));
        if let Some(item) = item {
            *new = item;
        }
        id
    }

    /// Takes a number for something that is written where it will lie, over what lay there before or is `vacant`: a large
    /// item is not made elsewhere and moved. Whoever writes it makes it live.
    #[inline(always)]
    pub(crate) fn claim(&mut self, vacant: impl FnOnce() -> T) -> (u32, &mut T) {
        if self.free.is_empty() {
            self.grow(vacant());
        }
        let id = self.free.pop().expect("there is one now");
        (id, &mut self.items[id as usize])
    }

    #[cold]
    fn grow(&mut self, item: T) {
        assert!(self.items.len() < 1 << BITS, "more than can be numbered");
        self.items.push(item);
        // As many numbers can come free as there are: room for them is made here, not on removal.
        self.free.reserve(self.items.capacity());
        self.free.push((self.items.len() - 1) as u32);
    }

    /// Frees a number. What it named is still there to be looked at until the next insert.
    #[inline]
    pub(crate) fn remove(&mut self, id: u32) {
        let item = &mut self.items[id as usize];
        debug_assert!(item.is_live(), "nothing is removed twice");
        item.end();
        self.free.push(id);
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.look(id).filter(|item| item.is_live())
    }

    /// What a number names or last named.
    #[inline]
    pub(crate) fn look(&self, id: u32) -> Option<&T> {
        self.items.get(id as usize)
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// One past the largest number given out.
    pub(crate) fn end(&self) -> u32 {
        self.items.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.items).filter(|(_, item)| item.is_live())
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        (0..)
            .zip(&mut self.items)
            .filter(|(_, item)| item.is_live())
    }
}

impl<T> Index<u32> for Table<T> {
    type Output = T;
    #[inline]
    fn index(&self, id: u32) -> &T {
        &self.items[id as usize]
    }
}

impl<T> IndexMut<u32> for Table<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        &mut self.items[id as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Slot for Option<char> {
        fn is_live(&self) -> bool {
            self.is_some()
        }
        fn end(&mut self) {
            *self = None;
        }
    }

    #[test]
    fn numbers_are_reused() {
        let mut table = Table::default();
        let (a, b) = (table.insert(Some('a')), table.insert(Some('b')));
        table.remove(a);
        assert_eq!(
            (table.get(a), table.get(b), table.len()),
            (None, Some(&Some('b')), 1)
        );
        assert_eq!(table.insert(Some('c')), a);
        assert_eq!(
            table
                .iter()
                .filter_map(|(_, item)| *item)
                .collect::<String>(),
            "cb"
        );
    }
}
