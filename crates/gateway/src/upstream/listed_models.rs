//! Models that upstreams list themselves, for patterns in the configuration.
//!
//! A pattern such as `gpt-*` names no model, so the upstream is asked which ones it stands for. The
//! answers are kept for a while: clients ask often, and the lists rarely change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use headworks_service::outbound::Outbound;
use http::{HeaderValue, Request};
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

/// A list of models, and until when it holds.
type KeptList = (Instant, Arc<[String]>);

/// Lists of models by the name of their upstream.
#[derive(Debug, Default)]
pub(crate) struct ListedModels {
    lists: Mutex<HashMap<Arc<str>, KeptList>>,
}

impl ListedModels {
    /// The models that an upstream lists. Without a list, the last one counts.
    pub(crate) async fn of(&self, upstream: &Upstream, outbound: &Outbound) -> Arc<[String]> {
        let now = Instant::now();
        let known = self.lists.lock().get(&upstream.label).cloned();
        if let Some((until, models)) = &known
            && *until > now
        {
            return models.clone();
        }
        let asked = tokio::time::timeout(TIMEOUT, ask(upstream, outbound)).await;
        let (kept, models) = match (asked.ok().flatten(), known) {
            (Some(models), _) => (KEPT, models.into()),
            (None, Some((_, models))) => (RETRY, models),
            (None, None) => (RETRY, Arc::from([])),
        };
        let entry = (now + kept, models.clone());
        self.lists.lock().insert(upstream.label.clone(), entry);
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
