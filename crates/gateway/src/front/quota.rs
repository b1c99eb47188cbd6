//! `GET /v1/quota`: limits, quotas and their use, for the tenant of the key.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::{Value, json};

use super::body::GatewayBody;
use crate::active_config::ActiveConfig;
use crate::keys::Principal;
use crate::shared::Shared;
use crate::time_rules::Period;

/// Responds with the quota of the key's tenant.
pub(crate) fn answer(
    shared: &Shared,
    active: &ActiveConfig,
    principal: &Principal,
) -> Response<GatewayBody> {
    let settings = active.tenant(&principal.tenant).cloned();
    let settings = settings.unwrap_or_default();
    let (today, this_month) = shared.ledger.used(&principal.tenant, shared.today());
    let now = shared.clock.now();
    let quota = |period: Period, limit: Option<u64>, used: u64| {
        json!({
            "limit": limit,
            "used": used,
            "remaining": limit.map(|limit| limit.saturating_sub(used)),
            "resets": period.next(now, &active.zone),
        })
    };
    let key = match principal.key_id.as_str() {
        "" => Value::Null,
        id => json!({ "id": id, "expires": principal.expires }),
    };
    let body = json!({
        "object": "quota",
        "tenant": &*principal.tenant,
        "key": key,
        "limits": {
            "max_concurrent": settings.max_concurrent,
            "max_rps": settings.max_rps,
            "max_tokens_per_sec": settings.max_tokens_per_sec,
        },
        "tokens_per_day": quota(Period::Day, settings.tokens_per_day, today),
        "tokens_per_month": quota(Period::Month, settings.tokens_per_month, this_month),
    });
    let mut response = Response::new(GatewayBody::Whole(Some(Bytes::from(body.to_string()))));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
