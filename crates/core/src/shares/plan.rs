//! The division of every limit among classes, flows and nodes.
//!
//! Limits are divided from the narrow to the wide: targets, then flows, then everything. A flow
//! claims no more of a wider limit than its own limit and those of its targets let it use. A plan
//! is made anew at every allocation from the demand of that moment and owns nothing beyond it; what
//! was granted before is the [ledger's](super::ledger) matter, not the plan's.

use super::demand::{NodeDemand, Wants};
use super::divide::max_min;
use super::gate::{Amount, FleetLimits, GateId};
use crate::id::{Class, Flow, TargetId};
use crate::table::Id;
use std::collections::{BTreeMap, BTreeSet};

/// A claim may exceed the demand by this part of it, so that a flow that is not held back by its
/// share can grow.
const HEADROOM: f64 = 0.25;

/// All headroom of one claim is at most this part of the limit.
const MOST_HEADROOM: f64 = 0.01;

/// The demand of one flow in one class for one set of targets, on one node.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) node: usize,
    pub(crate) class: Class,
    pub(crate) flow: Option<Flow>,
    targets: Vec<TargetId>,
    weight: f64,
    /// In the unit of the limit that is divided.
    pub(crate) demand: f64,
}

/// The part of each gate that each node should have, and the claims as far as they can be met.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) wanted: BTreeMap<(GateId, Amount), Vec<f64>>,
    pub(crate) met: Vec<Claim>,
}

/// The claims of all nodes to one kind of limit.
fn claims(limits: &FleetLimits, demand: &[&NodeDemand], amount: Amount) -> Vec<Claim> {
    let unit = |wants: &Wants| match amount {
        Amount::Requests => wants.requests * 1e6,
        Amount::Cost => wants.cost * 1e6,
        _ => wants.slots,
    };
    let mut claims = Vec::new();
    for (node, demand) in demand.iter().enumerate() {
        for ((class, flow, targets), wants) in demand.iter() {
            let config = flow.map_or(limits.default_flow, |flow| limits.flow(flow));
            claims.push(Claim {
                node,
                class: *class,
                flow: *flow,
                targets: targets.clone(),
                weight: f64::from(config.weight) * f64::from(wants.flows.max(1)),
                demand: unit(wants),
            });
        }
    }
    claims
}

impl Plan {
    /// Divides every limit of one kind among the nodes.
    pub(crate) fn add(
        &mut self,
        limits: &FleetLimits,
        demand: &[&NodeDemand],
        amount: Amount,
        idle_part: f64,
        named: &BTreeSet<Flow>,
    ) {
        let nodes = demand.len();
        let mut claims = claims(limits, demand, amount);
        for index in 0..limits.targets.len() as u32 {
            let gate = GateId::Target(TargetId(index));
            let claims_target = |claim: &Claim| claim.targets.contains(&TargetId(index));
            self.divide(
                limits,
                nodes,
                &mut claims,
                gate,
                amount,
                idle_part,
                claims_target,
            );
        }
        for flow in named {
            let of_flow = |claim: &Claim| claim.flow == Some(*flow);
            let gate = GateId::Flow(*flow);
            self.divide(limits, nodes, &mut claims, gate, amount, idle_part, of_flow);
        }
        self.divide(
            limits,
            nodes,
            &mut claims,
            GateId::All,
            amount,
            idle_part,
            |_| true,
        );
        self.met = claims;
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one call per kind of gate, just above"
    )]
    fn divide(
        &mut self,
        limits: &FleetLimits,
        nodes: usize,
        claims: &mut [Claim],
        gate: GateId,
        amount: Amount,
        idle_part: f64,
        applies: impl Fn(&Claim) -> bool,
    ) {
        let Some(whole) = limits.whole(gate, amount).map(|whole| whole as f64) else {
            return;
        };
        let part = |claim: &Claim| match gate {
            // A job with a choice may go to any of its targets.
            GateId::Target(_) => 1.0 / claim.targets.len().max(1) as f64,
            _ => 1.0,
        };
        let chosen: Vec<usize> = (0..claims.len())
            .filter(|at| applies(&claims[*at]))
            .collect();
        let mut wanting: Vec<Claim> = chosen.iter().map(|at| claims[*at].clone()).collect();
        for claim in &mut wanting {
            let demand = claim.demand * part(claim);
            // Slots are whole, and what runs is known: there is nothing to guess.
            let headroom = match amount {
                Amount::Concurrent => 0.0,
                _ => (demand * HEADROOM).min(whole * MOST_HEADROOM),
            };
            claim.demand = demand + headroom;
        }
        let floor = match amount {
            Amount::Concurrent => 0.0,
            _ => whole * idle_part / nodes.max(1) as f64,
        };
        let mut by_node = vec![0.0; nodes];
        wanting
            .iter()
            .for_each(|claim| by_node[claim.node] += claim.demand);
        // A node that wants less than the floor has the floor, at the cost of all.
        let lifted: f64 = by_node.iter().map(|demand| (floor - demand).max(0.0)).sum();
        let given = shares(limits, &wanting, (whole - lifted).max(0.0));
        let mut wanted = vec![0.0; nodes];
        for ((claim, given), at) in wanting.iter().zip(&given).zip(&chosen) {
            wanted[claim.node] += given;
            // A job with a choice is not held by one of its targets, so its claim to the wider
            // limits stays.
            if part(claim) == 1.0 {
                claims[*at].demand = claims[*at].demand.min(*given);
            }
        }
        for (wanted, demand) in wanted.iter_mut().zip(&by_node) {
            *wanted += (floor - demand).max(0.0);
        }
        // Given out although nobody asked: a limit that nobody may use would make the first job of
        // every node wait for an exchange.
        let left = (whole - wanted.iter().sum::<f64>()).max(0.0) / nodes.max(1) as f64;
        wanted.iter_mut().for_each(|wanted| *wanted += left);
        self.wanted.insert((gate, amount), wanted);
    }
}

/// The part of an amount that each claim gets: classes as the policy says, flows of a class by
/// weight, each flow on its nodes as its demand is.
fn shares(limits: &FleetLimits, claims: &[Claim], amount: f64) -> Vec<f64> {
    let mut given = vec![0.0; claims.len()];
    // Nobody is preferred in arrival order, so all get the same part of what they ask for.
    if limits.policy.is_by_arrival() {
        let demand: f64 = claims.iter().map(|claim| claim.demand).sum();
        let part = if demand > amount {
            amount / demand
        } else {
            1.0
        };
        let all = given.iter_mut().zip(claims);
        all.for_each(|(given, claim)| *given = claim.demand * part);
        return given;
    }
    let mut classes: BTreeMap<Class, Vec<usize>> = BTreeMap::new();
    for (at, claim) in claims.iter().enumerate() {
        classes.entry(claim.class).or_default().push(at);
    }
    let mut left = amount;
    let (sharing, first): (Vec<_>, Vec<_>) = classes
        .into_iter()
        .partition(|(class, _)| limits.policy.shares(*class));
    // Classes that go first take what they want; the others share what is left.
    for (_, members) in first {
        left -= divide_class(claims, &members, left, &mut given);
    }
    let total = |members: &[usize]| members.iter().map(|at| claims[*at].demand).sum::<f64>();
    let weight = |class: Class| limits.classes.get(class.index()).copied().unwrap_or(1);
    let wants: Vec<(f64, f64)> = (sharing.iter())
        .map(|(class, members)| (f64::from(weight(*class)), total(members)))
        .collect();
    for ((_, members), amount) in sharing.iter().zip(max_min(left, &wants)) {
        divide_class(claims, members, amount, &mut given);
    }
    given
}

/// Divides an amount among the flows of a class. Returns what they took.
fn divide_class(claims: &[Claim], members: &[usize], amount: f64, given: &mut [f64]) -> f64 {
    let mut flows: BTreeMap<Option<Flow>, (f64, f64)> = BTreeMap::new();
    for at in members {
        let claim = &claims[*at];
        let (weight, demand) = flows.entry(claim.flow).or_default();
        *weight = match claim.flow {
            Some(_) => claim.weight,
            // Flows that no report names are as many as all nodes count.
            None => *weight + claim.weight,
        };
        *demand += claim.demand;
    }
    let wants: Vec<(f64, f64)> = flows.values().copied().collect();
    let parts = max_min(amount, &wants);
    let parts: BTreeMap<Option<Flow>, f64> = flows.keys().copied().zip(parts).collect();
    for at in members {
        let claim = &claims[*at];
        let (_, demand) = flows[&claim.flow];
        if demand > 0.0 {
            given[*at] = parts[&claim.flow] * claim.demand / demand;
        }
    }
    parts.values().sum()
}
