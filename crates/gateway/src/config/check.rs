//! Checks across several settings, beyond the checks of each value by itself.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use headworks_core::MAX_CLASSES;
use headworks_service::config::{Secret, ValidationError};

use super::{GatewayConfig, KeySettings, Kind, TenantSettings, UpstreamSettings};
use crate::time_rules::TimeRule;
use crate::upstream::Address;

pub(super) fn check(config: &GatewayConfig) -> Vec<ValidationError> {
    let mut found = Vec::new();
    levels(config, &mut found);
    rates(config, &mut found);
    keys(config, &mut found);
    upstreams(config, &mut found);
    times(config, &mut found);
    found
}

fn levels(config: &GatewayConfig, found: &mut Vec<ValidationError>) {
    let levels = config.scheduler_priority_levels;
    let mut object = |key, text: String| found.push(ValidationError::new(key, text));
    if levels == 0 || usize::from(levels) > MAX_CLASSES {
        let text = format!("{levels} classes: expected 1 to {MAX_CLASSES}");
        return object("scheduler_priority_levels", text);
    }
    let weights = config.scheduler_weights.len();
    if weights != 0 && weights != usize::from(levels) {
        let text = format!(
            "{weights} weights for {levels} classes: give one per class, or leave the list empty"
        );
        object("scheduler_weights", text);
    }
    if config.scheduler_weights.contains(&0) {
        object("scheduler_weights", "a weight must be at least 1".into());
    }
    if config.default_class.is_some_and(|class| class >= levels) {
        let text = format!("the classes are 0 to {}", levels - 1);
        object("default_class", text);
    }
    for class in &config.class {
        if class.level >= levels {
            let text = format!("level {}: the classes are 0 to {}", class.level, levels - 1);
            object("class", text);
        }
    }
}

fn rates(config: &GatewayConfig, found: &mut Vec<ValidationError>) {
    if config.scheduler_max_queue_depth == 0 {
        let text = "must be at least 1; set `scheduler_enabled = false` to disable queueing";
        found.push(ValidationError::new("scheduler_max_queue_depth", text));
    }
    if config.scheduler_max_concurrent == 0 {
        let text = "must be at least 1";
        found.push(ValidationError::new("scheduler_max_concurrent", text));
    }
    for (key, rate) in [
        ("scheduler_max_rps", config.scheduler_max_rps),
        (
            "scheduler_max_tokens_per_sec",
            config.scheduler_max_tokens_per_sec,
        ),
    ] {
        if !rate.is_finite() || rate < 0.0 {
            found.push(ValidationError::new(
                key,
                "expected a positive number, or 0 for no limit",
            ));
        }
    }
    if config.max_body_memory / 2 < config.max_body {
        let text = "must be at least twice `max_body`: one tenant may take half of it";
        found.push(ValidationError::new("max_body_memory", text));
    }
    if config.max_connections == 0 {
        found.push(ValidationError::new(
            "max_connections",
            "must be at least 1",
        ));
    }
    if config.max_connections_per_address == Some(0) {
        let text = "must be at least 1";
        found.push(ValidationError::new("max_connections_per_address", text));
    }
    let mut names = BTreeSet::new();
    for tenant in &config.tenant {
        let name = &tenant.name;
        if name.is_empty() {
            found.push(ValidationError::new("tenant", "a tenant without `name`"));
        } else if !names.insert(name) {
            let text = format!("duplicate name `{name}`: only one set of limits can hold");
            found.push(ValidationError::new("tenant", text));
        }
        if let Err(text) = check_tenant(tenant) {
            found.push(ValidationError::new("tenant", text));
        }
    }
}

/// Checks the limits of a tenant, from the configuration or the admin API.
pub(crate) fn check_tenant(tenant: &TenantSettings) -> Result<(), String> {
    let name = &tenant.name;
    if tenant.weight == Some(0) || tenant.max_concurrent == Some(0) {
        return Err(format!(
            "{name}: weight and max_concurrent must be at least 1"
        ));
    }
    check_rates([tenant.max_rps, tenant.max_tokens_per_sec])
        .map_err(|text| format!("{name}: {text}"))
}

/// Checks that rates are finite and not negative. Upstreams, tenants and time rules have some.
pub(crate) fn check_rates(rates: [Option<f64>; 2]) -> Result<(), String> {
    let wrong = |rate: &f64| !rate.is_finite() || *rate < 0.0;
    match rates.iter().flatten().any(wrong) {
        true => Err("a rate must be a positive number, or 0 for no limit".into()),
        false => Ok(()),
    }
}

fn keys(config: &GatewayConfig, found: &mut Vec<ValidationError>) {
    if config.open && !is_loopback(config.listen) {
        let text = format!(
            "everybody who can reach {} could use the upstreams: listen on 127.0.0.1, or remove `open` and create a key \
             with `headworks gateway key add --tenant NAME`",
            config.listen
        );
        found.push(ValidationError::new("open", text));
    }
    for key in &config.key {
        if let Err(text) = check_key(key, config.scheduler_priority_levels) {
            let name = if key.id.is_empty() {
                &key.tenant
            } else {
                &key.id
            };
            found.push(ValidationError::new("key", format!("`{name}`: {text}")));
        }
    }
}

/// Whether `address` can be reached from this machine only.
pub(crate) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// Checks a key, wherever it was written.
pub(crate) fn check_key(key: &KeySettings, levels: u8) -> Result<(), String> {
    let [prefix, pattern] = [&key.prefix, &key.pattern].map(|way| way.as_ref().map(Secret::reveal));
    let ways = [key.hash.as_deref(), prefix, pattern];
    if ways.iter().filter(|way| way.is_some()).count() != 1 {
        return Err("set exactly one of `hash`, `prefix` and `pattern`".into());
    }
    if ways.into_iter().flatten().any(str::is_empty) {
        return Err("an empty `hash`, `prefix` or `pattern` would match every key".into());
    }
    if let Some(hash) = &key.hash
        && (hash.len() != 64 || !hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
    {
        return Err("`hash` must be the SHA-256 of the key: 64 hexadecimal digits".into());
    }
    if key.tenant.is_empty() {
        return Err("`tenant` is missing".into());
    }
    for class in [key.class, key.max_class].into_iter().flatten() {
        if class >= levels {
            return Err(format!(
                "class {class}: the classes are 0 to {}",
                levels - 1
            ));
        }
    }
    Ok(())
}

fn upstreams(config: &GatewayConfig, found: &mut Vec<ValidationError>) {
    let mut names = BTreeSet::new();
    for upstream in &config.upstream {
        let name = &upstream.name;
        if name.is_empty() {
            found.push(ValidationError::new(
                "upstream",
                "an upstream without `name`",
            ));
        } else if !names.insert(name) {
            let text = format!("duplicate name `{name}`: give each upstream its own name");
            found.push(ValidationError::new("upstream", text));
        }
        for part in upstream.scheduler_targets() {
            if let Err(text) = check_upstream(&part) {
                found.push(ValidationError::new(
                    "upstream",
                    format!("`{}`: {text}", part.name),
                ));
            }
        }
        if upstream.limit.iter().any(|limit| limit.models.is_empty()) {
            let text = format!("`{name}`: a `limit` without `models`");
            found.push(ValidationError::new("upstream", text));
        }
    }
}

fn check_upstream(upstream: &UpstreamSettings) -> Result<(), String> {
    if upstream.weight == 0 || upstream.max_concurrent == Some(0) {
        return Err("weight and max_concurrent must be at least 1".into());
    }
    if upstream.pool.as_deref() == Some("") {
        return Err("`pool` is empty: name a pool, or remove the key".into());
    }
    check_rates([upstream.max_rps, upstream.max_tokens_per_sec])?;
    for (least, most, name) in [
        (upstream.min_rps, upstream.max_rps, "rps"),
        (
            upstream.min_tokens_per_sec,
            upstream.max_tokens_per_sec,
            "tokens_per_sec",
        ),
    ] {
        if least.is_some_and(|least| most.is_none_or(|most| !(least > 0.0 && least <= most))) {
            return Err(format!(
                "`min_{name}` must be above 0 and at most `max_{name}`"
            ));
        }
    }
    if let Some(status) = upstream
        .retry_on
        .iter()
        .find(|status| **status != 408 && !(500..600).contains(*status))
    {
        return Err(format!(
            "invalid status {status} in `retry_on`: expected 408, or 500 to 599"
        ));
    }
    for (name, value) in &upstream.headers {
        let named = name.parse::<http::HeaderName>().is_ok();
        if !named || value.reveal().parse::<http::HeaderValue>().is_err() {
            return Err(format!("`headers`: `{name}` is not a valid header"));
        }
    }
    // A key from a file may end with a line feed. Sent without its key, every request would fail.
    let key = upstream.api_key.as_ref();
    if key.is_some_and(|key| key.reveal().parse::<http::HeaderValue>().is_err()) {
        return Err(
            "`api_key` has a character that no header can have, such as a line feed".into(),
        );
    }
    match upstream.kind {
        Kind::Echo => Ok(()),
        Kind::Openai | Kind::Anthropic => Address::parse(&upstream.url).map(|_| ()),
    }
}

fn times(config: &GatewayConfig, found: &mut Vec<ValidationError>) {
    if let Err(error) = jiff::tz::TimeZone::get(&config.time_zone) {
        found.push(ValidationError::new("time_zone", error.to_string()));
    }
    for settings in &config.rule {
        if let Err(text) = TimeRule::new(settings, config) {
            found.push(ValidationError::new(
                "rule",
                format!("`{}`: {text}", settings.name),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_sets_of_limits_for_one_tenant_are_refused() {
        let mut config = GatewayConfig::default();
        let tenant = TenantSettings {
            name: "a".into(),
            ..TenantSettings::default()
        };
        config.tenant = vec![tenant.clone()];
        assert!(check(&config).is_empty());
        config.tenant.push(tenant);
        let found = check(&config);
        assert_eq!(found.len(), 1);
        assert!(format!("{:?}", found[0]).contains("duplicate name `a`"));
    }
}
