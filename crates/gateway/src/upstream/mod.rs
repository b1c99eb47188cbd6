//! Upstreams: how they are called, the connections to them, and what their responses say about
//! them.

mod address;
mod body;
mod call;
mod client_pool;
mod echo;
mod headers;
mod hints;
mod metrics;

use std::sync::Arc;

use headworks_core::TargetId;
use http::{HeaderMap, HeaderValue};

pub(crate) use address::Address;
pub(crate) use body::UpstreamBody;
pub(crate) use call::{CallError, ForwardedRequest, UpstreamResponse};
pub(crate) use client_pool::ClientPool;
pub(crate) use headers::{clean_response_headers, detach};
pub(crate) use hints::{Hints, read_hints};
pub(crate) use metrics::{BUCKET_BOUNDS, UpstreamMetrics};

use crate::config::{Kind, ModelLimits, UpstreamSettings};
use crate::pattern;
use crate::wire::Dialect;

/// One upstream, or the part of it with separate limits, ready to be called.
#[derive(Debug)]
pub(crate) struct Upstream {
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
}

impl Upstream {
    pub(crate) fn new(
        target: TargetId,
        settings: UpstreamSettings,
        limit: Option<usize>,
        metrics: Arc<UpstreamMetrics>,
    ) -> Upstream {
        Upstream {
            target,
            label: settings.name.as_str().into(),
            name_header: HeaderValue::try_from(&settings.name).ok(),
            limit,
            address: Address::parse(&settings.url).ok(),
            headers: headers::upstream_headers(&settings),
            settings,
            metrics,
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.settings.name
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
