//! The demand of a node, smoothed.
//!
//! A rising demand counts at once, a falling one step by step: a flow that pauses for a moment
//! keeps its share, and two nodes whose queues fluctuate do not pass shares back and forth. Owned
//! by the node's account at the allocator; only a report that is newer than the last may change it.

use super::message::{Demand, Report};
use crate::id::{Class, Flow, TargetId};
use std::collections::BTreeMap;

/// A backlog counts as if it were to be served within a second.
const HORIZON: f64 = 1.0;

/// Demand below this, in cost or requests per second, counts as zero.
const NOTHING: f64 = 1e-3;

pub(crate) type DemandKey = (Class, Option<Flow>, Vec<TargetId>);

/// A demand in the units of the limits: per second, and at once.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    pub(crate) flows: u32,
    pub(crate) requests: f64,
    pub(crate) cost: f64,
    pub(crate) slots: f64,
}

impl Wants {
    fn of(demand: &Demand) -> Self {
        Wants {
            flows: demand.flows.max(1),
            requests: finite(demand.granted.requests + demand.waiting.requests / HORIZON),
            cost: finite(demand.granted.cost + demand.waiting.cost / HORIZON),
            slots: finite(demand.running + demand.waiting.requests),
        }
    }

    fn follow(&mut self, now: Wants, decay: f64) {
        let follow = |value: &mut f64, now: f64| {
            // Up at once: a node with new work must not wait. Down slowly: the share would only
            // have to come back.
            *value = now.max(*value + (now - *value) * decay);
        };
        self.flows = now.flows.max(self.flows);
        follow(&mut self.requests, now.requests);
        follow(&mut self.cost, now.cost);
        follow(&mut self.slots, now.slots);
    }

    fn is_nothing(&self) -> bool {
        self.requests < NOTHING && self.cost < NOTHING && self.slots < NOTHING
    }
}

/// Numbers come from another machine: one that is not a number is no demand.
fn finite(value: f64) -> f64 {
    if value.is_finite() {
        value.max(0.0)
    } else {
        0.0
    }
}

/// The demand of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeDemand {
    /// As reported last.
    latest: BTreeMap<DemandKey, Wants>,
    smoothed: BTreeMap<DemandKey, Wants>,
}

impl NodeDemand {
    pub(crate) fn apply(&mut self, report: &Report, decay: f64) {
        // A complete report is all there is; a partial one only names what changed.
        if report.complete {
            self.latest.clear();
        }
        for demand in &report.demand {
            let key = (demand.class, demand.flow, demand.targets.clone());
            self.latest.insert(key, Wants::of(demand));
        }
        self.latest.retain(|_, wants| !wants.is_nothing());
        let gone = Wants::default();
        for (key, wants) in &mut self.smoothed {
            wants.follow(*self.latest.get(key).unwrap_or(&gone), decay);
        }
        for (key, wants) in &self.latest {
            self.smoothed.entry(key.clone()).or_insert(*wants);
        }
        self.smoothed.retain(|_, wants| !wants.is_nothing());
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&DemandKey, &Wants)> {
        self.smoothed.iter()
    }
}
