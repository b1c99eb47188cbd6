//! Who gives up a place when there are none: whoever holds more than its share, newest first.

use super::Core;
use super::parts::{NIL, holding};
use crate::config::Bound;
use crate::heap::NOWHERE;
use crate::id::Class;

impl<P> Core<P> {
    /// Who gives up a place of a target that alone can serve an arrival: the newest job of the least urgent class that it
    /// displaces, or of the flow that holds most of them, if that is more for its weight than the arrival's flow will.
    /// The place must count towards the arrival's bound, so that one is given for one.
    pub(super) fn victim_in(&self, bay: u32, class: Class, flow: u32) -> Option<u32> {
        let lanes = &self.bays[bay as usize].lanes;
        let shared = self.shares_bound();
        let queue = |lane: u32| &self.queues[self.lanes[lane].queue];
        let lanes = || {
            let waiting = lanes
                .iter()
                .copied()
                .filter(|lane| self.lanes[*lane].len > 0);
            waiting.filter(move |lane| shared || queue(*lane).class == class)
        };
        let newest = |lane: u32| self.lanes[lane].tail;
        let displaces = self.classes[class.index()].config.displaces;
        if let Some(from) = displaces.filter(|_| shared) {
            let age = |lane: &u32| (queue(*lane).class, self.jobs[newest(*lane)].seq);
            let victim = lanes()
                .filter(|lane| queue(*lane).class >= from)
                .max_by_key(age);
            if let Some(lane) = victim {
                return Some(newest(lane));
            }
        }
        // Who holds an equal part already is refused without looking at everybody.
        let own = self.flows[flow].queues[class.index()];
        let own = self
            .find_lane(own, bay)
            .map_or(0, |lane| u64::from(self.lanes[lane].len));
        if (own + 1) * self.bays[bay as usize].lanes.len() as u64 > self.most_alone as u64 {
            return None;
        }
        let key = |flow: u32, more: u64| {
            let held = lanes().filter(|lane| queue(*lane).flow == flow);
            let held: u64 = held.map(|lane| u64::from(self.lanes[lane].len)).sum();
            holding(held + more, self.flows[flow].weight)
        };
        let longest = lanes().max_by_key(|lane| (self.lanes[*lane].len, newest(*lane)))?;
        let most = queue(longest).flow;
        (key(most, 0) < key(flow, 1)).then(|| newest(longest))
    }

    pub(super) fn holds_less_than_its_share(&self, class: Class, flow: u32) -> bool {
        let state = &self.flows[flow];
        let (holders, held) = match self.config.bound {
            Bound::Shared(_) => (&self.holders, u64::from(state.waiting)),
            Bound::PerClass(_) => {
                let queue = self.queues.get(state.queues[class.index()]);
                (
                    &self.classes[class.index()].holders,
                    queue.map_or(0, |queue| u64::from(queue.waiting)),
                )
            }
        };
        let weight = u64::from(state.weight);
        let all = holders.weights + if held == 0 { weight } else { 0 };
        held * all < self.config.bound.places() as u64 * weight
    }

    /// The newest job of the flow that holds most, if it holds more for its weight than the arrival's flow will.
    pub(super) fn victim(&mut self, class: Class, flow: u32) -> Option<u32> {
        let state = &self.flows[flow];
        let weight = state.weight;
        match self.config.bound {
            Bound::Shared(_) => {
                let after = holding(u64::from(state.waiting) + 1, weight);
                let (key, most) = self.greatest_flow()?;
                let queues = self.flows[most].queues.iter();
                let jobs = queues.filter_map(|queue| self.newest(*queue));
                jobs.max_by_key(|slot| self.jobs[*slot].seq)
                    .filter(|_| key < after)
            }
            Bound::PerClass(_) => {
                let held = self
                    .queues
                    .get(state.queues[class.index()])
                    .map_or(0, |queue| u64::from(queue.waiting));
                let (key, most) = self.greatest_queue(class)?;
                self.newest(most)
                    .filter(|_| key < holding(held + 1, weight))
            }
        }
    }

    /// With a shared bound: the newest job of the flow that holds most in the least urgent class that `class` may displace.
    pub(super) fn displaced(&mut self, class: Class) -> Option<u32> {
        let from = self.classes[class.index()]
            .config
            .displaces
            .filter(|_| self.shares_bound())?;
        let last = Class(self.classes.len() as u8 - 1);
        let (_, queue) = (from.0..=last.0)
            .rev()
            .find_map(|class| self.greatest_queue(Class(class)))?;
        self.newest(queue)
    }

    /// The newest job of a queue. Only who sheds asks, so it is looked for rather than kept.
    fn newest(&self, queue: u32) -> Option<u32> {
        let first = self.queues.get(queue)?.lanes;
        let tails = self.siblings(first).map(|lane| self.lanes[lane].tail);
        tails
            .filter(|slot| *slot != NIL)
            .max_by_key(|slot| self.jobs[*slot].seq)
    }

    /// The queue that holds most places of its class, for its weight.
    pub(super) fn greatest_queue(&mut self, class: Class) -> Option<(u64, u32)> {
        if !self.classes[class.index()].holders.kept {
            self.rank_queues(class);
        }
        let heap = &mut self.classes[class.index()].holders.most;
        let queues = &mut self.queues;
        while let Some((stored, id)) = heap.top() {
            let queue = &queues[id];
            let (waiting, at) = (u64::from(queue.waiting), queue.held_at);
            let key = holding(waiting, self.flows[queue.flow].weight);
            if waiting == 0 {
                heap.remove(at, |queue, at| queues[queue].held_at = at);
            } else if key == stored {
                return Some((key, id));
            } else {
                heap.rekey(at, key, |queue, at| queues[queue].held_at = at);
            }
        }
        None
    }

    /// The flow that holds most places of the shared bound, for its weight.
    pub(super) fn greatest_flow(&mut self) -> Option<(u64, u32)> {
        if !self.holders.kept {
            self.rank_flows();
        }
        let heap = &mut self.holders.most;
        let flows = &mut self.flows;
        while let Some((stored, id)) = heap.top() {
            let flow = &flows[id];
            let (waiting, at) = (u64::from(flow.waiting), flow.held_at);
            let key = holding(waiting, flow.weight);
            if waiting == 0 {
                heap.remove(at, |flow, at| flows[flow].held_at = at);
            } else if key == stored {
                return Some((key, id));
            } else {
                heap.rekey(at, key, |flow, at| flows[flow].held_at = at);
            }
        }
        None
    }

    /// Keeps a holder that took one more place in order.
    #[cold]
    pub(super) fn rank_holder(&mut self, class: Class, flow: u32, queue: u32) {
        let weight = self.flows[flow].weight;
        let queues = &mut self.queues;
        let (at, held) = (queues[queue].held_at, u64::from(queues[queue].waiting));
        let place = |queue: u32, at: u32| queues[queue].held_at = at;
        let state = &mut self.classes[class.index()];
        state.holders.took(queue, at, held, weight, place);
        let flows = &mut self.flows;
        let (at, held) = (flows[flow].held_at, u64::from(flows[flow].waiting));
        let place = |flow: u32, at: u32| flows[flow].held_at = at;
        self.holders.took(flow, at, held, weight, place);
    }

    /// Begins to keep a class's holders in order.
    pub(super) fn rank_queues(&mut self, class: Class) {
        let holders = &mut self.classes[class.index()].holders;
        holders.kept = true;
        let queues = &mut self.queues;
        for id in 0..queues.end() {
            let Some(queue) = queues
                .get(id)
                .filter(|queue| queue.class == class && queue.waiting > 0)
            else {
                continue;
            };
            let key = holding(u64::from(queue.waiting), self.flows[queue.flow].weight);
            holders
                .most
                .push(key, id, |queue, at| queues[queue].held_at = at);
        }
    }

    /// Begins to keep the holders of the shared bound in order.
    pub(super) fn rank_flows(&mut self) {
        self.holders.kept = true;
        let flows = &mut self.flows;
        for id in 0..flows.end() {
            let Some(flow) = flows.get(id).filter(|flow| flow.waiting > 0) else {
                continue;
            };
            let key = holding(u64::from(flow.waiting), flow.weight);
            self.holders
                .most
                .push(key, id, |flow, at| flows[flow].held_at = at);
        }
    }

    /// No longer keeps holders in order, if so much is free that nobody will be shed soon.
    pub(super) fn unrank(&mut self, class: Class) {
        if self.holders.kept && self.waiting * 2 < self.config.bound.places() as u64 {
            self.holders.kept = false;
            let flows = &mut self.flows;
            self.holders
                .most
                .clear(|flow| flows[flow].held_at = NOWHERE);
        }
        let state = &mut self.classes[class.index()];
        if state.holders.kept && state.waiting * 2 < self.config.bound.places() as u64 {
            state.holders.kept = false;
            let queues = &mut self.queues;
            state
                .holders
                .most
                .clear(|queue| queues[queue].held_at = NOWHERE);
        }
    }
}
