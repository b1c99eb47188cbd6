//! The flows that have jobs, or whose limits are worth remembering.
//!
//! A flow exists from its first admitted job on. Flows without jobs are looked for when the table
//! has doubled: those whose rates are full again are forgotten, and of their fair-queueing debt
//! only the tag is kept ([`IdleTags`](crate::fair_queue::IdleTags)). So memory follows the flows
//! that are in use: there are never more than twice as many as were at the last search, or 1024.
//!
//! This part owns the table and the names. The effect of a flow's state on its queues is the
//! engine's: code that changes `blocked` must requeue them.

use crate::config::FlowConfig;
use crate::fair_queue::InverseWeight;
use crate::gate::Gate;
use crate::id::{Flow, FlowId, QueueId, Section, TargetId};
use crate::occupancy::{Holder, Occupancy};
use crate::table::{Table, indexed};
use crate::time::Time;
use crate::wheel::TimerId;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;

/// A flow.
#[derive(Debug)]
pub(crate) struct FlowState {
    name: Flow,
    /// Its weight, and its jobs that wait in all classes.
    pub(crate) holder: Holder,
    /// Its weight for service: the configured one, or the part of it that this node serves.
    service_weight: InverseWeight,
    pub(crate) gate: Gate,
    /// Its queues. They are few: most flows use one class.
    queues: SmallVec<[(Section, QueueId); 4]>,
    delayed: u64,
    /// Targets whose cost bucket is reserved for a job of this flow.
    reserving: SmallVec<[TargetId; 1]>,
    /// Its gate is shut, and its queues take no part in the selection.
    blocked: bool,
    /// Set while it is blocked by a rate: for when that allows more.
    pub(crate) timer: Option<TimerId>,
}

impl FlowState {
    pub(crate) fn name(&self) -> Flow {
        self.name
    }

    pub(crate) fn weight(&self) -> u32 {
        self.holder.weight()
    }

    #[inline]
    pub(crate) fn queue(&self, section: Section) -> Option<QueueId> {
        let mut queues = self.queues.iter();
        let found = queues.find(|(other, _)| *other == section);
        found.map(|(_, queue)| *queue)
    }

    pub(crate) fn add_queue(&mut self, section: Section, queue: QueueId) {
        self.queues.push((section, queue));
    }

    /// Its weight for service.
    pub(crate) fn service_weight(&self) -> InverseWeight {
        self.service_weight
    }

    /// Says whether that is another weight than before.
    pub(crate) fn set_service_weight(&mut self, weight: InverseWeight) -> bool {
        std::mem::replace(&mut self.service_weight, weight) != weight
    }

    pub(crate) fn count_delayed(&mut self) {
        self.delayed += 1;
    }

    pub(crate) fn count_released(&mut self) {
        self.delayed -= 1;
    }

    /// Whether nothing is lost when it is forgotten: it has no jobs, and its limits are as new.
    pub(crate) fn is_idle(&mut self, now: Time) -> bool {
        self.holder.held() == 0 && self.delayed == 0 && self.gate.is_fresh(now)
    }

    /// A target's cost bucket is reserved for a job of the flow.
    pub(crate) fn add_reservation(&mut self, target: TargetId) {
        self.reserving.push(target);
    }

    pub(crate) fn end_reservation(&mut self, target: TargetId) {
        self.reserving.retain(|other| *other != target);
    }

    /// The target whose bucket was last reserved for a job of the flow.
    pub(crate) fn last_reservation(&self) -> Option<TargetId> {
        self.reserving.last().copied()
    }

    #[inline]
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn block(&mut self) {
        self.blocked = true;
    }

    /// Says whether it was blocked.
    pub(crate) fn unblock(&mut self) -> bool {
        std::mem::take(&mut self.blocked)
    }

    /// Its queues.
    pub(crate) fn queues(&self) -> &SmallVec<[(Section, QueueId); 4]> {
        &self.queues
    }
}

/// All flows.
#[derive(Debug)]
pub(crate) struct Flows {
    table: Table<FlowId, FlowState>,
    by_name: HashMap<Flow, FlowId, FixedState>,
    sweep_at: usize,
}

impl Flows {
    const FEW: usize = 1024;

    pub(crate) fn new(hasher: FixedState) -> Self {
        Flows {
            table: Table::default(),
            by_name: HashMap::with_hasher(hasher),
            sweep_at: Self::FEW,
        }
    }

    pub(crate) fn find(&self, name: Flow) -> Option<FlowId> {
        self.by_name.get(&name).copied()
    }

    pub(crate) fn insert(
        &mut self,
        name: Flow,
        config: FlowConfig,
        service_weight: InverseWeight,
        now: Time,
    ) -> FlowId {
        let flow = self.table.insert(FlowState {
            name,
            holder: Holder::of(config.weight),
            service_weight,
            gate: Gate::new(config.limits, now),
            queues: SmallVec::new(),
            delayed: 0,
            reserving: SmallVec::new(),
            blocked: false,
            timer: None,
        });
        self.by_name.insert(name, flow);
        flow
    }

    pub(crate) fn remove(&mut self, flow: FlowId) {
        let state = self.table.remove(flow);
        self.by_name.remove(&state.name);
    }

    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &FlowState> {
        self.table.iter().map(|(_, flow)| flow)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut FlowState> {
        self.table.iter_mut().map(|(_, flow)| flow)
    }

    /// All flows, collected for callers that change them meanwhile.
    pub(crate) fn ids(&self) -> Vec<FlowId> {
        self.table.ids()
    }

    /// The flow that holds most of a bound's places for its weight.
    pub(crate) fn largest(&self, places: &mut Occupancy<FlowId>) -> Option<FlowId> {
        let (_, most) = places.largest(&self.table, |flow| flow.holder)?;
        Some(most)
    }

    /// Whether the table has grown enough to look for flows without jobs.
    pub(crate) fn wants_sweep(&self) -> bool {
        self.table.len() >= self.sweep_at
    }

    /// Flows without jobs have been removed.
    pub(crate) fn swept(&mut self) {
        // Twice what is left: each search is paid for by as many arrivals of new flows.
        self.sweep_at = (2 * self.table.len()).max(Self::FEW);
        self.by_name.shrink_to(self.sweep_at);
        self.table.shrink();
    }
}

indexed!(Flows[flow: FlowId] -> FlowState = table[flow]);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Rate;
    use crate::config::Limits;
    use crate::id::Cost;

    fn insert(flows: &mut Flows, name: u64) -> FlowId {
        let limits = Limits {
            requests: Some(Rate::per_second(1.0)),
            ..Limits::default()
        };
        let config = FlowConfig { weight: 2, limits };
        flows.insert(Flow(name), config, InverseWeight::of(2), Time::ZERO)
    }

    #[test]
    fn a_flow_is_found_by_its_name_until_it_is_removed() {
        let mut flows = Flows::new(FixedState::default());
        let flow = insert(&mut flows, 7);
        assert_eq!(flows.find(Flow(7)), Some(flow));
        assert_eq!((flows[flow].name(), flows[flow].weight()), (Flow(7), 2));
        flows.remove(flow);
        assert_eq!((flows.find(Flow(7)), flows.len()), (None, 0));
    }

    #[test]
    fn a_search_for_idle_flows_comes_each_time_the_table_has_doubled() {
        let mut flows = Flows::new(FixedState::default());
        let few = Flows::FEW as u64;
        (0..few).for_each(|name| {
            assert!(!flows.wants_sweep(), "after {name}");
            insert(&mut flows, name);
        });
        assert!(flows.wants_sweep());
        // All are in use.
        flows.swept();
        (few..2 * few).for_each(|name| {
            assert!(!flows.wants_sweep(), "after {name}");
            insert(&mut flows, name);
        });
        assert!(flows.wants_sweep());
        flows.ids().into_iter().for_each(|flow| flows.remove(flow));
        flows.swept();
        (0..few - 1).for_each(|name| {
            insert(&mut flows, name);
        });
        assert!(!flows.wants_sweep(), "it is small again");
    }

    #[test]
    fn a_flow_with_jobs_or_with_a_used_rate_is_not_idle() {
        let mut flows = Flows::new(FixedState::default());
        let flow = insert(&mut flows, 7);
        let state = &mut flows[flow];
        assert!(state.is_idle(Time::ZERO));
        state.count_delayed();
        assert!(!state.is_idle(Time::ZERO), "a job is delayed");
        state.count_released();
        let mut places = Occupancy::default();
        places.take(flow, &mut state.holder);
        assert!(!state.is_idle(Time::ZERO), "a job waits");
        places.give_up(&mut state.holder, 10);
        state.gate.enter(Time::ZERO, Cost(1));
        assert!(!state.is_idle(Time::from_secs(9)), "a job runs");
        state
            .gate
            .leave(Time::ZERO, Cost(1), crate::gate::Charge::Kept);
        assert!(!state.is_idle(Time::ZERO), "its request is not back yet");
        assert!(state.is_idle(Time::from_secs(1)));
    }

    #[test]
    fn the_flow_that_holds_most_for_its_weight_is_the_largest() {
        let mut flows = Flows::new(FixedState::default());
        let mut places = Occupancy::default();
        assert_eq!(flows.largest(&mut places), None);
        let (one, two) = (insert(&mut flows, 1), insert(&mut flows, 2));
        for (flow, count) in [(one, 1), (two, 3)] {
            (0..count).for_each(|_| places.take(flow, &mut flows[flow].holder));
        }
        assert_eq!(flows.largest(&mut places), Some(two));
    }

    #[test]
    fn reservations_end_one_by_one() {
        let mut flows = Flows::new(FixedState::default());
        let flow = insert(&mut flows, 7);
        let state = &mut flows[flow];
        for target in [TargetId(0), TargetId(1), TargetId(2)] {
            state.add_reservation(target);
        }
        state.end_reservation(TargetId(2));
        assert_eq!(state.last_reservation(), Some(TargetId(1)));
        state.end_reservation(TargetId(0));
        assert_eq!(state.last_reservation(), Some(TargetId(1)));
        state.end_reservation(TargetId(1));
        assert_eq!(state.last_reservation(), None);
    }
}
