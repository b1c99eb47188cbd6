//! Trying a list of forwarders without telling them of anything.

use crate::error::Error;
use crate::forward::{Asker, Station};
use crate::forwarders::Forwarder;
use futures_util::StreamExt;
use headworks_service::outbound::Outbound;
use serde::Serialize;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Forwarders that are tried at once.
const AT_ONCE: usize = 32;

/// What became of one forwarder.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Checked {
    /// Its name.
    pub name: String,
    /// `http`, `https` or `udp`.
    pub transport: String,
    /// Whether somebody is there who could be asked.
    pub ok: bool,
    /// How long that took to find out, in milliseconds.
    pub millis: u64,
    /// What is wrong with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// Tries every forwarder of a list, in its order. None is told of a peer or asked for a torrent.
/// Call it inside a tokio runtime.
///
/// # Errors
/// When this machine gives no socket.
pub async fn check(
    list: &[Forwarder],
    outbound: Outbound,
    timeout: Duration,
) -> Result<Vec<Checked>, Error> {
    let asker = Asker::new(outbound)?;
    let station = |forwarder: &Forwarder| Station::new(forwarder, &forwarder.name());
    let stations: Vec<Station> = list.iter().filter_map(station).collect();
    let tries = futures_util::stream::iter(&stations).map(|station| one(&asker, station, timeout));
    Ok(tries.buffered(AT_ONCE).collect().await)
}

async fn one(asker: &Asker, station: &Station, timeout: Duration) -> Checked {
    let began = Instant::now();
    let outcome = asker.probe(station, timeout).await;
    Checked {
        name: station.name.clone(),
        transport: station.uri.scheme_str().unwrap_or_default().to_owned(),
        ok: outcome.is_ok(),
        millis: began.elapsed().as_millis() as u64,
        trouble: outcome.err().map(|error| error.to_string()),
    }
}

/// The outcome as a table for people.
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
        let state = one.trouble.as_deref().unwrap_or("ok");
        let _ = writeln!(
            table,
            "{:width$}  {:9}  {:>8}  {state}",
            one.name, one.transport, one.millis
        );
    }
    let good = checked.iter().filter(|one| one.ok).count();
    let _ = writeln!(table, "{good} of {} can be asked", checked.len());
    table
}
