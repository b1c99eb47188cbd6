//! Lanes whose targets are all shut, and the order in which they are tried when one opens.
//!
//! A lane that finds every target of its group shut leaves its flow queue and is blocked in its
//! group, so that no selection looks at it again. When a target opens, its groups take part in the
//! selection with the rank of their first lane; lanes go back to their flow queues one by one, in
//! policy order, for as long as the group stays open. So a gate that opens for one job costs one
//! step, however many lanes wait behind it.
//!
//! Ranks may be outdated, but then the true one is larger: a flow that is served through another
//! lane moves back. The caller compares before it unblocks a lane.

use crate::fair_queue::Rank;
use crate::heap::{Heap, Positions};
use crate::id::{Class, Domain, GroupId, LaneId, Section};
use crate::table::Id;

/// The blocked lanes of one group.
#[derive(Debug, Default)]
struct Group {
    /// The domain of its targets.
    domain: Domain,
    by_class: Vec<Heap<Rank, LaneId>>,
    /// Whether it takes part in the selection.
    open: bool,
}

/// The open groups that have blocked lanes of one section.
#[derive(Debug, Default)]
struct OpenGroups {
    order: Heap<Rank, GroupId>,
    positions: Positions,
}

/// All blocked lanes.
#[derive(Debug, Default)]
pub(crate) struct Blocked {
    groups: Vec<Group>,
    positions: Positions,
    /// By domain and class.
    open: Vec<Vec<OpenGroups>>,
    lanes: usize,
}

impl Blocked {
    pub(crate) fn set_sections(&mut self, domains: usize, classes: usize) {
        let domains = domains.max(self.open.len());
        self.open.resize_with(domains, Vec::new);
        for domain in &mut self.open {
            domain.resize_with(classes, OpenGroups::default);
        }
    }

    /// Whether no lane is blocked.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.lanes == 0
    }

    /// Blocks a lane of a shut group.
    pub(crate) fn insert(&mut self, lane: LaneId, group: GroupId, section: Section, rank: Rank) {
        if self.groups.len() <= group.index() {
            self.groups.resize_with(group.index() + 1, Group::default);
        }
        let state = &mut self.groups[group.index()];
        let Section { domain, class } = section;
        // All targets of a group are of one domain; a reload may have moved them to another.
        state.domain = domain;
        if state.by_class.len() <= class.index() {
            state.by_class.resize_with(class.index() + 1, Heap::default);
        }
        state.by_class[class.index()].update(&mut self.positions, Some(rank), lane);
        self.lanes += 1;
        self.rerank_group(group, section);
    }

    /// Takes a lane out, because it is tried again or has no jobs any more.
    pub(crate) fn remove(&mut self, lane: LaneId, group: GroupId, section: Section) {
        let state = &mut self.groups[group.index()];
        state.by_class[section.class.index()].update(&mut self.positions, None, lane);
        self.lanes -= 1;
        self.rerank_group(group, section);
    }

    /// Gives a lane its current rank.
    pub(crate) fn rerank(&mut self, lane: LaneId, group: GroupId, section: Section, rank: Rank) {
        let state = &mut self.groups[group.index()];
        state.by_class[section.class.index()].update(&mut self.positions, Some(rank), lane);
        self.rerank_group(group, section);
    }

    /// The first open group of a section.
    #[inline]
    pub(crate) fn first(&self, section: Section) -> Option<(Rank, GroupId)> {
        self.open[section.domain.index()][section.class.index()]
            .order
            .first()
    }

    /// The first blocked lane of a group and class.
    pub(crate) fn first_lane(&self, group: GroupId, class: Class) -> Option<(Rank, LaneId)> {
        let group = self.groups.get(group.index())?;
        group.by_class.get(class.index())?.first()
    }

    /// Has a group take part, because one of its targets may have opened, or no longer, because
    /// every target of it is shut.
    pub(crate) fn set_open(&mut self, group: GroupId, open: bool) {
        let Some(state) = self.groups.get_mut(group.index()) else {
            return;
        };
        // Opened and shut for every job that a busy target finishes; only a change costs anything.
        if std::mem::replace(&mut state.open, open) != open {
            let domain = state.domain;
            for class in (0..state.by_class.len()).map(Class::from_index) {
                self.rerank_group(group, Section { domain, class });
            }
        }
    }

    /// Puts a group where it belongs among the open groups of a section.
    fn rerank_group(&mut self, group: GroupId, Section { domain, class }: Section) {
        let state = &self.groups[group.index()];
        // A shut group has no rank: a selection never comes across its lanes, however many there
        // are.
        let first = state.by_class[class.index()].first().filter(|_| state.open);
        let OpenGroups { order, positions } = &mut self.open[domain.index()][class.index()];
        order.update(positions, first.map(|(rank, _)| rank), group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair_queue::VirtualTime;

    const SECTION: Section = Section {
        domain: Domain(0),
        class: Class(1),
    };

    fn rank(tie: u64) -> Rank {
        let tag = VirtualTime::ZERO;
        Rank { tag, tie }
    }

    fn lane(index: usize) -> LaneId {
        LaneId::from_index(index)
    }

    fn group(index: usize) -> GroupId {
        GroupId::from_index(index)
    }

    /// Lanes 0 to 9 of the first group with ranks 10 down to 1, and lane 10 of the second with rank
    /// 5.
    fn two_groups() -> Blocked {
        let mut blocked = Blocked::default();
        blocked.set_sections(1, 2);
        for index in 0..10 {
            blocked.insert(lane(index), group(0), SECTION, rank(10 - index as u64));
        }
        blocked.insert(lane(10), group(1), SECTION, rank(5));
        blocked
    }

    #[test]
    fn only_open_groups_take_part_each_with_its_first_lane() {
        let mut blocked = two_groups();
        assert_eq!(blocked.first(SECTION), None, "all targets are shut");
        blocked.set_open(group(1), true);
        assert_eq!(blocked.first(SECTION), Some((rank(5), group(1))));
        blocked.set_open(group(0), true);
        assert_eq!(blocked.first(SECTION), Some((rank(1), group(0))));
        assert_eq!(
            blocked.first_lane(group(0), SECTION.class),
            Some((rank(1), lane(9)))
        );
        blocked.set_open(group(0), false);
        assert_eq!(blocked.first(SECTION), Some((rank(5), group(1))));
    }

    #[test]
    fn a_group_stands_where_its_first_lane_does() {
        let mut blocked = two_groups();
        blocked.set_open(group(0), true);
        blocked.set_open(group(1), true);
        (3..10).for_each(|index| blocked.remove(lane(index), group(0), SECTION));
        assert_eq!(blocked.first(SECTION), Some((rank(5), group(1))));
        blocked.rerank(lane(0), group(0), SECTION, rank(2));
        assert_eq!(blocked.first(SECTION), Some((rank(2), group(0))));
        (0..3).for_each(|index| blocked.remove(lane(index), group(0), SECTION));
        blocked.remove(lane(10), group(1), SECTION);
        assert!(blocked.is_empty() && blocked.first(SECTION).is_none());
    }
}
