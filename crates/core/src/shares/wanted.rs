//! The division that the allocator moves towards, held still within a dead band.
//!
//! Without the band, every fluctuation of demand would move all shares a little, and each move up
//! has to wait for another node's move down. Owned by the [allocator](super::Shares); it knows what
//! should be, never what is in force.

use super::demand::NodeDemand;
use super::divide::{rotate, whole};
use super::gate::{Amount, FleetLimits, GateId};
use super::message::NodeId;
use super::plan::{Claim, Plan};
use super::settings::{ShareSettings, TURN};
use crate::id::{Class, Flow};
use crate::table::Id;
use crate::time::Time;
use std::collections::{BTreeMap, BTreeSet};

/// Weights of classes and flows on one node.
pub(crate) type LocalWeights = (BTreeMap<Class, f64>, BTreeMap<Flow, f64>);

/// Numbers by gate and kind, for nodes in their order.
type Division = BTreeMap<(GateId, Amount), Vec<f64>>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    nodes: Vec<NodeId>,
    division: Division,
    /// Claims to the limits of the kind that matters most, as far as they can be met.
    met: Vec<Claim>,
}

impl Wanted {
    pub(crate) fn update(
        &mut self,
        now: Time,
        limits: &FleetLimits,
        settings: &ShareSettings,
        live: &[NodeId],
        demand: &[&NodeDemand],
        named: &BTreeSet<Flow>,
    ) {
        let mut plan = Plan::default();
        // Weights are about cost where cost is limited.
        for amount in [Amount::Concurrent, Amount::Requests, Amount::Cost] {
            let mut next = Plan::default();
            next.add(limits, demand, amount, settings.idle_part, named);
            let matters = !next.wanted.is_empty() || plan.met.is_empty();
            plan.wanted.append(&mut next.wanted);
            if matters {
                plan.met = next.met;
            }
        }
        let before = std::mem::take(&mut self.division);
        // Numbers of before belong to places in the list of nodes; with another list they say
        // nothing.
        let same_nodes = self.nodes == live;
        for ((gate, amount), wanted) in plan.wanted {
            let all = limits.whole(gate, amount).unwrap_or(0);
            let old = before.get(&(gate, amount)).filter(|_| same_nodes);
            let settled = match (amount, old) {
                (Amount::Concurrent, old) => slots(now, &wanted, old, all),
                // Without demand all have the same, to the last digit.
                _ if wanted.windows(2).all(|pair| pair[0] == pair[1]) => wanted,
                (_, Some(old)) if is_near(&wanted, old, all as f64 * settings.dead_band) => {
                    old.clone()
                }
                _ => wanted,
            };
            self.division.insert((gate, amount), settled);
        }
        self.nodes = live.to_vec();
        self.met = plan.met;
    }

    /// The part of one gate that each live node should have, rounded down.
    pub(crate) fn get(&self, gate: GateId, amount: Amount, live: &[NodeId]) -> Vec<u64> {
        match self.division.get(&(gate, amount)) {
            Some(wanted) => wanted.iter().map(|wanted| wanted.max(0.0) as u64).collect(),
            None => vec![0; live.len()],
        }
    }

    /// The weights on each node: those of the fleet, scaled by the part that the node serves.
    pub(crate) fn weights(&self, limits: &FleetLimits, nodes: usize) -> Vec<LocalWeights> {
        let mut flows: BTreeMap<Flow, Vec<f64>> = BTreeMap::new();
        let mut classes: BTreeMap<Class, Vec<f64>> = BTreeMap::new();
        for claim in &self.met {
            let served = || vec![0.0; nodes];
            classes.entry(claim.class).or_insert_with(served)[claim.node] += claim.demand;
            if let Some(flow) = claim.flow {
                flows.entry(flow).or_insert_with(served)[claim.node] += claim.demand;
            }
        }
        let scaled = |weight: u32, served: &[f64], node: usize| {
            let all: f64 = served.iter().sum();
            (all > 0.0 && served[node] > 0.0).then(|| f64::from(weight) * served[node] / all)
        };
        let of_class = |class: Class| limits.classes.get(class.index()).copied().unwrap_or(1);
        (0..nodes)
            .map(|node| {
                let classes = classes.iter().filter_map(|(class, served)| {
                    Some((*class, scaled(of_class(*class), served, node)?))
                });
                let flows = flows.iter().filter_map(|(flow, served)| {
                    Some((*flow, scaled(limits.flow(*flow).weight, served, node)?))
                });
                (classes.collect(), flows.collect())
            })
            .collect()
    }
}

fn is_near(wanted: &[f64], old: &[f64], band: f64) -> bool {
    let mut pairs = wanted.iter().zip(old);
    pairs.all(|(wanted, old)| (wanted - old).abs() <= band)
}

/// Whole slots. When more nodes want one than there are, they take turns.
fn slots(now: Time, wanted: &[f64], old: Option<&Vec<f64>>, all: u64) -> Vec<f64> {
    let claims: Vec<bool> = wanted.iter().map(|wanted| *wanted > 0.0).collect();
    let claimants = claims.iter().filter(|claims| **claims).count() as u64;
    let given = if claimants > all {
        rotate(&claims, all, now.as_nanos() / TURN.as_nanos() as u64)
    } else {
        let before: Vec<u64> = match old {
            Some(old) => old.iter().map(|old| *old as u64).collect(),
            None => vec![0; wanted.len()],
        };
        whole(wanted, &before, all)
    };
    given.into_iter().map(|given| given as f64).collect()
}
