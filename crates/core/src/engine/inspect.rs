//! Snapshots of a core for people and metrics.
//!
//! Every method takes `&self` and copies; nothing here moves time or changes an order, so a
//! snapshot never changes what happens next. Those over all flows or lanes cost time for each: a
//! driver should not take them under its lock more often than people look.

use super::Core;
use crate::classes::ClassState;
use crate::flows::FlowState;
use crate::id::{Class, Flow, QueueId, Section, TargetId};
use crate::stats::ClassStats;
use crate::table::Id;
use crate::targets::TargetState;
use std::collections::BTreeSet;

/// A snapshot of a core's state.
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

/// A snapshot of a class.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClassView {
    /// Its share.
    pub weight: u32,
    /// Jobs waiting.
    pub waiting: u64,
    /// Their cost.
    pub waiting_cost: u64,
    /// The counters since the start; `charged` is the cost that was granted.
    pub stats: ClassStats,
}

/// The demand of one flow in one class for one set of targets.
///
/// Counters of what was granted begin again when a flow without jobs is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DemandView {
    /// The class.
    pub class: Class,
    /// The flow.
    pub flow: Flow,
    /// The targets that may serve these jobs, in order.
    pub targets: Vec<TargetId>,
    /// Jobs waiting.
    pub waiting: u64,
    /// Their cost.
    pub waiting_cost: u64,
    /// Jobs granted so far.
    pub granted: u64,
    /// Their cost, as estimated.
    pub granted_cost: u64,
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
    /// Their cost.
    pub waiting_cost: u64,
    /// Jobs running.
    pub running: u32,
    /// Jobs granted since the flow is remembered.
    pub granted: u64,
    /// Their cost, as estimated.
    pub granted_cost: u64,
    /// Whether its own limits hold it back.
    pub held: bool,
    /// The levels of its buckets: requests, cost.
    pub levels: (Option<f64>, Option<f64>),
}

impl<P> Core<P> {
    /// A picture of the whole.
    ///
    /// ```
    /// use headworks_core::{Class, Config, Core, Cost, Job, Time};
    ///
    /// let mut core = Core::new(Config::default(), Time::ZERO)?;
    /// core.submit(Time::ZERO, Job::new(()).class(Class(2)).cost(Cost(40))).expect("room");
    /// let view = core.inspect();
    /// assert_eq!((view.waiting, view.running), (1, 0));
    /// assert_eq!(view.classes[2].waiting_cost, 40);
    /// # Ok::<(), headworks_core::ConfigError>(())
    /// ```
    #[must_use]
    pub fn inspect(&self) -> View {
        let mut costs = vec![0_u64; self.classes.len()];
        for lane in self.lanes.iter() {
            let cost = &mut costs[lane.key.section.class.index()];
            *cost = cost.saturating_add(lane.traffic().waiting_cost);
        }
        let class = |(class, stats): (Class, &ClassStats)| ClassView {
            weight: self.config.classes[class.index()].weight,
            waiting: self.waiting_in(class),
            waiting_cost: costs[class.index()],
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
            waiting: target.waiting(),
            faults: target.faults(),
            granted: target.granted(),
            levels: target.gate.levels(),
        })
    }

    /// A picture of every flow that has jobs or is remembered.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.flows.iter().map(|flow| self.flow_view(flow))
    }

    /// A picture of a flow, if it has jobs or is remembered.
    #[must_use]
    pub fn flow(&self, flow: Flow) -> Option<FlowView> {
        let flow = self.flows.find(flow)?;
        Some(self.flow_view(&self.flows[flow]))
    }

    fn flow_view(&self, flow: &FlowState) -> FlowView {
        let queues = flow.queues().iter();
        let lanes =
            queues.flat_map(|(section, queue)| self.classes[*section].queue(*queue).lanes());
        let (mut waiting_cost, mut granted, mut granted_cost) = (0_u64, 0, 0_u64);
        for lane in lanes {
            let traffic = self.lanes[*lane].traffic();
            waiting_cost = waiting_cost.saturating_add(traffic.waiting_cost);
            granted += traffic.granted;
            granted_cost = granted_cost.saturating_add(traffic.granted_cost);
        }
        FlowView {
            flow: flow.name(),
            weight: flow.weight(),
            waiting: flow.holder.held(),
            waiting_cost,
            running: flow.gate.running(),
            granted,
            granted_cost,
            held: flow.is_blocked(),
            levels: flow.gate.levels(),
        }
    }

    /// The demand of every flow that has jobs or is remembered, by class and targets.
    pub fn demand(&self) -> impl Iterator<Item = DemandView> + '_ {
        self.lanes.iter().map(|lane| DemandView {
            class: lane.key.section.class,
            flow: self.flows[lane.key.flow].name(),
            targets: self.targets.group(lane.key.group).targets().to_vec(),
            waiting: lane.len(),
            waiting_cost: lane.traffic().waiting_cost,
            granted: lane.traffic().granted,
            granted_cost: lane.traffic().granted_cost,
        })
    }

    /// Jobs waiting that a target may serve, alone or among others.
    #[must_use]
    pub fn waiting_at(&self, target: TargetId) -> u64 {
        let groups = self.targets.groups().into_iter();
        let groups = groups.filter(|group| self.targets.group(*group).targets().contains(&target));
        let lanes = groups.flat_map(|group| self.lanes.in_group(group));
        lanes.map(|lane| self.lanes[*lane].len()).sum()
    }

    /// The number of flows that something is remembered of: their jobs, their limits, or their
    /// debt.
    #[must_use]
    pub fn remembered_flows(&self) -> usize {
        let debts: usize = self.classes.iter().map(ClassState::idle_debts).sum();
        self.flows.len() + debts
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
