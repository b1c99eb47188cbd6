//! One tick.

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::sql::{LOCK_PRESENT, Statements};
use super::{PostgresExchange, facts, remove_node};
use crate::clock::BootInstant;
use crate::error::{Error, Result};
use crate::exchange::facts::milliseconds;
use crate::exchange::lease::{Lease, LeaseStep};
use crate::exchange::types::{
    Allocation, AllocatorView, NodeReport, RaisedGrant, Report, Stamp, TickReply, limit_body,
};
use crate::node::NodeToken;
use crate::postgres::Transaction;

/// The lease of this node after a tick.
struct Held {
    epoch: u64,
    number: u64,
    emptied: bool,
}

pub(super) async fn tick(exchange: &mut PostgresExchange, report: Report) -> Result<TickReply> {
    let (epoch, number) = report.echoed.check()?.columns();
    limit_body("a report", &report.body)?;
    let PostgresExchange {
        link,
        sql,
        node,
        replaced,
        watch,
        facts_seen,
    } = exchange;
    let sent = BootInstant::now();
    let transaction = link.begin().await?;
    let parameters = [
        (&*node as _, Type::UUID),
        (&epoch as _, Type::INT8),
        (&number as _, Type::INT8),
        (&report.body.as_ref() as _, Type::BYTEA),
    ];
    // Both are sent at once, and run one after the other.
    let (_, row) = tokio::try_join!(
        transaction.query(LOCK_PRESENT, &parameters[..1]),
        transaction.query_one(&sql.report, &parameters),
    )?;
    if !transaction.column::<bool>(&row, "stored")? {
        return Err(Error::Fenced);
    }
    for old in replaced.iter() {
        remove_node(&transaction, &sql.schema, *old).await?;
    }
    let version: Option<NodeToken> = transaction.column(&row, "version")?;
    let changed = if version == *facts_seen {
        None
    } else {
        let clock = transaction.column(&row, "clock_ms")?;
        Some(facts::read(&transaction, sql, clock).await?)
    };

    let found = found_lease(&transaction, &row)?;
    let step = watch.step(*node, found, sent);
    let elapsed = milliseconds(watch.elapsed(step, sent));
    let mut reports = match step {
        LeaseStep::Follow => Vec::new(),
        LeaseStep::Renew | LeaseStep::TakeOver => reports(&transaction, sql).await?,
    };
    let echoed = reports.iter().map(|(report, _)| report.echoed.epoch).max();
    let echoed = echoed.unwrap_or_default();
    let held = match step {
        LeaseStep::Follow => None,
        LeaseStep::Renew => {
            let held = held_lease(&transaction, &row)?;
            // A node that knows a later epoch would ignore this one's allocations.
            if echoed > held.epoch {
                take_over(&transaction, sql, *node, found, echoed, elapsed).await?
            } else {
                renew(&transaction, sql, *node, held, elapsed).await?
            }
        }
        LeaseStep::TakeOver => take_over(&transaction, sql, *node, found, echoed, elapsed).await?,
    };
    let new_epoch = held.as_ref().is_some_and(|held| watch.is_new(held.epoch));
    let grants = if new_epoch {
        Some(read_grants(&transaction, sql).await?)
    } else {
        None
    };
    let allocation = allocation(&transaction, &row)?;
    transaction.commit().await?;

    // The answer is here: remember what it said.
    replaced.clear();
    *facts_seen = version;
    let allocator = match &held {
        Some(_) => Some(*node),
        None => found.and_then(|lease| lease.holder),
    };
    let view = held.map(|held| {
        watch.held(sent, held.epoch);
        watch.observe_reports(&mut reports, sent);
        AllocatorView {
            epoch: held.epoch,
            number: held.number,
            emptied: held.emptied,
            reports: reports.into_iter().map(|(report, _)| report).collect(),
            grants,
        }
    });
    if view.is_none() {
        watch.not_held();
    }
    Ok(TickReply {
        sent,
        allocation,
        facts: changed,
        // Facts are as durable as the database.
        facts_lost: false,
        allocator,
        view,
    })
}

fn found_lease(transaction: &Transaction<'_>, row: &Row) -> Result<Option<Lease>> {
    if !transaction.column::<bool>(row, "leased")? {
        return Ok(None);
    }
    Ok(Some(Lease {
        holder: transaction.column(row, "holder")?,
        beat: transaction.column(row, "beat")?,
    }))
}

fn held_lease(transaction: &Transaction<'_>, row: &Row) -> Result<Held> {
    let stamp = Stamp::from_columns(
        transaction.column(row, "lease_epoch")?,
        transaction.column(row, "lease_number")?,
    );
    Ok(Held {
        epoch: stamp.epoch,
        number: stamp.number,
        emptied: transaction.column(row, "emptied")?,
    })
}

fn allocation(transaction: &Transaction<'_>, row: &Row) -> Result<Option<Allocation>> {
    let Some(body) = transaction.column::<Option<Vec<u8>>>(row, "body")? else {
        return Ok(None);
    };
    Ok(Some(Allocation {
        stamp: Stamp::from_columns(
            transaction.column(row, "epoch")?,
            transaction.column(row, "number")?,
        ),
        body: body.into(),
    }))
}

async fn renew(
    transaction: &Transaction<'_>,
    sql: &Statements,
    node: NodeToken,
    held: Held,
    elapsed: i64,
) -> Result<Option<Held>> {
    let (epoch, _) = Stamp::new(held.epoch, 0).columns();
    let parameters = [
        (&node as _, Type::UUID),
        (&epoch as _, Type::INT8),
        (&elapsed as _, Type::INT8),
    ];
    let renewed = transaction.execute(&sql.renew, &parameters).await?;
    // Another node took over between the two statements.
    Ok((renewed == 1).then_some(held))
}

/// Begins a new epoch, if the lease still is as it was found.
async fn take_over(
    transaction: &Transaction<'_>,
    sql: &Statements,
    node: NodeToken,
    found: Option<Lease>,
    echoed: u64,
    elapsed: i64,
) -> Result<Option<Held>> {
    let epoch_row = transaction.query_one(&sql.lock_epoch, &[]).await?;
    // A new statement, so that it sees what the lock waited for.
    let lease_row = transaction.query_opt(&sql.lock_lease, &[]).await?;
    let last_epoch: i64 = transaction.column(&epoch_row, "epoch")?;
    let (mut clock, mut beat, mut emptied): (i64, i64, bool) =
        (transaction.column(&epoch_row, "clock_ms")?, 0, true);
    let mut now = None;
    if let Some(row) = &lease_row {
        beat = transaction.column(row, "beat")?;
        clock = transaction.column(row, "clock_ms")?;
        now = Some(Lease {
            holder: transaction.column(row, "holder")?,
            beat,
        });
        let number: i64 = transaction.column(row, "number")?;
        // An allocator that published nothing has learned nothing.
        emptied = transaction.column::<bool>(row, "emptied")? && number == 0;
    }
    if now != found {
        return Ok(None);
    }
    let last = Stamp::from_columns(last_epoch, 0).epoch;
    let held = Held {
        epoch: Stamp::new(last.max(echoed) + 1, 0).check()?.epoch,
        number: 0,
        // Nodes know an epoch that the database does not: it lost what came since.
        emptied: emptied || echoed > last,
    };
    let (epoch, _) = Stamp::new(held.epoch, 0).columns();
    let (clock, beat) = (clock + elapsed, beat + 1);
    let parameters = [
        (&epoch as _, Type::INT8),
        (&node as _, Type::UUID),
        (&clock as _, Type::INT8),
    ];
    transaction.execute(&sql.write_epoch, &parameters).await?;
    let parameters = [
        (&node as _, Type::UUID),
        (&epoch as _, Type::INT8),
        (&beat as _, Type::INT8),
        (&clock as _, Type::INT8),
        (&held.emptied as _, Type::BOOL),
    ];
    transaction.execute(&sql.write_lease, &parameters).await?;
    Ok(Some(held))
}

/// Reads all reports, with their counters.
pub(super) async fn reports(
    transaction: &Transaction<'_>,
    sql: &Statements,
) -> Result<Vec<(NodeReport, i64)>> {
    let rows = transaction.query(&sql.reports, &[]).await?;
    let report = |row: &Row| {
        let body: Vec<u8> = transaction.column(row, "body")?;
        let report = NodeReport {
            node: transaction.column(row, "node")?,
            name: transaction.column(row, "name")?,
            echoed: Stamp::from_columns(
                transaction.column(row, "epoch")?,
                transaction.column(row, "number")?,
            ),
            body: body.into(),
            silent: std::time::Duration::ZERO,
        };
        Ok((report, transaction.column(row, "seq")?))
    };
    rows.iter().map(report).collect()
}

async fn read_grants(transaction: &Transaction<'_>, sql: &Statements) -> Result<Vec<RaisedGrant>> {
    let rows = transaction.query(&sql.grants, &[]).await?;
    let grant = |row: &Row| {
        let body: Vec<u8> = transaction.column(row, "body")?;
        Ok(RaisedGrant {
            node: transaction.column(row, "node")?,
            stamp: Stamp::from_columns(
                transaction.column(row, "epoch")?,
                transaction.column(row, "number")?,
            ),
            body: body.into(),
        })
    };
    rows.iter().map(grant).collect()
}
