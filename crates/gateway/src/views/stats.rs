//! State of the scheduler as JSON.

use std::time::Instant;

use headworks_core::{Class, ClassView, Config, Rate, Reason, View};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::capacity_pools::capacity_pools;
use crate::shared::Shared;
use crate::wire::class_name;

/// Totals, capacity, and the state of upstreams and tenants.
pub(super) fn stats(shared: &Shared) -> Value {
    let view = shared.permits.inspect();
    let active = shared.active.load();
    let granted: u64 = view.classes.iter().map(|class| class.stats.granted).sum();
    let upstreams = active.upstreams().filter_map(|upstream| {
        let target = view.targets.get(upstream.target.index())?;
        let suspended = upstream.health.suspended(Instant::now()).into_iter();
        let suspended = suspended.map(|one| {
            json!({ "model": one.model, "tenant": one.tenant.as_deref(), "seconds_left": one.left.as_secs_f64() })
        });
        Some(json!({
            "name": upstream.name(), "state": upstream.state(target.state, shared.permits.now()).0,
            "running": target.running, "granted": target.granted, "faults_in_a_row": target.faults,
            "requests_free": target.levels.0, "tokens_free": target.levels.1,
            "suspended": suspended.collect::<Vec<_>>(),
        }))
    });
    let in_force = shared.in_force.load();
    let rate = |rate: Option<Rate>| rate.map_or(0.0, Rate::as_per_second);
    json!({
        "enabled": active.config.scheduler_enabled,
        "policy": in_force.policy.name(),
        "total_scheduled": granted,
        "total_rejected": view.classes.iter().map(rejected).sum::<u64>(),
        "total_queued": shared.queue_counts.ever(),
        "running": view.running,
        "waiting": view.waiting,
        "delayed": view.delayed,
        "capacity": {
            "max_concurrent": in_force.limits.concurrent,
            "max_rps": rate(in_force.limits.requests),
            "max_tokens_per_sec": rate(in_force.limits.cost),
            "requests_free": view.levels.0,
            "tokens_free": view.levels.1,
        },
        "rules_in_force": shared.rules_in_force(&active),
        "upstreams": upstreams.collect::<Vec<_>>(),
        "pools": pools(shared, &view, &in_force),
        "tenants": tenants(shared),
        "seconds_up": shared.started.elapsed().as_secs(),
    })
}

fn pools(shared: &Shared, view: &View, config: &Config) -> Value {
    let rate = |rate: Option<Rate>| rate.map(Rate::as_per_second);
    let pools = capacity_pools(shared, view, config).into_iter().map(|pool| {
        json!({
            "name": pool.name, "upstreams": pool.upstreams,
            "waiting": pool.waiting, "running": pool.running,
            "max_concurrent": pool.limits.concurrent,
            "max_rps": rate(pool.limits.requests),
            "max_tokens_per_sec": rate(pool.limits.cost),
            "requests_free": pool.levels.0, "tokens_free": pool.levels.1,
            "suspended_until": pool.suspended_for.map(|left| (Timestamp::now() + left).to_string()),
        })
    });
    pools.collect()
}

/// Number of rejected requests: on arrival, shed, or expired in the queue.
fn rejected(class: &ClassView) -> u64 {
    let ended = &class.stats.ended;
    class.stats.refused_in_all() + ended.shed + ended.expired
}

fn tenants(shared: &Shared) -> Value {
    let totals = shared.ledger.totals().into_iter().map(|(tenant, classes)| {
        let sum = |of: fn(&crate::usage::Totals) -> u64| classes.iter().map(of).sum::<u64>();
        json!({
            "name": &*tenant, "requests": sum(|totals| totals.requests),
            "refused": sum(|totals| totals.refused), "tokens": sum(|totals| totals.tokens),
        })
    });
    totals.collect()
}

/// State of the queues, most urgent class first.
pub(super) fn queues(shared: &Shared) -> Value {
    let view = shared.permits.inspect();
    let most = shared.active.load().config.scheduler_max_queue_depth;
    let charged: u64 = sharing(&view).map(|(_, class)| class.stats.charged).sum();
    let queue = |(level, class): (usize, &ClassView)| {
        let (stats, level) = (&class.stats, u8::try_from(level).unwrap_or(u8::MAX));
        let refused = Reason::ALL
            .iter()
            .zip(stats.refused)
            .filter(|(_, count)| *count > 0);
        let millis = |q| stats.waits.quantile(q).as_secs_f64() * 1000.0;
        json!({
            "class": Class(level).to_string(), "name": class_name(Class(level)), "weight": class.weight,
            "waiting": class.waiting, "max_queue_depth": most,
            "granted": stats.granted, "aged": stats.aged, "shed": stats.ended.shed, "expired": stats.ended.expired,
            "refused": refused.map(|(reason, count)| (reason.name().to_owned(), json!(count)))
                .collect::<serde_json::Map<_, _>>(),
            "tokens_charged": stats.charged,
            "share": if charged == 0 { 0.0 } else { stats.charged as f64 / charged as f64 },
            "wait_ms": { "p50": millis(0.5), "p90": millis(0.9), "p99": millis(0.99) },
        })
    };
    let queues: Vec<_> = view.classes.iter().enumerate().map(queue).collect();
    json!({ "queues": queues, "waiting": view.waiting })
}

fn sharing(view: &View) -> impl Iterator<Item = (usize, &ClassView)> {
    view.classes.iter().enumerate()
}
