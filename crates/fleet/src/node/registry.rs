//! The table of nodes.

use std::time::Duration;

use bytes::Bytes;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::token::NodeToken;
use crate::error::Result;
use crate::postgres::{Link, Postgres, Timeouts, Transaction};

/// A registered node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Member {
    /// Its fencing token.
    pub token: NodeToken,
    /// Its name, usually the host's; not unique.
    pub name: String,
    /// The schema version that its program knows.
    pub program: i32,
    /// The heartbeat counter.
    pub beat: i64,
    /// Its application's description of it, such as version and configuration fingerprint.
    pub info: Bytes,
    /// The time since its last heartbeat by the database's clock. It is for display; no decision
    /// depends on it.
    pub shown_age: Duration,
    /// How long the observer has seen the counter stand still, on its own clock.
    pub silent: Duration,
    /// It has been silent for longer than `lost_after`.
    pub lost: bool,
}

/// Reads and changes the table of nodes, for operators and for nodes that take over work.
#[derive(Debug)]
pub struct Registry {
    link: Link,
}

impl Registry {
    /// Opens the registry of a database.
    #[must_use]
    pub fn new(server: &Postgres) -> Registry {
        Registry {
            link: server.link("registry", Timeouts::default()),
        }
    }

    /// Lists the nodes by name. One look says nothing about silence.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn list(&mut self) -> Result<Vec<Member>> {
        let schema = self.link.server().schema().to_owned();
        let transaction = self.link.begin().await?;
        list(&transaction, &schema).await
    }

    /// Removes a node with its reports, allocations and grants; returns whether it was there. If it
    /// is alive, it rejoins under a new token.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn forget(&mut self, node: NodeToken) -> Result<bool> {
        let schema = self.link.server().schema().to_owned();
        let transaction = self.link.begin().await?;
        let there = remove(&transaction, &schema, node, None).await?;
        transaction.commit().await?;
        Ok(there)
    }

    /// Removes a node that this process considers lost, unless it sent a heartbeat since.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn expel(&mut self, lost: &Member) -> Result<bool> {
        if !lost.lost {
            return Ok(false);
        }
        let schema = self.link.server().schema().to_owned();
        let transaction = self.link.begin().await?;
        let gone = remove(&transaction, &schema, lost.token, Some(lost.beat)).await?;
        transaction.commit().await?;
        Ok(gone)
    }
}

/// Inserts a node.
pub(super) async fn insert(
    transaction: &Transaction<'_>,
    schema: &str,
    token: NodeToken,
    name: &str,
    program: i32,
    info: &[u8],
) -> Result<()> {
    let sql =
        format!("INSERT INTO {schema}.node (token, name, program, info) VALUES ($1, $2, $3, $4)");
    let parameters = [
        (&token as _, Type::UUID),
        (&name as _, Type::TEXT),
        (&program as _, Type::INT4),
        (&info as _, Type::BYTEA),
    ];
    transaction.execute(&sql, &parameters).await?;
    Ok(())
}

/// Increments a node's counter; returns whether the node is registered.
pub(super) async fn beat(
    transaction: &Transaction<'_>,
    schema: &str,
    token: NodeToken,
    info: &[u8],
) -> Result<bool> {
    let sql = format!(
        "UPDATE {schema}.node SET beat = beat + 1, seen = clock_timestamp(), info = $2 \
         WHERE token = $1"
    );
    let parameters = [(&token as _, Type::UUID), (&info as _, Type::BYTEA)];
    Ok(transaction.execute(&sql, &parameters).await? == 1)
}

/// Removes a node and everything that it has in the exchange. With `beat`, only if its counter has
/// that value.
pub(crate) async fn remove(
    transaction: &Transaction<'_>,
    schema: &str,
    token: NodeToken,
    beat: Option<i64>,
) -> Result<bool> {
    let sql = format!("DELETE FROM {schema}.node WHERE token = $1 AND beat = coalesce($2, beat)");
    let parameters = [(&token as _, Type::UUID), (&beat as _, Type::INT8)];
    let there = transaction.execute(&sql, &parameters).await? == 1;
    if !there && beat.is_some() {
        return Ok(false);
    }
    crate::exchange::postgres::remove_node(transaction, schema, token).await?;
    Ok(there)
}

/// Removes the rows of `tokens`, and leaves what they have in the exchange.
pub(super) async fn remove_rows(
    transaction: &Transaction<'_>,
    schema: &str,
    tokens: &[NodeToken],
) -> Result<()> {
    let sql = format!("DELETE FROM {schema}.node WHERE token = ANY($1)");
    let parameters = [(&tokens as _, Type::UUID_ARRAY)];
    transaction.execute(&sql, &parameters).await?;
    Ok(())
}

pub(super) async fn list(transaction: &Transaction<'_>, schema: &str) -> Result<Vec<Member>> {
    let sql = format!(
        "SELECT token, name, program, beat, info, \
         greatest(0, extract(epoch FROM clock_timestamp() - seen))::float8 AS age \
         FROM {schema}.node ORDER BY name, token"
    );
    let rows = transaction.query(&sql, &[]).await?;
    rows.iter().map(|row| member(transaction, row)).collect()
}

fn member(transaction: &Transaction<'_>, row: &Row) -> Result<Member> {
    let age: f64 = transaction.column(row, "age")?;
    let info: Vec<u8> = transaction.column(row, "info")?;
    Ok(Member {
        token: transaction.column(row, "token")?,
        name: transaction.column(row, "name")?,
        program: transaction.column(row, "program")?,
        beat: transaction.column(row, "beat")?,
        info: info.into(),
        shown_age: Duration::try_from_secs_f64(age).unwrap_or_default(),
        silent: Duration::ZERO,
        lost: false,
    })
}
