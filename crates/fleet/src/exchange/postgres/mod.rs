//! The limit exchange in PostgreSQL.
//!
//! Reports, allocations and the lease are in unlogged tables: they change with every tick, and a
//! crash may lose them. The epoch and the grants that raised something are in logged tables, which
//! are written at a takeover and when a grant is raised.
//!
//! Takeovers and publications lock the row of `exchange` first, and the lease after it.

mod facts;
mod publish;
mod sql;
mod tick;

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio_postgres::types::Type;

use super::facts::FactChange;
use super::lease::{LEASE, Watch};
use super::types::{ExchangeStatus, Publication, Report, TickReply};
use super::{LimitExchange, Stamp};
use crate::error::Result;
use crate::node::NodeToken;
use crate::postgres::{Link, Postgres, Timeouts, Transaction};
use sql::Statements;

/// The limit exchange of a PostgreSQL database. It has a connection of its own.
///
/// The node must be registered in the same database: see [`Node`](crate::Node).
#[derive(Debug)]
pub struct PostgresExchange {
    link: Link,
    sql: Statements,
    node: NodeToken,
    /// Tokens of this node whose content the next tick removes.
    replaced: Vec<NodeToken>,
    watch: Watch,
    /// The version of the facts that were last returned.
    facts_seen: Option<NodeToken>,
}

impl PostgresExchange {
    /// Opens the exchange for the node with this token.
    #[must_use]
    pub fn new(server: &Postgres, node: NodeToken) -> PostgresExchange {
        let timeouts = Timeouts::default().with_statement(Duration::from_secs(2));
        PostgresExchange::with_timeouts(server, node, timeouts)
    }

    /// Opens the exchange with timeouts of its own.
    #[must_use]
    pub fn with_timeouts(
        server: &Postgres,
        node: NodeToken,
        timeouts: Timeouts,
    ) -> PostgresExchange {
        PostgresExchange {
            link: server.link("exchange", timeouts),
            sql: Statements::new(server.schema()),
            node,
            replaced: Vec::new(),
            watch: Watch::new(LEASE),
            facts_seen: None,
        }
    }

    /// Lets candidates wait for another time than 3 s. All nodes of a fleet must use the same.
    #[must_use]
    pub fn lease_time(mut self, time: Duration) -> PostgresExchange {
        self.watch = Watch::new(time);
        self
    }
}

impl LimitExchange for PostgresExchange {
    fn node(&self) -> NodeToken {
        self.node
    }

    fn rejoin(&mut self, node: NodeToken) {
        self.replaced.push(std::mem::replace(&mut self.node, node));
        self.facts_seen = None;
    }

    fn tick(&mut self, report: Report) -> BoxFuture<'_, Result<TickReply>> {
        tick::tick(self, report).boxed()
    }

    fn publish(&mut self, publication: Publication) -> BoxFuture<'_, Result<()>> {
        publish::publish(self, publication).boxed()
    }

    fn change_facts(&mut self, changes: Vec<FactChange>) -> BoxFuture<'_, Result<()>> {
        facts::change(self, changes).boxed()
    }

    fn status(&mut self) -> BoxFuture<'_, Result<ExchangeStatus>> {
        async {
            let transaction = self.link.begin().await?;
            let row = transaction.query_one(&self.sql.status, &[]).await?;
            let stamp = Stamp::from_columns(
                transaction.column(&row, "epoch")?,
                transaction.column(&row, "number")?,
            );
            let reports = tick::reports(&transaction, &self.sql).await?;
            Ok(ExchangeStatus {
                epoch: stamp.epoch,
                number: stamp.number,
                allocator: transaction.column(&row, "holder")?,
                reports: reports.into_iter().map(|(report, _)| report).collect(),
            })
        }
        .boxed()
    }

    fn forget(&mut self, node: NodeToken) -> BoxFuture<'_, Result<()>> {
        async move {
            let schema = self.link.server().schema().to_owned();
            let transaction = self.link.begin().await?;
            crate::node::remove(&transaction, &schema, node, None).await?;
            transaction.commit().await
        }
        .boxed()
    }

    fn leave(&mut self) -> BoxFuture<'_, Result<()>> {
        async {
            let schema = self.link.server().schema().to_owned();
            let transaction = self.link.begin().await?;
            remove_node(&transaction, &schema, self.node).await?;
            transaction.commit().await?;
            self.watch.not_held();
            Ok(())
        }
        .boxed()
    }
}

/// Removes what a node has in the exchange, and frees its lease.
pub(crate) async fn remove_node(
    transaction: &Transaction<'_>,
    schema: &str,
    node: NodeToken,
) -> Result<()> {
    let parameters = [(&node as _, Type::UUID)];
    transaction.query(sql::LOCK_ALONE, &parameters).await?;
    for sql in sql::remove_node(schema) {
        transaction.execute(&sql, &parameters).await?;
    }
    Ok(())
}
