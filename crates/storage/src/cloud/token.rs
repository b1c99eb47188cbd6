//! Bearer tokens, from the environment and from token services.

use super::{SegmentedBytes, metadata_service};
use crate::error::{Error, ErrorKind, Result};
use bytes::Bytes;
use headworks_outbound::Outbound;
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use serde::Deserialize;

/// The life of a token whose response does not tell, in seconds.
const UNKNOWN_LIFE: i64 = 600;

/// The response of a token service.
#[derive(Deserialize)]
pub(crate) struct TokenResponse {
    #[serde(alias = "accessToken")]
    pub(crate) access_token: String,
    expires_in: Option<Number>,
    /// In seconds since 1970.
    expires_on: Option<Number>,
    #[serde(rename = "expireTime")]
    expire_time: Option<String>,
}

/// A number, which some services write as a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Number(i64),
    Text(String),
}

impl Number {
    fn value(&self) -> Option<i64> {
        match self {
            Number::Number(number) => Some(*number),
            Number::Text(text) => text.trim().parse().ok(),
        }
    }
}

impl TokenResponse {
    /// Returns the time at which the token expires, in seconds since 1970.
    pub(crate) fn expires(&self, now: i64) -> i64 {
        let on = self.expires_on.as_ref().and_then(Number::value);
        let within = || Some(now + self.expires_in.as_ref()?.value()?);
        let at = || {
            Some(
                self.expire_time
                    .as_ref()?
                    .parse::<jiff::Timestamp>()
                    .ok()?
                    .as_second(),
            )
        };
        on.or_else(within).or_else(at).unwrap_or(now + UNKNOWN_LIFE)
    }
}

/// Sends a request to a token service.
pub(crate) async fn fetch_token(
    outbound: &Outbound,
    address: &str,
    request: http::Result<Request<SegmentedBytes>>,
) -> Result<TokenResponse> {
    let (status, _, body) = fetch_response(outbound, address, request).await?;
    parse_token(address, status, &body)
}

/// Sends a request to a token service, and returns its response.
pub(crate) async fn fetch_response(
    outbound: &Outbound,
    address: &str,
    request: http::Result<Request<SegmentedBytes>>,
) -> Result<(StatusCode, HeaderMap, Bytes)> {
    let request = request.map_err(|error| refused(address, error.to_string()))?;
    let response = metadata_service::fetch_response(outbound, request).await;
    response.map_err(|message| refused(address, message))
}

/// Parses the response of a token service.
pub(crate) fn parse_token(address: &str, status: StatusCode, body: &[u8]) -> Result<TokenResponse> {
    if !status.is_success() {
        #[derive(Default, Deserialize)]
        struct ErrorDetail {
            #[serde(default)]
            error_description: String,
        }
        let detail: ErrorDetail = serde_json::from_slice(body).unwrap_or_default();
        let detail = detail
            .error_description
            .lines()
            .next()
            .unwrap_or_default()
            .to_owned();
        return Err(refused(
            address,
            format!("the response is {status} {detail}"),
        ));
    }
    // The parser's error would repeat the content.
    serde_json::from_slice(body)
        .map_err(|_| refused(address, "the response contains no token".to_owned()))
}

fn refused(address: &str, message: String) -> Error {
    let without_query = address.split('?').next().unwrap_or_default();
    let on = without_query.as_bytes();
    Error::new(ErrorKind::Denied, "fetch a token from", on, message)
}

/// Returns the `Authorization` header with the token that the environment variable contains.
pub(crate) fn bearer(variable: &str, token: &str) -> Result<HeaderValue> {
    // A variable that was filled from a file often ends with the file's last newline.
    let value = HeaderValue::from_str(&format!("Bearer {}", token.trim()));
    // The error must not repeat the token.
    let mut value = value.map_err(|_| {
        let message = "the token contains invalid characters; set it to one line of text";
        Error::new(
            ErrorKind::Denied,
            "use the token in",
            variable.as_bytes(),
            message,
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_with_the_end_of_its_line_is_used_and_one_of_two_lines_is_refused() {
        assert_eq!(bearer("SOME_TOKEN", "abc\n").unwrap(), "Bearer abc");
        let refused = bearer("SOME_TOKEN", "secret-a\nsecret-b")
            .unwrap_err()
            .to_string();
        assert!(refused.contains("SOME_TOKEN"), "{refused}");
        assert!(!refused.contains("secret"), "{refused}");
    }
}
