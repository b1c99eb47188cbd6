//! The most that each node may have in force, and how much others may therefore get.
//!
//! A node has in force the most of what it reported and of every grant since the one that it
//! echoed. A lower grant counts as soon as it is echoed; a higher one as soon as it is made. The
//! allocator owns one account per node and must enter a grant before it is sent: entered
//! afterwards, a crash in between would leave a share in force that nobody accounts for.

use super::demand::NodeDemand;
use super::gate::{Amount, FleetLimits, GateId, Share};
use super::message::{Bound, Report, Stamp};
use super::settings::{OnLoss, ShareSettings};
use crate::id::Flow;
use crate::time::Time;

/// Grants of a node that are kept apart.
const MOST_GRANTS: usize = 64;

/// The account of one node.
#[derive(Clone, Debug)]
pub(crate) struct NodeAccount {
    /// The number of its last report.
    pub(crate) seen: u64,
    echo: Stamp,
    pub(crate) heard: Time,
    reported: Share,
    /// Grants since the echoed one, oldest first. The first may be a former allocator's bound.
    grants: Vec<(Stamp, Share)>,
    /// The last grant of this allocator.
    last: Option<(Stamp, Share)>,
    pub(crate) demand: NodeDemand,
    pub(crate) leaves: bool,
    /// Its mode while it is cut off, once it has reported that.
    on_loss: Option<OnLoss>,
    /// Whether an earlier round granted it nothing, because it was silent.
    pub(crate) withdrawn: bool,
}

impl NodeAccount {
    pub(crate) fn new(now: Time) -> Self {
        NodeAccount {
            seen: 0,
            echo: Stamp::default(),
            heard: now,
            reported: Share::default(),
            grants: Vec::new(),
            last: None,
            demand: NodeDemand::default(),
            leaves: false,
            on_loss: None,
            withdrawn: false,
        }
    }

    /// The account of a node of which only a former allocator's bound is known.
    pub(crate) fn bounded(now: Time, bound: Bound) -> Self {
        let mut account = NodeAccount::new(now);
        account.grants.push((bound.stamp, bound.share));
        account
    }

    /// Takes a report that is newer than the last.
    pub(crate) fn report(&mut self, now: Time, report: &Report, decay: f64) {
        self.seen = report.number;
        self.heard = now;
        self.leaves = report.leaves;
        self.on_loss = Some(report.on_loss);
        self.withdrawn = false;
        self.echo = report.echo;
        self.reported = report.in_force.clone();
        // The echoed grant replaces everything before it: from then on its report says what is in
        // force.
        self.grants.retain(|(stamp, _)| *stamp > report.echo);
        self.demand.apply(report, decay);
    }

    /// Its mode while it is cut off, as far as that is known.
    pub(crate) fn on_loss(&self, settings: &ShareSettings) -> OnLoss {
        self.on_loss.unwrap_or(settings.on_loss)
    }

    pub(crate) fn in_force(&self, gate: GateId, amount: Amount, whole: u64) -> u64 {
        let granted = self.grants.iter().map(|(_, share)| share);
        let shares = granted.chain([&self.reported]);
        let most = shares.map(|share| share.amount(gate, amount, whole)).max();
        most.unwrap_or(0)
    }

    pub(crate) fn other_flows_in_force(&self) -> u64 {
        let granted = self.grants.iter().map(|(_, share)| share.other_flows);
        granted
            .chain([self.reported.other_flows])
            .max()
            .unwrap_or(0)
    }

    /// Everything that may be in force, as long as the node echoes nothing newer.
    pub(crate) fn bound(&self, limits: &FleetLimits) -> Bound {
        let (mut stamp, mut share) = (self.echo, self.reported.clone());
        for (granted, more) in &self.grants {
            stamp = stamp.max(*granted);
            share.raise_to(more, limits);
        }
        Bound { stamp, share }
    }

    /// The flows that any of its shares names.
    pub(crate) fn named_flows(&self) -> impl Iterator<Item = Flow> + '_ {
        let granted = self.grants.iter().flat_map(|(_, share)| share.gates.keys());
        let gates = granted.chain(self.reported.gates.keys());
        gates.filter_map(|gate| match gate {
            GateId::Flow(flow) => Some(*flow),
            _ => None,
        })
    }

    /// The stamp of the last grant, if it is the same share and the node has it in force, or has
    /// yet to echo it. A node that stopped by itself needs a newer one to start again.
    pub(crate) fn unchanged(&self, share: &Share) -> Option<Stamp> {
        let (stamp, last) = self.last.as_ref()?;
        let holds = self.echo < *stamp || self.reported == *share;
        (last == share && holds).then_some(*stamp)
    }

    /// Whether a grant has a number that is higher than that of the grant before it.
    pub(crate) fn raises(&self, share: &Share, limits: &FleetLimits) -> bool {
        let nothing = Share::default();
        let last = self.last.as_ref().map_or(&nothing, |(_, last)| last);
        // Against the grant before and not against what is in force: between the two, the node may
        // have echoed a lower one.
        let mut raised = last.clone();
        raised.raise_to(share, limits);
        let gates = raised.gates.iter();
        raised.other_flows > last.other_flows
            || gates
                .flat_map(|(gate, share)| Amount::ALL.map(|amount| (*gate, share, amount)))
                .any(|(gate, share, amount)| {
                    let whole = limits.whole(gate, amount).unwrap_or(0);
                    share.get(amount).unwrap_or(0) > last.amount(gate, amount, whole)
                })
    }

    pub(crate) fn grant(&mut self, stamp: Stamp, share: Share, limits: &FleetLimits) {
        self.last = Some((stamp, share.clone()));
        self.grants.push((stamp, share));
        if self.grants.len() > MOST_GRANTS {
            // A node that reports and never echoes: the most of its oldest grants counts.
            let (_, oldest) = self.grants.remove(0);
            self.grants[0].1.raise_to(&oldest, limits);
        }
    }

    /// The node has stopped: its rates are free, and its slots as well if no call of it can run.
    pub(crate) fn reclaim(&mut self, keep_slots: bool) {
        let shares = self.grants.iter_mut().map(|(_, share)| share);
        for share in shares.chain([&mut self.reported]) {
            for gate in share.gates.values_mut() {
                for amount in Amount::ALL {
                    // A rate ends with the node; a slot ends with the call that runs in it, which
                    // may take longer.
                    let keeps = keep_slots && amount == Amount::Concurrent;
                    if !keeps && gate.get(amount).is_some() {
                        gate.set(amount, 0);
                    }
                }
            }
            if !keep_slots {
                share.other_flows = 0;
            }
        }
    }
}

/// The numbers to grant: lower ones at once, higher ones from what is free.
///
/// `wanted` and `in_force` are of the live nodes, `withheld` is in force elsewhere.
pub(crate) fn clip(whole: u64, wanted: &[u64], in_force: &[u64], withheld: u64) -> Vec<u64> {
    let used: u64 = in_force.iter().sum::<u64>().saturating_add(withheld);
    let free = whole.saturating_sub(used);
    let more = |at: usize| wanted[at].saturating_sub(in_force[at]);
    let asked: u64 = (0..wanted.len()).map(more).sum();
    (0..wanted.len())
        .map(|at| match more(at) {
            0 => wanted[at],
            // Raised only from what is free: a node that gives something up must have echoed that
            // first.
            more if asked <= free => in_force[at] + more,
            more => in_force[at] + (u128::from(more) * u128::from(free) / u128::from(asked)) as u64,
        })
        .collect()
}
