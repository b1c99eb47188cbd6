//! A transaction with timeouts.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Row};

use super::convert;
use crate::error::{Error, Result};
use crate::within::within;

/// A parameter with its type: without the type, the server would have to be asked for it.
pub type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

/// An open transaction. Dropping it rolls back.
#[must_use = "a transaction that is dropped is rolled back"]
pub struct Transaction<'a> {
    client: &'a Client,
    broken: &'a AtomicBool,
    server: String,
    answer: Duration,
    open: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(
        client: &'a Client,
        broken: &'a AtomicBool,
        server: String,
        answer: Duration,
    ) -> Transaction<'a> {
        Transaction {
            client,
            broken,
            server,
            answer,
            open: true,
        }
    }

    /// Runs a statement and returns its rows.
    ///
    /// # Errors
    /// When the statement fails or gets no answer in time.
    pub async fn query(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Vec<Row>> {
        self.run(self.client.query_typed(sql, parameters)).await
    }

    /// Runs a statement that returns one row.
    ///
    /// # Errors
    /// When the statement fails, gets no answer in time, or returns another number of rows.
    pub async fn query_one(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Row> {
        self.run(self.client.query_typed_one(sql, parameters)).await
    }

    /// Runs a statement that returns at most one row.
    ///
    /// # Errors
    /// When the statement fails, gets no answer in time, or returns more rows.
    pub async fn query_opt(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<Option<Row>> {
        self.run(self.client.query_typed_opt(sql, parameters)).await
    }

    /// Runs a statement and returns the number of rows that it affected.
    ///
    /// # Errors
    /// When the statement fails or gets no answer in time.
    pub async fn execute(&self, sql: &str, parameters: &[Parameter<'_>]) -> Result<u64> {
        self.run(self.client.execute_typed(sql, parameters)).await
    }

    /// Runs several statements without parameters.
    ///
    /// # Errors
    /// When a statement fails or they get no answer in time.
    pub async fn batch(&self, sql: &str) -> Result<()> {
        self.run(self.client.batch_execute(sql)).await
    }

    /// Commits. After a statement that failed, drop the transaction instead: the server would
    /// answer a commit with a rollback.
    ///
    /// # Errors
    /// When the commit fails. Without an answer, it may have happened.
    pub async fn commit(mut self) -> Result<()> {
        // Not to be rolled back on drop: the answer is the end, and without one the connection is.
        self.open = false;
        self.broken.store(true, Ordering::Relaxed);
        self.run(self.client.batch_execute("COMMIT")).await?;
        self.broken.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// Reads a column.
    ///
    /// # Errors
    /// When the column has another type.
    pub fn column<'r, T>(&self, row: &'r Row, name: &str) -> Result<T>
    where
        T: FromSql<'r>,
    {
        row.try_get(name).map_err(|error| self.error(&error))
    }

    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn error(&self, error: &tokio_postgres::Error) -> Error {
        convert::error(&self.server, error)
    }

    async fn run<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T> {
        let answered =
            statement.map(|answer| answer.map_err(|error| convert::error(&self.server, &error)));
        let answer = within(&self.server, self.answer, answered).await;
        if matches!(answer, Err(Error::Timeout { .. })) {
            self.broken.store(true, Ordering::Relaxed);
        }
        answer
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if self.open && !self.broken.load(Ordering::Relaxed) {
            // The first poll sends the message; its answer is not waited for. Later statements of
            // this connection follow it.
            let _ = self.client.batch_execute("ROLLBACK").now_or_never();
        }
    }
}
