//! The configuration as a scenario for `headworks sim`, to replay a request log under the rules
//! that it was recorded under.
//!
//! A request log says nothing about models and service times. So every upstream counts as able to
//! serve every request, and one that is not an echo has the simulator's default latency. Time rules
//! are left out.

use std::time::Duration;

use toml::{Table, Value};

use crate::config::{GatewayConfig, Kind, TenantSettings, UpstreamSettings};
use crate::{active_config, pools};

/// The most waiting jobs that a scenario may permit per class or target.
const MAX_BOUND: u64 = 1_000_000;
/// Latency of upstreams that are not an echo.
const LATENCY: &str = "50ms-350ms";

impl GatewayConfig {
    /// The rules of this configuration as a scenario file without loads.
    #[must_use]
    pub fn replay_scenario(&self) -> String {
        let mut file = Table::new();
        file.insert("about".into(), "the gateway's configuration".into());
        file.insert("duration".into(), "1h".into());
        file.insert("scheduler".into(), self.scheduler().into());
        file.insert("classes".into(), self.classes());
        let timeout = ("timeout".into(), time(self.scheduler_queue_timeout));
        file.insert("trace".into(), Table::from_iter([timeout]).into());
        if self.scheduler_enabled && !self.tenant.is_empty() {
            let tenants = self.tenant.iter().map(tenant);
            file.insert("flows".into(), array(tenants));
        }
        file.insert("targets".into(), self.targets());
        file.to_string()
    }

    fn scheduler(&self) -> Table {
        let mut scheduler = Table::new();
        let bound = (self.scheduler_max_queue_depth as u64).min(MAX_BOUND);
        scheduler.insert("bound".into(), integer(bound));
        // The gateway has no bound per upstream.
        scheduler.insert("max_waiting".into(), integer(MAX_BOUND));
        if !self.scheduler_enabled {
            scheduler.insert("policy".into(), "fifo".into());
            return scheduler;
        }
        let policy = Value::try_from(self.scheduler_policy);
        scheduler.extend(policy.ok().map(|policy| ("policy".into(), policy)));
        scheduler.insert("refuse_unreachable".into(), true.into());
        let mut limits = limits(
            Some(self.scheduler_max_concurrent),
            Some(self.scheduler_max_rps),
            Some(self.scheduler_max_tokens_per_sec),
        );
        for (name, value) in [
            ("requests_burst", self.scheduler_rps_burst),
            ("cost_burst", self.scheduler_tokens_burst),
            ("max_cost", Some(self.scheduler_max_context_length)),
        ] {
            let value = value.filter(|value| *value > 0);
            limits.extend(value.map(|value| (name.into(), integer(value))));
        }
        scheduler.insert("limits".into(), limits.into());
        scheduler
    }

    fn classes(&self) -> Value {
        let classes = active_config::classes(self).into_iter();
        let class = classes.map(|class| {
            let mut entry = Table::from_iter([("weight".into(), integer(class.weight.into()))]);
            entry.extend(class.aging.map(|aging| ("aging".into(), time(aging))));
            entry
        });
        array(class)
    }

    fn targets(&self) -> Value {
        let echo = UpstreamSettings {
            name: "echo".into(),
            kind: Kind::Echo,
            ..UpstreamSettings::default()
        };
        let upstreams = match self.upstream.as_slice() {
            [] => &[echo],
            upstreams => upstreams,
        };
        // Entries of one pool share its capacity, so they are one target.
        let mut targets: Vec<(String, UpstreamSettings)> = Vec::new();
        for member in pools::members(upstreams) {
            match targets.iter_mut().find(|(pool, _)| *pool == member.pool) {
                Some((_, known)) => {
                    *known = pools::merged_limits(known.clone(), &member.settings);
                }
                None => targets.push((member.pool, member.settings)),
            }
        }
        let target = |(pool, settings): &(String, UpstreamSettings)| {
            let mut target = Table::new();
            target.insert("name".into(), pool.as_str().into());
            target.insert("weight".into(), integer(settings.weight.into()));
            if self.scheduler_enabled {
                let limits = limits(
                    settings.max_concurrent,
                    settings.max_rps,
                    settings.max_tokens_per_sec,
                );
                target.insert("limits".into(), limits.into());
            }
            if settings.kind == Kind::Echo {
                target.insert("latency".into(), time(settings.latency));
                target.insert("latency_per_cost".into(), time(settings.token_time));
            } else {
                target.insert("latency".into(), LATENCY.into());
            }
            target
        };
        array(targets.iter().map(target))
    }
}

fn tenant(tenant: &TenantSettings) -> Table {
    let limits = limits(
        tenant.max_concurrent,
        tenant.max_rps,
        tenant.max_tokens_per_sec,
    );
    Table::from_iter([
        ("name".into(), tenant.name.as_str().into()),
        ("weight".into(), integer(tenant.weight.unwrap_or(1).into())),
        ("limits".into(), limits.into()),
    ])
}

fn limits(concurrent: Option<u32>, requests: Option<f64>, tokens: Option<f64>) -> Table {
    let mut limits = Table::new();
    limits.extend(concurrent.map(|most| ("concurrent".into(), integer(most.into()))));
    for (name, rate) in [
        ("requests_per_second", requests),
        ("cost_per_second", tokens),
    ] {
        let rate = rate.filter(|rate| *rate > 0.0);
        limits.extend(rate.map(|rate| (name.into(), rate.into())));
    }
    limits
}

fn integer(number: u64) -> Value {
    i64::try_from(number).unwrap_or(i64::MAX).into()
}

/// A time as scenarios write it.
fn time(time: Duration) -> Value {
    format!("{}ms", time.as_secs_f64() * 1000.0).into()
}

fn array(tables: impl Iterator<Item = Table>) -> Value {
    Value::Array(tables.map(Value::Table).collect())
}
