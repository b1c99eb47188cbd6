//! The auditor's reading of limits that replace the configured ones.

use super::Violation;
use super::model::{JobState, Model};
use headworks_core::{Class, DemandView, Flow, Limits, LocalLimits, LocalShare, Rate, TargetId};
use std::collections::BTreeMap;

fn replaced(limits: Limits, share: LocalShare) -> Limits {
    let rate = |share: Option<Rate>, configured: Option<Rate>| match (share, configured) {
        (None, configured) => configured,
        (Some(share), Some(configured)) if !configured.refunds() => Some(share.without_refund()),
        (Some(share), _) => Some(share),
    };
    Limits {
        concurrent: share.concurrent.or(limits.concurrent),
        requests: rate(share.requests, limits.requests),
        cost: rate(share.cost, limits.cost),
        ..limits
    }
}

fn scaled(limits: Limits, billionths: u64) -> Limits {
    let of = |amount: u64| (u128::from(amount) * u128::from(billionths) / 1_000_000_000) as u64;
    let rate = |rate: Rate| {
        let share = Rate::share(of(rate.micros_per_second()), of(rate.burst_in_micros()));
        if rate.refunds() {
            share
        } else {
            share.without_refund()
        }
    };
    Limits {
        concurrent: limits.concurrent.map(|slots| of(u64::from(slots)) as u32),
        requests: limits.requests.map(rate),
        cost: limits.cost.map(rate),
        ..limits
    }
}

impl Model {
    pub(super) fn flow_limits(&self, flow: Flow) -> Limits {
        let config = &self.config;
        let limits = config
            .flows
            .get(&flow)
            .unwrap_or(&config.default_flow)
            .limits;
        match (self.local.flows.get(&flow), self.local.other_flows) {
            (Some(share), _) => replaced(limits, *share),
            (None, Some(billionths)) => scaled(limits, billionths),
            (None, None) => limits,
        }
    }

    pub(super) fn target_limits(&self, index: usize) -> Limits {
        let limits = self.config.targets[index].limits;
        let share = self.local.targets.get(&TargetId::new(index as u32));
        share.map_or(limits, |share| replaced(limits, *share))
    }

    /// Gives every meter the limits in force. Those that stay the same are left alone.
    pub(super) fn limits_changed(&mut self) {
        let now = self.now;
        self.gate
            .reconfigure(replaced(self.config.limits, self.local.all), now);
        let flows: Vec<Flow> = self.flows.keys().copied().collect();
        for flow in flows {
            let limits = self.flow_limits(flow);
            let meter = self.flows.get_mut(&flow).expect("just seen");
            meter.reconfigure(limits, now);
        }
        for index in 0..self.targets.len() {
            let limits = self.target_limits(index);
            self.targets[index].meter.reconfigure(limits, now);
        }
    }

    pub(super) fn set_limits(&mut self, local: LocalLimits) {
        self.coverage.note("limits set");
        self.local = local;
        self.limits_changed();
    }

    /// Checks the reported demand by class: the cost that waits, and that was granted.
    pub(super) fn compare_demand(
        &self,
        demand: impl Iterator<Item = DemandView>,
    ) -> Result<(), Violation> {
        let mut reported: BTreeMap<(Class, Flow), (u64, u64)> = BTreeMap::new();
        let mut granted: BTreeMap<Class, u64> = BTreeMap::new();
        for view in demand {
            let entry = reported.entry((view.class, view.flow)).or_default();
            *entry = (entry.0 + view.waiting, entry.1 + view.waiting_cost);
            *granted.entry(view.class).or_default() += view.granted_cost;
        }
        reported.retain(|_, demand| *demand != (0, 0));
        let mut known: BTreeMap<(Class, Flow), (u64, u64)> = BTreeMap::new();
        for record in self.jobs.values() {
            if record.place == JobState::Waiting {
                let entry = known.entry((record.class, record.flow)).or_default();
                *entry = (entry.0 + 1, entry.1 + record.cost.0);
            }
        }
        self.require(reported == known, || {
            format!("demand: the core says {reported:?}, the audit {known:?}")
        })?;
        // Lanes of groups that are dropped take their counts with them.
        let beyond = granted.iter().find(|(class, cost)| {
            **cost > self.granted_cost.get(class).copied().unwrap_or_default()
        });
        self.require(beyond.is_none(), || {
            format!("granted {beyond:?}, the audit {:?}", self.granted_cost)
        })
    }
}
