//! The places of a bound, by holder.
//!
//! A bound is for all classes together, where the holders are flows, or for one class, where they
//! are its flow queues. When no place is free, an arrival whose flow holds less than its weighted
//! share takes the place of the flow that holds most for its weight.
//!
//! Only shedding needs to know who holds most. So the order is built when it is first asked for,
//! kept while the bound is more than half taken, and then dropped.

use crate::heap::{Heap, Positions};
use crate::table::Id;
use std::cmp::Reverse;

/// Places held for a weight of 1, in units of 2⁻²⁰.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Burden(u64);

impl Burden {
    pub(crate) fn of(held: u64, weight: u32) -> Self {
        let burden = (u128::from(held) << 20) / u128::from(weight.max(1));
        Burden(u64::try_from(burden).unwrap_or(u64::MAX))
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Holder {
    held: u32,
    weight: u32,
}

/// Holders, most burdened first.
type Order<I> = (Heap<Reverse<Burden>, I>, Positions<I>);

/// The places of one bound, by holder.
#[derive(Debug)]
pub(crate) struct Occupancy<I> {
    holders: Vec<Holder>,
    taken: u64,
    /// The weights of all that hold a place, added up.
    weights: u64,
    /// The holders, most burdened first. A burden may be outdated, but then the true one is
    /// smaller: places taken are entered at once, places given up when the holder comes to the top.
    order: Option<Order<I>>,
}

impl<I> Default for Occupancy<I> {
    fn default() -> Self {
        Occupancy {
            holders: Vec::new(),
            taken: 0,
            weights: 0,
            order: None,
        }
    }
}

impl<I: Id> Occupancy<I> {
    /// Places taken in all.
    #[inline]
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// The weights of all holders.
    pub(crate) fn weights(&self) -> u64 {
        self.weights
    }

    #[inline]
    pub(crate) fn held(&self, id: I) -> u64 {
        self.holders
            .get(id.index())
            .map_or(0, |holder| u64::from(holder.held))
    }

    #[inline]
    pub(crate) fn take(&mut self, id: I, weight: u32) {
        if self.holders.len() <= id.index() {
            self.holders.resize(id.index() + 1, Holder::default());
        }
        let holder = &mut self.holders[id.index()];
        holder.held += 1;
        self.taken += 1;
        if holder.held == 1 {
            holder.weight = weight;
            self.weights += u64::from(weight);
        }
        if let Some((order, positions)) = &mut self.order {
            let burden = Burden::of(u64::from(holder.held), holder.weight);
            order.set(positions, Reverse(burden), id);
        }
    }

    /// Gives a place up. Of `places` there are in all, when most are free the order is no longer
    /// kept.
    #[inline]
    pub(crate) fn give_up(&mut self, id: I, places: u64) {
        let holder = &mut self.holders[id.index()];
        holder.held -= 1;
        self.taken -= 1;
        if holder.held == 0 {
            self.weights -= u64::from(holder.weight);
        }
        if self.order.is_some() && self.taken < places / 2 {
            self.order = None;
        }
    }

    /// A holder without places will not come back under this id.
    pub(crate) fn forget(&mut self, id: I) {
        if let Some((order, positions)) = &mut self.order {
            order.update(positions, None, id);
        }
    }

    /// Whether a holder of that weight has fewer places than its share of `places`.
    pub(crate) fn is_below_share(&self, id: Option<I>, weight: u32, places: u64) -> bool {
        let held = id.map_or(0, |id| self.held(id));
        let newcomer = if held == 0 { u64::from(weight) } else { 0 };
        let all = u128::from(self.weights + newcomer);
        u128::from(held) * all < u128::from(places) * u128::from(weight)
    }

    /// The holder with the greatest burden.
    pub(crate) fn largest(&mut self) -> Option<(Burden, I)> {
        let holders = &self.holders;
        let burden = |id: I| {
            let Holder { held, weight } = holders[id.index()];
            (held > 0).then(|| Burden::of(u64::from(held), weight))
        };
        let (order, positions) = self.order.get_or_insert_with(|| {
            let (mut order, mut positions) = (Heap::default(), Positions::default());
            for index in 0..holders.len() {
                let id = I::from_index(index);
                if let Some(burden) = burden(id) {
                    order.push(&mut positions, Reverse(burden), id);
                }
            }
            (order, positions)
        });
        while let Some((Reverse(stored), id)) = order.first() {
            match burden(id) {
                Some(burden) if burden == stored => return Some((burden, id)),
                Some(burden) => order.rekey(positions, Reverse(burden), id),
                None => order.remove(positions, id),
            }
        }
        None
    }

    /// Applies new weights.
    pub(crate) fn reweigh(&mut self, weight: impl Fn(I) -> u32) {
        self.order = None;
        self.weights = 0;
        for (index, holder) in self.holders.iter_mut().enumerate() {
            if holder.held > 0 {
                holder.weight = weight(I::from_index(index));
                self.weights += u64::from(holder.weight);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::ids;
    use proptest::prelude::*;

    ids! {
        TestId;
    }

    proptest! {
        #[test]
        fn the_largest_is_the_largest(ops in prop::collection::vec((any::<bool>(), 0usize..6), 1..200)) {
            let mut occupancy = Occupancy::<TestId>::default();
            let mut held = [0u64; 6];
            for (take, index) in ops {
                let id = TestId::from_index(index);
                if take {
                    occupancy.take(id, index as u32 + 1);
                    held[index] += 1;
                } else if held[index] > 0 {
                    occupancy.give_up(id, 10);
                    held[index] -= 1;
                }
                let burdens = (0..6).filter(|index| held[*index] > 0)
                    .map(|index| Burden::of(held[index], index as u32 + 1));
                prop_assert_eq!(occupancy.largest().map(|(burden, _)| burden), burdens.max());
                prop_assert_eq!(occupancy.taken(), held.iter().sum::<u64>());
            }
        }
    }

    #[test]
    fn the_largest_bounds_do_not_overflow() {
        let mut occupancy = Occupancy::<TestId>::default();
        occupancy.take(TestId::from_index(0), u32::MAX);
        assert!(occupancy.is_below_share(Some(TestId::from_index(0)), u32::MAX, u64::MAX));
        assert!(Burden::of(u64::MAX, 1) > Burden::of(1, 1));
    }
}
