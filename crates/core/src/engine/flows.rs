//! Flows: made when first heard of, forgotten when there is nothing worth remembering.

use super::Core;
use super::parts::{FlowState, NIL};
use super::tags::Pace;
use crate::ahead::fetch;
use crate::gate::Gate;
use crate::heap::NOWHERE;
use crate::id::{Class, Flow};
use crate::time::Time;
use crate::wheel::TimerId;
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// So many queues are near anyway: to give them up and take them again would be work for nothing. Fewer in tests, which then go both
/// ways.
const FEW: usize = if cfg!(debug_assertions) { 8 } else { 1024 };

impl<P> Core<P> {
    /// The flow of a name and its hash, if it is known.
    #[inline]
    pub(super) fn find_flow(&self, id: Flow, hash: u64) -> Option<u32> {
        self.flow_ids.find(hash, |flow| self.flows[flow].id == id)
    }

    /// What is probably the flow with that hash of its name. It is brought near.
    #[inline]
    pub(super) fn guess_flow(&self, hash: u64) -> u32 {
        let guess = self.flow_ids.guess(hash).unwrap_or(NIL);
        if let Some(flow) = self.flows.look(guess) {
            fetch(&flow.id);
            fetch(&flow.gate);
        }
        guess
    }

    /// The flow of a name and its hash, made if there is none.
    pub(super) fn flow(&mut self, now: Time, id: Flow, hash: u64) -> u32 {
        match self.find_flow(id, hash) {
            Some(flow) => flow,
            None => self.new_flow(now, id, hash),
        }
    }

    fn new_flow(&mut self, now: Time, id: Flow, hash: u64) -> u32 {
        if self.flows.len() >= self.sweep_at {
            self.sweep(now);
        }
        let config = self.config.flow(id);
        let flow = self.flows.insert(FlowState {
            id,
            weight: config.weight,
            pace: Pace::of(config.weight),
            gate: Gate::new(config.limits, now),
            queues: SmallVec::from_elem(NIL, self.classes.len()),
            waiting: 0,
            delayed: 0,
            held_at: NOWHERE,
            parked: false,
            timer: TimerId::NONE,
        });
        self.resting.begin(flow);
        let (flows, hasher) = (&self.flows, &self.hasher);
        self.flow_ids
            .insert(hash, flow, |flow| hasher.hash_one(flows[flow].id));
        flow
    }

    /// Forgets flows that have no jobs, no debt and nothing else worth remembering.
    fn sweep(&mut self, now: Time) {
        let idle: Vec<u32> = (0..self.flows.end())
            .filter(|flow| self.flows.get(*flow).is_some() && self.is_idle(now, *flow))
            .collect();
        for flow in idle {
            self.forget(flow);
        }
        for bay in 0..self.bays.len() {
            for queue in std::mem::take(&mut self.bays[bay].spare) {
                self.forget_queue(queue);
            }
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
        } = self.flows[flow];
        if waiting > 0 || delayed > 0 || parked || gate.running() > 0 || !gate.is_fresh(now) {
            return false;
        }
        let owes = |class: usize| {
            let tag = match queues[class] {
                NIL => *self.resting.tag(flow, Class(class as u8)),
                queue => self.queues[queue].tag,
            };
            tag > self.classes[class].clock
        };
        !(0..queues.len()).any(owes)
    }

    fn forget(&mut self, flow: u32) {
        self.flows.remove(flow);
        let state = &mut self.flows[flow];
        self.flow_ids.remove(self.hasher.hash_one(state.id), flow);
        if !state.timer.is_none() {
            self.wheel.cancel(state.timer);
        }
        let queues = std::mem::take(&mut state.queues);
        let flows = &mut self.flows;
        self.holders
            .forget(flows[flow].held_at, |flow, at| flows[flow].held_at = at);
        for queue in queues.into_iter().filter(|queue| *queue != NIL) {
            self.unhold(queue);
            self.forget_queue(queue);
        }
    }

    /// Takes a queue without jobs out of what its class's holders hold.
    #[inline]
    fn unhold(&mut self, id: u32) {
        let queues = &mut self.queues;
        let (class, at) = (queues[id].class.index(), queues[id].held_at);
        self.classes[class]
            .holders
            .forget(at, |queue, at| queues[queue].held_at = at);
    }

    fn forget_queue(&mut self, id: u32) {
        self.queues.remove(id);
        let mut next = std::mem::replace(&mut self.queues[id].lanes, NIL);
        while next != NIL {
            let lane = next;
            next = self.lane_spots[lane as usize].sibling;
            self.forget_lane(lane);
        }
    }

    /// After the end of a job: where there are many queues, a flow without jobs in a class gives up its queue there.
    #[inline]
    pub(super) fn rest(&mut self, class: Class, flow: u32) {
        if self.queues.len() > FEW {
            self.give_up_queue(class, flow);
        }
    }

    /// Gives up a flow's queue in a class, if it has no jobs and one lane: the next who needs one will find it near. Only the tag is
    /// kept.
    #[inline(never)]
    fn give_up_queue(&mut self, class: Class, flow: u32) {
        let state = &mut self.flows[flow];
        let id = state.queues[class.index()];
        let Some(queue) = self.queues.look(id) else {
            return;
        };
        if queue.waiting > 0 || queue.lane_count != 1 || state.gate.running() > 0 {
            return;
        }
        *self.resting.tag(flow, class) = queue.tag;
        state.queues[class.index()] = NIL;
        let bay = self.lanes[queue.lanes].bay;
        self.bays[bay as usize].spare.push(id);
        self.unhold(id);
    }

    fn forget_lane(&mut self, lane: u32) {
        self.forget_lane_id(lane);
        let bay_at = self.lane_spots[lane as usize].bay_at;
        let lanes = &mut self.bays[self.lanes[lane].bay as usize].lanes;
        lanes.swap_remove(bay_at as usize);
        if let Some(moved) = lanes.get(bay_at as usize) {
            self.lane_spots[*moved as usize].bay_at = bay_at;
        }
        self.lanes.remove(lane);
    }
}
