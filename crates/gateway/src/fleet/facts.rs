//! Facts that all nodes know: suspensions, learned limits, overrides and time rules.
//!
//! Every node tells the others what its upstreams have told it about themselves. The
//! allocator decides for all: learned limits, and the time rules that hold.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headworks_core::{TargetId, TargetState};
use headworks_fleet::{Fact, FactChange, Facts, NodeToken};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::state::Fleet;
use super::wire::PoolHint;
use crate::overrides::Overrides;
use crate::shared::Shared;
use crate::upstream::Hints;

/// Nodes that an operator has forgotten, by their tokens.
const FORGOTTEN: &str = "forgotten/";
/// Settings changed by hand.
const OVERRIDES: &str = "overrides";
/// The time rules in force.
const RULES: &str = "rules";
/// Learned rates, by pool.
const LEARNED: &str = "learned/";
/// Suspensions, by a hash of what is suspended.
const SUSPENSION: &str = "suspension/";

/// A suspension that ends sooner than this is not worth a message. Two ends that differ by less are
/// the same.
const BRIEF: Duration = Duration::from_secs(1);

/// The lifetime of the fact that a node was forgotten. The allocator receives it within a second.
pub(crate) const FORGET: Duration = Duration::from_secs(60);

/// Suspensions beyond this are not shared: every node learns them by itself.
const MOST_SUSPENSIONS: usize = 500;

/// The subject of a suspension.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Suspended {
    /// A capacity pool that cannot be connected to.
    Pool { pool: String },
    /// A model at an upstream, for all tenants or for one.
    Model {
        upstream: String,
        model: String,
        tenant: Option<String>,
        overloaded: bool,
    },
}

/// The facts as they were received last, and what this node has told.
#[derive(Debug, Default)]
pub(super) struct SharedFacts {
    forgotten: Vec<NodeToken>,
    /// Suspensions that all nodes know and this one has applied or begun, with their ends.
    suspensions: HashMap<Suspended, Instant>,
    /// The learned rates and the rules that the others were told.
    learned: HashMap<String, [Option<f64>; 2]>,
    rules: Option<Vec<String>>,
    /// As they were received last, and when.
    received: Option<(Facts, Instant)>,
}

/// The fact that a node was forgotten.
pub(crate) fn forgotten(node: NodeToken) -> FactChange {
    FactChange::set(format!("{FORGOTTEN}{node}"), "")
}

/// The fact that settings were changed by hand.
pub(crate) fn overrides(overrides: &Overrides) -> FactChange {
    match overrides.is_empty() {
        true => FactChange::remove(OVERRIDES),
        false => FactChange::set(OVERRIDES, overrides.to_json().to_string()),
    }
}

/// A fact whose body is malformed counts as absent.
fn parse<T: for<'a> Deserialize<'a>>(fact: &Fact) -> Option<T> {
    serde_json::from_slice(&fact.body).ok()
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

impl Suspended {
    fn key(&self) -> String {
        let digest = Sha256::digest(json(self));
        format!("{SUSPENSION}{}", hex::encode(&digest[..12]))
    }
}

impl SharedFacts {
    /// Replaces the known facts by those received, and applies them to this gateway.
    pub(super) fn receive(&mut self, facts: &Facts, shared: &Shared, fleet: &Fleet) {
        self.received = Some((facts.clone(), Instant::now()));
        let named = |prefix: &'static str| {
            let found = facts.facts.iter();
            found.filter_map(move |fact| Some((fact.key.strip_prefix(prefix)?, fact)))
        };
        let tokens = named(FORGOTTEN).filter_map(|(token, _)| token.parse().ok());
        self.forgotten = tokens.collect();
        self.rules = facts.get(RULES).and_then(parse);
        let mut changed = false;
        if let Some(rules) = &self.rules {
            changed |= fleet.set_rules(rules.clone());
        }
        self.learned.clear();
        let active = shared.active.load();
        for (name, fact) in named(LEARNED) {
            let Some(rates) = parse::<[Option<f64>; 2]>(fact) else {
                continue;
            };
            self.learned.insert(name.to_owned(), rates);
            let pool = active.pool_named(name);
            if let Some((pool, limits)) = pool.and_then(|at| Some((at, active.pool_limits(at)?))) {
                changed |= shared.take_learned_rates(pool, limits, rates);
            }
        }
        drop(active);
        if changed {
            shared.refresh();
        }
        let overrides = facts.get(OVERRIDES).and_then(parse::<serde_json::Value>);
        let overrides = overrides.and_then(|value| Overrides::from_json(&value));
        if let Err(error) = shared.take_overrides(overrides.unwrap_or_default()) {
            tracing::warn!(%error, "cannot apply the settings that another node has changed");
        }
        let suspensions = named(SUSPENSION).filter_map(|(_, fact)| {
            let left = fact.remaining?;
            Some((parse::<Suspended>(fact)?, Instant::now() + left))
        });
        self.take_suspensions(suspensions.collect(), shared);
    }

    /// Tells again what this node knows, after the server has lost it. Every node does: they know
    /// the same.
    pub(super) fn republish(&self, fleet: &Fleet) {
        let Some((facts, at)) = &self.received else {
            return;
        };
        let passed = at.elapsed();
        for fact in &facts.facts {
            let change = FactChange::set(fact.key.clone(), fact.body.clone());
            let change = match fact.remaining.map(|left| left.saturating_sub(passed)) {
                Some(left) if left < BRIEF => continue,
                Some(left) => change.lasting(left),
                None => change,
            };
            fleet.outbox.change(change);
        }
    }

    /// Nodes that have stopped, by an operator's word.
    pub(super) fn forgotten(&self) -> Vec<NodeToken> {
        self.forgotten.clone()
    }

    fn take_suspensions(&mut self, found: HashMap<Suspended, Instant>, shared: &Shared) {
        let now = Instant::now();
        for (suspended, until) in &self.suspensions {
            if !found.contains_key(suspended) && *until > now + BRIEF {
                suspended.end(shared);
            }
        }
        let known = std::mem::take(&mut self.suspensions);
        for (suspended, until) in found {
            let is_known = known
                .get(&suspended)
                .is_some_and(|before| until <= *before + BRIEF);
            if is_known || suspended.begin(until, shared) {
                self.suspensions.insert(suspended, until);
            }
        }
    }

    /// Tells the others what this node's requests have found out.
    pub(super) fn share_suspensions(&mut self, shared: &Shared, fleet: &Fleet) {
        let now = Instant::now();
        let current = suspensions(shared, now);
        self.suspensions.retain(|suspended, until| {
            let over = *until <= now;
            // It ended early: the upstream has served a request of this node.
            if !over && *until > now + BRIEF && !current.contains_key(suspended) {
                fleet.outbox.change(FactChange::remove(suspended.key()));
                return false;
            }
            !over
        });
        for (suspended, until) in current {
            let known = self.suspensions.get(&suspended);
            let is_known = known.is_some_and(|known| until <= *known + BRIEF);
            let left = until.saturating_duration_since(now);
            if is_known || left < BRIEF || self.suspensions.len() >= MOST_SUSPENSIONS {
                continue;
            }
            let change = FactChange::set(suspended.key(), json(&suspended)).lasting(left);
            fleet.outbox.change(change);
            self.suspensions.insert(suspended, until);
        }
    }

    /// Takes the allocator's decisions for all nodes: the time rules that hold, by its clock, and
    /// the learned limits, from what the upstreams have told all nodes.
    pub(super) fn decide(&mut self, shared: &Shared, fleet: &Fleet, found: &[PoolHint]) {
        let active = shared.active.load();
        let rules = active.rules_in_force(Timestamp::now());
        let mut changed = false;
        if self.rules.as_deref().is_none_or(|known| known != rules) {
            let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
            fleet.outbox.change(FactChange::set(RULES, json(&rules)));
            changed |= fleet.set_rules(rules.clone());
            self.rules = Some(rules);
        }
        let mut hints: HashMap<&str, Hints> = HashMap::new();
        for hint in found {
            let all = hints.entry(&hint.pool).or_default();
            all.overloaded |= hint.overloaded;
            all.rps = least(all.rps, hint.rps);
            all.tokens_per_sec = least(all.tokens_per_sec, hint.tokens_per_sec);
        }
        for (name, hints) in hints {
            let pool = active.pool_named(name);
            let Some((pool, limits)) = pool.and_then(|at| Some((at, active.pool_limits(at)?)))
            else {
                continue;
            };
            // The rate changes once per second, however many nodes have seen the overload.
            changed |= shared.learn(pool, limits, &hints);
            let rates = shared.learned_rates(pool);
            if self.learned.get(name) != Some(&rates) {
                let key = format!("{LEARNED}{name}");
                fleet.outbox.change(FactChange::set(key, json(&rates)));
                self.learned.insert(name.to_owned(), rates);
            }
        }
        drop(active);
        if changed {
            shared.refresh();
        }
    }
}

fn least(one: Option<f64>, other: Option<f64>) -> Option<f64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The suspensions in force on this node, with their ends.
fn suspensions(shared: &Shared, now: Instant) -> HashMap<Suspended, Instant> {
    let (active, clock) = (shared.active.load(), shared.permits.now());
    let mut found = HashMap::new();
    for upstream in active.upstreams() {
        for one in upstream.health.suspended(now) {
            let suspended = Suspended::Model {
                upstream: upstream.name().into(),
                model: one.model,
                tenant: one.tenant.map(|tenant| tenant.to_string()),
                overloaded: one.overloaded,
            };
            found.insert(suspended, now + one.left);
        }
    }
    for (index, target) in shared.permits.inspect().targets.iter().enumerate() {
        let pool = active.pool_name(TargetId::new(index as u32));
        if let (TargetState::Suspended { until }, Some(pool)) = (target.state, pool) {
            let suspended = Suspended::Pool { pool: pool.into() };
            found.insert(suspended, now + until.since(clock));
        }
    }
    found
}

impl Suspended {
    /// Begins it here. Returns whether it concerns this node.
    fn begin(&self, until: Instant, shared: &Shared) -> bool {
        let (now, active) = (Instant::now(), shared.active.load());
        match self {
            Suspended::Pool { pool } => {
                let Some(target) = active.pool_named(pool) else {
                    return false;
                };
                let until = shared.permits.now() + until.saturating_duration_since(now);
                let view = shared.permits.inspect();
                let state = view.targets.get(target.index()).map(|target| target.state);
                let is_active = matches!(state, Some(TargetState::Active));
                if is_active {
                    shared
                        .permits
                        .set_target(target, TargetState::Suspended { until });
                }
                is_active || matches!(state, Some(TargetState::Suspended { .. }))
            }
            Suspended::Model {
                upstream,
                model,
                tenant,
                overloaded,
            } => {
                let mut upstreams = active.upstreams();
                let Some(upstream) = upstreams.find(|one| one.name() == upstream) else {
                    return false;
                };
                let tenant = tenant.as_deref().map(Arc::from);
                let whose = (model.as_str(), tenant.as_ref());
                upstream
                    .health
                    .suspend_until(whose, until, *overloaded, now);
                true
            }
        }
    }

    /// Ends it here, because another node has ended it.
    fn end(&self, shared: &Shared) {
        let active = shared.active.load();
        match self {
            Suspended::Pool { pool } => {
                let Some(target) = active.pool_named(pool) else {
                    return;
                };
                let view = shared.permits.inspect();
                let state = view.targets.get(target.index()).map(|target| target.state);
                if matches!(state, Some(TargetState::Suspended { .. })) {
                    shared.permits.set_target(target, TargetState::Active);
                }
            }
            Suspended::Model {
                upstream,
                model,
                tenant,
                ..
            } => {
                let mut upstreams = active.upstreams();
                if let Some(upstream) = upstreams.find(|one| one.name() == upstream) {
                    let tenant = tenant.as_deref().map(Arc::from);
                    upstream.health.resume(model, tenant.as_ref());
                }
            }
        }
    }
}
