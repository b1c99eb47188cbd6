//! Requests for credentials to metadata and token services.

use super::{SegmentedBytes, collect};
use bytes::Bytes;
use headworks_outbound::Outbound;
use headworks_outbound::error_chain;
use http::{HeaderMap, Request, StatusCode};
use std::time::Duration;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BODY: usize = 1 << 20;

/// Sends a request once. The error message contains nothing of the request.
pub(crate) async fn fetch(
    outbound: &Outbound,
    request: Request<SegmentedBytes>,
) -> Result<(StatusCode, Bytes), String> {
    let (status, _, body) = fetch_response(outbound, request).await?;
    Ok((status, body))
}

/// Sends a request once, and returns the headers of the response, too.
pub(crate) async fn fetch_response(
    outbound: &Outbound,
    http_request: Request<SegmentedBytes>,
) -> Result<(StatusCode, HeaderMap, Bytes), String> {
    let request = async {
        let response = outbound.send(http_request).await;
        let response = response.map_err(|error| error_chain(&error))?;
        let (head, body) = response.into_parts();
        let body = collect(body, MAX_BODY).await?;
        Ok((head.status, head.headers, body))
    };
    let response = tokio::time::timeout(TIMEOUT, request).await;
    response.map_err(|_| format!("no response within {} s", TIMEOUT.as_secs()))?
}
