//! Shares of limits: how the nodes of a fleet use one set of limits together.
//!
//! Every node has a [`Core`](crate::Core) and decides by itself, without a round trip per job. One
//! node is the allocator. Some four times per second every node sends a [`Report`] of its demand,
//! and receives an [`Allocation`]: its share of every limit, and weights to use locally.
//!
//! | | |
//! |---|---|
//! | [`Shares`] | the allocator: reports in, allocations out |
//! | [`NodeShare`] | a node's side: applies allocations, writes reports, stops when it is cut off |
//! | [`FleetLimits`] | what is shared: limits, policy and weights |
//!
//! Both are pure, as everything in this crate: they take `now`, and their driver carries the
//! messages. Messages may be lost, late, repeated and reordered.
//!
//! 1. A limit is divided by weighted max-min, capped by demand, over classes and flows; class 0
//!    goes first under `hybrid`. Each flow is split over nodes as its demand is. The rest is
//!    divided evenly, so that an idle node can start at once.
//! 2. The weights of a flow and a class on a node are scaled by the part that the node serves. So
//!    weights hold across nodes.
//! 3. The sum in force never exceeds a limit. A node has in force the most of what it reported and
//!    of every grant since the one that it echoed. Lower grants are made at once, higher ones from
//!    what others have given up.
//!
//! # What the exchange must guarantee
//!
//! A node's report is written, and its allocation read, in one step. So are the reports read and
//! the allocations of a [`Round`] written, for an allocator whose epoch is the highest. A step of a
//! node and one of the allocator happen one after the other. [`Round::bounds`] are durable before
//! an allocation of a `raised` round can be read.
//!
//! ```
//! use headworks_core::shares::{FleetLimits, NodeId, NodeShare, ShareSettings, Shares, Observed};
//! use headworks_core::{Config, Core, Flow, Job, Limits, Rate, Time};
//! use std::time::Duration;
//!
//! let limits = Limits { requests: Some(Rate::per_second(100.0)), ..Limits::default() };
//! let config = Config { limits, ..Config::default() };
//! let (fleet, settings) = (FleetLimits::from(&config), ShareSettings::default());
//! let mut shares = Shares::new(fleet.clone(), settings, Time::ZERO);
//! let mut nodes: Vec<(Core<u32>, NodeShare)> = (1..=2)
//!     .map(|id| {
//!         let node = NodeShare::new(NodeId(id), fleet.clone(), settings.on_loss);
//!         (Core::new(config.clone(), Time::ZERO).unwrap(), node)
//!     })
//!     .collect();
//! let (busy, _) = &mut nodes[0];
//! for job in 0..500 {
//!     busy.submit(Time::ZERO, Job::new(job).flow(Flow(7))).unwrap();
//! }
//! for tick in 0..40 {
//!     let now = Time::from_millis(250 * tick);
//!     for (core, node) in &mut nodes {
//!         shares.report(now, &node.report(now, &Observed::of(core)));
//!     }
//!     let round = shares.allocate(now);
//!     for (core, node) in &mut nodes {
//!         node.receive(now, now, round.allocations.get(&node.id()));
//!         core.set_limits(now, node.local_limits());
//!     }
//! }
//! let rate = |node: usize| nodes[node].0.local_limits().all.requests.unwrap().as_per_second();
//! assert!(rate(0) > 98.0 && rate(1) > 0.0 && rate(0) + rate(1) <= 100.0);
//! ```

mod demand;
mod divide;
mod gate;
mod ledger;
mod message;
mod node;
mod plan;
mod settings;
mod wanted;

pub use gate::{FleetLimits, GateId, GateShare, RateShare, Share};
pub use message::{Allocation, Bound, Demand, Load, NodeId, Report, Round, Stamp};
pub use node::{NodeShare, Observed};
pub use settings::{LEARN_FOR, OnLoss, RECLAIM_AFTER, STOP_AFTER, ShareSettings};

use crate::bucket::WHOLE;
use crate::id::Flow;
use crate::time::Time;
use gate::{Amount, part};
use ledger::{NodeAccount, clip};
use settings::{LONGEST_LOOK, WITHDRAW_AFTER};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use wanted::Wanted;

/// The allocator: divides the limits of a fleet among its nodes. See the [module](self).
#[derive(Clone, Debug)]
pub struct Shares {
    limits: FleetLimits,
    settings: ShareSettings,
    stamp: Stamp,
    nodes: BTreeMap<NodeId, NodeAccount>,
    /// Until then, shares are only lowered: somebody may have one that is not known yet.
    learns_until: Time,
    /// When reports were taken last.
    looked: Time,
    wanted: Wanted,
    /// Flows that allocations name, because they have a limit and had demand.
    named: BTreeSet<Flow>,
}

impl Shares {
    /// The allocator of an unknown fleet. For [`LEARN_FOR`], it only lowers shares.
    #[must_use]
    pub fn new(limits: FleetLimits, settings: ShareSettings, now: Time) -> Self {
        Shares {
            limits,
            settings,
            stamp: Stamp {
                epoch: 1,
                number: 0,
            },
            nodes: BTreeMap::new(),
            learns_until: now + LEARN_FOR,
            looked: now,
            wanted: Wanted::default(),
            named: BTreeSet::new(),
        }
    }

    /// The allocator that takes over from another one, with the last durable
    /// [bounds](Round::bounds). `epoch` is the highest that the exchange has seen. Without any
    /// bounds, it learns as a new one does.
    ///
    /// It has not heard how long nodes have been silent, so it reclaims nothing for
    /// [`RECLAIM_AFTER`].
    #[must_use]
    pub fn take_over(
        limits: FleetLimits,
        settings: ShareSettings,
        now: Time,
        epoch: u64,
        bounds: BTreeMap<NodeId, Bound>,
    ) -> Self {
        let mut shares = Shares::new(limits, settings, now);
        if !bounds.is_empty() {
            shares.learns_until = now;
        }
        let granted = bounds.values().map(|bound| bound.stamp.epoch).max();
        shares.stamp.epoch = epoch.max(granted.unwrap_or(0)) + 1;
        for (node, bound) in bounds {
            shares.nodes.insert(node, NodeAccount::bounded(now, bound));
        }
        shares
    }

    /// Only lowers shares for [`LEARN_FOR`] from now on, whatever bounds it has: they may be those
    /// of an exchange that lost its content since.
    pub fn learn(&mut self, now: Time) {
        self.learns_until = now + LEARN_FOR;
    }

    /// The last round may not have been published: nodes may still receive the grants before it.
    pub fn not_published(&mut self) {
        for node in self.nodes.values_mut() {
            node.withdrawn = false;
        }
    }

    /// The epoch of its allocations.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.stamp.epoch
    }

    /// Whether it only lowers shares, because it knows too little.
    #[must_use]
    pub fn is_learning(&self, now: Time) -> bool {
        now < self.learns_until + self.missed(now)
    }

    /// The time in which this allocator could hear nobody.
    fn missed(&self, now: Time) -> Duration {
        now.since(self.looked).saturating_sub(LONGEST_LOOK)
    }

    /// Leaves out of every span the time in which this allocator could hear nobody. Nodes could
    /// not reach the exchange either, or were heard by nobody: that is not their silence.
    fn skip_missed(&mut self, now: Time) {
        let missed = self.missed(now);
        if !missed.is_zero() {
            self.learns_until += missed;
            for node in self.nodes.values_mut() {
                node.heard += missed;
            }
        }
        self.looked = self.looked.max(now);
    }

    /// Divides other limits from now on.
    pub fn set_limits(&mut self, limits: FleetLimits) {
        self.limits = limits;
        self.wanted = Wanted::default();
    }

    /// Deals with silence by other settings from now on.
    pub fn set_settings(&mut self, settings: ShareSettings) {
        self.settings = settings;
    }

    /// Takes a node's report. One that is not newer than the last is ignored.
    pub fn report(&mut self, now: Time, report: &Report) {
        self.skip_missed(now);
        let known = self.nodes.get(&report.node).map_or(0, |node| node.seen);
        if report.number <= known {
            return;
        }
        if report.echo > self.stamp {
            // Somebody else has granted meanwhile, or the epochs were lost. Nodes ignore lower
            // ones.
            self.stamp.epoch = report.echo.epoch + 1;
        }
        if let Some(former) = report.succeeds {
            // The same process under another name: it reports what it has.
            self.nodes.remove(&former);
        }
        let account = self.nodes.entry(report.node);
        let account = account.or_insert_with(|| NodeAccount::new(now));
        account.report(now, report, self.settings.decay);
    }

    /// Forgets a node, on an operator's word that it has stopped.
    pub fn forget(&mut self, node: NodeId) {
        self.nodes.remove(&node);
    }

    /// Decides what every node may use from now on.
    pub fn allocate(&mut self, now: Time) -> Round {
        self.skip_missed(now);
        self.stamp.number += 1;
        self.drop_lost(now);
        let live = self.live(now);
        self.name_flows(now, &live);
        let mut granted = vec![Share::default(); live.len()];
        self.plan(now, &live);
        self.divide_other_flows(now, &live, &mut granted);
        let named = self.named.iter().map(|flow| GateId::Flow(*flow));
        let gates: Vec<GateId> = self.limits.named().chain(named).collect();
        for gate in gates {
            self.divide_gate(now, gate, &live, &mut granted);
        }
        let mut round = self.round(&live, granted);
        // While this allocator learns, its bounds lack the nodes that have not reported. They must
        // not be stored as complete, or the next allocator would not learn; nothing is raised yet,
        // so `raised` can stay false.
        round.raised &= !self.is_learning(now);
        round
    }

    /// Reclaims the shares of nodes that have stopped, and forgets those that are gone.
    fn drop_lost(&mut self, now: Time) {
        let settings = self.settings;
        let forget_after = settings.forget_after;
        self.nodes.retain(|_, node| {
            let silent = now.since(node.heard);
            if node.leaves && silent >= settings.leave_after {
                return false;
            }
            match node.on_loss(&settings) {
                OnLoss::Keep => silent < forget_after,
                OnLoss::Closed { request_timeout } => {
                    if silent >= RECLAIM_AFTER && node.withdrawn {
                        let slots = RECLAIM_AFTER + request_timeout.unwrap_or_default();
                        node.reclaim(silent < slots);
                    }
                    node.withdrawn |= silent >= WITHDRAW_AFTER;
                    // Calls of a node that is cut off may run for longer than it is remembered.
                    let slots = RECLAIM_AFTER + request_timeout.unwrap_or_default();
                    silent < forget_after.max(slots)
                }
            }
        });
    }

    /// The nodes that take part: heard of lately, and not about to leave.
    fn live(&self, now: Time) -> Vec<NodeId> {
        let longest = |node: &NodeAccount| match node.on_loss(&self.settings) {
            OnLoss::Keep => RECLAIM_AFTER,
            OnLoss::Closed { .. } => WITHDRAW_AFTER,
        };
        let live = self.nodes.iter().filter(|(_, node)| {
            node.seen > 0 && !node.leaves && now.since(node.heard) < longest(node)
        });
        live.map(|(id, _)| *id).collect()
    }

    /// Names the limited flows that have demand, and no longer those that have none and are back at
    /// what an unnamed flow has.
    fn name_flows(&mut self, now: Time, live: &[NodeId]) {
        let mut wanted = BTreeSet::new();
        for id in live {
            let flows = self.nodes[id]
                .demand
                .iter()
                .filter_map(|((_, flow, _), _)| *flow);
            wanted.extend(flows.filter(|flow| {
                let limits = self.limits.flow(*flow).limits;
                limits.requests.is_some() || limits.cost.is_some() || limits.concurrent.is_some()
            }));
        }
        // A share that names a flow counts for that flow until no node can have more of it than of
        // any other.
        let in_use = self.nodes.values().flat_map(NodeAccount::named_flows);
        self.named.extend(in_use);
        let (nodes, limits) = (&self.nodes, &self.limits);
        // A node that is not known yet may have the part that an unnamed flow would get here.
        let learning = self.is_learning(now);
        self.named.retain(|flow| {
            let gate = GateId::Flow(*flow);
            let is_named = nodes.values().any(|node| {
                let even = node.other_flows_in_force();
                Amount::ALL.into_iter().any(|amount| {
                    let whole = limits.whole(gate, amount).unwrap_or(0);
                    node.in_force(gate, amount, whole) > part(whole, even)
                })
            });
            learning || is_named || wanted.contains(flow)
        });
        // An allocation must fit into a message. Flows beyond that have the part of any other.
        let room = self.settings.most_flows.saturating_sub(self.named.len());
        wanted.retain(|flow| !self.named.contains(flow));
        self.named.extend(wanted.into_iter().take(room));
    }

    fn plan(&mut self, now: Time, live: &[NodeId]) {
        let demand: Vec<_> = live.iter().map(|id| &self.nodes[id].demand).collect();
        self.wanted.update(
            now,
            &self.limits,
            &self.settings,
            live,
            &demand,
            &self.named,
        );
    }

    /// In force outside the live nodes.
    fn withheld(&self, live: &[NodeId], of: impl Fn(&NodeAccount) -> u64) -> u64 {
        let others = self.nodes.iter().filter(|(id, _)| !live.contains(id));
        others.map(|(_, node)| of(node)).sum()
    }

    fn divide_other_flows(&self, now: Time, live: &[NodeId], granted: &mut [Share]) {
        let in_force: Vec<u64> = live
            .iter()
            .map(|id| self.nodes[id].other_flows_in_force())
            .collect();
        let even = WHOLE / live.len().max(1) as u64;
        let withheld = self.withheld(live, NodeAccount::other_flows_in_force);
        let wanted = self.lowered(now, WHOLE, &vec![even; live.len()], &in_force, withheld);
        let parts = clip(WHOLE, &wanted, &in_force, withheld);
        for (share, part) in granted.iter_mut().zip(parts) {
            share.other_flows = part;
        }
    }

    /// While it learns, everybody keeps what is in force, or less if that is too much.
    fn lowered(
        &self,
        now: Time,
        whole: u64,
        wanted: &[u64],
        in_force: &[u64],
        withheld: u64,
    ) -> Vec<u64> {
        if !self.is_learning(now) {
            return wanted.to_vec();
        }
        // Too much may be in force after a limit was lowered; then all keep the same part of it.
        let left = whole.saturating_sub(withheld);
        let sum: u64 = in_force.iter().sum();
        let keep = |had: &u64| match sum <= left {
            true => *had,
            false => (u128::from(*had) * u128::from(left) / u128::from(sum)) as u64,
        };
        in_force.iter().map(keep).collect()
    }

    fn divide_gate(&self, now: Time, gate: GateId, live: &[NodeId], granted: &mut [Share]) {
        let kinds = [Amount::Requests, Amount::Cost, Amount::Concurrent];
        for amount in kinds {
            let Some(whole) = self.limits.whole(gate, amount) else {
                continue;
            };
            let wanted = self.wanted.get(gate, amount, live);
            let given = self.grant(now, (gate, amount), whole, &wanted, live, granted);
            if let Some(burst) = amount.burst() {
                let all = self.limits.whole(gate, burst).unwrap_or(0);
                let of = |rate: &u64| match whole {
                    0 => 0,
                    whole => (u128::from(all) * u128::from(*rate) / u128::from(whole)) as u64,
                };
                let wanted: Vec<u64> = given.iter().map(of).collect();
                self.grant(now, (gate, burst), all, &wanted, live, granted);
            }
        }
    }

    /// Grants one number of one gate to every live node.
    fn grant(
        &self,
        now: Time,
        (gate, amount): (GateId, Amount),
        whole: u64,
        wanted: &[u64],
        live: &[NodeId],
        granted: &mut [Share],
    ) -> Vec<u64> {
        let held = |node: &NodeAccount| node.in_force(gate, amount, whole);
        let in_force: Vec<u64> = live.iter().map(|id| held(&self.nodes[id])).collect();
        let withheld = self.withheld(live, held);
        let wanted = self.lowered(now, whole, wanted, &in_force, withheld);
        let given = clip(whole, &wanted, &in_force, withheld);
        for (share, given) in granted.iter_mut().zip(&given) {
            share.gates.entry(gate).or_default().set(amount, *given);
        }
        given
    }

    /// Stamps the grants and enters them.
    fn round(&mut self, live: &[NodeId], granted: Vec<Share>) -> Round {
        let mut round = Round::default();
        let weights = self.wanted.weights(&self.limits, live.len());
        let mut shares: BTreeMap<NodeId, Share> = live.iter().copied().zip(granted).collect();
        let places: BTreeMap<NodeId, usize> = live.iter().copied().zip(0..).collect();
        for (id, account) in &mut self.nodes {
            let is_live = shares.contains_key(id);
            let keeps = account.on_loss(&self.settings) == OnLoss::Keep;
            // Under `keep` a silent node keeps using its share; under `closed` it has nothing.
            if !is_live && !account.leaves && keeps {
                round.bounds.insert(*id, account.bound(&self.limits));
                continue;
            }
            let share = shares.remove(id).unwrap_or_default();
            round.raised |= account.raises(&share, &self.limits);
            let stamp = account.unchanged(&share).unwrap_or_else(|| {
                account.grant(self.stamp, share.clone(), &self.limits);
                self.stamp
            });
            let (class_weights, flow_weights) = match places.get(id) {
                Some(place) => weights[*place].clone(),
                None => Default::default(),
            };
            let allocation = Allocation {
                stamp,
                seen: account.seen,
                share,
                class_weights,
                flow_weights,
            };
            round.allocations.insert(*id, allocation);
            round.bounds.insert(*id, account.bound(&self.limits));
        }
        round
    }
}

#[cfg(test)]
mod tests;
