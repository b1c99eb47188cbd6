//! The flows that have jobs, or whose limits are worth remembering.
//!
//! A flow exists from its first admitted job on. Flows without jobs are looked for when the table
//! has doubled: those whose rates are full again are forgotten, and of their fair-queueing debt
//! only the tag is kept ([`IdleTags`](crate::fair_queue::IdleTags)). So memory follows the flows
//! that are in use.

use crate::config::FlowConfig;
use crate::gate::Gate;
use crate::id::{Flow, FlowId, QueueId, Section, TargetId};
use crate::occupancy::Holder;
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
    pub(crate) gate: Gate,
    /// Its queues. They are few: most flows use one class.
    queues: SmallVec<[(Section, QueueId); 4]>,
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

    /// Its queues.
    pub(crate) fn queues(&self) -> &SmallVec<[(Section, QueueId); 4]> {
        &self.queues
    }
}

/// All flows.
#[derive(Debug)]
pub(crate) struct Flows {
    pub(crate) table: Table<FlowId, FlowState>,
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

    pub(crate) fn insert(&mut self, name: Flow, config: FlowConfig, now: Time) -> FlowId {
        let flow = self.table.insert(FlowState {
            name,
            holder: Holder::of(config.weight),
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
}

indexed!(Flows[flow: FlowId] -> FlowState = table[flow]);
