//! A connection that returns after it was lost.

use std::sync::atomic::{AtomicBool, Ordering};

use super::convert;
use super::identity::DatabaseIdentity;
use super::server::{Connection, Postgres, Timeouts};
use super::transaction::Transaction;
use crate::backoff::Backoff;
use crate::error::{Error, Result};
use crate::within::within;

/// One connection to the database, for one user of it.
///
/// It connects when a transaction begins and no connection is there, at most once per backoff of up
/// to one second. A statement that got no answer in time costs the connection: its state is
/// unknown.
pub struct Link {
    server: Postgres,
    purpose: &'static str,
    timeouts: Timeouts,
    connection: Option<Connection>,
    /// Set by a transaction that got no answer.
    broken: AtomicBool,
    backoff: Backoff,
}

impl Link {
    pub(super) fn new(server: Postgres, purpose: &'static str, timeouts: Timeouts) -> Link {
        Link {
            server,
            purpose,
            timeouts,
            connection: None,
            broken: AtomicBool::new(false),
            backoff: Backoff::default(),
        }
    }

    /// The database.
    #[must_use]
    pub fn server(&self) -> &Postgres {
        &self.server
    }

    /// The identity of the database when this link last connected.
    #[must_use]
    pub fn identity(&self) -> Option<&DatabaseIdentity> {
        self.connection.as_ref().map(|open| &open.identity)
    }

    /// Begins a transaction with the link's timeouts.
    ///
    /// # Errors
    /// When no connection can be opened.
    pub async fn begin(&mut self) -> Result<Transaction<'_>> {
        self.begin_with(self.timeouts).await
    }

    /// Begins a transaction with timeouts of its own.
    ///
    /// # Errors
    /// When no connection can be opened.
    pub async fn begin_with(&mut self, timeouts: Timeouts) -> Result<Transaction<'_>> {
        let fresh = !self.is_open();
        if fresh {
            self.reconnect().await?;
        }
        match self.send_begin(timeouts).await {
            Ok(()) => {}
            // The server closed an idle connection. Nothing was sent in this transaction, so a
            // second attempt is safe.
            Err(Error::Unreachable { .. }) if !fresh => {
                self.reconnect().await?;
                self.send_begin(timeouts).await?;
            }
            Err(error) => return Err(error),
        }
        let connection = self.connection.as_ref().ok_or_else(|| Error::Unreachable {
            server: self.server.name(),
            cause: "the connection was lost".to_owned(),
        })?;
        Ok(Transaction::new(
            &connection.client,
            &self.broken,
            self.server.name(),
            timeouts.answer,
        ))
    }

    fn is_open(&self) -> bool {
        !self.broken.load(Ordering::Relaxed)
            && self
                .connection
                .as_ref()
                .is_some_and(|open| !open.client.is_closed())
    }

    async fn reconnect(&mut self) -> Result<()> {
        self.connection = None;
        self.backoff.wait().await;
        match self.server.connect(self.purpose, self.timeouts).await {
            Ok(connection) => {
                self.backoff.succeeded();
                self.broken.store(false, Ordering::Relaxed);
                self.connection = Some(connection);
                Ok(())
            }
            Err(error) => {
                self.backoff.failed();
                Err(error)
            }
        }
    }

    async fn send_begin(&mut self, timeouts: Timeouts) -> Result<()> {
        let server = self.server.name();
        let Some(connection) = &self.connection else {
            return Ok(());
        };
        // Broken until the answer is here: if this future is dropped, a transaction may be open.
        self.broken.store(true, Ordering::Relaxed);
        let sql = begin_statement(timeouts);
        let sent = async {
            let sent = connection.client.batch_execute(&sql).await;
            sent.map_err(|error| convert::error(&server, &error))
        };
        within(&server, timeouts.answer, sent).await?;
        self.broken.store(false, Ordering::Relaxed);
        Ok(())
    }
}

/// `SET LOCAL` ends with the transaction, so nothing leaks into the session of a pooler.
fn begin_statement(timeouts: Timeouts) -> String {
    format!(
        "BEGIN; SET LOCAL statement_timeout = {}; SET LOCAL lock_timeout = {}; \
         SET LOCAL idle_in_transaction_session_timeout = {}",
        timeouts.statement.as_millis(),
        timeouts.lock.as_millis(),
        timeouts.idle.as_millis(),
    )
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("server", &self.server.name())
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}
