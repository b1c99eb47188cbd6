//! A slab whose slots are addressed by an id type of their own.
//!
//! Every kind of thing that the engine stores has its own id type, so that a lane cannot be looked
//! up with the id of a flow. Ids are reused after a removal: code that keeps one across calls must
//! know that its owner still lives, or keep a [`Ticket`](crate::Ticket), which has a serial number
//! as well.

use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// An id of a [`Table`].
pub(crate) trait Id: Copy + Eq {
    fn from_index(index: usize) -> Self;
    fn index(self) -> usize;
}

/// A 32-bit index counted from 1, so that an `Option` of an id built on it costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct RawId(NonZeroU32);

impl RawId {
    pub(crate) fn from_index(index: usize) -> Self {
        let number = u32::try_from(index + 1)
            .ok()
            .and_then(NonZeroU32::new)
            .expect("fewer than 2³² live at once");
        RawId(number)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0.get() as usize - 1
    }
}

impl std::fmt::Debug for RawId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.index().fmt(f)
    }
}

/// Declares id types.
macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) struct $name(crate::table::RawId);

        impl crate::table::Id for $name {
            fn from_index(index: usize) -> Self {
                $name(crate::table::RawId::from_index(index))
            }
            #[inline]
            fn index(self) -> usize {
                self.0.index()
            }
        }
    )*};
}
pub(crate) use ids;

/// Lets a part be indexed by the ids of what it stores.
macro_rules! indexed {
    ($part:ident$(<$param:ident>)? [$id:ident: $key:ty] -> $value:ty = $field:ident[$at:expr]) => {
        impl$(<$param>)? std::ops::Index<$key> for $part$(<$param>)? {
            type Output = $value;

            #[inline]
            fn index(&self, $id: $key) -> &$value {
                &self.$field[$at]
            }
        }

        impl$(<$param>)? std::ops::IndexMut<$key> for $part$(<$param>)? {
            #[inline]
            fn index_mut(&mut self, $id: $key) -> &mut $value {
                &mut self.$field[$at]
            }
        }
    };
}
pub(crate) use indexed;

/// Counts how often values of any table are looked at, so that a test can bound the work of a call
/// without a clock.
#[cfg(test)]
pub(crate) mod visits {
    use std::cell::Cell;

    thread_local! {
        static VISITS: Cell<u64> = const { Cell::new(0) };
    }

    pub(crate) fn note() {
        VISITS.set(VISITS.get() + 1);
    }

    /// The number of visits by a call on this thread.
    pub(crate) fn during(call: impl FnOnce()) -> u64 {
        let before = VISITS.get();
        call();
        VISITS.get() - before
    }
}

#[derive(Clone, Debug)]
enum Slot<I, T> {
    Vacant { next: Option<I> },
    Taken(T),
}

/// Values with stable ids.
#[derive(Clone, Debug)]
pub(crate) struct Table<I, T> {
    slots: Vec<Slot<I, T>>,
    free: Option<I>,
    len: usize,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Table {
            slots: Vec::new(),
            free: None,
            len: 0,
        }
    }
}

impl<I: Id, T> Table<I, T> {
    #[inline]
    pub(crate) fn insert(&mut self, value: T) -> I {
        self.len += 1;
        let Some(id) = self.free else {
            self.slots.push(Slot::Taken(value));
            return I::from_index(self.slots.len() - 1);
        };
        let slot = &mut self.slots[id.index()];
        let Slot::Vacant { next } = *slot else {
            unreachable!("the free list holds vacant slots")
        };
        self.free = next;
        *slot = Slot::Taken(value);
        id
    }

    /// Removes a value that is there.
    #[inline]
    pub(crate) fn remove(&mut self, id: I) -> T {
        let vacant = Slot::Vacant { next: self.free };
        let Slot::Taken(value) = std::mem::replace(&mut self.slots[id.index()], vacant) else {
            unreachable!("a value is removed once")
        };
        self.free = Some(id);
        self.len -= 1;
        value
    }

    /// Drops a value that is there, where it lies.
    #[inline]
    pub(crate) fn discard(&mut self, id: I) {
        self.slots[id.index()] = Slot::Vacant { next: self.free };
        self.free = Some(id);
        self.len -= 1;
    }

    #[inline]
    pub(crate) fn get(&self, id: I) -> Option<&T> {
        #[cfg(test)]
        visits::note();
        match self.slots.get(id.index()) {
            Some(Slot::Taken(value)) => Some(value),
            _ => None,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            #[cfg(test)]
            visits::note();
            match slot {
                Slot::Taken(value) => Some((I::from_index(index), value)),
                Slot::Vacant { .. } => None,
            }
        })
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (I, &mut T)> {
        let slots = self.slots.iter_mut().enumerate();
        slots.filter_map(|(index, slot)| match slot {
            Slot::Taken(value) => Some((I::from_index(index), value)),
            Slot::Vacant { .. } => None,
        })
    }

    /// The ids in use, collected, for callers that change the table meanwhile.
    pub(crate) fn ids(&self) -> Vec<I> {
        self.iter().map(|(id, _)| id).collect()
    }

    /// Gives memory back after many values were removed from the end.
    pub(crate) fn shrink(&mut self) {
        // Ids that are in use cannot move, so memory is given back only when none is.
        if self.len == 0 {
            *self = Table::default();
        }
    }
}

impl<I: Id, T> Index<I> for Table<I, T> {
    type Output = T;

    #[inline]
    fn index(&self, id: I) -> &T {
        #[cfg(test)]
        visits::note();
        match &self.slots[id.index()] {
            Slot::Taken(value) => value,
            Slot::Vacant { .. } => unreachable!("an id in use names a value"),
        }
    }
}

impl<I: Id, T> IndexMut<I> for Table<I, T> {
    #[inline]
    fn index_mut(&mut self, id: I) -> &mut T {
        #[cfg(test)]
        visits::note();
        match &mut self.slots[id.index()] {
            Slot::Taken(value) => value,
            Slot::Vacant { .. } => unreachable!("an id in use names a value"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    ids! {
        TestId;
    }

    #[test]
    fn an_optional_id_is_as_small_as_an_id() {
        assert_eq!(size_of::<Option<TestId>>(), 4);
    }

    #[test]
    fn ids_are_reused() {
        let mut table = Table::<TestId, char>::default();
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert_eq!(table.remove(a), 'a');
        assert_eq!(
            (table.get(a), table.get(b), table.len()),
            (None, Some(&'b'), 1)
        );
        assert_eq!(table.insert('c'), a);
        assert_eq!(
            table.iter().map(|(_, value)| *value).collect::<String>(),
            "cb"
        );
    }
}
