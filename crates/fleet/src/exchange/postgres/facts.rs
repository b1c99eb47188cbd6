//! Shared facts in tables.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::PostgresExchange;
use super::sql::Statements;
use crate::error::Result;
use crate::exchange::facts::{Fact, FactChange, Facts, check, milliseconds, remaining};
use crate::node::NodeToken;
use crate::postgres::Transaction;

/// Reads all facts that have not expired by the fleet clock.
pub(super) async fn read(
    transaction: &Transaction<'_>,
    sql: &Statements,
    clock_ms: i64,
) -> Result<Facts> {
    let rows = transaction.query(&sql.facts, &[]).await?;
    let mut facts = Facts::default();
    for row in &rows {
        facts.facts.extend(fact(transaction, row, clock_ms)?);
    }
    Ok(facts)
}

fn fact(transaction: &Transaction<'_>, row: &Row, clock_ms: i64) -> Result<Option<Fact>> {
    let expires: Option<i64> = transaction.column(row, "expires_ms")?;
    let lasts: Option<i64> = transaction.column(row, "lasts_ms")?;
    let remaining = match (expires, lasts) {
        (Some(expires), Some(lasts)) => match remaining(expires, lasts, clock_ms) {
            None => return Ok(None),
            left => left,
        },
        _ => None,
    };
    let body: Vec<u8> = transaction.column(row, "body")?;
    Ok(Some(Fact {
        key: transaction.column(row, "key")?,
        body: body.into(),
        remaining,
    }))
}

pub(super) async fn change(
    exchange: &mut PostgresExchange,
    changes: Vec<FactChange>,
) -> Result<()> {
    check(&changes)?;
    let (mut keys, mut bodies, mut lasts, mut dropped) = (vec![], vec![], vec![], vec![]);
    for change in &changes {
        match &change.body {
            None => dropped.push(change.key.as_str()),
            Some(body) => {
                keys.push(change.key.as_str());
                bodies.push(body.as_ref());
                lasts.push(change.lasts.map(milliseconds));
            }
        }
    }
    let sql = &exchange.sql;
    let transaction = exchange.link.begin().await?;
    // The version's row is locked first, so that writers take turns.
    let version = NodeToken::random();
    let parameters = [(&version as _, Type::UUID)];
    transaction.execute(&sql.facts_version, &parameters).await?;
    let clock = clock(&transaction, &sql.schema).await?;
    let parameters = [(&dropped as _, Type::TEXT_ARRAY), (&clock as _, Type::INT8)];
    transaction.execute(&sql.drop_facts, &parameters).await?;
    let parameters = [
        (&keys as _, Type::TEXT_ARRAY),
        (&bodies as _, Type::BYTEA_ARRAY),
        (&lasts as _, Type::INT8_ARRAY),
        (&clock as _, Type::INT8),
    ];
    transaction.execute(&sql.set_facts, &parameters).await?;
    transaction.commit().await
}

/// The fleet clock.
async fn clock(transaction: &Transaction<'_>, schema: &str) -> Result<i64> {
    let sql = format!(
        "SELECT coalesce(l.clock_ms, e.clock_ms) AS clock_ms \
         FROM {schema}.exchange e LEFT JOIN {schema}.lease l ON true"
    );
    let row = transaction.query_one(&sql, &[]).await?;
    transaction.column(&row, "clock_ms")
}
