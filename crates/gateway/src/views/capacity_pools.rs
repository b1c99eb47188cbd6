//! Figures of the capacity pools.

use std::time::Duration;

use headworks_core::{Config, Limits, View};

use crate::shared::Shared;

/// A capacity pool at this moment.
pub(super) struct CapacityPool {
    pub(super) name: String,
    /// Names of its upstreams.
    pub(super) upstreams: Vec<String>,
    /// Queued requests that it may serve, alone or beside other pools.
    pub(super) waiting: u64,
    pub(super) running: u32,
    pub(super) limits: Limits,
    /// Requests and tokens that are free.
    pub(super) levels: (Option<f64>, Option<f64>),
    /// Time until the first of its upstreams is usable again, if all are suspended.
    pub(super) suspended_for: Option<Duration>,
}

/// All capacity pools, in the order of the configuration.
pub(super) fn capacity_pools(shared: &Shared, view: &View, config: &Config) -> Vec<CapacityPool> {
    let (active, now) = (shared.active.load(), shared.permits.now());
    let pools = active.pools().filter_map(|(target, name)| {
        let figures = view.targets.get(target.index())?;
        let members = || {
            active
                .upstreams()
                .filter(|upstream| upstream.target == target)
        };
        let suspensions = members().map(|upstream| upstream.state(figures.state, now).1);
        let suspensions: Option<Vec<Duration>> = suspensions.collect();
        Some(CapacityPool {
            name: name.to_owned(),
            upstreams: members()
                .map(|upstream| upstream.name().to_owned())
                .collect(),
            waiting: shared.permits.waiting_at(target),
            running: figures.running,
            limits: config.targets.get(target.index())?.limits,
            levels: figures.levels,
            suspended_for: suspensions.and_then(|all| all.into_iter().min()),
        })
    });
    pools.collect()
}
