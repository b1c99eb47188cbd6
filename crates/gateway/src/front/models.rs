//! `GET /v1/models`: the configured models, in the format of the client's SDK.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::body::GatewayBody;
use crate::active_config::ActiveConfig;
use crate::keys::Principal;
use crate::wire::{Dialect, Problem};

/// Responds with the list of models, or with one of them.
pub(crate) fn answer(
    active: &ActiveConfig,
    principal: &Principal,
    dialect: Dialect,
    one: Option<&str>,
) -> Result<Response<GatewayBody>, Problem> {
    let models = active.models(dialect);
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
