//! How jobs enter and leave their lanes, and how they end.

use super::Core;
use crate::config::Bound;
use crate::event::{Event, Unservable};
use crate::id::{Class, FlowId, GroupId, JobId, LaneId, QueueId};
use crate::job::Job;
use crate::jobs::{Jobs, State};
use crate::lanes::{LaneKey, LaneState};
use crate::time::Time;

impl<P> Core<P> {
    /// Puts a job behind all others of its lane.
    pub(super) fn enter_lane(&mut self, now: Time, job: JobId) {
        let seq = self.jobs.next_seq();
        self.jobs[job].seq = seq;
        let lane = self.join_lane(now, job);
        let is_head = self.lanes.push(lane, job);
        if self.jobs[job].expire_at.is_some() {
            self.arm_job(job);
        }
        if is_head {
            self.head_changed(lane);
        }
    }

    /// Puts a job back where it was by its order of arrival.
    pub(super) fn reenter_lane(&mut self, now: Time, job: JobId) {
        let lane = self.join_lane(now, job);
        let jobs = &self.jobs;
        (self.lanes).insert_in_order(lane, job, |other| jobs[other].seq);
        self.arm_job(job);
        if self.lanes.head(lane) == Some(job) {
            // The lane may be blocked by a reservation for a job that this one precedes.
            if self.lanes.state(lane) == LaneState::Blocked {
                self.unblock_lane(lane);
            }
            self.head_changed(lane);
        }
    }

    /// Counts a job as waiting in its lane, which is made if need be.
    fn join_lane(&mut self, now: Time, job: JobId) -> LaneId {
        let entry = &self.jobs[job];
        let (class, flow, group) = (entry.class, entry.flow, entry.group);
        let queue = self.queue(class, flow);
        let sole_target = self.targets.group(group).sole_target();
        let key = LaneKey {
            class,
            flow,
            queue,
            group,
            sole_target,
        };
        let lane = self.classes.lane(&mut self.lanes, key);
        let weight = self.flows[flow].weight();
        self.occupancy.take(flow, weight);
        self.classes[class].occupancy.take(queue, weight);
        if let Some(target) = sole_target {
            self.targets[target].waiting += 1;
        }
        let entry = &mut self.jobs[job];
        entry.state = State::Waiting(lane);
        entry.ready_since.get_or_insert(now);
        lane
    }

    /// Finds or makes the queue of a flow in a class.
    fn queue(&mut self, class: Class, flow: FlowId) -> QueueId {
        if let Some(queue) = self.flows[flow].queue(class) {
            return queue;
        }
        let (name, weight) = (self.flows[flow].name(), self.flows[flow].weight());
        let queue = self.classes[class].add_queue(flow, name, weight);
        self.flows[flow].set_queue(class, queue);
        queue
    }

    /// Takes a waiting job out of its lane. A grant says how fast the queue is served; any other
    /// leave does not.
    pub(super) fn leave_lane(&mut self, now: Time, job: JobId, granted: bool) {
        let State::Waiting(lane) = self.jobs[job].state else {
            unreachable!("only a waiting job leaves its lane")
        };
        let key = self.lanes.key(lane);
        let was_head = self.lanes.take(lane, job);
        let places = self.config.bound.places() as u64;
        self.occupancy.give_up(key.flow, places);
        // The order of one class's holders serves displacement only. With a bound over all classes,
        // the class's own fill does not tell how soon that is needed, so the order stays once it
        // was built.
        let in_class = if self.shares_bound() { 0 } else { places };
        self.classes[key.class]
            .occupancy
            .give_up(key.queue, in_class);
        self.classes.forfeit_credit(key.class, key.queue);
        let (forecast, waiting) = match self.config.bound {
            Bound::Shared(_) => (&mut self.forecast, self.occupancy.taken()),
            Bound::PerClass(_) => {
                let class = &mut self.classes[key.class];
                let waiting = class.waiting();
                (&mut class.forecast, waiting)
            }
        };
        if granted {
            forecast.freed(now, waiting as usize);
        } else if waiting == 0 {
            forecast.emptied();
        }
        if let Some(target) = key.sole_target {
            let target = &mut self.targets[target];
            target.waiting -= 1;
            match target.waiting {
                still if granted => target.drain.grant(now, still),
                0 => target.drain.emptied(),
                _ => {}
            }
        }
        self.disarm_job(job);
        self.jobs[job].state = State::Arriving;
        if granted {
            if was_head {
                self.move_lane(lane, &key);
            }
            // The tags of queue and class have moved, whatever became of the lane.
            let blocked = self.flows[key.flow].blocked;
            self.classes.requeue(key.class, key.queue, blocked);
        } else if was_head {
            self.head_changed(lane);
        }
        self.reconsider_flow(key.flow);
        if self.lanes.head(lane).is_none() && self.targets.group(key.group).is_transient() {
            self.classes.drop_lane(&mut self.lanes, lane);
        }
    }

    /// Puts a lane, and with it its queue, where it belongs after its head changed.
    #[inline(always)]
    pub(super) fn head_changed(&mut self, lane: LaneId) {
        let key = self.lanes.key(lane);
        if self.move_lane(lane, &key) {
            self.update_queue(&key);
            // The flow's own cost bucket may be reserved for a job that the new head precedes.
            self.reconsider_flow(key.flow);
        }
    }

    /// Puts a lane where it belongs after its head changed. Says whether its queue may have to move
    /// as well.
    #[inline(always)]
    fn move_lane(&mut self, lane: LaneId, key: &LaneKey) -> bool {
        self.update_age(lane);
        let has_jobs = self.lanes.head(lane).is_some();
        match self.lanes.state(lane) {
            LaneState::Empty | LaneState::Open if has_jobs => return self.enlist(lane, key),
            LaneState::Empty => {}
            LaneState::Open => {
                self.lanes.set_state(lane, LaneState::Empty);
                return self.classes.close_lane(lane, key);
            }
            LaneState::Blocked if has_jobs => {
                let rank = self.rank(lane);
                self.blocked.rerank(lane, key.group, key.class, rank);
            }
            LaneState::Blocked => {
                self.lanes.set_state(lane, LaneState::Empty);
                self.blocked.remove(lane, key.group, key.class);
            }
            LaneState::Reserving(target) => self.unreserve(target),
        }
        false
    }

    /// Keeps the order by age in step with a lane's head.
    pub(super) fn update_age(&mut self, lane: LaneId) {
        if !self.has_aging() {
            return;
        }
        let key = self.lanes.key(lane);
        let Some(aging) = &mut self.classes[key.class].aging else {
            return;
        };
        let usable = self.targets.group(key.group).usable_since;
        let head = self.lanes.head(lane).map(|head| &self.jobs[head]);
        let since = head.map(|head| (head.ready_since.unwrap_or(usable).max(usable), head.seq));
        aging.set_head(lane, since);
    }

    /// Ends a job that is not leased, and hands it back.
    pub(super) fn end_unleased(&mut self, now: Time, job: JobId) -> Job<P> {
        match self.jobs[job].state {
            State::Waiting(_) => self.leave_lane(now, job, false),
            State::Delayed { .. } => self.leave_delay(job),
            State::Arriving => {}
            State::Running(_) => unreachable!("a running job ends with its lease"),
        }
        let flow = self.flows[self.jobs[job].flow].name();
        let entry = self.jobs.remove(job);
        self.release_group(entry.group);
        Jobs::into_job(entry, flow)
    }

    /// Has a job served by other targets than before. It is in no lane.
    pub(super) fn set_group(&mut self, job: JobId, group: GroupId) {
        self.targets.retain(group);
        let before = std::mem::replace(&mut self.jobs[job].group, group);
        self.release_group(before);
    }

    pub(super) fn release_group(&mut self, group: GroupId) {
        self.targets.release(group);
        self.drop_unused_group(group);
    }

    /// Drops a group that no job names and nobody registered.
    pub(super) fn drop_unused_group(&mut self, group: GroupId) {
        if self.targets.is_unused(group) {
            self.blocked.close(group);
            self.targets.remove_group(group);
        }
    }

    /// Ends a job that can no longer be served.
    pub(super) fn fail_unleased(&mut self, now: Time, job: JobId, reason: Unservable) {
        let ticket = self.jobs.ticket(job);
        let job = self.end_unleased(now, job);
        self.classes[job.class].stats.ended.failed += 1;
        self.events.push_back(Event::Failed {
            ticket,
            job,
            reason,
        });
    }
}
