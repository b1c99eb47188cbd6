//! The places of a bound, by holder.
//!
//! A bound is for all classes together, where the holders are flows, or for one class, where they
//! are its flow queues. When no place is free, an arrival whose flow holds less than its weighted
//! share takes the place of the flow that holds most for its weight.
//!
//! Only shedding needs to know who holds most. So the order is built when it is first asked for,
//! kept while the bound is more than half taken, and then dropped.

use crate::heap::{Heap, Positions};
use crate::table::{Id, Table};
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

/// A member's places; lies with the member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Holder {
    held: u32,
    weight: u32,
}

impl Holder {
    pub(crate) fn of(weight: u32) -> Self {
        Holder { held: 0, weight }
    }

    #[inline]
    pub(crate) fn held(&self) -> u64 {
        u64::from(self.held)
    }

    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }

    fn burden(&self) -> Option<Burden> {
        (self.held > 0).then(|| Burden::of(self.held(), self.weight))
    }
}

/// Holders, most burdened first.
type Order<I> = (Heap<Reverse<Burden>, I>, Positions);

/// The places of one bound, by holder.
#[derive(Debug)]
pub(crate) struct Occupancy<I> {
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
    pub(crate) fn take(&mut self, id: I, holder: &mut Holder) {
        holder.held += 1;
        self.taken += 1;
        if holder.held == 1 {
            self.weights += u64::from(holder.weight);
        }
        if self.order.is_some() {
            self.update_order(id, holder);
        }
    }

    /// Gives a place up. Of `places` there are in all, when most are free the order is no longer
    /// kept.
    #[inline]
    pub(crate) fn give_up(&mut self, holder: &mut Holder, places: u64) {
        holder.held -= 1;
        self.taken -= 1;
        if holder.held == 0 {
            self.weights -= u64::from(holder.weight);
        }
        if self.order.is_some() {
            self.drop_order(places);
        }
    }

    #[cold]
    fn drop_order(&mut self, places: u64) {
        // Half, and not just below full: a queue around its bound would build and drop the order
        // with every job.
        if self.taken < places / 2 {
            self.order = None;
        }
    }

    /// A holder without places will not come back under this id.
    pub(crate) fn forget(&mut self, id: I) {
        self.update_order(id, &Holder::default());
    }

    #[cold]
    fn update_order(&mut self, id: I, holder: &Holder) {
        if let Some((order, positions)) = &mut self.order {
            order.update(positions, holder.burden().map(Reverse), id);
        }
    }

    /// Whether a holder of that weight has fewer places than its share of `places`.
    pub(crate) fn is_below_share(&self, held: u64, weight: u32, places: u64) -> bool {
        // A flow without places is not among the holders yet, but its share is of all who will be.
        let newcomer = if held == 0 { u64::from(weight) } else { 0 };
        let all = u128::from(self.weights + newcomer);
        u128::from(held) * all < u128::from(places) * u128::from(weight)
    }

    /// The holder with the greatest burden, of `all` members.
    pub(crate) fn largest<T>(
        &mut self,
        all: &Table<I, T>,
        holder: impl Fn(&T) -> Holder,
    ) -> Option<(Burden, I)> {
        let (order, positions) = self.order.get_or_insert_with(|| {
            let (mut order, mut positions) = (Heap::default(), Positions::default());
            for (id, member) in all.iter() {
                if let Some(burden) = holder(member).burden() {
                    order.update(&mut positions, Some(Reverse(burden)), id);
                }
            }
            (order, positions)
        });
        // Burdens of holders that gave places up are corrected here, one by one, until the top is
        // true.
        while let Some((Reverse(stored), id)) = order.first() {
            match holder(&all[id]).burden() {
                Some(burden) if burden == stored => return Some((burden, id)),
                burden => order.update(positions, burden.map(Reverse), id),
            }
        }
        None
    }

    /// Applies a new weight of a holder. The order is built anew.
    pub(crate) fn reweigh(&mut self, holder: &mut Holder, weight: u32) {
        self.order = None;
        if holder.held > 0 {
            self.weights = self.weights - u64::from(holder.weight) + u64::from(weight);
        }
        holder.weight = weight;
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
            let mut occupancy = Occupancy::default();
            let mut held = [0u64; 6];
            let mut holders = Table::<TestId, Holder>::default();
            let ids: Vec<TestId> = (1..=6).map(|weight| holders.insert(Holder::of(weight))).collect();
            for (take, index) in ops {
                let holder = &mut holders[ids[index]];
                if take {
                    occupancy.take(ids[index], holder);
                    held[index] += 1;
                } else if held[index] > 0 {
                    occupancy.give_up(holder, 10);
                    held[index] -= 1;
                }
                let burdens = (0..6).filter(|index| held[*index] > 0)
                    .map(|index| Burden::of(held[index], index as u32 + 1));
                prop_assert_eq!(occupancy.largest(&holders, |holder| *holder).map(|(burden, _)| burden), burdens.max());
                prop_assert_eq!(occupancy.taken(), held.iter().sum::<u64>());
            }
        }
    }

    #[test]
    fn the_largest_bounds_do_not_overflow() {
        let mut occupancy = Occupancy::<TestId>::default();
        occupancy.take(TestId::from_index(0), &mut Holder::of(u32::MAX));
        assert!(occupancy.is_below_share(1, u32::MAX, u64::MAX));
        assert!(Burden::of(u64::MAX, 1) > Burden::of(1, 1));
    }
}
