//! Translation between names and the numbers of this process.
//!
//! A flow is a hash of its tenant's name under a seed that every process draws for itself, and the
//! number of a target depends on the reloads that this process has seen.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use headworks_core::shares::{
    Allocation, Bound, Demand, FleetLimits, GateId, NodeId, Report, Share,
};
use headworks_core::{Class, Flow, KeySeed, TargetId};

use super::wire::{Gate, NamedDemand, NamedShare, NodeMessage, ShareMessage};
use crate::active_config::ActiveConfig;

/// Names beyond this are forgotten, and those in the configuration learned again.
const MOST_NAMES: usize = 100_000;

/// The names that this process knows.
#[derive(Debug)]
pub(crate) struct Names {
    seed: KeySeed,
    tenants: HashMap<Flow, Arc<str>>,
    pools: Vec<Option<Arc<str>>>,
    targets: HashMap<Arc<str>, TargetId>,
}

impl Names {
    pub(crate) fn new(seed: KeySeed, active: &ActiveConfig) -> Names {
        let mut names = Names {
            seed,
            tenants: HashMap::new(),
            pools: Vec::new(),
            targets: HashMap::new(),
        };
        names.learn(active);
        names
    }

    /// Takes the names of a configuration. Former tenants stay known: their requests may still run.
    pub(crate) fn learn(&mut self, active: &ActiveConfig) {
        if self.tenants.len() > MOST_NAMES {
            self.tenants.clear();
        }
        for tenant in active.tenant_names() {
            self.flow(&tenant.into());
        }
        (self.pools, self.targets) = (Vec::new(), HashMap::new());
        for (target, name) in active.pools() {
            let name: Arc<str> = name.into();
            let most = self.pools.len().max(target.index() + 1);
            self.pools.resize(most, None);
            self.pools[target.index()] = Some(name.clone());
            self.targets.insert(name, target);
        }
    }

    fn flow(&mut self, tenant: &Arc<str>) -> Flow {
        let name: &str = tenant;
        let flow = self.seed.flow(&name);
        self.tenants.entry(flow).or_insert_with(|| tenant.clone());
        flow
    }

    fn tenant(&self, flow: Flow) -> Option<Arc<str>> {
        self.tenants.get(&flow).cloned()
    }

    /// Length of the longest name of a tenant.
    pub(super) fn longest_tenant(&self) -> usize {
        self.tenants
            .values()
            .map(|name| name.len())
            .max()
            .unwrap_or(0)
    }

    fn pool(&self, target: TargetId) -> Option<Arc<str>> {
        self.pools.get(target.index()).cloned().flatten()
    }

    fn name_share(&self, share: &Share) -> NamedShare {
        let named = |(gate, share): (&GateId, &_)| {
            let gate = match gate {
                GateId::All => Gate::All,
                GateId::Flow(flow) => Gate::Tenant(self.tenant(*flow)?),
                GateId::Target(target) => Gate::Pool(self.pool(*target)?),
            };
            Some((gate, *share))
        };
        NamedShare {
            gates: share.gates.iter().filter_map(named).collect(),
            other_tenants: share.other_flows,
        }
    }

    /// Pools that are not configured here are left out: this process cannot limit them.
    fn number_share(&mut self, share: &NamedShare) -> Share {
        let mut gates = BTreeMap::new();
        for (gate, share) in &share.gates {
            let gate = match gate {
                Gate::All => Some(GateId::All),
                Gate::Tenant(tenant) => Some(GateId::Flow(self.flow(tenant))),
                Gate::Pool(pool) => self.targets.get(pool).copied().map(GateId::Target),
            };
            gates.extend(gate.map(|gate| (gate, *share)));
        }
        Share {
            gates,
            other_flows: share.other_tenants,
        }
    }

    /// The message of a report. Demand of a tenant whose name is not known counts as that of other
    /// tenants.
    pub(crate) fn name_report(&self, report: &Report) -> NodeMessage {
        let demand = |demand: &Demand| NamedDemand {
            class: demand.class.0,
            tenant: demand.flow.and_then(|flow| self.tenant(flow)),
            pools: demand
                .targets
                .iter()
                .filter_map(|target| self.pool(*target))
                .collect(),
            tenants: demand.flows,
            waiting: demand.waiting,
            granted: demand.granted,
            running: demand.running,
        };
        NodeMessage {
            number: report.number,
            echo: report.echo,
            in_force: self.name_share(&report.in_force),
            demand: merge_unnamed(report.demand.iter().map(demand).collect()),
            complete: report.complete,
            succeeds: report.succeeds.map(|former| former.0),
            leaves: report.leaves,
            on_loss: report.on_loss,
            ..NodeMessage::default()
        }
    }

    pub(crate) fn number_report(&mut self, node: NodeId, message: &NodeMessage) -> Report {
        let mut demands = Vec::with_capacity(message.demand.len());
        for demand in &message.demand {
            let pools = demand.pools.iter();
            let mut targets: Vec<TargetId> = pools
                .filter_map(|pool| self.targets.get(pool).copied())
                .collect();
            targets.sort_unstable();
            demands.push(Demand {
                class: Class(demand.class),
                flow: demand.tenant.as_ref().map(|tenant| self.flow(tenant)),
                targets,
                flows: demand.tenants,
                waiting: demand.waiting,
                granted: demand.granted,
                running: demand.running,
            });
        }
        Report {
            node,
            number: message.number,
            echo: message.echo,
            in_force: self.number_share(&message.in_force),
            demand: demands,
            complete: message.complete,
            succeeds: message.succeeds.map(NodeId),
            on_loss: message.on_loss,
            leaves: message.leaves,
        }
    }

    pub(crate) fn name_allocation(&self, allocation: &Allocation) -> ShareMessage {
        let tenants = allocation.flow_weights.iter();
        let tenants = tenants.filter_map(|(flow, weight)| Some((self.tenant(*flow)?, *weight)));
        let classes = allocation.class_weights.iter();
        ShareMessage {
            stamp: allocation.stamp,
            seen: allocation.seen,
            share: self.name_share(&allocation.share),
            class_weights: classes.map(|(class, weight)| (class.0, *weight)).collect(),
            tenant_weights: tenants.collect(),
        }
    }

    pub(crate) fn number_allocation(&mut self, message: &ShareMessage) -> Allocation {
        let classes = message.class_weights.iter();
        let tenants = message.tenant_weights.iter();
        Allocation {
            stamp: message.stamp,
            seen: message.seen,
            share: self.number_share(&message.share),
            class_weights: classes
                .map(|(class, weight)| (Class(*class), *weight))
                .collect(),
            flow_weights: tenants
                .map(|(tenant, weight)| (self.flow(tenant), *weight))
                .collect(),
        }
    }

    /// The most that a node may have in force by the grants that are still in the exchange.
    pub(crate) fn bound(&mut self, grants: &[ShareMessage], limits: &FleetLimits) -> Bound {
        let mut bound = Bound::default();
        for grant in grants {
            bound.include(grant.stamp, &self.number_share(&grant.share), limits);
        }
        bound
    }
}

/// Adds demand of tenants that are not named to what is there for the same class and pools.
fn merge_unnamed(demands: Vec<NamedDemand>) -> Vec<NamedDemand> {
    let mut merged: Vec<NamedDemand> = Vec::with_capacity(demands.len());
    let mut unnamed: HashMap<(u8, Vec<Arc<str>>), usize> = HashMap::new();
    for demand in demands {
        if demand.tenant.is_some() {
            merged.push(demand);
            continue;
        }
        let key = (demand.class, demand.pools.clone());
        match unnamed.get(&key) {
            None => {
                unnamed.insert(key, merged.len());
                merged.push(demand);
            }
            Some(index) => {
                let sum = &mut merged[*index];
                sum.tenants = sum.tenants.saturating_add(demand.tenants);
                for (sum, more) in [
                    (&mut sum.waiting, demand.waiting),
                    (&mut sum.granted, demand.granted),
                ] {
                    sum.requests += more.requests;
                    sum.cost += more.cost;
                }
                sum.running += demand.running;
            }
        }
    }
    merged
}
