//! Error responses in the format of each API.

use std::time::Duration;

use bytes::Bytes;
use headworks_h1::HeadError;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::json;

use super::endpoint::Dialect;

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error response of the gateway itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
#[non_exhaustive]
pub struct Problem {
    /// HTTP status.
    pub status: StatusCode,
    /// Reason for programs: the value of `x-headworks-reason`.
    pub reason: &'static str,
    /// The error, its object, and the remedy.
    pub message: String,
    /// When to retry.
    pub retry_after: Option<Duration>,
    /// Whether a retry can succeed; `None` leaves the decision to the client.
    pub should_retry: Option<bool>,
}

impl Problem {
    /// Creates a problem that leaves retries to the client.
    pub fn new(status: StatusCode, reason: &'static str, message: impl Into<String>) -> Self {
        Problem {
            status,
            reason,
            message: message.into(),
            retry_after: None,
            should_retry: None,
        }
    }

    /// Asks for a retry after this time.
    #[must_use]
    pub fn retry_in(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self.should_retry = Some(true);
        self
    }

    /// Marks retries as useless.
    #[must_use]
    pub fn never(mut self) -> Self {
        self.should_retry = Some(false);
        self
    }

    /// Response body in the format of the client's API.
    #[must_use]
    pub fn body(&self, dialect: Dialect, request_id: &str) -> Bytes {
        let body = match dialect {
            Dialect::OpenAi => json!({ "error": {
                "message": self.message,
                "type": self.kind(dialect),
                "param": null,
                "code": self.reason,
            }}),
            Dialect::Anthropic => json!({
                "type": "error",
                "error": { "type": self.kind(dialect), "message": self.message },
                "request_id": request_id,
            }),
        };
        Bytes::from(body.to_string())
    }

    /// The error as an event, for a stream that has begun.
    #[must_use]
    pub fn event(&self, dialect: Dialect, request_id: &str) -> Bytes {
        let mut event = Vec::new();
        if dialect == Dialect::Anthropic {
            event.extend_from_slice(b"event: error\n");
        }
        event.extend_from_slice(b"data: ");
        event.extend_from_slice(&self.body(dialect, request_id));
        event.extend_from_slice(b"\n\n");
        Bytes::from(event)
    }

    /// Sets the content type and the retry headers. The SDKs read different ones, so all of them
    /// are set.
    pub fn write_headers(&self, headers: &mut HeaderMap) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(after) = self.retry_after {
            let millis = u64::try_from(after.as_millis()).unwrap_or(u64::MAX).max(1);
            // Rounded up, because a client that retries too early is rejected again.
            headers.insert(RETRY_AFTER, HeaderValue::from(millis.div_ceil(1000)));
            headers.insert(RETRY_AFTER_MS, HeaderValue::from(millis));
        }
        if let Some(should) = self.should_retry {
            let word = if should { "true" } else { "false" };
            headers.insert(SHOULD_RETRY, HeaderValue::from_static(word));
        }
    }

    /// Error type that the API itself uses for this status.
    fn kind(&self, dialect: Dialect) -> &'static str {
        match (dialect, self.status.as_u16()) {
            (Dialect::Anthropic, 529) => "overloaded_error",
            (Dialect::Anthropic, 413) => "request_too_large",
            (Dialect::OpenAi, 429) if self.reason == "quota" => "insufficient_quota",
            (_, 401) => "authentication_error",
            (_, 403) => "permission_error",
            (_, 404) => "not_found_error",
            (_, 429) => "rate_limit_error",
            (_, 400..=499) => "invalid_request_error",
            (Dialect::OpenAi, _) => "server_error",
            (Dialect::Anthropic, _) => "api_error",
        }
    }
}

impl From<&HeadError> for Problem {
    fn from(error: &HeadError) -> Self {
        let reason = match error {
            HeadError::TooLarge => "head_too_large",
            _ => "bad_http",
        };
        Problem::new(error.status(), reason, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_given_in_seconds_and_milliseconds() {
        let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "full", "full");
        let mut headers = HeaderMap::new();
        problem
            .retry_in(Duration::from_millis(1500))
            .write_headers(&mut headers);
        assert_eq!(headers["retry-after"], "2");
        assert_eq!(headers["retry-after-ms"], "1500");
        assert_eq!(headers["x-should-retry"], "true");
    }
}
