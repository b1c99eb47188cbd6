//! Jobs in their lanes, lanes in their queues, queues in their classes.

use super::Core;
use super::parts::{Entry, Lane, NIL, Place, Queue, Rank, State, Tag};
use crate::config::Policy;
use crate::heap::NOWHERE;
use crate::id::Class;
use crate::job::Job;
use crate::time::Time;

impl<P> Core<P> {
    /// Puts a job at the tail of its lane.
    pub(super) fn enqueue(&mut self, now: Time, slot: u32) {
        self.serial += 1;
        let seq = self.serial;
        let entry = &mut self.jobs[slot];
        entry.state = State::Waiting;
        entry.seq = seq;
        entry.since.get_or_insert(now);
        let (class, flow, bay) = (entry.class, entry.flow, entry.bay);
        let lane = self.lane(class, flow, bay);
        self.jobs[slot].lane = lane;
        let tail = std::mem::replace(&mut self.lanes[lane].tail, slot);
        self.jobs[slot].lane_prev = tail;
        self.jobs[slot].lane_next = NIL;
        if tail == NIL {
            self.lanes[lane].head = slot;
        } else {
            self.jobs[tail].lane_next = slot;
        }
        self.take_place(slot);
        self.arm_job(slot);
        self.rechoose(lane);
        if tail == NIL {
            self.head_changed(lane);
        }
    }

    /// Puts a job back at the head of a lane: it keeps the place it had by age.
    pub(super) fn enqueue_first(&mut self, slot: u32) {
        let entry = &mut self.jobs[slot];
        entry.state = State::Waiting;
        let (class, flow, bay, seq) = (entry.class, entry.flow, entry.bay, entry.seq);
        let lane = self.lane(class, flow, bay);
        // Others may have come back before it: the lane stays in order of arrival.
        let mut next = self.lanes[lane].head;
        while next != NIL && self.jobs[next].seq < seq {
            next = self.jobs[next].lane_next;
        }
        let prev = if next == NIL {
            std::mem::replace(&mut self.lanes[lane].tail, slot)
        } else {
            std::mem::replace(&mut self.jobs[next].lane_prev, slot)
        };
        let entry = &mut self.jobs[slot];
        (entry.lane, entry.lane_prev, entry.lane_next) = (lane, prev, next);
        if prev == NIL {
            self.lanes[lane].head = slot;
        } else {
            self.jobs[prev].lane_next = slot;
        }
        self.take_place(slot);
        self.arm_job(slot);
        self.rechoose(lane);
        self.head_changed(lane);
    }

    /// Takes a waiting job out of its lane.
    pub(super) fn dequeue(&mut self, now: Time, slot: u32) {
        let Entry {
            lane,
            lane_prev,
            lane_next,
            ..
        } = self.jobs[slot];
        if lane_prev == NIL {
            self.lanes[lane].head = lane_next;
        } else {
            self.jobs[lane_prev].lane_next = lane_next;
        }
        if lane_next == NIL {
            self.lanes[lane].tail = lane_prev;
        } else {
            self.jobs[lane_next].lane_prev = lane_prev;
        }
        self.give_place(now, slot);
        self.disarm_job(slot);
        if lane_prev == NIL {
            self.head_changed(lane);
        }
        self.rechoose_flow(self.jobs[slot].flow);
    }

    /// Counts a job's place as taken, and links it among its queue's jobs.
    fn take_place(&mut self, slot: u32) {
        let Entry {
            lane,
            class,
            flow,
            bay,
            ..
        } = self.jobs[slot];
        self.lanes[lane].len += 1;
        let id = self.lanes[lane].queue;
        let queue = &mut self.queues[id];
        // An arrival is the newest; a job that comes back has its old place.
        let seq = self.jobs[slot].seq;
        let (mut prev, mut next) = (queue.newest, NIL);
        while prev != NIL && self.jobs[prev].seq > seq {
            next = prev;
            prev = self.jobs[prev].queue_prev;
        }
        self.jobs[slot].queue_prev = prev;
        self.jobs[slot].queue_next = next;
        if prev == NIL {
            queue.oldest = slot;
        } else {
            self.jobs[prev].queue_next = slot;
        }
        if next == NIL {
            queue.newest = slot;
        } else {
            self.jobs[next].queue_prev = slot;
        }
        self.waiting += 1;
        let state = &mut self.classes[class.index()];
        state.waiting += 1;
        let flow_state = &mut self.flows[flow];
        let weight = flow_state.config.weight;
        queue.waiting += 1;
        flow_state.waiting += 1;
        if queue.waiting == 1 {
            state.holders.weights += u64::from(weight);
        }
        if flow_state.waiting == 1 {
            self.holders.weights += u64::from(weight);
        }
        let queues = &mut self.queues;
        let (at, held) = (queues[id].held_at, queues[id].waiting);
        let place = |queue: u32, at: u32| queues[queue].held_at = at;
        state.holders.took(id, at, held, weight, place);
        let flows = &mut self.flows;
        let (at, held) = (flows[flow].held_at, flows[flow].waiting);
        let place = |flow: u32, at: u32| flows[flow].held_at = at;
        self.holders.took(flow, at, held, weight, place);
        if let [target] = *self.bays[bay as usize].targets {
            self.targets[target as usize].waiting += 1;
        }
    }

    /// Counts a job's place as free. Holders' keys are put right when they are next looked at.
    fn give_place(&mut self, now: Time, slot: u32) {
        let Entry {
            lane,
            class,
            flow,
            bay,
            queue_prev,
            queue_next,
            ..
        } = self.jobs[slot];
        self.lanes[lane].len -= 1;
        let queue = &mut self.queues[self.lanes[lane].queue];
        if queue_prev == NIL {
            queue.oldest = queue_next;
        } else {
            self.jobs[queue_prev].queue_next = queue_next;
        }
        if queue_next == NIL {
            queue.newest = queue_prev;
        } else {
            self.jobs[queue_next].queue_prev = queue_prev;
        }
        let state = &mut self.classes[class.index()];
        let flow = &mut self.flows[flow];
        let weight = u64::from(flow.config.weight);
        queue.waiting -= 1;
        flow.waiting -= 1;
        state.waiting -= 1;
        self.waiting -= 1;
        if queue.waiting == 0 {
            state.holders.weights -= weight;
            queue.owed.forfeit();
        }
        if state.waiting == 0 {
            state.owed.forfeit();
        }
        if flow.waiting == 0 {
            self.holders.weights -= weight;
        }
        if let [target] = *self.bays[bay as usize].targets {
            self.targets[target as usize].waiting -= 1;
        }
        if self.holders.kept || state.holders.kept {
            self.unrank(class);
        }
        if self.shares_bound() {
            self.forecast.freed(now, self.waiting as usize);
        } else {
            let state = &mut self.classes[class.index()];
            state.forecast.freed(now, state.waiting as usize);
        }
    }

    /// Puts a lane where it belongs after its head changed.
    pub(super) fn head_changed(&mut self, lane: u32) {
        self.age_changed(lane);
        let Lane {
            queue,
            head,
            place,
            at,
            ..
        } = self.lanes[lane];
        let lanes = &mut self.lanes;
        let place_lane = |lane: u32, at: u32| lanes[lane].at = at;
        let open = &mut self.queues[queue].open;
        match place {
            Place::Empty if head == NIL => {}
            Place::Empty => {
                open.push(self.jobs[head].seq, lane, place_lane);
                self.lanes[lane].place = Place::Open;
                self.queue_changed(queue);
            }
            Place::Open if head == NIL => {
                open.remove(at, place_lane);
                self.lanes[lane].place = Place::Empty;
                self.queue_changed(queue);
            }
            Place::Open => {
                open.rekey(at, self.jobs[head].seq, place_lane);
                self.queue_changed(queue);
            }
            Place::Behind | Place::Ahead => self.parked_head_changed(lane),
            Place::Saving(target) => self.unsave(target),
        }
    }

    /// Puts a queue where it belongs among its class's after its tag or its open lanes changed.
    pub(super) fn queue_changed(&mut self, id: u32) {
        let Queue {
            class,
            flow,
            at,
            ref open,
            ..
        } = self.queues[id];
        let top = open.top();
        let parked = self.flows[flow].parked;
        let rank = top
            .filter(|_| !parked)
            .map(|(seq, _)| (self.effective_tag(id), seq));
        let state = &mut self.classes[class.index()];
        let queues = &mut self.queues;
        let place = |queue: u32, at: u32| queues[queue].at = at;
        match rank {
            Some(rank) if at == NOWHERE => state.ready.push(rank, id, place),
            Some(rank) => state.ready.rekey(at, rank, place),
            None if at == NOWHERE => {}
            None => state.ready.remove(at, place),
        }
        self.class_changed(class);
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
        (self.effective_tag(queue), self.jobs[head].seq)
    }

    /// Keeps the heap of ages in step with a lane's head.
    fn age_changed(&mut self, lane: u32) {
        let Lane {
            queue,
            bay,
            head,
            age_at,
            ..
        } = self.lanes[lane];
        let class = self.queues[queue].class;
        if self.classes[class.index()].config.aging.is_none() {
            return;
        }
        let usable = self.bays[bay as usize].usable_since;
        let age = self
            .jobs
            .get(head)
            .map(|entry| (entry.since.unwrap_or(self.now).max(usable), entry.seq));
        let ages = &mut self.classes[class.index()].ages;
        let lanes = &mut self.lanes;
        let place = |lane: u32, at: u32| lanes[lane].age_at = at;
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

    fn lane(&mut self, class: Class, flow: u32, bay: u32) -> u32 {
        let queue = self.queue(class, flow);
        // Most queues have a lane or two: looking at them is cheaper than hashing.
        let few = self.queues[queue].lanes.iter().take(4);
        if let Some(lane) = few.copied().find(|lane| self.lanes[*lane].bay == bay) {
            return lane;
        }
        if let Some(lane) = self.lane_ids.get(&(queue, bay)) {
            return *lane;
        }
        let lanes = &mut self.bays[bay as usize].lanes;
        let lane = self.lanes.insert(Lane {
            queue,
            bay,
            head: NIL,
            tail: NIL,
            len: 0,
            place: Place::Empty,
            at: NOWHERE,
            age_at: NOWHERE,
            bay_at: lanes.len() as u32,
        });
        lanes.push(lane);
        self.queues[queue].lanes.push(lane);
        self.lane_ids.insert((queue, bay), lane);
        lane
    }

    fn queue(&mut self, class: Class, flow: u32) -> u32 {
        let queue = self.flows[flow].queues[class.index()];
        if queue != NIL {
            return queue;
        }
        let queue = self.queues.insert(Queue::new(class, flow));
        self.flows[flow].queues[class.index()] = queue;
        queue
    }

    /// Ends a job that is not leased, and hands it back.
    pub(super) fn end_unleased(&mut self, now: Time, slot: u32) -> Job<P> {
        match self.jobs[slot].state {
            State::Waiting => self.dequeue(now, slot),
            State::Delayed { .. } => {
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
        self.jobs[slot].take_job(flow)
    }

    /// Takes a job out of every table. What was known of it can be looked at until the next insert.
    #[inline]
    pub(super) fn forget_job(&mut self, slot: u32) {
        if let Some(key) = self.jobs[slot].key {
            self.keys.remove(&key);
        }
        self.jobs.remove(slot);
    }
}
