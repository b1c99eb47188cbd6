//! Models that upstreams list themselves, for patterns in the configuration.
//!
//! A pattern such as `gpt-*` names no model, so the upstream is asked which ones it stands for. The
//! answers are kept for a while: clients ask often, and the lists rarely change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headworks_service::outbound::Outbound;
use http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt, Full, Limited};
use parking_lot::Mutex;
use serde_json::Value;

use super::Upstream;
use crate::config::Kind;

/// How long a list is kept.
const KEPT: Duration = Duration::from_secs(300);
/// How long an upstream that gave no list is not asked again.
const RETRY: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(5);
const LARGEST_LIST: usize = 4 << 20;

/// A list of models.
#[derive(Debug)]
struct KeptList {
    models: Arc<[String]>,
    until: Instant,
    /// Where the list is from. A reload may change both.
    url: String,
    headers: HeaderMap,
}

impl KeptList {
    fn is_from(&self, upstream: &Upstream) -> bool {
        self.url == upstream.settings.url && self.headers == upstream.headers
    }
}

/// The list of one upstream. It is locked while the upstream is asked, so that clients which ask at
/// the same time cause one call: these calls count against no limit.
type UpstreamList = Arc<tokio::sync::Mutex<Option<KeptList>>>;

/// Lists of models by the name of their upstream.
#[derive(Debug, Default)]
pub(crate) struct ListedModels {
    lists: Mutex<HashMap<Arc<str>, UpstreamList>>,
}

impl ListedModels {
    /// The models that an upstream lists. Without a list, the last one counts.
    pub(crate) async fn of(&self, upstream: &Upstream, outbound: &Outbound) -> Arc<[String]> {
        let list = self
            .lists
            .lock()
            .entry(upstream.label.clone())
            .or_default()
            .clone();
        let mut known = list.lock().await;
        known.take_if(|list| !list.is_from(upstream));
        let now = Instant::now();
        if let Some(list) = known.as_ref().filter(|list| list.until > now) {
            return list.models.clone();
        }
        let asked = tokio::time::timeout(TIMEOUT, ask(upstream, outbound)).await;
        let (kept, models) = match (asked.ok().flatten(), known.take()) {
            (Some(models), _) => (KEPT, models.into()),
            (None, Some(list)) => (RETRY, list.models),
            (None, None) => (RETRY, Arc::from([])),
        };
        *known = Some(KeptList {
            models: models.clone(),
            until: now + kept,
            url: upstream.settings.url.clone(),
            headers: upstream.headers.clone(),
        });
        models
    }
}

async fn ask(upstream: &Upstream, outbound: &Outbound) -> Option<Vec<String>> {
    let mut request = Request::new(Full::new(Bytes::new()));
    *request.uri_mut() = upstream.address.as_ref()?.models()?;
    *request.headers_mut() = upstream.headers.clone();
    if upstream.settings.kind == Kind::Anthropic {
        let version = HeaderValue::from_static("2023-06-01");
        request
            .headers_mut()
            .entry("anthropic-version")
            .or_insert(version);
    }
    let response = outbound.send(request).await.ok()?;
    if !response.status().is_success() {
        return None;
    }
    let body = Limited::new(response.into_body(), LARGEST_LIST)
        .collect()
        .await
        .ok()?;
    let list: Value = serde_json::from_slice(&body.to_bytes()).ok()?;
    let models = list["data"].as_array()?.iter();
    let ids = models.filter_map(|model| model["id"].as_str());
    Some(ids.map(str::to_owned).collect())
}
