//! The active configuration: the settings with everything derived from them. It is immutable; a
//! reload builds another one and swaps it in.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use headworks_core::{
    Bound, Class, ClassConfig, Config, Cost, Domain, FlowConfig, KeySeed, Limits, MAX_DOMAINS,
    Policy, Rate, TargetConfig, TargetId,
};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use sha2::{Digest, Sha256};

use crate::config::{GatewayConfig, RuleSettings, TenantRule, TenantSettings, UpstreamSettings};
use crate::keys::Keys;
use crate::learned_limits::LearnedLimits;
use crate::pools;
use crate::time_rules::TimeRule;
use crate::upstream::{Upstream, UpstreamId, UpstreamState};
use crate::wire::Dialect;

/// Ids of upstreams and of their capacity pools, by name. They keep their ids for the life of the
/// process, even while they are not configured: the scheduler and the metrics know them by these.
#[derive(Debug, Default)]
pub(crate) struct UpstreamIds {
    names: Vec<String>,
    /// Names of the pools, by target.
    pools: Vec<String>,
    kept: Vec<UpstreamState>,
}

impl UpstreamIds {
    fn assign(&mut self, name: &str) -> (UpstreamId, UpstreamState) {
        let index = position_or_push(&mut self.names, name);
        if self.kept.len() <= index {
            self.kept.push(UpstreamState::default());
        }
        (UpstreamId(number(index)), self.kept[index].clone())
    }

    fn assign_pool(&mut self, name: &str) -> TargetId {
        TargetId::new(number(position_or_push(&mut self.pools, name)))
    }
}

fn position_or_push(names: &mut Vec<String>, name: &str) -> usize {
    let known = names.iter().position(|known| known == name);
    known.unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    })
}

fn number(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 upstreams")
}

/// The authority on the time rules in force.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RuleSource<'a> {
    /// The clock of this machine.
    Clock(Timestamp),
    /// The allocator of the fleet, which names them: clocks differ.
    Fleet(&'a [String]),
}

impl From<Timestamp> for RuleSource<'_> {
    fn from(now: Timestamp) -> Self {
        RuleSource::Clock(now)
    }
}

/// The configuration in force, with everything derived from it.
pub(crate) struct ActiveConfig {
    pub(crate) config: Arc<GatewayConfig>,
    pub(crate) keys: Keys,
    /// By id; `None` for an upstream that is no longer configured.
    upstreams: Vec<Option<Arc<Upstream>>>,
    /// Capacity pools by target; `None` for one that is no longer configured.
    pools: Vec<Option<Pool>>,
    rules: Vec<(TimeRule, RuleSettings)>,
    pub(crate) zone: TimeZone,
    queue_timeouts: Vec<Duration>,
    tenants: HashMap<String, TenantSettings>,
}

impl ActiveConfig {
    pub(crate) fn new(
        config: Arc<GatewayConfig>,
        keys: Keys,
        upstream_ids: &mut UpstreamIds,
    ) -> ActiveConfig {
        let echo = [UpstreamSettings::echo()];
        let wanted = match config.upstream.as_slice() {
            [] => &echo[..],
            upstreams => upstreams,
        };
        let members = pools::members(wanted);
        let domains = pools::domains(&members);
        let mut upstreams = vec![None; upstream_ids.names.len()];
        let mut pools: Vec<Option<Pool>> = vec![None; upstream_ids.pools.len()];
        for (index, member) in members.iter().enumerate() {
            let (id, mut kept) = upstream_ids.assign(&member.settings.name);
            let mut before = members[..index].iter();
            if let Some(other) = before.find(|other| other.shares_account(member)) {
                let (_, other) = upstream_ids.assign(&other.settings.name);
                kept.allowances = other.allowances;
            }
            let mut before = members[..index].iter();
            if let Some(other) = before.find(|other| other.shares_server(member)) {
                let (_, other) = upstream_ids.assign(&other.settings.name);
                kept.connects = other.connects;
            }
            let target = upstream_ids.assign_pool(&member.pool);
            upstreams.resize(upstream_ids.names.len(), None);
            pools.resize(upstream_ids.pools.len(), None);
            let pool = &mut pools[target.index()];
            let limits = match pool.take() {
                Some(pool) => pools::merged_limits(pool.limits, &member.settings),
                None => member.settings.clone(),
            };
            *pool = Some(Pool {
                name: member.pool.clone(),
                limits,
                domain: domains.get(member.pool.as_str()).map(|name| (*name).into()),
            });
            let (settings, limit) = (member.settings.clone(), member.limit);
            let upstream = Upstream::new((id, target), settings, limit, kept);
            upstreams[id.0 as usize] = Some(Arc::new(upstream));
        }
        let rules = config.rule.iter();
        // The configuration was checked, so every rule parses.
        let rules =
            rules.filter_map(|rule| Some((TimeRule::new(rule, &config).ok()?, rule.clone())));
        ActiveConfig {
            upstreams,
            pools,
            rules: rules.collect(),
            zone: TimeZone::get(&config.time_zone).unwrap_or(TimeZone::UTC),
            queue_timeouts: queue_timeouts(&config),
            // Tenants of the key store come last, so that they count.
            tenants: config
                .tenant
                .iter()
                .chain(&keys.stored_tenants)
                .map(|tenant| (tenant.name.clone(), tenant.clone()))
                .collect(),
            keys,
            config,
        }
    }

    pub(crate) fn levels(&self) -> u8 {
        self.config.scheduler_priority_levels
    }

    pub(crate) fn queue_timeout(&self, class: Class) -> Duration {
        let timeout = self.queue_timeouts.get(usize::from(class.0)).copied();
        timeout.unwrap_or(self.config.scheduler_queue_timeout)
    }

    pub(crate) fn upstream(&self, id: UpstreamId) -> Option<&Arc<Upstream>> {
        self.upstreams.get(id.0 as usize)?.as_ref()
    }

    /// Limits of a capacity pool.
    pub(crate) fn pool_limits(&self, target: TargetId) -> Option<&UpstreamSettings> {
        Some(&self.pools.get(target.index())?.as_ref()?.limits)
    }

    /// The name of the capacity pool that is this target.
    pub(crate) fn pool_name(&self, target: TargetId) -> Option<&str> {
        let pool = self.pools.get(target.index())?.as_ref()?;
        Some(&pool.name)
    }

    /// The capacity pool with this name.
    pub(crate) fn pool_named(&self, name: &str) -> Option<TargetId> {
        self.pools()
            .find(|(_, known)| *known == name)
            .map(|(target, _)| target)
    }

    /// Capacity pools and their names.
    pub(crate) fn pools(&self) -> impl Iterator<Item = (TargetId, &str)> {
        let targets = (0..self.pools.len()).map(|index| TargetId::new(number(index)));
        targets.filter_map(|target| Some((target, self.pool_name(target)?)))
    }

    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &Arc<Upstream>> {
        self.upstreams.iter().flatten()
    }

    /// Model group: the upstreams that can serve `model`.
    pub(crate) fn group(&self, dialect: Dialect, model: &str) -> Vec<UpstreamId> {
        let serving = self
            .upstreams()
            .filter(|upstream| upstream.serves(dialect, model));
        serving.map(|upstream| upstream.id).collect()
    }

    /// The upstreams of a group whose context is long enough. The scheduler cannot decide this: it
    /// knows what a request is expected to cost, not what it may cost.
    pub(crate) fn that_fit(&self, mut group: Vec<UpstreamId>, tokens: u64) -> Vec<UpstreamId> {
        group.retain(|id| {
            let upstream = self.upstream(*id);
            let most = upstream.and_then(|upstream| upstream.settings.max_context_length);
            most.is_none_or(|most| tokens <= most)
        });
        group
    }

    /// Pairs of model and upstream, sorted by model. Models given only as a pattern are not listed.
    pub(crate) fn models(&self, dialect: Dialect) -> Vec<(&str, &str)> {
        let mut models = BTreeMap::new();
        for upstream in self.upstreams() {
            let named = upstream
                .settings
                .models
                .iter()
                .filter(|model| !model.contains('*'));
            for model in named.filter(|model| upstream.serves(dialect, model)) {
                models.entry(model.as_str()).or_insert(upstream.name());
            }
        }
        models.into_iter().collect()
    }

    /// Tenants with settings of their own.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &TenantSettings> {
        self.tenants.values()
    }

    pub(crate) fn tenant(&self, name: &str) -> Option<&TenantSettings> {
        self.tenants.get(name)
    }

    /// Tenants that a request may belong to, or that have settings. Some come more than once.
    pub(crate) fn tenant_names(&self) -> impl Iterator<Item = &str> {
        let rules = self.config.rule.iter().flat_map(|rule| &rule.tenant);
        let rules = rules.map(|tenant| tenant.name.as_str());
        let configured = self.tenants.keys().map(String::as_str);
        configured.chain(rules).chain(self.keys.tenants())
    }

    /// A fingerprint of everything that decides how a fleet divides its limits.
    pub(crate) fn fingerprint(&self) -> u64 {
        let config = &self.config;
        let mut pools: Vec<_> = self
            .pools
            .iter()
            .flatten()
            .map(|Pool { name, limits, .. }| {
                (
                    name,
                    limits.weight,
                    limits.max_concurrent,
                    (limits.max_rps, limits.max_tokens_per_sec),
                    (limits.min_rps, limits.min_tokens_per_sec),
                    limits.max_context_length,
                )
            })
            .collect();
        pools.sort_by_key(|pool| pool.0);
        let scheduler = (
            config.scheduler_enabled,
            config.scheduler_policy,
            &config.scheduler_weights,
            config.scheduler_priority_levels,
            config.scheduler_max_concurrent,
            (config.scheduler_max_rps, config.scheduler_rps_burst),
            (
                config.scheduler_max_tokens_per_sec,
                config.scheduler_tokens_burst,
            ),
            config.request_timeout,
            &config.time_zone,
        );
        let text = format!("{scheduler:?}{:?}{:?}{pools:?}", config.tenant, config.rule);
        let digest = Sha256::digest(text.as_bytes());
        let (first, _) = digest
            .split_first_chunk::<8>()
            .expect("a digest has 32 bytes");
        u64::from_be_bytes(*first)
    }

    /// Whether a tenant is configured or has a key.
    fn knows(&self, tenant: &str) -> bool {
        self.tenants.contains_key(tenant) || self.keys.tenants().any(|known| known == tenant)
    }

    /// Tenants of rules that nobody belongs to: probably misspelt.
    pub(crate) fn unknown_tenants(&self) -> Vec<&str> {
        let named = self.config.rule.iter().flat_map(|rule| &rule.tenant);
        let named = named.map(|tenant| tenant.name.as_str());
        named.filter(|name| !self.knows(name)).collect()
    }

    /// Names of the rules in force.
    pub(crate) fn rules_in_force<'a>(&'a self, rules: impl Into<RuleSource<'a>>) -> Vec<&'a str> {
        let rules = self.selected(rules.into());
        rules.map(|rule| rule.name.as_str()).collect()
    }

    /// The next time at which a rule may begin or end.
    pub(crate) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.rules
            .iter()
            .filter_map(|(rule, _)| rule.next_change(now))
            .min()
    }

    /// The settings of the rules that are in force.
    fn selected<'a>(&'a self, rules: RuleSource<'a>) -> impl Iterator<Item = &'a RuleSettings> {
        let selected = self
            .rules
            .iter()
            .filter(move |(rule, settings)| match rules {
                RuleSource::Clock(now) => rule.holds(now),
                RuleSource::Fleet(names) => names.contains(&settings.name),
            });
        selected.map(|(_, settings)| settings)
    }

    /// Scheduler settings: the configuration, with the rules in force on top.
    pub(crate) fn scheduler_config<'a>(
        &'a self,
        rules: impl Into<RuleSource<'a>>,
        seed: &KeySeed,
        learned: &LearnedLimits,
    ) -> Config {
        let config = &self.config;
        let mut limits = Limits {
            concurrent: Some(config.scheduler_max_concurrent),
            requests: rate(config.scheduler_max_rps, config.scheduler_rps_burst),
            cost: rate(
                config.scheduler_max_tokens_per_sec,
                config.scheduler_tokens_burst,
            ),
            max_cost: Some(Cost(config.scheduler_max_context_length)).filter(|most| most.0 > 0),
        };
        let mut classes = classes(config);
        let mut tenants: BTreeMap<&str, TenantSettings> = BTreeMap::new();
        for tenant in self.tenants.values() {
            tenants.insert(&tenant.name, tenant.clone());
        }
        for rule in self.selected(rules.into()) {
            apply_rule(config, &mut limits, &mut classes, rule);
            // A rule for a tenant that nobody belongs to has no effect.
            let known = rule.tenant.iter().filter(|change| self.knows(&change.name));
            for change in known {
                apply_tenant_rule(tenants.entry(&change.name).or_default(), change);
            }
        }
        let mut flows = BTreeMap::new();
        for (name, tenant) in &tenants {
            flows.insert(seed.flow(name), flow(tenant));
        }
        let mut scheduler_config = Config {
            policy: config.scheduler_policy.into(),
            classes,
            bound: Bound::PerClass(config.scheduler_max_queue_depth),
            limits,
            flows,
            targets: self.targets(learned),
            // A model often has a single upstream. The bound per class already limits its queue, so
            // the bound per target is switched off.
            max_waiting: Some(usize::MAX),
            // A client is better served by an immediate 429 than by a wait that must end with one.
            refuse_unreachable: true,
            // A request that waited for the end of a suspension and finds no place looks again
            // soon: its client is waiting.
            postpone_by: Duration::from_millis(100),
            seed: seed.key(&"tables").0 as u64,
            ..Config::default()
        };
        if !config.scheduler_enabled {
            pass_through(&mut scheduler_config);
        }
        scheduler_config
    }

    fn targets(&self, learned: &LearnedLimits) -> Vec<TargetConfig> {
        // A domain has the number of its first target, so that a reload changes few of them.
        // Domain 0 is the common one.
        let pools = || self.pools.iter().enumerate();
        let domain_number = |name: &str| {
            let named = |pool: &Pool| pool.domain.as_deref() == Some(name);
            let first = pools().find(|(_, pool)| pool.as_ref().is_some_and(named));
            let number = first.map_or(0, |(index, _)| index + 1);
            Domain(if number < MAX_DOMAINS {
                number as u16
            } else {
                0
            })
        };
        let target = |(index, pool): (usize, &Option<Pool>)| match pool {
            // A removed pool stays as a disabled target, so that the ids of the others do not
            // shift.
            None => TargetConfig {
                enabled: false,
                ..TargetConfig::default()
            },
            Some(Pool { limits, domain, .. }) => TargetConfig {
                weight: limits.weight,
                limits: learned.limits(index, limits),
                fault_threshold: limits.fault_threshold,
                suspend_for: limits.suspend_for,
                enabled: true,
                domain: domain.as_deref().map_or(Domain(0), domain_number),
            },
        };
        pools().map(target).collect()
    }
}

/// A capacity pool.
#[derive(Clone, Debug)]
struct Pool {
    name: String,
    limits: UpstreamSettings,
    /// The fairness domain that it belongs to; `None` for the common one.
    domain: Option<Arc<str>>,
}

/// A rate with its burst, or `None` if the rate is 0.
pub(crate) fn rate(per_second: f64, burst: Option<u64>) -> Option<Rate> {
    let rate = Rate::per_second(per_second);
    let rate = burst.map_or(rate, |burst| rate.with_burst(Cost(burst)));
    (per_second > 0.0).then_some(rate)
}

fn queue_timeouts(config: &GatewayConfig) -> Vec<Duration> {
    let levels = usize::from(config.scheduler_priority_levels);
    let mut timeouts = vec![config.scheduler_queue_timeout; levels];
    for class in &config.class {
        if let (Some(timeout), Some(entry)) = (
            class.queue_timeout,
            timeouts.get_mut(usize::from(class.level)),
        ) {
            *entry = timeout;
        }
    }
    timeouts
}

pub(crate) fn classes(config: &GatewayConfig) -> Vec<ClassConfig> {
    let levels = usize::from(config.scheduler_priority_levels);
    let mut classes = ClassConfig::halving(levels);
    set_weights(&mut classes, &config.scheduler_weights);
    for class in &config.class {
        if let Some(entry) = classes.get_mut(usize::from(class.level)) {
            entry.aging = class.aging;
        }
    }
    classes
}

fn set_weights(classes: &mut [ClassConfig], weights: &[u32]) {
    for (class, weight) in classes.iter_mut().zip(weights) {
        class.weight = *weight;
    }
}

fn apply_rule(
    config: &GatewayConfig,
    limits: &mut Limits,
    classes: &mut [ClassConfig],
    rule: &RuleSettings,
) {
    set_weights(classes, &rule.weights);
    limits.concurrent = rule.max_concurrent.or(limits.concurrent);
    if let Some(rps) = rule.max_rps {
        limits.requests = rate(rps, config.scheduler_rps_burst);
    }
    if let Some(tokens) = rule.max_tokens_per_sec {
        limits.cost = rate(tokens, config.scheduler_tokens_burst);
    }
}

fn apply_tenant_rule(tenant: &mut TenantSettings, change: &TenantRule) {
    tenant.weight = change.weight.or(tenant.weight);
    tenant.max_concurrent = change.max_concurrent.or(tenant.max_concurrent);
    tenant.max_rps = change.max_rps.or(tenant.max_rps);
    tenant.max_tokens_per_sec = change.max_tokens_per_sec.or(tenant.max_tokens_per_sec);
}

fn flow(tenant: &TenantSettings) -> FlowConfig {
    FlowConfig {
        weight: tenant.weight.unwrap_or(1),
        limits: Limits {
            concurrent: tenant.max_concurrent,
            requests: tenant.max_rps.and_then(|rps| rate(rps, None)),
            cost: tenant
                .max_tokens_per_sec
                .and_then(|tokens| rate(tokens, None)),
            max_cost: None,
        },
    }
}

/// Removes all limits, so that no request waits. Upstreams are still suspended after faults.
fn pass_through(config: &mut Config) {
    config.policy = Policy::Fifo;
    config.limits = Limits::default();
    config.flows = BTreeMap::new();
    config.refuse_unreachable = false;
    for target in &mut config.targets {
        target.limits = Limits::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_store::KeyTable;
    use headworks_service::config::{Schema, Sources};

    fn active(toml: &str) -> ActiveConfig {
        let sources = Sources::new().text("test.toml", format!("[gateway]\n{toml}"));
        let schema = Schema::new().with::<GatewayConfig>();
        let loaded = schema
            .load(&sources)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let config = loaded.section::<GatewayConfig>();
        ActiveConfig::new(
            config.clone(),
            Keys::new(&KeyTable::default(), &config),
            &mut UpstreamIds::default(),
        )
    }

    #[test]
    fn rules_are_laid_over_the_base_and_end_by_themselves() {
        let active = active(
            "scheduler_max_concurrent = 5
             [[gateway.tenant]]
             name = 'a'
             weight = 3
             [[gateway.rule]]
             name = 'night'
             from = '22:00'
             to = '06:00'
             max_concurrent = 100
             tenant = [{ name = 'a', max_concurrent = 7 }]",
        );
        let seed = KeySeed::new(1, 2);
        let at = |time: &str| {
            let now: Timestamp = time.parse().unwrap();
            active.scheduler_config(now, &seed, &LearnedLimits::default())
        };
        let (day, night) = (at("2026-11-15T12:00:00Z"), at("2026-11-15T23:00:00Z"));
        assert_eq!(
            (day.limits.concurrent, night.limits.concurrent),
            (Some(5), Some(100))
        );
        let tenant = |config: &Config| config.flows[&seed.flow(&"a")];
        assert_eq!(
            (tenant(&day).weight, tenant(&day).limits.concurrent),
            (3, None)
        );
        assert_eq!(
            (tenant(&night).weight, tenant(&night).limits.concurrent),
            (3, Some(7))
        );
        assert_eq!(at("2026-11-16T06:00:00Z"), day);
        assert_eq!(
            active.rules_in_force("2026-11-15T23:00:00Z".parse::<Timestamp>().unwrap()),
            ["night"]
        );
    }

    #[test]
    fn models_with_limits_of_their_own_are_scheduled_apart() {
        let active = active(
            "[[gateway.upstream]]
             name = 'own'
             kind = 'echo'
             models = ['gpt-*', 'llama']
             max_concurrent = 9
             [[gateway.upstream.limit]]
             models = ['gpt-4*']
             max_concurrent = 2
             [[gateway.upstream.limit]]
             models = ['gpt-4o', 'other']
             max_concurrent = 3",
        );
        let serving = |model: &str| {
            let group = active.group(Dialect::OpenAi, model);
            let limits = active.targets(&LearnedLimits::default());
            let served = group.into_iter().map(|target| {
                let upstream = active.upstream(target).unwrap();
                (
                    upstream.name().to_owned(),
                    limits[upstream.target.index()].limits.concurrent,
                )
            });
            served.collect::<Vec<_>>()
        };
        assert_eq!(serving("gpt-3"), [("own".to_owned(), Some(9))]);
        assert_eq!(serving("gpt-4o"), [("own/gpt-4*".to_owned(), Some(2))]);
        assert_eq!(serving("other"), [], "a limit adds no model");
        assert_eq!(active.models(Dialect::OpenAi), [("llama", "own")]);
    }

    #[test]
    fn upstreams_keep_their_place_and_those_that_are_gone_are_switched_off() {
        let upstream =
            |name: &str| format!("[[gateway.upstream]]\nname = '{name}'\nkind = 'echo'\n");
        let load = |toml: &str, upstream_ids: &mut UpstreamIds| {
            let active = active(toml);
            ActiveConfig::new(
                active.config.clone(),
                Keys::new(&KeyTable::default(), &active.config),
                upstream_ids,
            )
        };
        let mut upstream_ids = UpstreamIds::default();
        let first = load(&[upstream("a"), upstream("b")].concat(), &mut upstream_ids);
        let second = load(&[upstream("c"), upstream("b")].concat(), &mut upstream_ids);
        let target = |active: &ActiveConfig, name: &str| {
            active
                .upstreams()
                .find(|one| one.name() == name)
                .map(|one| one.target)
        };
        assert_eq!(target(&first, "b"), target(&second, "b"));
        assert_eq!(
            (target(&second, "a"), target(&second, "c")),
            (None, Some(TargetId::new(2)))
        );
        let enabled: Vec<bool> = second
            .targets(&LearnedLimits::default())
            .iter()
            .map(|target| target.enabled)
            .collect();
        assert_eq!(enabled, [false, true, true]);
    }
}
