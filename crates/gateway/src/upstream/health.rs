//! Health of an upstream, judged by its answers for each model.
//!
//! A prompt can make an upstream fail, and a request that is too large for the account can make it
//! answer 429. If every such answer counted, one tenant could suspend an upstream for all.
//! Therefore answers are counted for each model and tenant, over distinct bodies. A tenant that
//! gets only errors is suspended alone. All tenants are suspended if several get errors while none
//! is served. After that, a tenant whose last request was served probes before those that got the
//! errors: their next requests may fail for the same reason as the last ones.
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

/// Most models of an upstream that are judged. Clients choose the names, so the number is bounded.
const MAX_MODELS: usize = 1000;
/// Most tenants that are remembered per model.
const MAX_TENANTS: usize = 64;
/// Most failed bodies that are remembered per tenant.
const MAX_BODIES: usize = 32;
/// How long a success proves that the upstream serves others than the tenants that get errors, and
/// how long an error of one tenant counts beside that of another: several tenants suspend a model
/// for all only if they get errors at about the same time.
const PROOF: Duration = Duration::from_secs(10);
/// Longest suspension of a model for all tenants because of overload, until the first probe. The
/// requests of a tenant can cause a 429 too, so a longer time holds for the rejected tenants alone.
const LONGEST_FOR_ALL: Duration = Duration::from_secs(60);
/// The same for a tenant whose last request was served. Its rejected probe costs little: after that
/// it is suspended like the others.
const LONGEST_FOR_SERVED: Duration = Duration::from_secs(5);
/// How much later than the tenants that were served those with errors may probe.
const HEAD_START: Duration = Duration::from_secs(1);
/// How long others wait for a probe. An overloaded upstream refuses at once, so a probe that was
/// not refused by then is being served, however long that takes.
const PROBE_PATIENCE: Duration = Duration::from_secs(2);
/// The same after faults: the upstream may hang, so the time doubles with every probe that says
/// nothing.
const FAULT_PATIENCE: Duration = Duration::from_secs(10);

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
    /// The outcome of another request, which probes the upstream.
    Probe(ProbeOutcome),
}

impl Wait {
    /// The later of both events.
    pub(super) fn and(self, other: Wait) -> Wait {
        match (self, other) {
            (Wait::Until(one), Wait::Until(other)) => Wait::Until(one.max(other)),
            // Only the end of a suspension has a known time. A probe is awaited after that.
            (until @ Wait::Until(_), _) | (_, until @ Wait::Until(_)) => until,
            (probe, _) => probe,
        }
    }
}

/// The outcome of a probe, which others await for a limited time.
#[derive(Clone, Debug)]
pub(crate) struct ProbeOutcome {
    /// Cancelled when the outcome is known.
    known: CancellationToken,
    /// Whether a tenant makes it whose last request was served.
    is_trusted: bool,
    /// When nobody waits for it any longer.
    overdue_at: Instant,
}

impl ProbeOutcome {
    /// Completes when the outcome is known or overdue.
    pub(crate) async fn wait(&self) {
        tokio::select! {
            () = self.known.cancelled() => {}
            () = tokio::time::sleep_until(self.overdue_at.into()) => {}
        }
    }
}

/// A suspension in force, for statistics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Suspended {
    pub(crate) model: String,
    /// `None` for all tenants.
    pub(crate) tenant: Option<Arc<str>>,
    pub(crate) left: Duration,
    /// Whether the upstream rejected requests because of its load.
    pub(crate) overloaded: bool,
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
    /// Whether the upstream ever served it, so that it exists.
    is_served: bool,
    /// The last outcome of any kind.
    seen: Option<Instant>,
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
    /// The last error.
    errored: Option<Instant>,
    /// The last rejection because of load.
    rejected: Option<Instant>,
    /// The last outcome of any kind. Of the tenants that are not suspended, the one that was idle
    /// longest is forgotten first.
    seen: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Overload,
    Faults,
}

/// The standing of a tenant: its past says something about its next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Its last request was served.
    Served,
    Unknown,
    /// Its last request got an error, and there are tenants whose last one was served.
    Second,
}

/// A suspension. After its end, one request at a time probes the upstream until one is served.
#[derive(Debug)]
struct Suspension {
    until: Instant,
    /// The end for tenants whose last request was served.
    until_served: Instant,
    cause: Cause,
    /// Set while a request probes the upstream.
    probe: Option<ProbeOutcome>,
    /// How long others wait for a probe.
    patience: Duration,
}

impl Suspension {
    fn wait(&self, standing: Standing, now: Instant) -> Option<Wait> {
        let until = self.until_for(standing);
        match &self.probe {
            _ if until > now => Some(Wait::Until(until)),
            // A tenant that gets errors must not keep the others from probing.
            Some(probe) if standing == Standing::Served && !probe.is_trusted => None,
            Some(probe) if probe.overdue_at > now => Some(Wait::Probe(probe.clone())),
            _ => None,
        }
    }

    fn until_for(&self, standing: Standing) -> Instant {
        match standing {
            Standing::Served => self.until_served,
            Standing::Unknown => self.until,
            Standing::Second => self.until + HEAD_START,
        }
    }

    /// Whether an overloaded upstream has not refused a probe for long enough.
    fn is_refuted(&self, now: Instant) -> bool {
        let probe = self.probe.as_ref();
        self.cause == Cause::Overload && probe.is_some_and(|probe| probe.overdue_at <= now)
    }

    fn begin_probe(&mut self, known: &CancellationToken, standing: Standing, now: Instant) {
        let is_overdue = |probe: &ProbeOutcome| probe.overdue_at <= now;
        if self.probe.as_ref().is_some_and(is_overdue) {
            self.patience *= 2;
        }
        self.probe = Some(ProbeOutcome {
            known: known.clone(),
            is_trusted: standing == Standing::Served,
            overdue_at: now + self.patience,
        });
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
fn suspend(suspension: &mut Option<Suspension>, until: Instant, cause: Cause, now: Instant) {
    if suspension
        .as_ref()
        .is_some_and(|known| known.until >= until)
    {
        return;
    }
    end(suspension);
    let (patience, until_served) = match cause {
        Cause::Overload => (PROBE_PATIENCE, until.min(now + LONGEST_FOR_SERVED)),
        Cause::Faults => (FAULT_PATIENCE, until),
    };
    *suspension = Some(Suspension {
        until,
        until_served,
        cause,
        probe: None,
        patience,
    });
}

fn end(suspension: &mut Option<Suspension>) {
    if let Some(probe) = suspension.take().and_then(|known| known.probe) {
        probe.known.cancel();
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
            errored: None,
            rejected: None,
            seen: now,
        }
    }

    fn is_suspended(&self, now: Instant) -> bool {
        self.suspension
            .as_ref()
            .is_some_and(|one| !one.is_over(now))
    }

    /// Whether it got an error since the last success, and lately.
    fn gets_errors(&self, now: Instant) -> bool {
        (self.overloaded || !self.failed.is_empty()) && is_recent(self.errored, now)
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
        let own = own.and_then(|own| own.wait(Standing::Unknown, now));
        let all = self.suspension.as_ref();
        let all = all.and_then(|all| all.wait(self.standing(at.tenant), now));
        all.into_iter().chain(own).reduce(Wait::and)
    }

    fn standing(&self, tenant: &Arc<str>) -> Standing {
        match self.find(tenant) {
            Some(one) if one.served.is_some() => Standing::Served,
            Some(one) if one.errored.is_some() => {
                match self.tenants.iter().any(|other| other.served.is_some()) {
                    true => Standing::Second,
                    false => Standing::Unknown,
                }
            }
            _ => Standing::Unknown,
        }
    }

    /// Whether its state decides about requests, now or soon.
    fn matters(&self, now: Instant) -> bool {
        let decides = |one: &TenantHealth| one.is_suspended(now) || is_recent(Some(one.seen), now);
        let ends_at = self.suspension.as_ref().map(|one| one.until);
        ends_at.is_some_and(|until| until + PROOF > now) || self.tenants.iter().any(decides)
    }

    /// Ends all suspensions.
    fn end(&mut self) {
        end(&mut self.suspension);
        let tenants = self.tenants.iter_mut();
        tenants.for_each(|one| end(&mut one.suspension));
    }

    /// Suspends the model for all tenants if several get errors and no other is served.
    fn judge_all(
        &mut self,
        enough: impl Fn(usize) -> bool,
        (until, cause): (Instant, Cause),
        now: Instant,
    ) {
        let failing = || self.tenants.iter().filter(|one| one.gets_errors(now));
        let proves = |one: &TenantHealth| !one.gets_errors(now) && is_recent(one.served, now);
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
        let until = match cause {
            Cause::Overload => until.min(now + LONGEST_FOR_ALL),
            Cause::Faults => until,
        };
        suspend(&mut self.suspension, until, cause, now);
        // Counting starts anew: the tenants are on probation after the suspension.
        for one in self.tenants.iter_mut().filter(|one| one.gets_errors(now)) {
            (one.overloaded, one.failed) = (false, SmallVec::new());
            suspend(&mut one.suspension, until, cause, now);
        }
    }
}

fn is_recent(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now.saturating_duration_since(at) < PROOF)
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
        let standing = health.standing(at.tenant);
        let own = health
            .tenants
            .iter_mut()
            .find(|one| one.tenant == *at.tenant);
        let own = own.map(|one| &mut one.suspension);
        let mut suspensions: SmallVec<[&mut Option<Suspension>; 2]> =
            [&mut health.suspension].into_iter().chain(own).collect();
        for suspension in &mut suspensions {
            if suspension.as_ref().is_some_and(|one| one.is_refuted(now)) {
                end(suspension);
            }
        }
        let suspensions = suspensions.into_iter().filter_map(Option::as_mut);
        let mut suspensions = suspensions.peekable();
        if suspensions.peek().is_none() {
            return Ok(None);
        }
        let ended = CancellationToken::new();
        for suspension in suspensions {
            suspension.begin_probe(&ended, standing, now);
        }
        Ok(Some(Probe {
            health: self.clone(),
            model: at.model.to_owned(),
            tenant: at.tenant.clone(),
            ended,
        }))
    }

    /// Records that a successful response begins.
    pub(crate) fn answered(&self, at: Viewpoint<'_>, now: Instant) {
        self.with(at.model, now, |health| {
            // A request that was sent before the suspension says nothing about its cause.
            let standing = health.standing(at.tenant);
            let all = health.suspension.as_ref();
            if all.is_some_and(|all| all.until_for(standing) <= now) {
                end(&mut health.suspension);
            }
            health.is_served = true;
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
            (one.errored, one.rejected) = (Some(now), Some(now));
            suspend(&mut one.suspension, now + rest, Cause::Overload, now);
            health.judge_all(|_| true, (now + rest, Cause::Overload), now);
        });
    }

    /// Whether recent rejections because of load concern all tenants: several were rejected, and
    /// none was served lately, or there is one only.
    pub(crate) fn overload_concerns_all(&self, now: Instant) -> bool {
        let models = self.models.lock();
        let tenants = || models.values().flat_map(|health| &health.tenants);
        let rejected = || tenants().filter(|one| is_recent(one.rejected, now));
        let Some(first) = rejected().next() else {
            return false;
        };
        let is_other = |one: &TenantHealth| one.tenant != first.tenant;
        if !tenants().any(is_other) {
            return true;
        }
        rejected().any(is_other) && !tenants().any(|one| is_recent(one.served, now))
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
            (one.served, one.errored) = (None, Some(now));
            if !one.failed.contains(&body) && one.failed.len() < MAX_BODIES.max(threshold) {
                one.failed.push(body);
            }
            if is_over(&one.suspension, now) || one.failed.len() >= threshold {
                suspend(&mut one.suspension, until, Cause::Faults, now);
            }
            health.judge_all(|bodies| bodies >= threshold, (until, Cause::Faults), now);
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

    /// Takes a suspension that another process has begun.
    pub(crate) fn suspend_until(
        &self,
        (model, tenant): (&str, Option<&Arc<str>>),
        until: Instant,
        overloaded: bool,
        now: Instant,
    ) {
        let cause = match overloaded {
            true => Cause::Overload,
            false => Cause::Faults,
        };
        self.with(model, now, |health| match tenant {
            Some(tenant) => {
                suspend(
                    &mut health.tenant(tenant, now).suspension,
                    until,
                    cause,
                    now,
                );
            }
            None => suspend(&mut health.suspension, until, cause, now),
        });
    }

    /// Ends a suspension that another process has ended, because the upstream served a request.
    pub(crate) fn resume(&self, model: &str, tenant: Option<&Arc<str>>) {
        let mut models = self.models.lock();
        let Some(health) = models.get_mut(model) else {
            return;
        };
        match tenant {
            None => end(&mut health.suspension),
            Some(tenant) => {
                let own = health.tenants.iter_mut().find(|one| one.tenant == *tenant);
                own.into_iter().for_each(|own| end(&mut own.suspension));
            }
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
                        overloaded: suspension.cause == Cause::Overload,
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
            health.seen = Some(now);
            return change(health);
        }
        if models.len() >= MAX_MODELS {
            models.retain(|_, health| health.matters(now));
        }
        if models.len() >= MAX_MODELS {
            // Clients invent names, and the upstream may reject them with 429. So the one that was
            // idle longest goes, of those that were never served.
            let invented = models.iter().filter(|(_, health)| !health.is_served);
            let longest_idle = invented.min_by_key(|(_, health)| health.seen);
            let Some(name) = longest_idle.map(|(name, _)| name.clone()) else {
                return;
            };
            if let Some(mut health) = models.remove(&name) {
                health.end();
            }
        }
        let health = models.entry(model.to_owned()).or_default();
        health.seen = Some(now);
        change(health);
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
                let is_own = |probe: &mut ProbeOutcome| probe.known == self.ended;
                drop(suspension.probe.take_if(is_own));
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
    fn errors_of_long_ago_do_not_count_beside_those_of_another_tenant() {
        let judged = Judged::new();
        judged.failed("a", 1);
        judged.overloaded("b");
        assert!(judged.is_suspended("c"), "both at once concern all");
        let mut judged = Judged {
            now: judged.now + Duration::from_secs(60),
            ..Judged::new()
        };
        judged.failed("a", 1);
        judged.now += Duration::from_secs(12);
        judged.failed("b", 2);
        assert!(!judged.is_suspended("c"));
        judged.now += Duration::from_secs(30);
        judged.overloaded("a");
        judged.now += Duration::from_secs(30);
        judged.overloaded("b");
        assert!(judged.is_suspended("b") && !judged.is_suspended("c"));
    }

    /// Three tenants whose requests always fail, and one that asks every twelve seconds, so that
    /// its last success proves nothing any more. Returns its longest wait.
    fn victim_of_colluding_tenants(fail: impl Fn(&Judged, &str, u128)) -> Duration {
        let step = Duration::from_millis(100);
        let mut judged = Judged::new();
        judged.served("victim");
        let (mut body, mut asked, mut longest) = (0, None, Duration::ZERO);
        for tick in 0..6000 {
            judged.now += step;
            for attacker in ["a", "b", "c"] {
                // It holds its probe for as long as the others wait for it.
                if let Ok(probe) = judged.begin(attacker) {
                    body += 1;
                    fail(&judged, attacker, body);
                    drop(probe);
                }
            }
            if tick % 120 == 0 {
                assert_eq!(asked, None, "the last request is still not served");
                asked = Some(judged.now);
            }
            if let Some(since) = asked
                && let Ok(probe) = judged.begin("victim")
            {
                judged.served("victim");
                drop(probe);
                longest = longest.max(judged.now - since);
                asked = None;
            }
        }
        longest
    }

    #[test]
    fn colluding_tenants_do_not_keep_a_rare_one_from_being_served() {
        let waited = victim_of_colluding_tenants(|judged, tenant, body| {
            judged.failed(tenant, body);
        });
        assert!(waited <= RULE.suspend_for + HEAD_START, "{waited:?}");
        let waited = victim_of_colluding_tenants(|judged, tenant, _| {
            let rest = Duration::from_secs(60);
            judged.at(tenant, |at| judged.health.overloaded(at, rest, judged.now));
        });
        assert!(waited <= LONGEST_FOR_SERVED + HEAD_START, "{waited:?}");
    }

    #[test]
    fn a_tenant_that_was_served_does_not_wait_for_the_probe_of_one_with_errors() {
        let mut judged = Judged::new();
        judged.served("victim");
        judged.now += PROOF;
        judged.failed("a", 1);
        judged.failed("b", 2);
        judged.now += Duration::from_secs(5);
        assert!(judged.begin("a").is_err(), "the victim goes first");
        judged.now += HEAD_START;
        let hung = judged.begin("a").unwrap();
        assert!(matches!(judged.begin("b"), Err(Wait::Probe(_))));
        let probe = judged.begin("victim").unwrap();
        assert!(probe.is_some());
        assert!(matches!(judged.begin("victim"), Err(Wait::Probe(_))));
        judged.served("victim");
        drop((hung, probe));
        assert!(judged.begin("victim").unwrap().is_none());
    }

    #[test]
    fn one_tenants_rejections_are_no_overload_of_the_upstream() {
        let mut judged = Judged::new();
        let concerns_all = |judged: &Judged| judged.health.overload_concerns_all(judged.now);
        judged.overloaded("a");
        assert!(concerns_all(&judged), "it is the only one");
        judged.served("b");
        assert!(!concerns_all(&judged));
        judged.overloaded("b");
        assert!(concerns_all(&judged), "both are rejected");
        judged.served("c");
        assert!(!concerns_all(&judged));
        judged.now += PROOF;
        judged.overloaded("a");
        assert!(!concerns_all(&judged), "the others are idle");
    }

    #[test]
    fn a_slow_probe_of_an_overloaded_upstream_does_not_hold_up_others() {
        let mut judged = Judged::new();
        judged.overloaded("a");
        judged.overloaded("b");
        judged.now += Duration::from_secs(6);
        let slow = judged.begin("a").unwrap();
        assert!(slow.is_some(), "it probes");
        assert!(matches!(judged.begin("c"), Err(Wait::Probe(_))));
        judged.now += PROBE_PATIENCE;
        assert!(
            matches!(judged.begin("c"), Ok(None)),
            "it was not refused at once"
        );
        assert!(matches!(judged.begin("c"), Ok(None)));
        drop(slow);
        assert!(!judged.is_suspended("c"));
    }

    #[test]
    fn a_hung_probe_of_a_failing_upstream_is_followed_by_few_others() {
        let mut judged = Judged::new();
        judged.failed("a", 1);
        judged.failed("b", 2);
        judged.now += Duration::from_secs(6);
        let mut probes = Vec::new();
        for _ in 0..600 {
            if let Ok(probe) = judged.begin("c") {
                probes.push(probe.expect("a suspended upstream is probed"));
            }
            judged.now += Duration::from_secs(1);
        }
        assert_eq!(probes.len(), 6, "after 10, 30, 70, 150 and 310 s");
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
    fn two_tenants_rejected_for_an_hour_stop_the_others_for_a_minute() {
        let mut judged = Judged::new();
        let hour = Duration::from_secs(3600);
        for tenant in ["a", "b"] {
            judged.at(tenant, |at| judged.health.overloaded(at, hour, judged.now));
        }
        assert!(judged.is_suspended("c"));
        judged.now += LONGEST_FOR_ALL;
        let probe = judged.begin("c").expect("it may probe");
        judged.served("c");
        drop(probe);
        assert!(!judged.is_suspended("d"));
        assert!(judged.is_suspended("a") && judged.is_suspended("b"));
        judged.now += hour - LONGEST_FOR_ALL - Duration::from_secs(1);
        assert!(judged.is_suspended("a") && judged.is_suspended("b"));
    }

    #[test]
    fn invented_names_do_not_keep_a_model_from_being_judged() {
        let mut judged = Judged::new();
        let hour = Duration::from_secs(3600);
        judged.served("other");
        judged.overloaded("other");
        for number in 0..2 * MAX_MODELS {
            judged.now += Duration::from_micros(1);
            for tenant in ["a", "b"] {
                let (model, tenant) = (number.to_string(), tenant.into());
                let at = Viewpoint {
                    model: &model,
                    tenant: &tenant,
                    tokens: 0,
                };
                judged.health.overloaded(at, hour, judged.now);
            }
        }
        assert!(judged.health.models.lock().len() <= MAX_MODELS);
        assert!(judged.is_suspended("other"), "a served model is kept");
        let (model, tenant) = ("new", &"c".into());
        let at = Viewpoint {
            model,
            tenant,
            tokens: 0,
        };
        judged.health.overloaded(at, hour, judged.now);
        assert!(judged.health.wait(at, judged.now).is_some());
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
