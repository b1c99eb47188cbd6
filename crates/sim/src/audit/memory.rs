//! The bound on memory: live jobs and flows in debt account for everything that is remembered.

use super::model::Model;
use super::{JobNumber, Violation};
use headworks_core::{Core, Flow};
use std::collections::BTreeSet;

/// Flows without jobs that may be remembered until the core looks for them.
const FEW_FLOWS: usize = 1024;

impl Model {
    pub(super) fn compare_memory(&mut self, core: &Core<JobNumber>) -> Result<(), Violation> {
        self.compare_target_sets(core.remembered_target_sets())?;
        let remembered = core.remembered_flows();
        let before = std::mem::replace(&mut self.remembered_flows, remembered);
        // Counting flows takes long, and so few are always allowed.
        if remembered.max(before) < FEW_FLOWS / 2 {
            return Ok(());
        }
        self.most_flows_in_use = self.most_flows_in_use.max(self.flows_in_use());
        self.drop_forgotten(core)?;
        // The core looks for idle flows when the table has doubled since it last did.
        let most = FEW_FLOWS.max(2 * self.most_flows_in_use);
        let with_state = self.flows_with_state;
        self.require(with_state <= most, || {
            format!("{with_state} flows have a state, at most {most} may")
        })?;
        let debts = remembered - with_state;
        // Without shares by weight there is no debt, except of the time before a reload.
        let shares = !self.config.policy.is_by_arrival() || self.coverage.has("reconfigured");
        let debtors = if shares { self.charged_flows.len() } else { 0 };
        self.require(debts <= debtors, || {
            format!("{debts} debts are remembered of {debtors} flows that were charged")
        })
    }

    /// Drops the meters of flows that the core has forgotten: it will make them anew. Nothing may
    /// be lost with them.
    fn drop_forgotten(&mut self, core: &Core<JobNumber>) -> Result<(), Violation> {
        let with_state = core.flows().count();
        let before = std::mem::replace(&mut self.flows_with_state, with_state);
        if with_state >= before {
            return Ok(());
        }
        self.coverage.note("flows forgotten");
        let mut flows = std::mem::take(&mut self.flows);
        let used = flows
            .iter()
            .find(|(flow, meter)| core.flow(**flow).is_none() && !meter.is_full(self.now));
        self.require(used.is_none(), || {
            format!("{used:?} was forgotten while in use")
        })?;
        flows.retain(|flow, _| core.flow(*flow).is_some());
        self.flows = flows;
        Ok(())
    }

    /// The flows that have jobs or whose limits are not back at their start.
    fn flows_in_use(&self) -> usize {
        let mut used: BTreeSet<Flow> = self.jobs.values().map(|record| record.flow).collect();
        let metered = self.flows.iter();
        let not_full = metered.filter(|(_, meter)| !meter.is_full(self.now));
        used.extend(not_full.map(|(flow, _)| *flow));
        used.len()
    }

    /// Each target is a set, and so is each that was asked for or that live jobs are left with.
    fn compare_target_sets(&self, remembered: usize) -> Result<(), Violation> {
        let named = self.sets.values();
        let left = self.jobs.values().map(|record| &record.allowed);
        let several = named.chain(left).filter(|targets| targets.len() > 1);
        let most = self.targets.len() + several.collect::<BTreeSet<_>>().len();
        self.require(remembered <= most, || {
            format!("{remembered} target sets are remembered, at most {most} are in use")
        })
    }
}
