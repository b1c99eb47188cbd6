//! What a core looks like from outside.

use super::Core;
use super::parts::NIL;
use crate::id::{Class, Flow, TargetId};
use crate::stats::ClassStats;
use crate::target::TargetState;
use std::hash::BuildHasher;

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
    /// What is in the buckets over everything: requests, cost.
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
    /// What happened so far.
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
    /// What is in its buckets: requests, cost.
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
        View {
            waiting: self.waiting,
            delayed: self.delayed,
            running: self.running,
            paused: self.paused,
            draining: self.draining,
            capacity: self.capacity(),
            levels: self.gate.levels(),
            classes: self
                .classes
                .iter()
                .map(|class| ClassView {
                    weight: class.config.weight,
                    waiting: class.waiting,
                    stats: class.stats.clone(),
                })
                .collect(),
            targets: (0..self.targets.len() as u32)
                .filter_map(|target| self.inspect_target(TargetId(target)))
                .collect(),
        }
    }

    /// A picture of a target.
    #[must_use]
    pub fn inspect_target(&self, target: TargetId) -> Option<TargetView> {
        let target = self.targets.get(target.index())?;
        Some(TargetView {
            state: target.state,
            running: target.gate.running(),
            waiting: u64::from(target.waiting),
            faults: target.faults,
            granted: target.granted,
            levels: target.gate.levels(),
        })
    }

    /// A picture of every flow that has jobs or is remembered.
    pub fn flows(&self) -> impl Iterator<Item = FlowView> + '_ {
        self.flows.iter().map(|(_, flow)| FlowView {
            flow: flow.id,
            weight: flow.weight,
            waiting: u64::from(flow.waiting),
            running: flow.gate.running(),
            held: flow.parked,
        })
    }

    /// Jobs waiting in a class.
    #[must_use]
    pub fn waiting_in(&self, class: Class) -> u64 {
        self.classes
            .get(class.index())
            .map_or(0, |class| class.waiting)
    }

    /// Jobs of a flow waiting in a class.
    #[must_use]
    pub fn waiting_for(&self, class: Class, flow: Flow) -> u64 {
        let queue = self
            .find_flow(flow, self.hasher.hash_one(flow))
            .and_then(|flow| self.flows[flow].queues.get(class.index()).copied());
        queue
            .filter(|queue| *queue != NIL)
            .map_or(0, |queue| u64::from(self.queues[queue].waiting))
    }

    /// Jobs waiting.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Jobs whose time has not come.
    #[must_use]
    pub fn delayed(&self) -> u64 {
        self.delayed
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
            places * self.classes.len() as u64
        }
    }

    /// What happened in a class so far.
    #[must_use]
    pub fn stats(&self, class: Class) -> Option<&ClassStats> {
        self.classes.get(class.index()).map(|class| &class.stats)
    }
}
