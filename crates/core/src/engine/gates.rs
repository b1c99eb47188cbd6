//! Gates that shut and open: what leaves the order, and what comes back into it.
//!
//! | shut | what leaves the order | what brings it back |
//! |---|---|---|
//! | a flow's limits | all queues of the flow | a job of the flow ends; its rate allows more |
//! | every target of a group | the lane | a target of the group may have opened |
//! | only a target's cost bucket | the lane; the bucket is reserved for its head | there is enough in the bucket |
//!
//! After every call, a lane whose head its gates would admit is in the order, or its target group
//! stands there for it (`blocked.rs`).

use super::Core;
use crate::aging::Blocker;
use crate::fair_queue::Rank;
use crate::gate::Pass;
use crate::id::{FlowId, GroupId, LaneId, TargetId};
use crate::lanes::{LaneKey, LaneState};
use crate::time::Time;

impl<P> Core<P> {
    /// The rank of a lane that has jobs.
    pub(super) fn rank(&self, lane: LaneId) -> Rank {
        let lane = &self.lanes[lane];
        let (key, head) = (
            lane.key,
            lane.head().expect("only lanes with jobs have a rank"),
        );
        self.classes[key.section].rank(self.config.policy, key.queue, self.jobs[head].seq())
    }

    /// Opens a lane whose head arrived as number `seq`, or closes it; and puts its queue where it
    /// belongs.
    pub(super) fn set_open(&mut self, lane: LaneId, key: &LaneKey, seq: Option<u64>) {
        let blocked = self.flows[key.flow].is_blocked();
        self.classes.set_open(lane, key, seq, blocked);
    }

    /// Blocks an open lane: every target of its group is shut.
    pub(super) fn block_lane(&mut self, lane: LaneId) {
        let key = self.lanes[lane].key;
        // The lane found every target shut, so its whole group is: the others need not be tried.
        self.blocked.set_open(key.group, false);
        let rank = self.rank(lane);
        self.set_open(lane, &key, None);
        self.lanes[lane].state = LaneState::Blocked;
        self.blocked.insert(lane, key.group, key.section, rank);
    }

    /// Puts a blocked lane back into its queue, to be tried in its turn.
    pub(super) fn unblock_lane(&mut self, lane: LaneId) {
        let key = self.lanes[lane].key;
        self.blocked.remove(lane, key.group, key.section);
        self.lanes[lane].state = LaneState::Empty;
        self.update_lane(lane, &key);
    }

    /// One of the group's targets may have opened.
    pub(super) fn open_group(&mut self, group: GroupId) {
        self.blocked.set_open(group, true);
        self.unblock_aging(Blocker::Group(group));
    }

    /// Whether any target of the group would serve some job now. If not, those that open by time
    /// are watched.
    pub(super) fn is_open(&mut self, now: Time, group: GroupId) -> bool {
        for index in 0..self.targets.group(group).targets().len() {
            let target = self.targets.group(group).targets()[index];
            let state = &mut self.targets[target];
            // A reserved target serves nobody who comes after the reservation, and who comes before
            // it is in the order, not blocked.
            if state.reserved_for.is_none() && state.pass_any(now) == Pass::Open {
                return true;
            }
        }
        self.arm_targets(now, group);
        false
    }

    /// Sets timers for the targets of a group that open by time alone.
    pub(super) fn arm_targets(&mut self, now: Time, group: GroupId) {
        for index in 0..self.targets.group(group).targets().len() {
            let target = self.targets.group(group).targets()[index];
            if let Pass::Shut(Some(at)) = self.targets[target].pass_any(now) {
                self.arm_target(target, at);
            }
        }
    }

    /// A target may have opened.
    pub(super) fn open_target(&mut self, target: TargetId) {
        // The usual case of every finish: nothing waits for a gate, so nothing has to be looked
        // for.
        if self.blocked.is_empty() && self.reservations == 0 && !self.has_aging() {
            return;
        }
        // The job that the bucket is reserved for may no longer be the first: the choice is made
        // anew whenever lanes come back.
        self.unreserve(target);
        for index in 0..self.targets[target].groups().len() {
            let group = self.targets[target].groups()[index];
            self.unreserve_group(group);
            self.open_group(group);
        }
    }

    /// Lanes of a group that wait for the cost bucket of one target could now go to another.
    fn unreserve_group(&mut self, group: GroupId) {
        if self.reservations == 0 || self.targets.group(group).sole_target().is_some() {
            return;
        }
        for index in 0..self.targets.group(group).targets().len() {
            let target = self.targets.group(group).targets()[index];
            let lane = self.targets[target].reserved_for;
            if lane.is_some_and(|lane| self.lanes[lane].key.group == group) {
                self.unreserve(target);
            }
        }
    }

    /// Reserves a target's cost bucket for the head of an open lane until there is enough in it.
    pub(super) fn reserve(&mut self, target: TargetId, lane: LaneId, at: Time) {
        // The lane precedes whatever the bucket was reserved for.
        self.unreserve(target);
        let key = self.lanes[lane].key;
        self.set_open(lane, &key, None);
        self.flows[key.flow].add_reservation(target);
        self.lanes[lane].state = LaneState::Reserving(target);
        self.targets[target].reserved_for = Some(lane);
        self.reservations += 1;
        // The time at which the bucket holds enough, if nothing else changes it first.
        self.arm_target(target, at);
    }

    /// Ends a reservation: the lane takes part again, and so do those that it kept away.
    #[inline]
    pub(super) fn unreserve(&mut self, target: TargetId) {
        if let Some(lane) = self.targets[target].reserved_for.take() {
            self.end_reservation(target, lane);
        }
    }

    /// A job of the flow was granted: its gate may be shut now, and then more than cost is missing
    /// for the jobs that its reservations are for.
    pub(super) fn reconsider_reservations(&mut self, flow: FlowId) {
        while let Some(target) = self.flows[flow].last_reservation() {
            self.unreserve(target);
        }
    }

    fn end_reservation(&mut self, target: TargetId, lane: LaneId) {
        self.reservations -= 1;
        let key = self.lanes[lane].key;
        self.flows[key.flow].end_reservation(target);
        // The timer was for this reservation. Left running, it would wake the driver for nothing.
        self.disarm_target(target);
        self.lanes[lane].state = LaneState::Empty;
        self.update_lane(lane, &key);
        for index in 0..self.targets[target].groups().len() {
            let group = self.targets[target].groups()[index];
            self.open_group(group);
        }
    }

    /// Blocks a flow whose gate is shut: none of its queues takes part.
    pub(super) fn block_flow(&mut self, flow: FlowId, until: Option<Time>) {
        self.flows[flow].block();
        self.update_flow(flow);
        // Without a time it is a limit on concurrency, which opens when a job of the flow ends.
        if let Some(at) = until {
            self.arm_flow(flow, at);
        }
    }

    /// A flow's gate may have opened.
    pub(super) fn open_flow(&mut self, flow: FlowId) {
        if self.flows[flow].unblock() {
            self.update_flow(flow);
        }
        self.unblock_aging(Blocker::Flow(flow));
    }

    /// A flow's jobs changed while it waits for its rate: the bucket may be reserved for another
    /// job than the policy would choose now.
    pub(super) fn reconsider_flow(&mut self, flow: FlowId) {
        if self.flows[flow].timer.is_some() {
            self.open_flow(flow);
        }
    }

    fn update_flow(&mut self, flow: FlowId) {
        let flow = &self.flows[flow];
        for (section, queue) in flow.queues() {
            self.classes.requeue(*section, *queue, flow.is_blocked());
        }
    }

    fn unblock_aging(&mut self, blocker: Blocker) {
        if !self.has_aging() {
            return;
        }
        for class in self.classes.iter_mut() {
            if let Some(aging) = &mut class.aging {
                aging.unblock(blocker);
            }
        }
    }

    /// Whether any class has aging.
    pub(super) fn has_aging(&self) -> bool {
        self.classes.has_aging()
    }
}
