//! Upstreams: how they are called, the connections to them, and what their responses say about
//! them.

mod address;
mod allowance;
mod allowances;
mod body;
mod call;
mod client_pool;
mod connects;
mod echo;
mod headers;
mod health;
mod hints;
mod listed_models;
mod metrics;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use headworks_core::{TargetId, TargetState, Time};
use http::{HeaderMap, HeaderValue};

pub(crate) use address::{Address, percent_decode};
pub(crate) use allowance::StatedLimit;
pub(crate) use allowances::Allowances;
pub(crate) use body::UpstreamBody;
pub(crate) use call::{CallError, ForwardedRequest, UpstreamResponse};
pub(crate) use client_pool::ClientPool;
pub(crate) use connects::Connects;
pub(crate) use headers::{clean_response_headers, detach};
pub(crate) use health::{Probe, SuspendRule, UpstreamHealth, Viewpoint, Wait};
pub(crate) use hints::{Hints, read_hints};
pub(crate) use listed_models::ListedModels;
pub(crate) use metrics::{BUCKET_BOUNDS, UpstreamMetrics};

use crate::config::{Kind, ModelLimits, UpstreamSettings};
use crate::pattern;
use crate::wire::Dialect;

/// Number of an upstream. It stays the same for the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UpstreamId(pub(crate) u32);

/// One upstream, or the part of it with separate limits, ready to be called.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) id: UpstreamId,
    /// The capacity pool that it belongs to, which the scheduler knows as a target.
    pub(crate) target: TargetId,
    /// Its name, cheap to clone.
    pub(crate) label: Arc<str>,
    /// Its name as a header value; `None` if the name is not a valid one.
    pub(crate) name_header: Option<HeaderValue>,
    pub(crate) settings: UpstreamSettings,
    /// Index into the upstream's model limits; `None` for the models without separate limits.
    limit: Option<usize>,
    address: Option<Address>,
    /// Credentials and other headers that go with every request.
    headers: HeaderMap,
    pub(crate) metrics: Arc<UpstreamMetrics>,
    pub(crate) health: Arc<UpstreamHealth>,
    /// Of its account, which other entries of its pool may share.
    allowances: Arc<Allowances>,
    /// Of its server, which other entries of its pool may share.
    pub(crate) connects: Arc<Connects>,
    /// How far it is behind its share of the calls to its pool.
    turn: Arc<AtomicI64>,
}

/// State of an upstream that outlives a reload.
#[derive(Clone, Debug, Default)]
pub(crate) struct UpstreamState {
    pub(crate) metrics: Arc<UpstreamMetrics>,
    pub(crate) health: Arc<UpstreamHealth>,
    pub(crate) allowances: Arc<Allowances>,
    pub(crate) connects: Arc<Connects>,
    turn: Arc<AtomicI64>,
}

/// Sorts upstreams of a pool so that each is first in proportion to its weight (smooth weighted
/// round robin, as in nginx).
pub(crate) fn sort_by_turn(upstreams: &mut [&Arc<Upstream>]) {
    if upstreams.len() < 2 {
        return;
    }
    let mut total = 0;
    for upstream in &*upstreams {
        let weight = i64::from(upstream.settings.weight);
        total += weight;
        upstream.turn.fetch_add(weight, Ordering::Relaxed);
    }
    upstreams.sort_by_cached_key(|upstream| -upstream.turn.load(Ordering::Relaxed));
    upstreams[0].turn.fetch_sub(total, Ordering::Relaxed);
}

impl Upstream {
    pub(crate) fn new(
        (id, target): (UpstreamId, TargetId),
        settings: UpstreamSettings,
        limit: Option<usize>,
        state: UpstreamState,
    ) -> Upstream {
        Upstream {
            id,
            target,
            label: settings.name.as_str().into(),
            name_header: HeaderValue::try_from(&settings.name).ok(),
            limit,
            address: Address::parse(&settings.url).ok(),
            headers: headers::upstream_headers(&settings),
            settings,
            metrics: state.metrics,
            health: state.health,
            allowances: state.allowances,
            connects: state.connects,
            turn: state.turn,
        }
    }

    /// The event that a request has to await, if any. Changes nothing.
    pub(crate) fn wait(&self, at: Viewpoint<'_>, now: Instant) -> Option<Wait> {
        let allowed = self.allowances.ready_at(at, now).map(Wait::Until);
        let waits = self.health.wait(at, now).into_iter().chain(allowed);
        waits.reduce(Wait::and)
    }

    /// Begins a call. On probation, the returned guard makes others wait until it is dropped.
    pub(crate) fn begin(&self, at: Viewpoint<'_>, now: Instant) -> Result<Option<Probe>, Wait> {
        self.allowances
            .begin(at, now, || self.health.begin(at, now))
    }

    /// Records what the provider says is left of its rate limits.
    pub(crate) fn limited(&self, at: Viewpoint<'_>, hints: &Hints, now: Instant) {
        self.allowances.limited(at, hints, now);
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// Its state: that of its target, or suspended if a model is suspended for all tenants or its
    /// server cannot be reached. The time is how long the suspension lasts.
    pub(crate) fn state(&self, target: TargetState, now: Time) -> (&'static str, Option<Duration>) {
        let suspended = self.health.suspended(Instant::now());
        let longest = suspended.iter().filter(|one| one.concerns_all);
        let down = self.connects.down_for(Instant::now());
        match (target, longest.map(|one| one.left).max().or(down)) {
            (TargetState::Suspended { until }, _) => (target.name(), Some(until.since(now))),
            (TargetState::Active, Some(left)) => ("suspended", Some(left)),
            _ => (target.name(), None),
        }
    }

    /// Whether it can serve `model` to a client of `dialect`.
    pub(crate) fn serves(&self, dialect: Dialect, model: &str) -> bool {
        let speaks = match self.settings.kind {
            Kind::Openai => dialect == Dialect::OpenAi,
            Kind::Anthropic => dialect == Dialect::Anthropic,
            Kind::Echo => true,
        };
        let limited = |limit: &ModelLimits| pattern::any(&limit.models, model);
        speaks
            && pattern::any(&self.settings.models, model)
            // A model belongs to the first limit that matches it, so exactly one part of an
            // upstream serves it.
            && self.settings.limit.iter().position(limited) == self.limit
    }
}
