//! A check of a list of forwarders, without announcing anything to them.

use crate::client::TrackerClient;
use crate::error::Error;
use crate::forwarders::{self, Forwarder, ForwarderState, List, ListError};
use crate::subscriptions;
use futures_util::StreamExt;
use headworks_service::outbound::Outbound;
use serde::Serialize;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Forwarders checked concurrently.
const CONCURRENCY: usize = 32;

/// The result for one forwarder.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// The name of the forwarder.
    pub name: String,
    /// `http`, `https` or `udp`.
    pub transport: String,
    /// Whether announces could be forwarded to it.
    pub ok: bool,
    /// The time of the check, in milliseconds.
    pub millis: u64,
    /// The error.
    #[serde(rename = "trouble", skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Loads a list of forwarders from a file or a URL. Call it inside a tokio runtime.
///
/// # Errors
/// When it cannot be read or is no list.
pub async fn load(source: &str, outbound: &Outbound) -> Result<List, ListError> {
    subscriptions::load(source, outbound).await
}

/// Checks every forwarder of a list, duplicates once, and returns the results in its order. No peer
/// and no torrent of ours is revealed. Call it inside a tokio runtime.
///
/// # Errors
/// When no socket can be opened.
pub async fn check(
    list: &[Forwarder],
    outbound: Outbound,
    timeout: Duration,
) -> Result<Vec<Checked>, Error> {
    let client = TrackerClient::new(outbound)?;
    let mut list = list.to_vec();
    forwarders::dedup(&mut list);
    let state = |forwarder: &Forwarder| ForwarderState::new(forwarder, &forwarder.name());
    let forwarders: Vec<ForwarderState> = list.iter().filter_map(state).collect();
    let checks = futures_util::stream::iter(&forwarders);
    let checks = checks.map(|forwarder| check_one(&client, forwarder, timeout));
    Ok(checks.buffered(CONCURRENCY).collect().await)
}

async fn check_one(
    client: &TrackerClient,
    forwarder: &ForwarderState,
    timeout: Duration,
) -> Checked {
    let began = Instant::now();
    let result = client.check(forwarder, timeout).await;
    Checked {
        name: forwarder.name.clone(),
        transport: forwarder.uri.scheme_str().unwrap_or_default().to_owned(),
        ok: result.is_ok(),
        millis: began.elapsed().as_millis() as u64,
        error: result
            .err()
            .map(|error| forwarder.redact(&error.to_string())),
    }
}

/// Formats the results as a table.
#[must_use]
pub fn table(checked: &[Checked]) -> String {
    let width = checked
        .iter()
        .map(|one| one.name.len())
        .max()
        .unwrap_or(0)
        .max(4);
    let mut table = format!("{:width$}  {:9}  {:>8}  state\n", "name", "transport", "ms");
    for one in checked {
        let state = one.error.as_deref().unwrap_or("ok");
        let _ = writeln!(
            table,
            "{:width$}  {:9}  {:>8}  {state}",
            one.name, one.transport, one.millis
        );
    }
    let good = checked.iter().filter(|one| one.ok).count();
    let _ = writeln!(table, "{good} of {} forwarders reachable", checked.len());
    table
}
