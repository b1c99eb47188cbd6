//! Snapshots of a core for people and metrics.

use super::Core;
use crate::classes::ClassState;
use crate::id::{Class, Flow, QueueId, Section, TargetId};
use crate::stats::ClassStats;
use crate::table::Id;
use crate::targets::TargetState;
use std::collections::BTreeSet;

/// A picture of a core.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct View {
    /// Jobs that could run but for capacity.
    pub waiting: u64,
    /// Jobs whose time has not come.
    pub delayed: u64,
    /// Leases out.
    pub running: u64,
    /// Whether it is paused.
    pub paused: bool,
    /// Whether it drains.
    pub draining: bool,
    /// How many may wait in all.
    pub capacity: u64,
    /// The levels of the buckets over everything: requests, cost.
    pub levels: (Option<f64>, Option<f64>),
    /// The classes, most urgent first.
    pub classes: Vec<ClassView>,
    /// The targets, in order.
    pub targets: Vec<TargetView>,
}

/// A picture of a class.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClassView {
    /// Its share.
    pub weight: u32,
    /// Jobs waiting.
    pub waiting: u64,
    /// The counters since the start.
    pub stats: ClassStats,
}

/// A picture of a target.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TargetView {
    /// Its health.
    pub state: TargetState,
    /// Jobs it serves now.
    pub running: u32,
    /// Jobs waiting that it alone can serve.
    pub waiting: u64,
    /// Faults in a row.
    pub faults: u32,
    /// Jobs it was given so far.
    pub granted: u64,
    /// The levels of its buckets: requests, cost.
    pub levels: (Option<f64>, Option<f64>),
}

/// A picture of a flow.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FlowView {
    /// Which.
    pub flow: Flow,
    /// Its share.
    pub weight: u32,
    /// Jobs waiting.
    pub waiting: u64,
    /// Jobs running.
    pub running: u32,
    /// Whether its own limits hold it back.
    pub held: bool,
}

impl<P> Core<P> {
    /// A picture of the whole.
    #[must_use]
    pub fn inspect(&self) -> View {
        let class = |(class, stats): (Class, &ClassStats)| ClassView {
            weight: self.config.classes[class.index()].weight,
            waiting: self.waiting_in(class),
            stats: stats.clone(),
        };
        View {
            waiting: self.waiting(),
            delayed: self.delayed(),
            running: self.running,
            paused: self.paused,
            draining: self.draining,
            capacity: self.capacity(),
            levels: self.gate.levels(),
            classes: self.classes.all_stats().map(class).collect(),
            targets: (self.targets.ids())
                .filter_map(|target| self.inspect_target(target))
                .collect(),
        }
    }

    /// A picture of a target.
    #[must_use]
    pub fn inspect_target(&self, target: TargetId) -> Option<TargetView> {
        let target = self.targets.get(target)?;
        Some(TargetView {
            state: target.state(),
            running: target.gate.running(),
            waiting: target.waiting,
            faults: target.faults(),
            granted: target.granted(),
            levels: target.gate.levels(),
        })
    }

    /// A picture of every flow that has jobs or is remembered.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.flows.table.iter().map(|(_, flow)| FlowView {
            flow: flow.name(),
            weight: flow.weight(),
            waiting: flow.holder.held(),
            running: flow.gate.running(),
            held: flow.blocked,
        })
    }

    /// The number of flows that something is remembered of: their jobs, their limits, or their
    /// debt.
    #[must_use]
    pub fn remembered_flows(&self) -> usize {
        let debts: usize = self.classes.iter().map(ClassState::idle_debts).sum();
        self.flows.table.len() + debts
    }

    /// The number of target sets: one per target, those that were asked for, and those that jobs
    /// name.
    #[must_use]
    pub fn remembered_target_sets(&self) -> usize {
        self.targets.groups().len()
    }

    /// Jobs waiting in a class.
    #[must_use]
    pub fn waiting_in(&self, class: Class) -> u64 {
        self.classes
            .everywhere(class)
            .map(ClassState::waiting)
            .sum()
    }

    /// Jobs of a flow waiting in a class.
    #[must_use]
    pub fn waiting_for(&self, class: Class, flow: Flow) -> u64 {
        let Some(flow) = self.flows.find(flow) else {
            return 0;
        };
        let queues = self.flows[flow].queues().iter();
        let of_class = queues.filter(|(section, _)| section.class == class);
        let waiting =
            |(section, queue): &(Section, QueueId)| self.classes[*section].waiting_in(*queue);
        of_class.map(waiting).sum()
    }

    /// Jobs waiting.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.occupancy.taken()
    }

    /// Jobs whose time has not come.
    #[must_use]
    pub fn delayed(&self) -> u64 {
        self.delayed.len()
    }

    /// Leases out.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.running
    }

    /// How many jobs may wait in all.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let places = self.config.bound.places() as u64;
        if self.shares_bound() {
            places
        } else {
            let domains = self.config.targets.iter().map(|target| target.domain);
            let used = domains.collect::<BTreeSet<_>>().len().max(1);
            places.saturating_mul((used * self.classes.len()) as u64)
        }
    }

    /// The counters of a class since the start.
    #[must_use]
    pub fn stats(&self, class: Class) -> Option<&ClassStats> {
        self.classes.stats(class)
    }
}
