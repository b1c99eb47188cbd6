//! Flows: made when first heard of, forgotten when there is nothing worth remembering.

use super::Core;
use super::parts::{FlowState, NIL};
use super::tags::Pace;
use crate::ahead::fetch;
use crate::gate::Gate;
use crate::heap::NOWHERE;
use crate::id::Flow;
use crate::time::Time;
use crate::wheel::TimerId;
use smallvec::SmallVec;
use std::hash::BuildHasher;

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
        let owes = |queue: &u32| {
            let queue = &self.queues[*queue];
            queue.tag > self.classes[queue.class.index()].clock
        };
        !queues.iter().filter(|queue| **queue != NIL).any(owes)
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
        for id in queues.into_iter().filter(|queue| *queue != NIL) {
            self.queues.remove(id);
            let mut next = std::mem::replace(&mut self.queues[id].lanes, NIL);
            let queues = &mut self.queues;
            let class = queues[id].class.index();
            let at = queues[id].held_at;
            self.classes[class]
                .holders
                .forget(at, |queue, at| queues[queue].held_at = at);
            while next != NIL {
                let lane = next;
                next = self.lane_spots[lane as usize].sibling;
                self.forget_lane(lane);
            }
        }
    }

    fn forget_lane(&mut self, lane: u32) {
        self.lanes.remove(lane);
        self.forget_lane_id(lane);
        let bay_at = self.lane_spots[lane as usize].bay_at;
        let lanes = &mut self.bays[self.lanes[lane].bay as usize].lanes;
        lanes.swap_remove(bay_at as usize);
        if let Some(moved) = lanes.get(bay_at as usize) {
            self.lane_spots[*moved as usize].bay_at = bay_at;
        }
        // Nobody is to take it for the lane of a queue that has its number.
        self.lanes[lane].queue = NIL;
    }
}
