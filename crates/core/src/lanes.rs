//! Lanes: the waiting jobs of one section, flow and target group, first in first out.
//!
//! A lane is the unit that a gate blocks: its jobs differ in nothing that a gate looks at but their
//! cost, so that only its head needs to be tried. This part owns the lists of jobs and knows which
//! lanes of a group have jobs. Lanes without jobs stay, because the next job of the same kind is
//! likely to come, until their flow is forgotten or their group is dropped.

use crate::id::{Cost, FlowId, GroupId, JobId, LaneId, QueueId, Section, TargetId};
use crate::list::{Links, List};
use crate::table::{Id, Table, indexed};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// The properties that a lane's jobs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneKey {
    pub(crate) section: Section,
    pub(crate) flow: FlowId,
    pub(crate) queue: QueueId,
    pub(crate) group: GroupId,
    /// The target, if the group has just one.
    pub(crate) sole_target: Option<TargetId>,
}

/// How a lane takes part in the selection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LaneState {
    /// It has no jobs.
    Empty,
    /// In its flow queue, to be tried in its turn.
    Open,
    /// In its target group: every target of the group is shut.
    Blocked,
    /// Out of the order: this target's cost bucket is reserved for its head.
    Reserving(TargetId),
}

/// The demand of a lane's jobs. The sums wrap instead of saturating, so that a difference of two
/// stays exact.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) waiting_cost: u64,
    pub(crate) granted: u64,
    pub(crate) granted_cost: u64,
}

/// A lane.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    jobs: List,
    traffic: Traffic,
    pub(crate) state: LaneState,
    /// Its place among its group's lanes with jobs.
    in_group: usize,
}

impl Lane {
    /// The job that goes next.
    #[inline]
    pub(crate) fn head(&self) -> Option<JobId> {
        self.jobs.head
    }

    /// The job that came last.
    pub(crate) fn newest(&self) -> Option<JobId> {
        self.jobs.tail
    }

    /// The number of its jobs.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        u64::from(self.jobs.len)
    }

    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// A job of that cost is about to join.
    #[inline]
    pub(crate) fn count_arrival(&mut self, cost: Cost) {
        self.traffic.waiting_cost = self.traffic.waiting_cost.wrapping_add(cost.0);
    }

    /// A job of that cost left, with a grant or without.
    #[inline]
    pub(crate) fn count_leave(&mut self, cost: Cost, granted: bool) {
        let traffic = &mut self.traffic;
        traffic.waiting_cost = traffic.waiting_cost.wrapping_sub(cost.0);
        if granted {
            traffic.granted += 1;
            traffic.granted_cost = traffic.granted_cost.wrapping_add(cost.0);
        }
    }
}

/// All lanes.
#[derive(Debug)]
pub(crate) struct Lanes {
    table: Table<LaneId, Lane>,
    by_key: HashMap<(Section, QueueId, GroupId), LaneId, FixedState>,
    links: Links,
    /// By group, the lanes that have jobs.
    by_group: Vec<Vec<LaneId>>,
}

impl Lanes {
    pub(crate) fn new(hasher: FixedState) -> Self {
        Lanes {
            table: Table::default(),
            by_key: HashMap::with_hasher(hasher),
            links: Links::default(),
            by_group: Vec::new(),
        }
    }

    #[inline]
    pub(crate) fn find(&self, key: LaneKey) -> Option<LaneId> {
        (self.by_key.get(&(key.section, key.queue, key.group))).copied()
    }

    pub(crate) fn create(&mut self, key: LaneKey) -> LaneId {
        if self.by_group.len() <= key.group.index() {
            self.by_group.resize_with(key.group.index() + 1, Vec::new);
        }
        let lane = self.table.insert(Lane {
            key,
            jobs: List::default(),
            traffic: Traffic::default(),
            state: LaneState::Empty,
            in_group: 0,
        });
        self.by_key
            .insert((key.section, key.queue, key.group), lane);
        lane
    }

    /// Drops a lane that has no jobs.
    pub(crate) fn remove(&mut self, lane: LaneId) {
        let Lane { key, .. } = self.table.remove(lane);
        self.by_key.remove(&(key.section, key.queue, key.group));
    }

    /// The lanes of a group that have jobs, in no particular order.
    pub(crate) fn in_group(&self, group: GroupId) -> &[LaneId] {
        self.by_group.get(group.index()).map_or(&[], Vec::as_slice)
    }

    /// The jobs of a lane, oldest first.
    pub(crate) fn jobs(&self, lane: LaneId) -> impl Iterator<Item = JobId> {
        std::iter::successors(self.table[lane].jobs.head, |job| self.links.next(*job))
    }

    /// All lanes, with jobs or without.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.table.iter().map(|(_, lane)| lane)
    }

    /// All lanes that have jobs, those of one group together.
    pub(crate) fn with_jobs(&self) -> Vec<LaneId> {
        self.by_group.iter().flatten().copied().collect()
    }

    /// Puts a job where it belongs by its order of arrival. `seq` tells that of each job. Says
    /// whether it is the head.
    #[inline]
    pub(crate) fn insert(&mut self, id: LaneId, job: JobId, seq: impl Fn(JobId) -> u64) -> bool {
        let lane = &mut self.table[id];
        // Jobs mostly arrive in order.
        let is_last = (lane.jobs.tail).is_none_or(|tail| seq(tail) < seq(job));
        // A job sent elsewhere keeps its place in the order. It is among the oldest, so the search
        // begins at the head.
        let mut next = lane.jobs.head.filter(|_| !is_last);
        while let Some(other) = next.filter(|other| seq(*other) < seq(job)) {
            next = self.links.next(other);
        }
        lane.jobs.insert(&mut self.links, job, next);
        if lane.jobs.len == 1 {
            let lanes = &mut self.by_group[lane.key.group.index()];
            lane.in_group = lanes.len();
            lanes.push(id);
        }
        lane.jobs.head == Some(job)
    }

    /// Takes a job out. Says whether it was the head.
    #[inline(always)]
    pub(crate) fn take(&mut self, id: LaneId, job: JobId) -> bool {
        let lane = &mut self.table[id];
        let was_head = lane.jobs.head == Some(job);
        lane.jobs.remove(&mut self.links, job);
        if lane.jobs.len == 0 {
            let at = lane.in_group;
            let lanes = &mut self.by_group[lane.key.group.index()];
            // The list has no order, so that leaving it costs the same with one lane and with a
            // million.
            lanes.swap_remove(at);
            if let Some(moved) = lanes.get(at) {
                self.table[*moved].in_group = at;
            }
        }
        was_head
    }
}

indexed!(Lanes[lane: LaneId] -> Lane = table[lane]);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn job(index: usize) -> JobId {
        JobId::from_index(index)
    }

    fn seq(job: JobId) -> u64 {
        job.index() as u64
    }

    fn key(queue: usize) -> LaneKey {
        LaneKey {
            section: Section::default(),
            flow: FlowId::from_index(queue),
            queue: QueueId::from_index(queue),
            group: GroupId::from_index(0),
            sole_target: None,
        }
    }

    /// Five lanes of one group, each with one job of the same number.
    fn five() -> (Lanes, Vec<LaneId>) {
        let mut lanes = Lanes::new(FixedState::default());
        let ids: Vec<LaneId> = (0..5).map(|queue| lanes.create(key(queue))).collect();
        for (index, lane) in ids.iter().enumerate() {
            assert!(
                lanes.insert(*lane, job(index), seq),
                "the first is the head"
            );
        }
        (lanes, ids)
    }

    #[test]
    fn a_group_lists_its_lanes_with_jobs_and_no_others() {
        let (mut lanes, ids) = five();
        let mut left: BTreeSet<usize> = (0..5).collect();
        let listed = |lanes: &Lanes, left: &BTreeSet<usize>| {
            let listed = lanes.in_group(GroupId::from_index(0));
            let expected: BTreeSet<LaneId> = left.iter().map(|lane| ids[*lane]).collect();
            assert_eq!(listed.len(), left.len());
            assert_eq!(listed.iter().copied().collect::<BTreeSet<_>>(), expected);
        };
        // The first and last of the list, and one that moved within it.
        for leaves in [0, 4, 3, 1] {
            assert!(lanes.take(ids[leaves], job(leaves)));
            left.remove(&leaves);
            listed(&lanes, &left);
        }
        lanes.insert(ids[4], job(4), seq);
        left.insert(4);
        listed(&lanes, &left);
    }

    #[test]
    fn a_job_put_back_stands_by_its_order_of_arrival() {
        let (mut lanes, ids) = five();
        for index in [7, 9, 8, 5] {
            lanes.insert(ids[0], job(index), seq);
        }
        let order: Vec<usize> = lanes.jobs(ids[0]).map(Id::index).collect();
        assert_eq!(order, [0, 5, 7, 8, 9]);
        let List { len, tail, .. } = lanes[ids[0]].jobs;
        assert_eq!((len, tail), (5, Some(job(9))));
    }

    #[test]
    fn a_dropped_lane_is_not_found_again() {
        let (mut lanes, ids) = five();
        lanes.take(ids[2], job(2));
        lanes.remove(ids[2]);
        assert_eq!(lanes.find(key(2)), None);
        assert_eq!(lanes.find(key(3)), Some(ids[3]));
    }
}
