//! The limits that keep a request in the queue, in words.

use headworks_core::{Cost, Limits, TargetId};

use crate::shared::Shared;

/// A request that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingRequest<'a> {
    pub(crate) tenant: &'a str,
    /// Capacity pools that may serve it.
    pub(crate) pools: &'a [TargetId],
    pub(crate) cost: Cost,
}

/// The use of the limits of the gateway, a tenant or a pool.
struct Usage {
    limits: Limits,
    running: u64,
    /// Requests and tokens that are free.
    levels: (Option<f64>, Option<f64>),
}

impl Usage {
    /// The limits that are reached, with their values. `key` names a setting.
    fn reached(&self, cost: Cost, key: impl Fn(&str) -> String) -> Option<String> {
        let Limits {
            concurrent,
            requests,
            cost: tokens,
            ..
        } = self.limits;
        let (running, needed) = (self.running, cost.0 as f64);
        if let Some(most) = concurrent.filter(|most| running >= u64::from(*most)) {
            let key = key("max_concurrent");
            return Some(format!("{key} is reached: {running} of {most} are running"));
        }
        if let (Some(rate), Some(free)) = (requests, self.levels.0.filter(|free| *free < 1.0)) {
            let (key, rate) = (key("max_rps"), rate.as_per_second());
            return Some(format!("{key} is used up: {free:.1} free, {rate}/s"));
        }
        // A request that is larger than the burst waits for a full bucket.
        let (rate, free) = (tokens?, self.levels.1.filter(|free| *free < needed)?);
        let (key, rate) = (key("max_tokens_per_sec"), rate.as_per_second());
        Some(format!(
            "{key} is used up: {free:.0} tokens free, {needed:.0} needed, {rate}/s"
        ))
    }
}

/// The limits that are reached now: of the gateway, of the tenant, and of the pools, if there is
/// none that could serve the request.
pub(crate) fn reached_limits(shared: &Shared, request: WaitingRequest<'_>) -> Vec<String> {
    let (view, config) = (shared.permits.inspect(), shared.in_force.load());
    let everything = Usage {
        limits: config.limits,
        running: view.running,
        levels: view.levels,
    };
    let mut reached = Vec::new();
    reached.extend(everything.reached(request.cost, |key| format!("`scheduler_{key}`")));
    let flow = shared.seed.flow(&request.tenant);
    if let Some(flow) = shared.permits.flow(flow) {
        let usage = Usage {
            limits: config.flow(flow.flow).limits,
            running: u64::from(flow.running),
            levels: flow.levels,
        };
        let key = |key: &str| format!("`{key}` of tenant `{}`", request.tenant);
        reached.extend(usage.reached(request.cost, key));
    }
    let active = shared.active.load();
    let of_pool = |target: &TargetId| {
        let view = view.targets.get(target.index())?;
        let usage = Usage {
            limits: config.targets.get(target.index())?.limits,
            running: u64::from(view.running),
            levels: view.levels,
        };
        let name = active.pool_name(*target)?;
        usage.reached(request.cost, |key| format!("`{key}` of pool `{name}`"))
    };
    // One pool that is not at its limits would do.
    let pools: Option<Vec<String>> = request.pools.iter().map(of_pool).collect();
    reached.extend(pools.into_iter().flatten());
    reached
}
