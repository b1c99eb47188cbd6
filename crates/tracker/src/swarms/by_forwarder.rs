//! Values per forwarder, only of those that have one.
//!
//! A list may have thousands of forwarders that are never asked for a torrent, so the memory of a
//! torrent depends on those that were.

use crate::forwarders::ForwarderId;

/// Values per forwarder, sorted by id.
#[derive(Clone, Debug)]
pub(super) struct ByForwarder<T>(Vec<(ForwarderId, T)>);

impl<T> Default for ByForwarder<T> {
    fn default() -> Self {
        ByForwarder(Vec::new())
    }
}

impl<T: Copy + Default> ByForwarder<T> {
    /// Returns the value of a forwarder; the default if it has none.
    pub(super) fn get(&self, forwarder: ForwarderId) -> T {
        let found = self.search(forwarder);
        found.map_or_else(|_| T::default(), |index| self.0[index].1)
    }

    /// Returns the value of a forwarder, which is the default at first.
    pub(super) fn get_mut(&mut self, forwarder: ForwarderId) -> &mut T {
        let index = self.search(forwarder).unwrap_or_else(|index| {
            self.0.insert(index, (forwarder, T::default()));
            index
        });
        &mut self.0[index].1
    }

    pub(super) fn contains(&self, forwarder: ForwarderId) -> bool {
        self.search(forwarder).is_ok()
    }

    fn search(&self, forwarder: ForwarderId) -> Result<usize, usize> {
        // Usually all forwarders have a value, so that each is at the place of its number.
        let index = forwarder.index();
        match self.0.get(index) {
            Some((id, _)) if *id == forwarder => Ok(index),
            _ => self.0.binary_search_by_key(&forwarder, |(id, _)| *id),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (ForwarderId, T)> + '_ {
        self.0.iter().copied()
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.0.iter_mut().map(|(_, value)| value)
    }

    /// Reserves room for a number of forwarders. Growing by doubling would waste half of the memory
    /// in every swarm.
    pub(super) fn reserve_exact(&mut self, more: usize) {
        self.0.reserve_exact(more);
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}
