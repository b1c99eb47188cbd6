//! `GET /v1/models`: the configured models, in the format of the client's SDK.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::body::GatewayBody;
use super::route::ServeContext;
use crate::active_config::ActiveConfig;
use crate::keys::Principal;
use crate::upstream::Upstream;
use crate::wire::{Dialect, Problem};

/// Models that patterns of the configuration stand for, as the upstreams list them.
pub(crate) async fn listed(
    context: &ServeContext,
    active: &ActiveConfig,
    dialect: Dialect,
) -> Vec<(String, Arc<Upstream>)> {
    let has_pattern = |upstream: &&Arc<Upstream>| {
        let models = &upstream.settings.models;
        models.is_empty() || models.iter().any(|model| model.contains('*'))
    };
    let asked = active
        .upstreams()
        .filter(has_pattern)
        .map(|upstream| async move {
            let outbound = &context.client_pool.outbound;
            let models = context.shared.listed_models.of(upstream, outbound).await;
            let served = models
                .iter()
                .filter(|model| upstream.serves(dialect, model));
            served
                .map(|model| (model.clone(), upstream.clone()))
                .collect::<Vec<_>>()
        });
    futures_util::future::join_all(asked).await.concat()
}

/// Responds with the list of models, or with one of them.
pub(crate) fn answer(
    active: &ActiveConfig,
    principal: &Principal,
    dialect: Dialect,
    listed: &[(String, Arc<Upstream>)],
    one: Option<&str>,
) -> Result<Response<GatewayBody>, Problem> {
    let listed = listed
        .iter()
        .map(|(model, upstream)| (model.as_str(), upstream.name()));
    // A model that the configuration names counts before one that an upstream lists.
    let models: BTreeMap<&str, &str> = listed.chain(active.models(dialect)).collect();
    let allowed = models
        .into_iter()
        .filter(|(model, _)| principal.may_use(model));
    let mut shown = allowed.map(|(model, owner)| (model, shape(dialect, model, owner)));
    let body = match one {
        Some(name) => match shown.find(|(model, _)| *model == name) {
            Some((_, shape)) => shape,
            None => return Err(unknown(name)),
        },
        None => list(dialect, &shown.map(|(_, shape)| shape).collect::<Vec<_>>()),
    };
    let mut response = Response::new(GatewayBody::Whole(Some(Bytes::from(body.to_string()))));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

pub(crate) fn unknown(model: &str) -> Problem {
    let message = format!(
        "no upstream serves model `{model}`: GET /v1/models lists the models, and `gateway.upstream` configures them"
    );
    Problem::new(StatusCode::NOT_FOUND, "model_not_found", message)
}

fn shape(dialect: Dialect, model: &str, owner: &str) -> Value {
    match dialect {
        Dialect::OpenAi => {
            json!({ "id": model, "object": "model", "created": 0, "owned_by": owner })
        }
        Dialect::Anthropic => json!({ "id": model, "type": "model", "display_name": model,
            "created_at": "1970-01-01T00:00:00Z" }),
    }
}

fn list(dialect: Dialect, models: &[Value]) -> Value {
    match dialect {
        Dialect::OpenAi => json!({ "object": "list", "data": models }),
        Dialect::Anthropic => {
            let id = |model: Option<&Value>| model.map(|model| model["id"].clone());
            json!({ "first_id": id(models.first()), "last_id": id(models.last()), "has_more": false, "data": models })
        }
    }
}
