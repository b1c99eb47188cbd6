//! The flows that have jobs, or whose limits are worth remembering.
//!
//! A flow exists from its first admitted job on. Flows without jobs are looked for when the table
//! has doubled: those whose rates are full again are forgotten, and of their fair-queueing debt
//! only the tag is kept ([`IdleTags`](crate::fair_queue::IdleTags)). So memory follows the flows
//! that are in use.

use crate::config::FlowConfig;
use crate::gate::Gate;
use crate::id::{Class, Flow, FlowId, QueueId, TargetId};
use crate::table::{Id, Table};
use crate::time::Time;
use crate::wheel::TimerId;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::ops::{Index, IndexMut};

/// A flow.
#[derive(Debug)]
pub(crate) struct FlowState {
    name: Flow,
    weight: u32,
    pub(crate) gate: Gate,
    /// Its queues, by class.
    queues: SmallVec<[Option<QueueId>; 10]>,
    pub(crate) delayed: u64,
    /// Targets whose cost bucket is reserved for a job of this flow.
    pub(crate) reserving: SmallVec<[TargetId; 1]>,
    /// Its gate is shut, and its queues take no part in the selection.
    pub(crate) blocked: bool,
    /// Set while it is blocked by a rate: for when that allows more.
    pub(crate) timer: Option<TimerId>,
}

impl FlowState {
    pub(crate) fn name(&self) -> Flow {
        self.name
    }

    #[inline]
    pub(crate) fn weight(&self) -> u32 {
        self.weight
    }

    #[inline]
    pub(crate) fn queue(&self, class: Class) -> Option<QueueId> {
        self.queues.get(class.index()).copied().flatten()
    }

    pub(crate) fn set_queue(&mut self, class: Class, queue: QueueId) {
        if self.queues.len() <= class.index() {
            self.queues.resize(class.index() + 1, None);
        }
        self.queues[class.index()] = Some(queue);
    }

    /// Its queues.
    pub(crate) fn queues(&self) -> SmallVec<[(Class, QueueId); 4]> {
        let queues = self.queues.iter().enumerate();
        let queue = |(class, queue): (usize, &Option<QueueId>)| {
            queue.map(|queue| (Class::from_index(class), queue))
        };
        queues.filter_map(queue).collect()
    }

    pub(crate) fn reconfigure(&mut self, config: FlowConfig, now: Time) {
        self.weight = config.weight;
        self.gate.reconfigure(config.limits, now);
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

    #[inline]
    pub(crate) fn find(&self, name: Flow) -> Option<FlowId> {
        self.by_name.get(&name).copied()
    }

    pub(crate) fn insert(&mut self, name: Flow, config: FlowConfig, now: Time) -> FlowId {
        let flow = self.table.insert(FlowState {
            name,
            weight: config.weight,
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

    /// Whether the table has grown enough to look for flows without jobs.
    pub(crate) fn wants_sweep(&self) -> bool {
        self.table.len() >= self.sweep_at
    }

    /// Flows without jobs have been removed.
    pub(crate) fn swept(&mut self) {
        self.sweep_at = (2 * self.table.len()).max(Self::FEW);
        self.by_name.shrink_to(self.sweep_at);
        self.table.shrink();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (FlowId, &FlowState)> {
        self.table.iter()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (FlowId, &mut FlowState)> {
        self.table.iter_mut()
    }

    pub(crate) fn ids(&self) -> Vec<FlowId> {
        self.table.ids()
    }
}

impl Index<FlowId> for Flows {
    type Output = FlowState;

    #[inline]
    fn index(&self, flow: FlowId) -> &FlowState {
        &self.table[flow]
    }
}

impl IndexMut<FlowId> for Flows {
    #[inline]
    fn index_mut(&mut self, flow: FlowId) -> &mut FlowState {
        &mut self.table[flow]
    }
}
