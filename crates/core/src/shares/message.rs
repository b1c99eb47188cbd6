//! Messages between nodes and the allocator.
//!
//! Plain values without behaviour: how they are encoded and carried is the exchange's matter. Both
//! directions are ordered by numbers of their own ([`Report::number`], [`Stamp`]), so that messages
//! may be lost, late, repeated and reordered; a carrier must not renumber them.

use super::gate::{FleetLimits, GateId, Share};
use super::settings::OnLoss;
use crate::id::{Class, Flow, TargetId};
use std::collections::BTreeMap;

/// A node of the fleet: a random number that it draws whenever it joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u128);

/// The order of allocations: the allocator's epoch, and a number within it.
///
/// ```
/// use headworks_core::shares::Stamp;
///
/// let old = Stamp { epoch: 1, number: 900 };
/// let new = Stamp { epoch: 2, number: 1 };
/// assert!(new > old, "an allocator that took over outranks the one before");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// Every allocator has a higher one than those before it.
    pub epoch: u64,
    /// Counts the allocations of an epoch.
    pub number: u64,
}

/// The demand of one flow in one class for one set of targets, on one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Demand {
    /// The class.
    pub class: Class,
    /// The flow; `None` for all flows of the class that a report does not name.
    pub flow: Option<Flow>,
    /// The targets that may serve these jobs.
    pub targets: Vec<TargetId>,
    /// The number of flows.
    pub flows: u32,
    /// Jobs waiting, and their cost.
    pub waiting: Load,
    /// Jobs granted per second since the last report, and their cost.
    pub granted: Load,
    /// Jobs running.
    pub running: f64,
}

/// Jobs and their cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Jobs.
    pub requests: f64,
    /// Cost.
    pub cost: f64,
}

/// A node's account of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The node.
    pub node: NodeId,
    /// Counts the reports of this node. A lower one is outdated.
    pub number: u64,
    /// The last allocation that the node applied.
    pub echo: Stamp,
    /// The share in force there. Concurrency is at least what runs.
    pub in_force: Share,
    /// The demand that changed since the last report that the allocator has seen.
    pub demand: Vec<Demand>,
    /// Whether `demand` is all of it: what it does not name has ended.
    pub complete: bool,
    /// The node that this one was before it joined anew. Its share is part of `in_force`.
    pub succeeds: Option<NodeId>,
    /// Whether the node leaves: it grants nothing any more, and gives everything back that
    /// `in_force` does not name.
    pub leaves: bool,
    /// The mode of the node while it is cut off. The allocator judges its silence by that, because
    /// nodes differ while a configuration is rolled out.
    pub on_loss: OnLoss,
}

/// The allocator's decision for one node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Allocation {
    /// Its place in the order.
    pub stamp: Stamp,
    /// The number of the last report of the node that it takes into account.
    pub seen: u64,
    /// The share that the node may use.
    pub share: Share,
    /// The weights of classes there.
    pub class_weights: BTreeMap<Class, f64>,
    /// The weights of flows there.
    pub flow_weights: BTreeMap<Flow, f64>,
}

/// The decisions of one round, by node.
///
/// Store `bounds` durably before any node can read an allocation of a round in which they were
/// `raised`: they are what the next allocator must assume to be in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// The share that each node may use from now on. A node without one has left or was forgotten.
    pub allocations: BTreeMap<NodeId, Allocation>,
    /// The most that each node may have in force.
    pub bounds: BTreeMap<NodeId, Bound>,
    /// Whether any number of a grant is higher than in the grant before it.
    pub raised: bool,
}

/// The most that a node may have in force until it echoes a stamp that is not lower.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bound {
    /// The stamp of the last grant.
    pub stamp: Stamp,
    /// The most of what was reported and granted.
    pub share: Share,
}

impl Bound {
    /// Includes another grant that may be in force.
    pub fn include(&mut self, stamp: Stamp, share: &Share, limits: &FleetLimits) {
        self.stamp = self.stamp.max(stamp);
        self.share.raise_to(share, limits);
    }
}

/// The jobs that run at each gate that limits concurrency.
pub(super) type Running = BTreeMap<GateId, u32>;
