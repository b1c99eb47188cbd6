//! Things with stable small numbers, reused when free.
//!
//! What is removed stays where it is until its number is used again: nothing is moved, so taking a job out costs nothing
//! beyond noting that its place is free.

use std::ops::{Index, IndexMut};

#[derive(Clone, Debug)]
pub(crate) struct Table<T> {
    items: Vec<T>,
    live: Vec<bool>,
    free: Vec<u32>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table {
            items: Vec::new(),
            live: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> Table<T> {
    pub(crate) fn insert(&mut self, item: T) -> u32 {
        let mut item = Some(item);
        let (id, new) = self.claim(|| item.take().expect("it is asked for once"));
        if let Some(item) = item {
            *new = item;
        }
        id
    }

    /// Takes a number for something that is written where it will lie, over what lay there before or is `vacant`: a large
    /// item is not made elsewhere and moved.
    #[inline(always)]
    pub(crate) fn claim(&mut self, vacant: impl FnOnce() -> T) -> (u32, &mut T) {
        if self.free.is_empty() {
            self.grow(vacant());
        }
        let id = self.free.pop().expect("there is one now");
        self.live[id as usize] = true;
        (id, &mut self.items[id as usize])
    }

    #[cold]
    fn grow(&mut self, item: T) {
        self.items.push(item);
        self.live.push(false);
        // As many numbers can come free as there are: room for them is made here, not on removal.
        self.free.reserve(self.items.capacity());
        self.free.push((self.items.len() - 1) as u32);
    }

    /// Frees a number. What it named is still there to be looked at until the next insert.
    #[inline]
    pub(crate) fn remove(&mut self, id: u32) {
        debug_assert!(self.live[id as usize], "nothing is removed twice");
        self.live[id as usize] = false;
        self.free.push(id);
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        let live = *self.live.get(id as usize)?;
        live.then(|| &self.items[id as usize])
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
        let items = self.items.iter().zip(&self.live).enumerate();
        items.filter_map(|(id, (item, live))| live.then_some((id as u32, item)))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (u32, &mut T)> {
        let items = self.items.iter_mut().zip(&self.live).enumerate();
        items.filter_map(|(id, (item, live))| live.then_some((id as u32, item)))
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

    #[test]
    fn numbers_are_reused() {
        let mut table = Table::default();
        let (a, b) = (table.insert('a'), table.insert('b'));
        table.remove(a);
        assert_eq!(
            (table.get(a), table.get(b), table.len()),
            (None, Some(&'b'), 1)
        );
        assert_eq!(table.insert('c'), a);
        assert_eq!(
            table.iter().map(|(_, item)| *item).collect::<String>(),
            "cb"
        );
    }
}
