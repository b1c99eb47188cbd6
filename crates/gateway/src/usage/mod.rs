//! Usage accounting: the ledger with its quotas, and the stores of usage.
//!
//! Without a fleet, usage is in SQLite ([`SqliteUsageStore`]). In a fleet it is in PostgreSQL
//! ([`PostgresUsageStore`]), and the totals of all nodes come back with every batch. Both stores
//! pass one behaviour suite.

mod batch;
mod ledger;
mod postgres;
mod row;
mod spent;
mod sqlite;

use futures_util::future::BoxFuture;

pub use batch::{Booked, TenantTotal, UsageBatch};
pub(crate) use ledger::{QuotaRefusal, Totals, UsageLedger};
pub use postgres::PostgresUsageStore;
pub use row::UsageRow;
pub use sqlite::SqliteUsageStore;

use crate::error::Error;

/// Where usage is stored.
pub trait UsageStore: Send + Sync {
    /// Books a batch unless it is booked already, and returns the totals of `tenants` on `day` and
    /// in its month.
    fn book<'a>(
        &'a self,
        batch: &'a UsageBatch,
        tenants: &'a [String],
        day: u32,
    ) -> BoxFuture<'a, Result<Booked, Error>>;

    /// Totals of all tenants on `day` and in its month.
    fn totals(&self, day: u32) -> BoxFuture<'_, Result<Vec<TenantTotal>, Error>>;

    /// Rows of the days from `from` to `to`, inclusive, oldest first.
    fn rows(&self, from: u32, to: u32) -> BoxFuture<'_, Result<Vec<UsageRow>, Error>>;
}
