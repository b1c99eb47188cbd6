//! Aging: the lane heads of one class by how long they have waited.
//!
//! A head that waited too long goes next, if its gates are open. Lanes that were found blocked are
//! set aside with what blocks them, so that no later search looks at them again. When a blocker
//! opens, only its oldest lane becomes a candidate, and the next one when that has left: a blocker
//! that opens for one job costs one step.

use crate::id::{FlowId, GroupId, LaneId};
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// How old a head is: since when it waits, then its order of arrival.
pub(crate) type Age = (Time, u64);

/// The obstacle that keeps a lane from being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Blocker {
    Flow(FlowId),
    Group(GroupId),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    age: Age,
    /// Set aside with this blocker, or a candidate that came from it.
    blocker: Option<Blocker>,
    aside: bool,
}

/// The heads of one class's lanes, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Aging {
    lanes: BTreeMap<LaneId, Entry>,
    candidates: BTreeSet<(Age, LaneId)>,
    aside: BTreeMap<Blocker, BTreeSet<(Age, LaneId)>>,
}

impl Aging {
    /// The head of a lane changed; `None` if it has no jobs.
    pub(crate) fn set_head(&mut self, lane: LaneId, age: Option<Age>) {
        if let Some(entry) = self.lanes.remove(&lane) {
            self.take_out(lane, entry);
        }
        if let Some(age) = age {
            let entry = Entry {
                age,
                blocker: None,
                aside: false,
            };
            self.lanes.insert(lane, entry);
            self.candidates.insert((age, lane));
        }
    }

    fn take_out(&mut self, lane: LaneId, entry: Entry) {
        if !entry.aside {
            self.candidates.remove(&(entry.age, lane));
            if let Some(blocker) = entry.blocker {
                self.unblock(blocker);
            }
        } else if let Some(blocker) = entry.blocker {
            let lanes = self.aside.entry(blocker).or_default();
            lanes.remove(&(entry.age, lane));
            if lanes.is_empty() {
                self.aside.remove(&blocker);
            }
        }
    }

    /// The oldest candidate.
    pub(crate) fn oldest(&self) -> Option<(Age, LaneId)> {
        self.candidates.first().copied()
    }

    /// A candidate was found blocked.
    pub(crate) fn set_aside(&mut self, lane: LaneId, blocker: Blocker) {
        let Some(entry) = self.lanes.get_mut(&lane) else {
            return;
        };
        let (age, from) = (entry.age, entry.blocker.replace(blocker));
        entry.aside = true;
        self.candidates.remove(&(age, lane));
        self.aside.entry(blocker).or_default().insert((age, lane));
        // Where it came from has another candidate, unless it is shut again.
        if let Some(from) = from.filter(|from| *from != blocker) {
            self.unblock(from);
        }
    }

    /// A blocker may have opened: its oldest lane is a candidate again.
    pub(crate) fn unblock(&mut self, blocker: Blocker) {
        let Some(lanes) = self.aside.get_mut(&blocker) else {
            return;
        };
        let Some((age, lane)) = lanes.pop_first() else {
            return;
        };
        if lanes.is_empty() {
            self.aside.remove(&blocker);
        }
        if let Some(entry) = self.lanes.get_mut(&lane) {
            entry.aside = false;
        }
        self.candidates.insert((age, lane));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Id;

    fn lane(index: usize) -> LaneId {
        LaneId::from_index(index)
    }

    fn group() -> Blocker {
        Blocker::Group(GroupId::from_index(0))
    }

    fn flow() -> Blocker {
        Blocker::Flow(FlowId::from_index(0))
    }

    /// Four lanes, the first the oldest. All but the last were found blocked by the same group.
    fn three_set_aside() -> Aging {
        let mut aging = Aging::default();
        for index in 0..4 {
            let age = (Time::from_secs(index as u64), index as u64);
            aging.set_head(lane(index), Some(age));
        }
        (0..3).for_each(|index| aging.set_aside(lane(index), group()));
        aging
    }

    fn oldest(aging: &Aging) -> Option<LaneId> {
        aging.oldest().map(|(_, lane)| lane)
    }

    #[test]
    fn a_blocker_that_opens_offers_its_lanes_one_by_one_oldest_first() {
        let mut aging = three_set_aside();
        assert_eq!(oldest(&aging), Some(lane(3)), "the only candidate");
        aging.unblock(group());
        for served in 0..4 {
            assert_eq!(oldest(&aging), Some(lane(served)));
            aging.set_head(lane(served), None);
        }
        assert_eq!(oldest(&aging), None);
    }

    #[test]
    fn a_lane_that_is_still_blocked_does_not_bring_the_next() {
        let mut aging = three_set_aside();
        aging.unblock(group());
        aging.set_aside(lane(0), group());
        assert_eq!(oldest(&aging), Some(lane(3)));
    }

    #[test]
    fn a_lane_that_something_else_blocks_leaves_its_turn_to_the_next() {
        let mut aging = three_set_aside();
        aging.unblock(group());
        aging.set_aside(lane(0), flow());
        assert_eq!(oldest(&aging), Some(lane(1)));
        aging.unblock(flow());
        assert_eq!(oldest(&aging), Some(lane(0)));
    }
}
