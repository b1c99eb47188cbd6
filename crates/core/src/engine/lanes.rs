//! Jobs in their lanes, lanes in their queues, queues in their classes.

use super::Core;
use super::parts::{Entry, FlowState, Lane, NIL, Place, Queue, Rank, State, Tag, holding};
use crate::config::Policy;
use crate::gate::Gate;
use crate::heap::NOWHERE;
use crate::id::{Class, Flow};
use crate::job::Job;
use crate::time::Time;
use crate::wheel::TimerId;

impl<P> Core<P> {
    /// Puts a job at the tail of its lane.
    pub(super) fn enqueue(&mut self, now: Time, slot: u32) {
        self.serial += 1;
        let seq = self.serial;
        let entry = &mut self.jobs[slot as usize];
        entry.state = State::Waiting;
        entry.seq = seq;
        entry.since.get_or_insert(now);
        let (class, flow, bay) = (entry.class, entry.flow, entry.bay);
        let lane = self.lane(class, flow, bay);
        self.jobs[slot as usize].lane = lane;
        let tail = std::mem::replace(&mut self.lanes[lane as usize].tail, slot);
        self.jobs[slot as usize].lane_prev = tail;
        self.jobs[slot as usize].lane_next = NIL;
        if tail == NIL {
            self.lanes[lane as usize].head = slot;
        } else {
            self.jobs[tail as usize].lane_next = slot;
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
        let entry = &mut self.jobs[slot as usize];
        entry.state = State::Waiting;
        let (class, flow, bay, seq) = (entry.class, entry.flow, entry.bay, entry.seq);
        let lane = self.lane(class, flow, bay);
        // Others may have come back before it: the lane stays in order of arrival.
        let mut next = self.lanes[lane as usize].head;
        while next != NIL && self.jobs[next as usize].seq < seq {
            next = self.jobs[next as usize].lane_next;
        }
        let prev = if next == NIL {
            std::mem::replace(&mut self.lanes[lane as usize].tail, slot)
        } else {
            std::mem::replace(&mut self.jobs[next as usize].lane_prev, slot)
        };
        let entry = &mut self.jobs[slot as usize];
        (entry.lane, entry.lane_prev, entry.lane_next) = (lane, prev, next);
        if prev == NIL {
            self.lanes[lane as usize].head = slot;
        } else {
            self.jobs[prev as usize].lane_next = slot;
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
        } = self.jobs[slot as usize];
        if lane_prev == NIL {
            self.lanes[lane as usize].head = lane_next;
        } else {
            self.jobs[lane_prev as usize].lane_next = lane_next;
        }
        if lane_next == NIL {
            self.lanes[lane as usize].tail = lane_prev;
        } else {
            self.jobs[lane_next as usize].lane_prev = lane_prev;
        }
        self.give_place(now, slot);
        self.disarm_job(slot);
        if lane_prev == NIL {
            self.head_changed(lane);
        }
        self.rechoose_flow(self.jobs[slot as usize].flow);
    }

    /// Counts a job's place as taken, and links it among its queue's jobs.
    fn take_place(&mut self, slot: u32) {
        let Entry {
            lane,
            class,
            flow,
            bay,
            ..
        } = self.jobs[slot as usize];
        let id = self.lanes[lane as usize].queue;
        let queue = &mut self.queues[id as usize];
        // An arrival is the newest; a job that comes back has its old place.
        let seq = self.jobs[slot as usize].seq;
        let (mut prev, mut next) = (queue.newest, NIL);
        while prev != NIL && self.jobs[prev as usize].seq > seq {
            next = prev;
            prev = self.jobs[prev as usize].queue_prev;
        }
        self.jobs[slot as usize].queue_prev = prev;
        self.jobs[slot as usize].queue_next = next;
        if prev == NIL {
            queue.oldest = slot;
        } else {
            self.jobs[prev as usize].queue_next = slot;
        }
        if next == NIL {
            queue.newest = slot;
        } else {
            self.jobs[next as usize].queue_prev = slot;
        }
        self.waiting += 1;
        let state = &mut self.classes[class.index()];
        state.waiting += 1;
        let flow_state = &mut self.flows[flow as usize];
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
        let (key, at) = (
            holding(queues[id as usize].waiting, weight),
            queues[id as usize].held_at,
        );
        let most = &mut state.holders.most;
        if at == NOWHERE {
            most.push(key, id, |queue, at| queues[queue as usize].held_at = at);
        } else if key < most.key(at) {
            most.rekey(at, key, |queue, at| queues[queue as usize].held_at = at);
        }
        if self.shares_bound() {
            let flows = &mut self.flows;
            let (key, at) = (
                holding(flows[flow as usize].waiting, weight),
                flows[flow as usize].held_at,
            );
            if at == NOWHERE {
                self.holders
                    .most
                    .push(key, flow, |flow, at| flows[flow as usize].held_at = at);
            } else if key < self.holders.most.key(at) {
                self.holders
                    .most
                    .rekey(at, key, |flow, at| flows[flow as usize].held_at = at);
            }
        }
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
        } = self.jobs[slot as usize];
        let queue = &mut self.queues[self.lanes[lane as usize].queue as usize];
        if queue_prev == NIL {
            queue.oldest = queue_next;
        } else {
            self.jobs[queue_prev as usize].queue_next = queue_next;
        }
        if queue_next == NIL {
            queue.newest = queue_prev;
        } else {
            self.jobs[queue_next as usize].queue_prev = queue_prev;
        }
        let state = &mut self.classes[class.index()];
        let flow = &mut self.flows[flow as usize];
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
        } = self.lanes[lane as usize];
        let lanes = &mut self.lanes;
        let place_lane = |lane: u32, at: u32| lanes[lane as usize].at = at;
        let open = &mut self.queues[queue as usize].open;
        match place {
            Place::Empty if head == NIL => {}
            Place::Empty => {
                open.push(self.jobs[head as usize].seq, lane, place_lane);
                self.lanes[lane as usize].place = Place::Open;
                self.queue_changed(queue);
            }
            Place::Open if head == NIL => {
                open.remove(at, place_lane);
                self.lanes[lane as usize].place = Place::Empty;
                self.queue_changed(queue);
            }
            Place::Open => {
                open.rekey(at, self.jobs[head as usize].seq, place_lane);
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
        } = self.queues[id as usize];
        let top = open.top();
        let parked = self.flows[flow as usize].parked;
        let rank = top
            .filter(|_| !parked)
            .map(|(seq, _)| (self.effective_tag(id), seq));
        let state = &mut self.classes[class.index()];
        let queues = &mut self.queues;
        let place = |queue: u32, at: u32| queues[queue as usize].at = at;
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
        let queue = &self.queues[queue as usize];
        queue.tag.max(self.classes[queue.class.index()].clock)
    }

    /// The rank of a lane that has jobs.
    pub(super) fn rank(&self, lane: u32) -> Rank {
        let Lane { queue, head, .. } = self.lanes[lane as usize];
        (self.effective_tag(queue), self.jobs[head as usize].seq)
    }

    /// Keeps the heap of ages in step with a lane's head.
    fn age_changed(&mut self, lane: u32) {
        let Lane {
            queue,
            bay,
            head,
            age_at,
            ..
        } = self.lanes[lane as usize];
        let class = self.queues[queue as usize].class;
        if self.classes[class.index()].config.aging.is_none() {
            return;
        }
        let usable = self.bays[bay as usize].usable_since;
        let age = self
            .jobs
            .get(head as usize)
            .map(|entry| (entry.since.unwrap_or(self.now).max(usable), entry.seq));
        let ages = &mut self.classes[class.index()].ages;
        let lanes = &mut self.lanes;
        let place = |lane: u32, at: u32| lanes[lane as usize].age_at = at;
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

    /// The flow's state, made if there is none.
    pub(super) fn flow(&mut self, now: Time, id: Flow) -> u32 {
        if let Some(flow) = self.flow_ids.get(&id) {
            return *flow;
        }
        if self.flows.len() >= self.sweep_at {
            self.sweep(now);
        }
        let config = *self
            .config
            .flows
            .get(&id)
            .unwrap_or(&self.config.default_flow);
        let flow = self.flows.insert(FlowState {
            id,
            config,
            gate: Gate::new(config.limits, now),
            queues: vec![NIL; self.classes.len()],
            waiting: 0,
            delayed: 0,
            held_at: NOWHERE,
            parked: false,
            timer: TimerId::NONE,
        }) as u32;
        self.flow_ids.insert(id, flow);
        flow
    }

    fn lane(&mut self, class: Class, flow: u32, bay: u32) -> u32 {
        let queue = self.queue(class, flow);
        if let Some(lane) = self.lane_ids.get(&(queue, bay)) {
            return *lane;
        }
        let lanes = &mut self.bays[bay as usize].lanes;
        let lane = self.lanes.insert(Lane {
            queue,
            bay,
            head: NIL,
            tail: NIL,
            place: Place::Empty,
            at: NOWHERE,
            age_at: NOWHERE,
            bay_at: lanes.len() as u32,
        }) as u32;
        lanes.push(lane);
        self.queues[queue as usize].lanes.push(lane);
        self.lane_ids.insert((queue, bay), lane);
        lane
    }

    fn queue(&mut self, class: Class, flow: u32) -> u32 {
        let queue = self.flows[flow as usize].queues[class.index()];
        if queue != NIL {
            return queue;
        }
        let queue = self.queues.insert(Queue::new(class, flow)) as u32;
        self.flows[flow as usize].queues[class.index()] = queue;
        queue
    }

    /// Forgets flows that have no jobs, no debt and nothing else worth remembering.
    fn sweep(&mut self, now: Time) {
        let idle: Vec<u32> = (0..self.flows.capacity() as u32)
            .filter(|flow| self.flows.contains(*flow as usize) && self.is_idle(now, *flow))
            .collect();
        for flow in idle {
            self.forget(flow);
        }
        self.sweep_at = (2 * self.flows.len()).max(1024);
    }

    fn is_idle(&mut self, now: Time, flow: u32) -> bool {
        let FlowState {
            waiting,
            delayed,
            parked,
            ref mut gate,
            ref queues,
            ..
        } = self.flows[flow as usize];
        if waiting > 0 || delayed > 0 || parked || gate.running() > 0 || !gate.is_fresh(now) {
            return false;
        }
        let owes = |queue: &u32| {
            let queue = &self.queues[*queue as usize];
            queue.tag > self.classes[queue.class.index()].clock
        };
        !queues.iter().filter(|queue| **queue != NIL).any(owes)
    }

    fn forget(&mut self, flow: u32) {
        let state = self.flows.remove(flow as usize);
        self.flow_ids.remove(&state.id);
        if !state.timer.is_none() {
            self.wheel.cancel(state.timer);
        }
        let flows = &mut self.flows;
        if state.held_at != NOWHERE {
            self.holders.most.remove(state.held_at, |id, at| {
                if id != flow {
                    flows[id as usize].held_at = at;
                }
            });
        }
        for id in state.queues.into_iter().filter(|queue| *queue != NIL) {
            let queue = self.queues.remove(id as usize);
            let queues = &mut self.queues;
            if queue.held_at != NOWHERE {
                self.classes[queue.class.index()].holders.most.remove(
                    queue.held_at,
                    |other, at| {
                        if other != id {
                            queues[other as usize].held_at = at;
                        }
                    },
                );
            }
            for lane in queue.lanes {
                let Lane { bay, bay_at, .. } = self.lanes.remove(lane as usize);
                self.lane_ids.remove(&(id, bay));
                let lanes = &mut self.bays[bay as usize].lanes;
                lanes.swap_remove(bay_at as usize);
                if let Some(moved) = lanes.get(bay_at as usize) {
                    self.lanes[*moved as usize].bay_at = bay_at;
                }
            }
        }
    }

    /// Ends a job that is not leased, and hands it back.
    pub(super) fn end_unleased(&mut self, now: Time, slot: u32) -> Job<P> {
        match self.jobs[slot as usize].state {
            State::Waiting => self.dequeue(now, slot),
            State::Delayed { .. } => {
                self.disarm_job(slot);
                self.release_delay_key(slot);
                self.delayed -= 1;
                let flow = self.jobs[slot as usize].flow;
                self.flows[flow as usize].delayed -= 1;
            }
            State::Running { .. } => unreachable!("a running job is not ended without its lease"),
        }
        let entry = self.forget_job(slot);
        let flow = self.flows[entry.flow as usize].id;
        entry.into_job(flow)
    }

    /// Takes a job out of every table.
    pub(super) fn forget_job(&mut self, slot: u32) -> Entry<P> {
        let entry = self.jobs.remove(slot as usize);
        if let Some(key) = entry.key {
            self.keys.remove(&key);
        }
        entry
    }
}
