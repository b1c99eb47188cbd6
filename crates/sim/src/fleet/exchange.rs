//! The simulated exchange: a store that nodes and the allocator use one after the other.

use headworks_core::Time;
use headworks_core::shares::{
    Allocation, Bound, FleetLimits, NodeId, Report, ShareSettings, Shares,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a node is the allocator without renewing it.
const LEASE: Duration = Duration::from_secs(3);

/// Tables of the store. A crash empties the volatile ones, a promotion of a standby all.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    reports: BTreeMap<NodeId, Report>,
    allocations: BTreeMap<NodeId, Allocation>,
    allocator: Option<(NodeId, Time)>,
    /// The node that wrote the allocations.
    written_by: Option<NodeId>,
    /// Durable.
    epoch: u64,
    bounds: BTreeMap<NodeId, Bound>,
}

impl Exchange {
    /// A node's step: writes its report, reads its allocation.
    pub(super) fn exchange(&mut self, report: Report) -> Option<Allocation> {
        let node = report.node;
        let known = self.reports.get(&node).map_or(0, |report| report.number);
        if report.number > known {
            self.reports.insert(node, report);
        }
        self.allocations.get(&node).cloned()
    }

    /// Makes a node the allocator if nobody is. Returns whether it is.
    pub(super) fn acquire(&mut self, now: Time, node: NodeId) -> bool {
        let free = self
            .allocator
            .is_none_or(|(holder, until)| holder == node || until <= now);
        if free {
            self.allocator = Some((node, now + LEASE));
        }
        free
    }

    /// The allocator's step: reads all reports, writes allocations. `clock` is the allocator's own.
    pub(super) fn allocate(
        &mut self,
        clock: Time,
        node: NodeId,
        shares: &mut Option<Shares>,
        limits: &FleetLimits,
        settings: ShareSettings,
    ) {
        // Epochs alone may be lost and counted again.
        let goes_on = self.written_by == Some(node);
        let epoch = shares.as_ref().map(Shares::epoch).filter(|_| goes_on);
        if epoch != Some(self.epoch) {
            let bounds = self.bounds.clone();
            let taken = Shares::take_over(limits.clone(), settings, clock, self.epoch, bounds);
            *shares = Some(taken);
        }
        let Some(shares) = shares else { return };
        for report in self.reports.values() {
            shares.report(clock, report);
        }
        let round = shares.allocate(clock);
        self.epoch = shares.epoch();
        self.written_by = Some(node);
        if round.raised {
            self.bounds.clone_from(&round.bounds);
        }
        self.allocations
            .retain(|node, _| round.bounds.contains_key(node));
        self.reports
            .retain(|node, _| round.bounds.contains_key(node));
        self.allocations.extend(round.allocations);
    }

    /// Loses what is not durable.
    pub(super) fn crash(&mut self) {
        self.reports.clear();
        self.allocations.clear();
        self.allocator = None;
    }

    /// Loses everything, as when a standby is promoted that had received nothing.
    pub(super) fn lose_everything(&mut self) {
        *self = Exchange::default();
    }

    pub(super) fn allocator(&self) -> Option<NodeId> {
        self.allocator.map(|(node, _)| node)
    }
}
