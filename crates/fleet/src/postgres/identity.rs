//! Which database answers.

use tokio_postgres::{Client, Row};

use super::transaction::Transaction;
use crate::error::{Error, Result};

/// Identifies the history of a database cluster. It changes when a standby is promoted, when a
/// backup is restored, and when another database answers under the same address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseIdentity {
    /// PostgreSQL's system identifier, drawn when the cluster was created.
    pub system: String,
    /// The timeline, in hexadecimal; a promotion begins a new one.
    pub timeline: String,
}

/// The timeline comes from the name of the current WAL file. The last checkpoint has one, too, but
/// after a promotion it is late. A standby has no current WAL file.
const QUERY: &str = "SELECT (SELECT system_identifier FROM pg_control_system())::text AS \
    system, CASE WHEN pg_is_in_recovery() THEN NULL \
    ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END AS timeline";

impl DatabaseIdentity {
    /// Asks the server; `None` for a standby.
    pub(super) async fn read(
        client: &Client,
    ) -> Result<Option<DatabaseIdentity>, tokio_postgres::Error> {
        from_row(&client.query_typed_one(QUERY, &[]).await?)
    }

    /// Asks the server inside a transaction. A pooler can switch servers without closing our
    /// connection.
    ///
    /// # Errors
    /// When the server does not answer, or is a standby.
    pub async fn read_in(transaction: &Transaction<'_>) -> Result<DatabaseIdentity> {
        let row = transaction.query_one(QUERY, &[]).await?;
        let found = from_row(&row).map_err(|error| transaction.error(&error))?;
        found.ok_or_else(|| Error::Unreachable {
            server: transaction.server().to_owned(),
            cause: "the server is a standby".to_owned(),
        })
    }
}

fn from_row(row: &Row) -> Result<Option<DatabaseIdentity>, tokio_postgres::Error> {
    let system = row.try_get("system")?;
    let timeline: Option<String> = row.try_get("timeline")?;
    Ok(timeline.map(|timeline| DatabaseIdentity { system, timeline }))
}
