//! Health of an upstream, judged by its answers for each model.
//!
//! A prompt can make an upstream fail, and a request that is too large for the account can make it
//! answer 429. If every such answer counted, one tenant could suspend an upstream for all.
//! Therefore answers are counted for each model and tenant, over distinct bodies. A tenant that
//! gets only errors is suspended alone. All tenants are suspended if several get errors while none
//! is served.
//!
//! Failed connections are not judged here. They always count, for all models, and the scheduler
//! keeps that state itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use headworks_core::Key;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio_util::sync::CancellationToken;

use super::Hints;
use super::allowance::Allowance;

/// Most models of an upstream that are judged. Clients choose the names, so the number is bounded.
const MAX_MODELS: usize = 1000;
/// Most tenants that are remembered per model.
const MAX_TENANTS: usize = 64;
/// Most failed bodies that are remembered per tenant.
const MAX_BODIES: usize = 32;
/// How long a success proves that the upstream serves others than the tenants that get errors.
const PROOF: Duration = Duration::from_secs(10);

/// When faults suspend an upstream, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SuspendRule {
    /// Number of distinct failed bodies in a row; 0 for never.
    pub(crate) threshold: u32,
    pub(crate) suspend_for: Duration,
}

/// A model as one tenant sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Viewpoint<'a> {
    pub(crate) model: &'a str,
    pub(crate) tenant: &'a Arc<str>,
    /// Tokens that the request is expected to need.
    pub(crate) tokens: u64,
}

/// Event that a request awaits before it may call the upstream.
#[derive(Clone, Debug)]
pub(crate) enum Wait {
    /// The end of a suspension.
    Until(Instant),
    /// The outcome of another request, which probes the upstream. Cancelled when it is known.
    Probe(CancellationToken),
}

/// A suspension in force, for statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspended {
    pub(crate) model: String,
    /// `None` for all tenants.
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) left: Duration,
    /// Whether no known tenant can use the model.
    pub(crate) concerns_all: bool,
}

/// Health of one upstream, by model.
#[derive(Debug, Default)]
pub(crate) struct UpstreamHealth {
    models: Mutex<HashMap<String, ModelHealth>>,
}

/// Health of one model of an upstream.
#[derive(Debug, Default)]
struct ModelHealth {
    /// For all tenants.
    suspension: Option<Suspension>,
    tenants: Vec<TenantHealth>,
    /// Requests and tokens that the provider says are left, for all tenants.
    requests: Option<Allowance>,
    tokens: Option<Allowance>,
}

/// Recent outcomes of one tenant.
#[derive(Debug)]
struct TenantHealth {
    tenant: Arc<str>,
    suspension: Option<Suspension>,
    /// The last success, unless an error came later.
    served: Option<Instant>,
    /// Bodies that got an error since the last success, each once.
    failed: SmallVec<[Key; 2]>,
    /// Whether it was rejected because of load since the last success.
    overloaded: bool,
    /// The last outcome of any kind. Of the tenants that are not suspended, the one that was idle
    /// longest is forgotten first.
    seen: Instant,
}

/// A suspension. After its end, one request at a time probes the upstream until one is served.
#[derive(Debug)]
struct Suspension {
    until: Instant,
    /// Set while a request probes the upstream. Cancelled when its outcome is known.
    probe: Option<CancellationToken>,
}

impl Suspension {
    fn wait(&self, now: Instant) -> Option<Wait> {
        match &self.probe {
            _ if self.until > now => Some(Wait::Until(self.until)),
            Some(probe) => Some(Wait::Probe(probe.clone())),
            None => None,
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.until <= now
    }
}

fn is_over(suspension: &Option<Suspension>, now: Instant) -> bool {
    suspension
        .as_ref()
        .is_some_and(|suspension| suspension.is_over(now))
}

/// Suspends until `until`, or longer if that is so already. Requests that wait for a probe are
/// woken: they wait for the new end.
fn suspend(suspension: &mut Option<Suspension>, until: Instant) {
    if suspension
        .as_ref()
        .is_some_and(|known| known.until >= until)
    {
        return;
    }
    end(suspension);
    *suspension = Some(Suspension { until, probe: None });
}

fn end(suspension: &mut Option<Suspension>) {
    if let Some(probe) = suspension.take().and_then(|known| known.probe) {
        probe.cancel();
    }
}

impl TenantHealth {
    fn new(tenant: &Arc<str>, now: Instant) -> TenantHealth {
        TenantHealth {
            tenant: tenant.clone(),
            suspension: None,
            served: None,
            failed: SmallVec::new(),
            overloaded: false,
            seen: now,
        }
    }

    fn is_suspended(&self, now: Instant) -> bool {
        self.suspension
            .as_ref()
            .is_some_and(|one| !one.is_over(now))
    }

    fn gets_errors(&self) -> bool {
        self.overloaded || !self.failed.is_empty()
    }
}

impl ModelHealth {
    fn tenant(&mut self, tenant: &Arc<str>, now: Instant) -> &mut TenantHealth {
        let known = self.tenants.iter().position(|one| one.tenant == *tenant);
        let index = known.unwrap_or_else(|| {
            if self.tenants.len() >= MAX_TENANTS {
                // A suspended tenant is idle because it is suspended.
                let key = |at: &usize| {
                    let one = &self.tenants[*at];
                    (one.is_suspended(now), one.seen)
                };
                let longest_idle = (0..self.tenants.len()).min_by_key(key);
                let mut gone = self.tenants.swap_remove(longest_idle.unwrap_or(0));
                end(&mut gone.suspension);
            }
            self.tenants.push(TenantHealth::new(tenant, now));
            self.tenants.len() - 1
        });
        let one = &mut self.tenants[index];
        one.seen = now;
        one
    }

    fn find(&self, tenant: &Arc<str>) -> Option<&TenantHealth> {
        self.tenants.iter().find(|one| one.tenant == *tenant)
    }

    fn wait(&self, at: Viewpoint<'_>, now: Instant) -> Option<Wait> {
        let own = self.find(at.tenant).and_then(|one| one.suspension.as_ref());
        let suspended = [self.suspension.as_ref(), own].into_iter().flatten();
        let suspended = suspended.filter_map(|suspension| suspension.wait(now));
        let ready =
            |allowance: &Option<Allowance>, needed| allowance.as_ref()?.ready_at(needed, now);
        let allowed = [
            ready(&self.requests, 1.0),
            ready(&self.tokens, at.tokens as f64),
        ];
        let allowed = allowed.into_iter().flatten().map(Wait::Until);
        suspended
            .chain(allowed)
            .reduce(|one, other| match (one, other) {
                (Wait::Until(one), Wait::Until(other)) => Wait::Until(one.max(other)),
                // Only the end of a suspension has a known time. A probe is awaited after that.
                (until @ Wait::Until(_), _) | (_, until @ Wait::Until(_)) => until,
                (probe, _) => probe,
            })
    }

    /// Suspends the model for all tenants if several get errors and no other is served.
    fn judge_all(&mut self, enough: impl Fn(usize) -> bool, until: Instant, now: Instant) {
        let failing = || self.tenants.iter().filter(|one| one.gets_errors());
        let proves = |one: &TenantHealth| {
            let recent = |served| now.saturating_duration_since(served) < PROOF;
            !one.gets_errors() && one.served.is_some_and(recent)
        };
        if failing().count() < 2 || self.tenants.iter().any(proves) {
            return;
        }
        let mut bodies: SmallVec<[Key; 8]> = failing()
            .flat_map(|one| one.failed.iter().copied())
            .collect();
        bodies.sort_unstable();
        bodies.dedup();
        if !(is_over(&self.suspension, now) || enough(bodies.len())) {
            return;
        }
        suspend(&mut self.suspension, until);
        // Counting starts anew: the tenants are on probation after the suspension.
        for one in self.tenants.iter_mut().filter(|one| one.gets_errors()) {
            (one.overloaded, one.failed) = (false, SmallVec::new());
            suspend(&mut one.suspension, until);
        }
    }
}

impl UpstreamHealth {
    /// The event that a request has to await, if any. Changes nothing.
    pub(crate) fn wait(&self, at: Viewpoint<'_>, now: Instant) -> Option<Wait> {
        let models = self.models.lock();
        models.get(at.model)?.wait(at, now)
    }

    /// Begins a call. On probation, the returned guard makes others wait until it is dropped.
    pub(crate) fn begin(
        self: &Arc<Self>,
        at: Viewpoint<'_>,
        now: Instant,
    ) -> Result<Option<Probe>, Wait> {
        let mut models = self.models.lock();
        let Some(health) = models.get_mut(at.model) else {
            return Ok(None);
        };
        if let Some(wait) = health.wait(at, now) {
            return Err(wait);
        }
        let taken = [
            (&mut health.requests, 1.0),
            (&mut health.tokens, at.tokens as f64),
        ];
        for (allowance, needed) in taken {
            allowance
                .iter_mut()
                .for_each(|allowance| allowance.take(needed));
        }
        let own = health
            .tenants
            .iter_mut()
            .find(|one| one.tenant == *at.tenant);
        let own = own.and_then(|one| one.suspension.as_mut());
        let mut suspensions: SmallVec<[&mut Suspension; 2]> =
            health.suspension.as_mut().into_iter().chain(own).collect();
        if suspensions.is_empty() {
            return Ok(None);
        }
        let ended = CancellationToken::new();
        for suspension in &mut suspensions {
            suspension.probe = Some(ended.clone());
        }
        Ok(Some(Probe {
            health: self.clone(),
            model: at.model.to_owned(),
            tenant: at.tenant.clone(),
            ended,
        }))
    }

    /// Records what the provider says is left of its rate limits.
    pub(crate) fn limited(&self, at: Viewpoint<'_>, hints: &Hints, now: Instant) {
        let [requests, tokens] =
            [hints.requests, hints.tokens].map(|stated| Allowance::new(stated, now));
        if requests.is_some() || tokens.is_some() {
            self.with(at.model, now, |health| {
                (health.requests, health.tokens) = (requests, tokens);
            });
        }
    }

    /// Records that a successful response begins.
    pub(crate) fn answered(&self, at: Viewpoint<'_>, now: Instant) {
        self.with(at.model, now, |health| {
            // A request that was sent before the suspension says nothing about its cause.
            if is_over(&health.suspension, now) {
                end(&mut health.suspension);
            }
            let one = health.tenant(at.tenant, now);
            (one.served, one.overloaded) = (Some(now), false);
            if is_over(&one.suspension, now) {
                end(&mut one.suspension);
            }
        });
    }

    /// Records that a successful response is complete. Only this ends a row of faults: an upstream
    /// may begin every response and break all of them off.
    pub(crate) fn completed(&self, at: Viewpoint<'_>) {
        let mut models = self.models.lock();
        let tenants = models.get_mut(at.model).map(|health| &mut health.tenants);
        let mut tenants = tenants.into_iter().flatten();
        if let Some(one) = tenants.find(|one| one.tenant == *at.tenant) {
            one.failed.clear();
        }
    }

    /// Records that the upstream rejected a request because of its load, for that long.
    pub(crate) fn overloaded(&self, at: Viewpoint<'_>, rest: Duration, now: Instant) {
        self.with(at.model, now, |health| {
            let one = health.tenant(at.tenant, now);
            (one.served, one.overloaded) = (None, true);
            suspend(&mut one.suspension, now + rest);
            health.judge_all(|_| true, now + rest, now);
        });
    }

    /// Records a fault: an error response, or none.
    pub(crate) fn failed(&self, at: Viewpoint<'_>, body: Key, rule: SuspendRule, now: Instant) {
        let threshold = rule.threshold as usize;
        if threshold == 0 {
            return;
        }
        let until = now + rule.suspend_for;
        self.with(at.model, now, |health| {
            let one = health.tenant(at.tenant, now);
            one.served = None;
            if !one.failed.contains(&body) && one.failed.len() < MAX_BODIES.max(threshold) {
                one.failed.push(body);
            }
            if is_over(&one.suspension, now) || one.failed.len() >= threshold {
                suspend(&mut one.suspension, until);
            }
            health.judge_all(|bodies| bodies >= threshold, until, now);
        });
    }

    /// Takes back a fault that the body itself caused.
    pub(crate) fn forgive(&self, at: Viewpoint<'_>, body: Key, rule: SuspendRule) {
        let mut models = self.models.lock();
        let Some(health) = models.get_mut(at.model) else {
            return;
        };
        let one = health
            .tenants
            .iter_mut()
            .find(|one| one.tenant == *at.tenant);
        let Some(one) = one else { return };
        let before = one.failed.len();
        one.failed.retain(|known| *known != body);
        let counted = one.failed.len() < before;
        if counted && one.failed.len() < rule.threshold as usize && !one.overloaded {
            end(&mut one.suspension);
        }
    }

    /// The suspensions in force.
    pub(crate) fn suspended(&self, now: Instant) -> Vec<Suspended> {
        let models = self.models.lock();
        let mut found = Vec::new();
        let holds = |suspension: &Option<Suspension>| {
            let suspension = suspension.as_ref();
            suspension.is_some_and(|suspension| !suspension.is_over(now))
        };
        for (model, health) in models.iter() {
            let concerns_all = holds(&health.suspension)
                || health.tenants.iter().all(|one| holds(&one.suspension));
            let own = health.tenants.iter();
            let own = own.map(|one| (Some(&one.tenant), one.suspension.as_ref()));
            for (tenant, suspension) in [(None, health.suspension.as_ref())].into_iter().chain(own)
            {
                if let Some(suspension) = suspension.filter(|suspension| !suspension.is_over(now)) {
                    found.push(Suspended {
                        model: model.clone(),
                        tenant: tenant.cloned(),
                        left: suspension.until - now,
                        concerns_all,
                    });
                }
            }
        }
        found.sort_by(|a, b| (&a.model, &a.tenant).cmp(&(&b.model, &b.tenant)));
        found
    }

    fn with(&self, model: &str, now: Instant, change: impl FnOnce(&mut ModelHealth)) {
        let mut models = self.models.lock();
        if let Some(health) = models.get_mut(model) {
            return change(health);
        }
        if models.len() >= MAX_MODELS {
            models.retain(|_, health| {
                let matters = |one: &TenantHealth| {
                    let idle = now.saturating_duration_since(one.seen);
                    one.is_suspended(now) || idle < PROOF
                };
                health.suspension.is_some() || health.tenants.iter().any(matters)
            });
        }
        // If it is still full, further models are not judged: real ones were there first.
        if models.len() < MAX_MODELS {
            change(models.entry(model.to_owned()).or_default());
        }
    }
}

/// A request that probes a suspended upstream. Dropping it lets the next one probe.
#[derive(Debug)]
pub(crate) struct Probe {
    health: Arc<UpstreamHealth>,
    model: String,
    tenant: Arc<str>,
    ended: CancellationToken,
}

impl Drop for Probe {
    fn drop(&mut self) {
        let mut models = self.health.models.lock();
        if let Some(health) = models.get_mut(&self.model) {
            let own = health
                .tenants
                .iter_mut()
                .find(|one| one.tenant == self.tenant);
            let own = own.and_then(|one| one.suspension.as_mut());
            for suspension in health.suspension.as_mut().into_iter().chain(own) {
                // A later suspension may have a probe of its own.
                drop(suspension.probe.take_if(|probe| *probe == self.ended));
            }
        }
        drop(models);
        self.ended.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: SuspendRule = SuspendRule {
        threshold: 2,
        suspend_for: Duration::from_secs(5),
    };

    struct Judged {
        health: Arc<UpstreamHealth>,
        now: Instant,
    }

    impl Judged {
        fn new() -> Judged {
            Judged {
                health: Arc::default(),
                now: Instant::now(),
            }
        }

        fn at<R>(&self, tenant: &str, then: impl FnOnce(Viewpoint<'_>) -> R) -> R {
            let tenant = tenant.into();
            then(Viewpoint {
                model: "m",
                tenant: &tenant,
                tokens: 0,
            })
        }

        fn served(&self, tenant: &str) {
            self.at(tenant, |at| {
                self.health.answered(at, self.now);
                self.health.completed(at);
            });
        }

        fn failed(&self, tenant: &str, body: u128) {
            self.at(tenant, |at| {
                self.health.failed(at, Key(body), RULE, self.now);
            });
        }

        fn overloaded(&self, tenant: &str) {
            let rest = Duration::from_secs(5);
            self.at(tenant, |at| self.health.overloaded(at, rest, self.now));
        }

        fn is_suspended(&self, tenant: &str) -> bool {
            self.at(tenant, |at| self.health.wait(at, self.now).is_some())
        }

        fn begin(&self, tenant: &str) -> Result<Option<Probe>, Wait> {
            self.at(tenant, |at| self.health.begin(at, self.now))
        }
    }

    #[test]
    fn a_suspended_tenant_is_not_forgotten_for_others() {
        let mut judged = Judged::new();
        judged.served("other");
        judged.overloaded("greedy");
        for number in 0..2 * MAX_TENANTS {
            judged.now += Duration::from_millis(1);
            judged.served(&format!("tenant {number}"));
        }
        assert!(judged.is_suspended("greedy"));
    }

    #[test]
    fn one_tenants_errors_suspend_that_tenant_alone() {
        let judged = Judged::new();
        judged.served("other");
        for body in 0..50 {
            judged.failed("hostile", body);
            judged.overloaded("greedy");
            judged.served("other");
        }
        assert!(judged.is_suspended("hostile") && judged.is_suspended("greedy"));
        assert!(!judged.is_suspended("other") && !judged.is_suspended("new"));
        assert!(
            judged
                .health
                .wait(
                    Viewpoint {
                        model: "another",
                        tenant: &"hostile".into(),
                        tokens: 0,
                    },
                    judged.now
                )
                .is_none(),
            "another model is not concerned"
        );
    }

    #[test]
    fn the_same_body_counts_once() {
        let judged = Judged::new();
        for _ in 0..50 {
            judged.failed("a", 1);
        }
        assert!(!judged.is_suspended("a"));
        judged.failed("a", 2);
        assert!(judged.is_suspended("a"));
    }

    #[test]
    fn errors_of_several_tenants_suspend_all_unless_somebody_is_served() {
        let judged = Judged::new();
        judged.served("witness");
        judged.failed("a", 1);
        judged.failed("b", 2);
        assert!(!judged.is_suspended("new"), "another tenant is served");
        judged.failed("witness", 3);
        assert!(judged.is_suspended("new"));
        let judged = Judged::new();
        judged.overloaded("a");
        assert!(!judged.is_suspended("new"));
        judged.overloaded("b");
        assert!(judged.is_suspended("new"));
    }

    #[test]
    fn a_success_of_long_ago_proves_nothing() {
        let mut judged = Judged::new();
        judged.served("idle");
        judged.now += PROOF;
        judged.failed("a", 1);
        judged.failed("b", 2);
        assert!(judged.is_suspended("idle"));
    }

    #[test]
    fn after_a_suspension_one_request_at_a_time_probes() {
        let mut judged = Judged::new();
        judged.overloaded("a");
        judged.overloaded("b");
        judged.now += Duration::from_secs(5);
        let probe = judged.begin("c").unwrap();
        assert!(probe.is_some());
        assert!(matches!(judged.begin("d"), Err(Wait::Probe(_))));
        drop(probe);
        let probe = judged.begin("d").unwrap();
        judged.served("d");
        drop(probe);
        assert!(judged.begin("e").unwrap().is_none(), "all is well");
    }

    #[test]
    fn one_tenants_failed_probe_does_not_suspend_all_again() {
        let mut judged = Judged::new();
        judged.failed("hostile", 1);
        judged.failed("b", 2);
        assert!(judged.is_suspended("c"));
        judged.now += Duration::from_secs(5);
        let probe = judged.begin("hostile").unwrap();
        judged.failed("hostile", 3);
        drop(probe);
        assert!(judged.is_suspended("hostile"));
        assert!(!judged.is_suspended("c"));
        let probe = judged.begin("b").unwrap();
        judged.failed("b", 4);
        drop(probe);
        assert!(judged.is_suspended("c"), "the second tenant");
    }

    #[test]
    fn a_late_success_does_not_lift_a_suspension() {
        let judged = Judged::new();
        judged.overloaded("a");
        judged.served("a");
        assert!(judged.is_suspended("a"));
    }

    #[test]
    fn a_forgiven_fault_does_not_count() {
        let judged = Judged::new();
        judged.failed("a", 1);
        judged.failed("a", 2);
        assert!(judged.is_suspended("a"));
        judged.at("a", |at| judged.health.forgive(at, Key(2), RULE));
        assert!(!judged.is_suspended("a"));
    }

    #[test]
    fn the_allowance_of_a_provider_is_obeyed_by_all_tenants() {
        let mut judged = Judged::new();
        let mut hints = Hints::default();
        hints.requests.remaining = Some(2.0);
        hints.requests.reset = Some(Duration::from_secs(60));
        judged.at("a", |at| judged.health.limited(at, &hints, judged.now));
        assert!(judged.begin("a").is_ok() && judged.begin("b").is_ok());
        assert!(matches!(judged.begin("c"), Err(Wait::Until(_))));
        judged.now += Duration::from_secs(60);
        assert!(judged.begin("c").is_ok());
    }

    #[test]
    fn memory_is_bounded_whatever_names_clients_invent() {
        let judged = Judged::new();
        let tenant: Arc<str> = "a".into();
        for number in 0..2 * MAX_MODELS {
            let at = Viewpoint {
                model: &number.to_string(),
                tenant: &tenant,
                tokens: 0,
            };
            judged.health.answered(at, judged.now);
        }
        assert!(judged.health.models.lock().len() <= MAX_MODELS);
        for number in 0..2 * MAX_TENANTS {
            judged.failed(&number.to_string(), 1);
        }
        let models = judged.health.models.lock();
        assert!(
            models
                .values()
                .all(|health| health.tenants.len() <= MAX_TENANTS)
        );
    }
}
