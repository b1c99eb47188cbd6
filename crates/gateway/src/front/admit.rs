//! Who asks, for what, and whether it may: everything before the scheduler has its say.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headworks_core::Class;
use headworks_service::config::{show_duration, show_size};
use http::header::{AUTHORIZATION, CONTENT_LENGTH};
use http::{HeaderMap, HeaderName, StatusCode};

use super::upload::{Upload, UploadError};
use crate::keys::Caller;
use crate::plan::Plan;
use crate::shared::Shared;
use crate::wire::{Problem, read_priority};

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const AZURE_KEY: HeaderName = HeaderName::from_static("api-key");
const PRIORITY: HeaderName = HeaderName::from_static("x-priority");
const RETRY: HeaderName = HeaderName::from_static("x-stainless-retry-count");
const TIMEOUTS: [HeaderName; 2] = [
    HeaderName::from_static("x-stainless-read-timeout"),
    HeaderName::from_static("x-stainless-timeout"),
];

/// Who asks.
pub(super) fn caller(plan: &Plan, headers: &HeaderMap) -> Result<Arc<Caller>, Problem> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok();
    let bearer = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| {
        let (scheme, key) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
    });
    let key = text(API_KEY).or(bearer).or_else(|| text(AZURE_KEY));
    plan.keys.find(key).ok_or_else(|| {
        let message = match key {
            Some(_) => "this API key is not known here: ask whoever runs this gateway for one",
            None => "an API key is needed: send `Authorization: Bearer KEY` or `x-api-key: KEY`",
        };
        Problem::new(StatusCode::UNAUTHORIZED, "invalid_api_key", message)
    })
}

/// How urgent it is.
pub(super) fn class(plan: &Plan, caller: &Caller, headers: &HeaderMap) -> Result<Class, Problem> {
    let Some(asked) = headers.get(PRIORITY) else {
        return Ok(caller.class_for(None));
    };
    let read = asked
        .to_str()
        .ok()
        .and_then(|asked| read_priority(asked, plan.levels()));
    if let Some(class) = read {
        return Ok(caller.class_for(Some(class)));
    }
    let message = format!(
        "`X-Priority` is none that there is: write 0 (most urgent) to {}, or a name such as normal, low or bulk",
        plan.levels() - 1
    );
    Err(Problem::new(
        StatusCode::BAD_REQUEST,
        "unknown_priority",
        message,
    ))
}

/// The whole body, within its bound and its time.
pub(super) async fn body(
    plan: &Plan,
    headers: &HeaderMap,
    body: impl Upload,
) -> Result<Bytes, Problem> {
    let most = plan.config.max_body;
    let told = headers
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if told.is_some_and(|told| told > most) {
        return Err(too_large(most));
    }
    let time = plan.config.body_timeout;
    match tokio::time::timeout(time, body.whole(most)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(UploadError::TooLarge)) => Err(too_large(most)),
        Ok(Err(UploadError::Broken(cause))) => {
            let message = format!("the body broke off: {cause}");
            Err(Problem::new(
                StatusCode::BAD_REQUEST,
                "body_broke_off",
                message,
            ))
        }
        Err(_) => {
            let message = format!("the body did not come within {}", show_duration(time));
            Err(Problem::new(
                StatusCode::REQUEST_TIMEOUT,
                "body_timeout",
                message,
            ))
        }
    }
}

fn too_large(most: u64) -> Problem {
    let message = format!(
        "the body is larger than {}: send less, or raise `gateway.max_body`",
        show_size(most)
    );
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message).never()
}

/// Whether the tenant has tokens left.
pub(super) fn quota(shared: &Shared, plan: &Plan, caller: &Caller) -> Result<(), Problem> {
    let Some(tenant) = plan.tenant(&caller.tenant) else {
        return Ok(());
    };
    if tenant.tokens_per_day.is_none() && tenant.tokens_per_month.is_none() {
        return Ok(());
    }
    match shared.ledger.exhausted(tenant, shared.today()) {
        None => Ok(()),
        Some(period) => {
            let message = format!(
                "the tokens of tenant `{}` for this {period} are used up: wait for the next, or ask for more",
                caller.tenant
            );
            Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "quota", message).never())
        }
    }
}

/// How long the client itself will wait. Its own timeout is told by the SDKs in seconds.
pub(super) fn patience(headers: &HeaderMap) -> Option<Duration> {
    let seconds = |name: &HeaderName| {
        let text = headers.get(name)?.to_str().ok()?;
        let seconds: f64 = text.trim().parse().ok()?;
        Duration::try_from_secs_f64(seconds)
            .ok()
            .filter(|time| !time.is_zero())
    };
    TIMEOUTS.iter().filter_map(seconds).min()
}

/// Whether the client says that it asked before.
pub(super) fn is_retry(headers: &HeaderMap) -> bool {
    let count = headers.get(RETRY).and_then(|value| value.to_str().ok());
    count
        .and_then(|count| count.trim().parse::<u32>().ok())
        .is_some_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pairs = pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        pairs.collect()
    }

    #[test]
    fn a_clients_timeout_is_understood() {
        let told = |value| patience(&headers(&[("x-stainless-read-timeout", value)]));
        assert_eq!(told("600.0"), Some(Duration::from_secs(600)));
        assert_eq!(told("0.5"), Some(Duration::from_millis(500)));
        for nonsense in ["not_given", "-1", "0", "inf", "NaN", ""] {
            assert_eq!(told(nonsense), None, "{nonsense}");
        }
        let both = headers(&[
            ("x-stainless-timeout", "600"),
            ("x-stainless-read-timeout", "5"),
        ]);
        assert_eq!(patience(&both), Some(Duration::from_secs(5)));
    }

    #[test]
    fn a_retry_is_recognised() {
        assert!(is_retry(&headers(&[("x-stainless-retry-count", "2")])));
        assert!(!is_retry(&headers(&[("x-stainless-retry-count", "0")])));
        assert!(!is_retry(&HeaderMap::new()));
    }
}
