//! Requests for credentials to a local metadata service.

use super::{SegmentedBytes, collect};
use bytes::Bytes;
use headworks_outbound::Outbound;
use headworks_outbound::error_chain;
use http::{Request, StatusCode};
use std::time::Duration;

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(5);
const MAX_BODY: usize = 1 << 20;

/// Sends a request once. The error message contains nothing of the request.
pub(crate) async fn fetch(
    outbound: &Outbound,
    http_request: Request<SegmentedBytes>,
) -> Result<(StatusCode, Bytes), String> {
    let request = async {
        let response = outbound.send(http_request).await;
        let response = response.map_err(|error| error_chain(&error))?;
        let status = response.status();
        let body = collect(response.into_body(), MAX_BODY).await?;
        Ok((status, body))
    };
    let response = tokio::time::timeout(TIMEOUT, request).await;
    response.map_err(|_| format!("no response within {} s", TIMEOUT.as_secs()))?
}
