//! Jobs in their lanes, lanes in their queues, queues in their classes.

use super::Core;
use super::parts::{Entry, Lane, NIL, Place, State};
use super::tags::{Rank, Tag};
use crate::config::{Bound, Policy};
use crate::heap::NOWHERE;
use crate::id::Class;
use crate::job::Job;
use crate::time::Time;

impl<P> Core<P> {
    /// Puts a job at the tail of its lane, which is probably that one.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, now: Time, slot: u32, guess: u32) {
        self.serial += 1;
        let entry = &mut self.jobs[slot];
        entry.state = State::Waiting;
        entry.seq = self.serial;
        if entry.since == Time::MAX {
            entry.since = now;
        }
        let (class, flow, bay) = (entry.class, entry.flow, entry.bay);
        let timed = entry.expire_at < Time::MAX || !entry.timer.is_none();
        let (owner, id) = self.lane(class, flow, bay, guess);
        self.take_place(class, flow, owner);
        let lane = &mut self.lanes[id];
        lane.len += 1;
        let before = std::mem::replace(&mut lane.tail, slot);
        if before == NIL {
            lane.head = slot;
        }
        if lane.alone != NIL {
            self.targets[lane.alone as usize].waiting += 1;
        }
        let entry = &mut self.jobs[slot];
        entry.lane = id;
        (entry.lane_prev, entry.lane_next) = (before, NIL);
        if before != NIL {
            self.jobs[before].lane_next = slot;
        }
        if timed {
            self.arm_job(slot);
        }
        self.rechoose(bay, flow);
        if before == NIL {
            self.head_changed(id);
        }
    }

    /// Puts a job back at the head of a lane: it keeps the place it had by age.
    pub(super) fn enqueue_first(&mut self, slot: u32) {
        let entry = &mut self.jobs[slot];
        entry.state = State::Waiting;
        let (class, flow, bay, seq) = (entry.class, entry.flow, entry.bay, entry.seq);
        let (queue, lane) = self.lane(class, flow, bay, NIL);
        self.take_place(class, flow, queue);
        let alone = self.lanes[lane].alone;
        if alone != NIL {
            self.targets[alone as usize].waiting += 1;
        }
        self.lanes[lane].len += 1;
        // Others may have come back before it: the lane stays in order of arrival.
        let mut next = self.lanes[lane].head;
        while next != NIL && self.jobs[next].seq < seq {
            next = self.jobs[next].lane_next;
        }
        let prev = match next {
            NIL => std::mem::replace(&mut self.lanes[lane].tail, slot),
            next => std::mem::replace(&mut self.jobs[next].lane_prev, slot),
        };
        let entry = &mut self.jobs[slot];
        (entry.lane, entry.lane_prev, entry.lane_next) = (lane, prev, next);
        match prev {
            NIL => self.lanes[lane].head = slot,
            prev => self.jobs[prev].lane_next = slot,
        }
        self.arm_job(slot);
        self.rechoose(bay, flow);
        self.head_changed(lane);
    }

    /// Takes a waiting job out of its lane.
    #[inline(always)]
    pub(super) fn dequeue(&mut self, now: Time, slot: u32) {
        let Entry {
            lane: id,
            lane_prev,
            lane_next,
            class,
            flow,
            timer,
            ..
        } = self.jobs[slot];
        let lane = &mut self.lanes[id];
        lane.len -= 1;
        let (owner, alone) = (lane.queue, lane.alone);
        if lane_prev == NIL {
            lane.head = lane_next;
        }
        if lane_next == NIL {
            lane.tail = lane_prev;
        }
        if lane_prev != NIL {
            self.jobs[lane_prev].lane_next = lane_next;
        }
        if lane_next != NIL {
            self.jobs[lane_next].lane_prev = lane_prev;
        }
        self.give_place(now, class, flow, owner, alone);
        if !timer.is_none() {
            self.disarm_job(slot);
        }
        if lane_prev == NIL {
            self.head_changed(id);
        }
        self.rechoose_flow(flow);
    }

    /// Counts one more place as taken.
    #[inline]
    fn take_place(&mut self, class: Class, flow: u32, id: u32) {
        self.waiting += 1;
        let state = &mut self.classes[class.index()];
        state.waiting += 1;
        let queue = &mut self.queues[id];
        queue.waiting += 1;
        let holder = &mut self.flows[flow];
        holder.waiting += 1;
        let weight = u64::from(holder.weight);
        if queue.waiting == 1 {
            state.holders.weights += weight;
        }
        if holder.waiting == 1 {
            self.holders.weights += weight;
        }
        if self.holders.kept || state.holders.kept {
            self.rank_holder(class, flow, id);
        }
    }

    /// Counts one place less as taken. Holders' keys are put right when they are next looked at.
    #[inline]
    fn give_place(&mut self, now: Time, class: Class, flow: u32, id: u32, alone: u32) {
        self.waiting -= 1;
        let state = &mut self.classes[class.index()];
        state.waiting -= 1;
        let queue = &mut self.queues[id];
        queue.waiting -= 1;
        let holder = &mut self.flows[flow];
        holder.waiting -= 1;
        let weight = u64::from(holder.weight);
        if queue.waiting == 0 {
            state.holders.weights -= weight;
            queue.owed.forfeit();
        }
        if state.waiting == 0 {
            state.owed.forfeit();
        }
        if holder.waiting == 0 {
            self.holders.weights -= weight;
        }
        match self.config.bound {
            Bound::Shared(_) => self.forecast.freed(now, self.waiting as usize),
            Bound::PerClass(_) => state.forecast.freed(now, state.waiting as usize),
        }
        if self.holders.kept || state.holders.kept {
            self.unrank(class);
        }
        if alone != NIL {
            self.targets[alone as usize].waiting -= 1;
        }
    }

    /// Puts a lane where it belongs after its head changed.
    #[inline(always)]
    pub(super) fn head_changed(&mut self, id: u32) {
        if self.aging != 0 {
            self.age_changed(id);
        }
        let lane = &mut self.lanes[id];
        let (owner, head) = (lane.queue, lane.head);
        let open = &mut self.queues[owner].open;
        let lane_at = &mut self.lane_at[..];
        let at = lane_at[id as usize];
        let set = |lane: u32, at: u32| lane_at[lane as usize] = at;
        match lane.place {
            Place::Empty if head == NIL => return,
            Place::Empty => {
                lane.place = Place::Open;
                open.push(self.jobs[head].seq, id, set);
                // Behind another lane of its queue it changes nothing.
                if lane_at[id as usize] != 0 {
                    return;
                }
            }
            Place::Open if head == NIL => {
                lane.place = Place::Empty;
                open.remove(at, set);
            }
            Place::Open => {
                let first = &self.jobs[head];
                open.rekey(at, first.seq, set);
            }
            Place::Behind | Place::Ahead => return self.parked_head_changed(id),
            Place::Saving(target) => return self.unsave(target),
        }
        self.queue_changed(owner);
    }

    /// Puts a queue where it belongs among its class's after its tag or its open lanes changed.
    #[inline]
    pub(super) fn queue_changed(&mut self, id: u32) {
        let queue = &self.queues[id];
        let (class, tag) = (queue.class, queue.tag);
        let queue_at = &mut self.queue_at;
        let at = queue_at[id as usize];
        let head = match queue.open.top() {
            Some((seq, _)) if !self.flows[queue.flow].parked => Some(seq),
            _ => None,
        };
        let state = &mut self.classes[class.index()];
        let place = |queue: u32, at: u32| queue_at[queue as usize] = at;
        let Some(seq) = head else {
            if at != NOWHERE {
                state.ready.remove(at, place);
                self.class_changed(class);
            }
            return;
        };
        // As `effective_tag` says.
        let tag = match self.config.policy {
            Policy::Fifo => 0,
            _ => tag.max(state.clock),
        };
        if at == NOWHERE {
            state.ready.push(Rank::new(tag, seq), id, place);
            self.live |= 1 << class.0;
        } else {
            state.ready.rekey(at, Rank::new(tag, seq), place);
        }
    }

    /// Notes whether a class may have an open lane.
    #[inline]
    pub(super) fn class_changed(&mut self, class: Class) {
        let state = &self.classes[class.index()];
        let bit = 1u64 << class.0;
        if state.ready.is_empty() && state.bays.is_empty() {
            self.live &= !bit;
        } else {
            self.live |= bit;
        }
    }

    /// A queue's tag: never behind its class's clock, so that who was idle or parked has no credit.
    #[inline]
    pub(super) fn effective_tag(&self, queue: u32) -> Tag {
        if self.config.policy == Policy::Fifo {
            return 0;
        }
        let queue = &self.queues[queue];
        queue.tag.max(self.classes[queue.class.index()].clock)
    }

    /// The rank of a lane that has jobs.
    pub(super) fn rank(&self, lane: u32) -> Rank {
        let Lane { queue, head, .. } = self.lanes[lane];
        Rank::new(self.effective_tag(queue), self.jobs[head].seq)
    }

    /// Keeps the heap of ages in step with a lane's head.
    fn age_changed(&mut self, lane: u32) {
        let Lane {
            queue, bay, head, ..
        } = self.lanes[lane];
        let class = self.queues[queue].class;
        if self.aging & 1 << class.0 == 0 {
            return;
        }
        let usable = self.bays[bay as usize].usable_since;
        let age = self
            .jobs
            .get(head)
            .map(|entry| (entry.since.min(self.now).max(usable), entry.seq));
        let ages = &mut self.classes[class.index()].ages;
        let spots = &mut self.lane_spots;
        let age_at = spots[lane as usize].age_at;
        let place = |lane: u32, at: u32| spots[lane as usize].age_at = at;
        match age {
            Some(age) if age_at == NOWHERE => ages.push(age, lane, place),
            Some(age) => ages.rekey(age_at, age, place),
            None if age_at == NOWHERE => {}
            None => ages.remove(age_at, place),
        }
    }

    /// The same for every lane of a bay whose targets became usable.
    pub(super) fn ages_changed(&mut self, bay: u32) {
        for index in 0..self.bays[bay as usize].lanes.len() {
            self.age_changed(self.bays[bay as usize].lanes[index]);
        }
    }

    /// Ends a job that is not leased, and hands it back.
    pub(super) fn end_unleased(&mut self, now: Time, slot: u32) -> Job<P> {
        match self.jobs[slot].state {
            State::Waiting => self.dequeue(now, slot),
            State::Delayed => {
                self.disarm_job(slot);
                self.release_delay_key(slot);
                self.delayed -= 1;
                let flow = self.jobs[slot].flow;
                self.flows[flow].delayed -= 1;
            }
            State::Running { .. } => unreachable!("a running job is not ended without its lease"),
        }
        self.forget_job(slot);
        self.hand_back(slot)
    }

    /// The job of an entry that was just forgotten.
    pub(super) fn hand_back(&mut self, slot: u32) -> Job<P> {
        let flow = self.flows[self.jobs[slot].flow].id;
        let later = self.later.get(slot as usize).copied();
        self.jobs[slot].take_job(flow, later.unwrap_or_default())
    }

    /// Takes a job out of every table. What was known of it can be looked at until the next insert.
    #[inline(always)]
    pub(super) fn forget_job(&mut self, slot: u32) {
        let entry = &self.jobs[slot];
        if entry.keyed {
            self.keys.remove(entry.key.spread(), slot);
        }
        self.jobs.remove(slot);
    }
}
