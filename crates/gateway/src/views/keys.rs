//! Routes for keys, tenants and their audit log, behind the token of the admin listener.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Extension, Path, Query, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use headworks_service::admin::{Client, HttpProblem};
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::config::{KeySettings, TenantSettings};
use crate::error::Error;
use crate::key_store::{KeyChange, NewKey};
use crate::shared::Shared;

type JsonResult = Result<(StatusCode, Json<Value>), HttpProblem>;

/// Entries of the audit log in one response, unless the request says otherwise.
const AUDIT_LIMIT: usize = 100;
const MAX_AUDIT_LIMIT: usize = 10_000;

pub(super) fn router() -> Router<Arc<Shared>> {
    Router::new()
        .route("/admin/gateway/keys", get(list_keys).post(add_key))
        .route(
            "/admin/gateway/keys/{id}",
            axum::routing::delete(revoke_key),
        )
        .route("/admin/gateway/keys/{id}/rotate", post(rotate_key))
        .route("/admin/gateway/keys/{id}/expire", post(expire_key))
        .route("/admin/gateway/tenants", get(list_tenants).post(set_tenant))
        .route(
            "/admin/gateway/tenants/{name}",
            axum::routing::delete(remove_tenant),
        )
        .route("/admin/gateway/audit", get(audit_log))
}

/// The body of a request that creates a key.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddKey {
    tenant: String,
    #[serde(default)]
    id: String,
    class: Option<u8>,
    max_class: Option<u8>,
    #[serde(default)]
    models: Vec<String>,
    expires: Option<Timestamp>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RotateKey {
    /// Id of the successor.
    #[serde(default)]
    id: String,
    /// Time until which the replaced key works.
    keep_until: Option<Timestamp>,
    expires: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpireKey {
    /// The time; `null` for never. Required, so that an empty body changes nothing.
    at: Option<Timestamp>,
}

async fn list_keys(State(shared): State<Arc<Shared>>) -> JsonResult {
    let stored = shared.key_store()?.load().await?;
    let active = shared.active.load();
    let configured = active
        .config
        .key
        .iter()
        .map(|key| shown(key, "configuration"));
    let stored = stored.keys.iter().map(|key| shown(key, "store"));
    let keys: Vec<Value> = configured.chain(stored).collect();
    Ok((StatusCode::OK, Json(json!({ "keys": keys }))))
}

/// A key without what could admit anybody.
fn shown(key: &KeySettings, source: &str) -> Value {
    json!({
        "id": key.id, "tenant": key.tenant, "class": key.class, "max_class": key.max_class,
        "models": key.models, "expires": key.expires, "source": source,
    })
}

async fn add_key(
    State(shared): State<Arc<Shared>>,
    client: Option<Extension<Client>>,
    body: Bytes,
) -> JsonResult {
    let asked: AddKey = parse(&body)?;
    let new = NewKey::generate(KeySettings {
        id: asked.id,
        tenant: asked.tenant,
        class: asked.class,
        max_class: asked.max_class,
        models: asked.models,
        expires: asked.expires,
        ..KeySettings::default()
    })
    .map_err(HttpProblem::from)?;
    let change = KeyChange::Add(new.settings.clone());
    apply(&shared, change, client).await?;
    Ok((StatusCode::CREATED, Json(created(&new))))
}

fn created(new: &NewKey) -> Value {
    json!({
        "id": new.settings.id, "key": new.reveal(), "expires": new.settings.expires,
        "note": "this is the only time that the key is shown",
    })
}

async fn rotate_key(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    client: Option<Extension<Client>>,
    body: Bytes,
) -> JsonResult {
    let asked: RotateKey = match body.is_empty() {
        true => RotateKey::default(),
        false => parse(&body)?,
    };
    let tenant = shared.key_store()?.load().await?;
    let tenant = tenant.keys.into_iter().find(|key| key.id == id);
    let tenant = tenant.ok_or_else(|| Error::KeyUnknown(id.clone()))?.tenant;
    let new = NewKey::generate(KeySettings {
        id: asked.id,
        tenant,
        expires: asked.expires,
        ..KeySettings::default()
    })
    .map_err(HttpProblem::from)?;
    let change = KeyChange::Rotate {
        id,
        successor: new.settings.clone(),
        keep_until: asked.keep_until,
    };
    apply(&shared, change, client).await?;
    Ok((StatusCode::CREATED, Json(created(&new))))
}

async fn expire_key(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    client: Option<Extension<Client>>,
    body: Bytes,
) -> JsonResult {
    let ExpireKey { at } = parse(&body)?;
    apply(&shared, KeyChange::Expire { id, at }, client).await?;
    done()
}

async fn revoke_key(
    State(shared): State<Arc<Shared>>,
    Path(id): Path<String>,
    client: Option<Extension<Client>>,
) -> JsonResult {
    apply(&shared, KeyChange::Revoke { id }, client).await?;
    done()
}

async fn list_tenants(State(shared): State<Arc<Shared>>) -> JsonResult {
    let stored = shared.key_store()?.load().await?;
    let active = shared.active.load();
    let shown = |tenant: &TenantSettings, source: &str| {
        let mut shown = json!(tenant);
        shown["source"] = source.into();
        shown
    };
    let is_replaced = |one: &&TenantSettings| stored.tenants.iter().any(|t| t.name == one.name);
    let configured = active.config.tenant.iter().filter(|one| !is_replaced(one));
    let configured = configured.map(|tenant| shown(tenant, "configuration"));
    let tenants: Vec<Value> = configured
        .chain(stored.tenants.iter().map(|tenant| shown(tenant, "store")))
        .collect();
    Ok((StatusCode::OK, Json(json!({ "tenants": tenants }))))
}

async fn set_tenant(
    State(shared): State<Arc<Shared>>,
    client: Option<Extension<Client>>,
    body: Bytes,
) -> JsonResult {
    let mut changes: Map<String, Value> = parse(&body)?;
    let Some(Value::String(name)) = changes.remove("name") else {
        return Err(bad_request("the tenant's `name` is missing".to_owned()));
    };
    let stored = shared.key_store()?.load().await?.tenants;
    let before = {
        let active = shared.active.load();
        let mut known = stored.iter().chain(&active.config.tenant);
        known.find(|tenant| tenant.name == name).cloned()
    };
    let before = before.unwrap_or(TenantSettings {
        name,
        ..TenantSettings::default()
    });
    // A misspelt limit is refused: it would not apply, and nobody would notice.
    let tenant = before.changed(&changes).map_err(bad_request)?;
    apply(&shared, KeyChange::SetTenant(tenant), client).await?;
    done()
}

async fn remove_tenant(
    State(shared): State<Arc<Shared>>,
    Path(name): Path<String>,
    client: Option<Extension<Client>>,
) -> JsonResult {
    apply(&shared, KeyChange::RemoveTenant { name }, client).await?;
    done()
}

#[derive(Deserialize)]
struct AuditQuery {
    limit: Option<usize>,
}

async fn audit_log(
    State(shared): State<Arc<Shared>>,
    Query(query): Query<AuditQuery>,
) -> JsonResult {
    let limit = query.limit.unwrap_or(AUDIT_LIMIT).min(MAX_AUDIT_LIMIT);
    let entries = shared.key_store()?.audit_log(limit).await?;
    Ok((StatusCode::OK, Json(json!({ "audit": entries }))))
}

/// Stores a change and puts it in force on this node before it answers.
async fn apply(
    shared: &Arc<Shared>,
    change: KeyChange,
    client: Option<Extension<Client>>,
) -> Result<(), HttpProblem> {
    let actor = match client {
        Some(Extension(Client(address))) => format!("admin:{address}"),
        None => "admin".to_owned(),
    };
    Ok(shared.change_keys(&change, &actor).await?)
}

fn done() -> JsonResult {
    Ok((StatusCode::OK, Json(json!({ "done": true }))))
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, HttpProblem> {
    serde_json::from_slice(body).map_err(|cause| bad_request(format!("invalid body: {cause}")))
}

fn bad_request(text: String) -> HttpProblem {
    HttpProblem::new(StatusCode::BAD_REQUEST, text)
}

impl From<Error> for HttpProblem {
    fn from(error: Error) -> HttpProblem {
        let status = match &error {
            Error::KeyUnknown(_) | Error::TenantUnknown(_) => StatusCode::NOT_FOUND,
            Error::KeyTaken(_) | Error::NoKeyStore => StatusCode::CONFLICT,
            Error::KeyInvalid(_) => StatusCode::BAD_REQUEST,
            Error::Fleet(error) if error.is_temporary() => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        HttpProblem::new(status, error.to_string())
    }
}
