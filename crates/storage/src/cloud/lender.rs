//! Asking somebody near for credentials.

use super::{Pieces, causes, collect};
use bytes::Bytes;
use headworks_service::outbound::Outbound;
use http::{Request, StatusCode};
use std::time::Duration;

/// How long a lender may take.
const PATIENCE: Duration = Duration::from_secs(5);
const LARGEST: usize = 1 << 20;

/// Asks once. What went wrong is in words, which hold nothing of the request.
pub(crate) async fn ask(
    outbound: &Outbound,
    request: Request<Pieces>,
) -> Result<(StatusCode, Bytes), String> {
    let asked = async {
        let response = outbound.send(request).await;
        let response = response.map_err(|error| causes(&error))?;
        let status = response.status();
        let body = collect(response.into_body(), LARGEST).await?;
        Ok((status, body))
    };
    let answer = tokio::time::timeout(PATIENCE, asked).await;
    answer.map_err(|_| format!("no answer in {} s", PATIENCE.as_secs()))?
}
