//! A limit to the time of an operation.

use std::future::Future;
use std::time::Duration;

use crate::error::{Error, Result};

/// Waits for `work` for at most `limit`.
pub(crate) async fn within<T>(
    server: &str,
    limit: Duration,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(limit, work).await.unwrap_or_else(|_| {
        Err(Error::Timeout {
            server: server.to_owned(),
            after: limit,
        })
    })
}
