//! One publication.

use tokio_postgres::types::Type;

use super::PostgresExchange;
use crate::error::{Error, Result};
use crate::exchange::types::{Allocated, Publication};
use crate::node::NodeToken;

pub(super) async fn publish(
    exchange: &mut PostgresExchange,
    publication: Publication,
) -> Result<()> {
    publication.check()?;
    let PostgresExchange {
        link, sql, node, ..
    } = exchange;
    let (epoch, number) = publication.stamp.columns();
    let lost = Error::LeaseLost {
        epoch: publication.stamp.epoch,
    };
    let transaction = link.begin().await?;
    let raises = publication.allocations.iter().any(|a| a.raised);
    if !raises {
        // Everything that is written may be lost in a crash, so nothing is waited for.
        transaction
            .batch("SET LOCAL synchronous_commit = off")
            .await?;
    }
    let row = transaction.query_one(&sql.lock_epoch, &[]).await?;
    let holder: Option<NodeToken> = transaction.column(&row, "holder")?;
    let current: i64 = transaction.column(&row, "epoch")?;
    if holder != Some(*node) || current != epoch {
        return Err(lost);
    }
    // The lease is gone after a crash; the epoch is not. A publication that
    // was computed from lost reports must not count.
    let parameters = [
        (&*node as _, Type::UUID),
        (&epoch as _, Type::INT8),
        (&number as _, Type::INT8),
    ];
    let advanced = transaction
        .execute(&sql.advance_number, &parameters)
        .await?;
    if advanced != 1 {
        return Err(lost);
    }
    let all = |_: &&Allocated| true;
    let raised = |a: &&Allocated| a.raised;
    for (statement, (nodes, bodies)) in [
        (&sql.allocate, columns(&publication.allocations, all)),
        (&sql.raise, columns(&publication.allocations, raised)),
    ] {
        if nodes.is_empty() {
            continue;
        }
        let parameters = [
            (&epoch as _, Type::INT8),
            (&number as _, Type::INT8),
            (&nodes as _, Type::UUID_ARRAY),
            (&bodies as _, Type::BYTEA_ARRAY),
        ];
        transaction.execute(statement, &parameters).await?;
    }
    if raises {
        transaction.execute(&sql.drop_superseded, &[]).await?;
    }
    transaction.commit().await
}

/// The chosen allocations as two columns.
fn columns(
    allocations: &[Allocated],
    chosen: impl Fn(&&Allocated) -> bool,
) -> (Vec<NodeToken>, Vec<&[u8]>) {
    allocations
        .iter()
        .filter(chosen)
        .map(|allocated| (allocated.node, allocated.body.as_ref()))
        .unzip()
}
