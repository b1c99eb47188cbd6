//! How jobs enter and leave their lanes, and how they end.
//!
//! The counts that depend on where a job is (places by flow and class, waiting cost, jobs at a
//! target) change here and nowhere else: `join_lane` adds to all of them, `take_from_lane`
//! subtracts from all. A lane whose head changed is put where it belongs before the call returns.
//! Callers must not use a lane id after `take_from_lane`: the lane of a transient group goes with
//! its last job.

use super::Core;
use crate::event::{Event, Unservable};
use crate::id::{GroupId, JobId, LaneId, Ticket};
use crate::job::Job;
use crate::jobs::{JobState, Jobs};
use crate::lanes::{LaneKey, LaneState};
use crate::stats::Ended;
use crate::time::Time;

impl<P> Core<P> {
    /// Puts a job into its lane, where it belongs by its order of arrival.
    pub(super) fn enter_lane(&mut self, now: Time, job: JobId) {
        let (lane, key) = self.join_lane(now, job);
        let jobs = &self.jobs;
        if (self.lanes).insert(lane, job, |other| jobs[other].seq()) {
            // The lane may be blocked by a reservation for a job that this one precedes.
            if self.lanes[lane].state == LaneState::Blocked {
                self.unblock_lane(lane);
            }
            self.head_changed(lane, &key);
        }
    }

    /// Counts a job as waiting in its lane, which is made if need be.
    fn join_lane(&mut self, now: Time, job: JobId) -> (LaneId, LaneKey) {
        let entry = &mut self.jobs[job];
        let (flow, group) = (entry.flow, entry.group);
        entry.enter_domain(self.targets.domain(group));
        let section = entry.section();
        let state = &mut self.classes[section];
        let owner = &mut self.flows[flow];
        let queue = owner.queue(section).unwrap_or_else(|| {
            let (name, weight) = (owner.name(), owner.weight());
            let queue = state.add_queue(flow, name, weight, owner.service_weight());
            owner.add_queue(section, queue);
            queue
        });
        let sole_target = self.targets.group(group).sole_target();
        let key = LaneKey {
            section,
            flow,
            queue,
            group,
            sole_target,
        };
        let lane = self.lanes.find(key).unwrap_or_else(|| {
            let lane = self.lanes.create(key);
            state.add_lane(queue, lane);
            lane
        });
        self.lanes[lane].count_arrival(entry.cost);
        // Counted with a bound per class as well: a reload may change the kind of bound, and then
        // the numbers must be there.
        self.occupancy.take(flow, &mut owner.holder);
        self.classes.take_place(section, queue);
        if let Some(target) = sole_target {
            self.targets[target].count_arrival();
        }
        if entry.wait_in(lane, now) {
            self.arm_job(job);
        }
        (lane, key)
    }

    /// Takes a waiting job out of its lane without a grant.
    pub(super) fn leave_lane(&mut self, now: Time, job: JobId) {
        let JobState::Waiting(lane) = self.jobs[job].state else {
            unreachable!("only a waiting job leaves its lane")
        };
        self.jobs[job].state = JobState::Arriving;
        self.disarm_job(job);
        self.take_from_lane(now, lane, job, false);
    }

    /// Takes a job out of its lane. A grant says how fast the queue is served; any other leave does
    /// not.
    pub(super) fn take_from_lane(&mut self, now: Time, lane: LaneId, job: JobId, granted: bool) {
        let (key, cost) = (self.lanes[lane].key, self.jobs[job].cost);
        let was_head = self.lanes.take(lane, job);
        self.lanes[lane].count_leave(cost, granted);
        let places = self.config.bound.places() as u64;
        let shared = self.shares_bound();
        (self.occupancy).give_up(&mut self.flows[key.flow].holder, places);
        // The order of one class's holders serves displacement only. With a bound over all classes,
        // the class's own fill does not tell how soon that is needed, so the order stays once it
        // was built.
        let in_class = if shared { 0 } else { places };
        (self.classes).give_place_up(key.section, key.queue, in_class);
        let class = &mut self.classes[key.section];
        let (waiting, forecast) = match shared {
            true => (self.occupancy.taken(), &mut self.forecast),
            false => (class.waiting(), &mut class.forecast),
        };
        if granted {
            forecast.freed(now, waiting as usize);
        } else if waiting == 0 {
            forecast.emptied();
        }
        if let Some(target) = key.sole_target {
            self.targets[target].count_leave(now, granted);
        }
        // Only the head decides where a lane stands; a job that leaves from the middle moves
        // nothing.
        if was_head {
            self.head_changed(lane, &key);
        }
        if self.lanes[lane].len() == 0 && self.targets.group(key.group).is_transient() {
            self.classes[key.section].drop_lane(key.queue, lane);
            self.lanes.remove(lane);
        }
    }

    /// Puts a lane, and with it its queue, where it belongs after its head changed.
    pub(super) fn head_changed(&mut self, lane: LaneId, key: &LaneKey) {
        self.update_age(lane);
        self.update_lane(lane, key);
    }

    /// Puts a lane, and with it its queue, where it belongs after its head or state changed.
    pub(super) fn update_lane(&mut self, id: LaneId, key: &LaneKey) {
        let lane = &mut self.lanes[id];
        let seq = lane.head().map(|head| self.jobs[head].seq());
        match (lane.state, seq) {
            (LaneState::Empty | LaneState::Open, _) => {
                lane.state = seq.map_or(LaneState::Empty, |_| LaneState::Open);
                self.set_open(id, key, seq);
            }
            (LaneState::Blocked, Some(_)) => {
                let rank = self.rank(id);
                self.blocked.rerank(id, key.group, key.section, rank);
                // A grant moved the tag of the queue, whatever became of the lane.
                self.set_open(id, key, None);
            }
            (LaneState::Blocked, None) => {
                lane.state = LaneState::Empty;
                self.blocked.remove(id, key.group, key.section);
                self.set_open(id, key, None);
            }
            (LaneState::Reserving(target), _) => self.unreserve(target),
        }
        self.reconsider_flow(key.flow);
    }

    /// Keeps the order by age in step with a lane's head.
    pub(super) fn update_age(&mut self, lane: LaneId) {
        if !self.has_aging() {
            return;
        }
        let lane_state = &self.lanes[lane];
        let key = lane_state.key;
        let Some(aging) = &mut self.classes[key.section].aging else {
            return;
        };
        let usable = self.targets.group(key.group).usable_since;
        let head = lane_state.head().map(|head| &self.jobs[head]);
        let since = head.map(|head| (head.ready_since().unwrap_or(usable).max(usable), head.seq()));
        aging.set_head(lane, since);
    }

    /// Ends a job that is not leased, and hands it back.
    pub(super) fn end_unleased(&mut self, now: Time, job: JobId) -> Job<P> {
        match self.jobs[job].state {
            JobState::Waiting(_) => self.leave_lane(now, job),
            JobState::Delayed { .. } => self.leave_delay(job),
            JobState::Arriving => {}
            JobState::Running(_) => unreachable!("a running job ends with its lease"),
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
            self.blocked.set_open(group, false);
            self.targets.remove_group(group);
        }
    }

    /// Ends a job that is not leased, counts it and tells of it.
    pub(super) fn end_with_event(
        &mut self,
        now: Time,
        job: JobId,
        count: impl FnOnce(&mut Ended) -> &mut u64,
        event: impl FnOnce(Ticket, Job<P>) -> Event<P>,
    ) {
        let ticket = self.jobs.ticket(job);
        let job = self.end_unleased(now, job);
        *count(&mut self.classes.stats_mut(job.class).ended) += 1;
        self.events.push_back(event(ticket, job));
    }

    /// Ends a job that can no longer be served.
    pub(super) fn fail_unleased(&mut self, now: Time, job: JobId, reason: Unservable) {
        let failed = |ticket, job| Event::Failed {
            ticket,
            job,
            reason,
        };
        self.end_with_event(now, job, |ended| &mut ended.failed, failed);
    }
}
