//! Usage by tenant, day and model, in SQLite.

use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, params};

use super::UsageStore;
use super::batch::{Booked, TenantTotal, UsageBatch, month};
use super::row::UsageRow;
use crate::error::Error;

/// Schema version. Older files are upgraded, newer ones rejected.
const VERSION: i64 = 1;

/// The usage file, or a database in memory.
#[derive(Clone)]
pub struct SqliteUsageStore {
    connection: Arc<Mutex<Connection>>,
    path: String,
}

impl SqliteUsageStore {
    /// Opens or creates a usage file. Without a path, usage is kept in memory.
    ///
    /// # Errors
    /// If the file cannot be used, or was written by a newer version.
    pub fn open(path: Option<&Path>) -> Result<SqliteUsageStore, Error> {
        let name = path.map_or("memory".to_owned(), |path| path.display().to_string());
        let opened = path.map_or_else(Connection::open_in_memory, Connection::open);
        let connection = opened.map_err(|error| unusable(&name, &error))?;
        let store = SqliteUsageStore {
            connection: Arc::new(Mutex::new(connection)),
            path: name,
        };
        store.prepare()?;
        Ok(store)
    }

    fn prepare(&self) -> Result<(), Error> {
        let connection = self.connection.lock();
        let version: i64 = connection
            .query_row("PRAGMA user_version", [], |row| row.get(0))
            .map_err(|error| self.wrong(&error))?;
        if version > VERSION {
            return Err(Error::Usage {
                path: self.path.clone(),
                cause: format!(
                    "the file has schema version {version}, but this program supports only {VERSION}: use a newer program"
                ),
            });
        }
        // WAL lets `headworks gateway usage` read the file while the gateway writes it. Older
        // programs ignore `usage_batch`.
        let tables = format!(
            "PRAGMA journal_mode = WAL;
             PRAGMA busy_timeout = 5000;
             CREATE TABLE IF NOT EXISTS usage (
                 day INTEGER NOT NULL, tenant TEXT NOT NULL, model TEXT NOT NULL,
                 requests INTEGER NOT NULL, refused INTEGER NOT NULL,
                 input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
                 PRIMARY KEY (day, tenant, model)) WITHOUT ROWID;
             CREATE TABLE IF NOT EXISTS usage_batch (
                 process BLOB PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
             PRAGMA user_version = {VERSION};"
        );
        connection
            .execute_batch(&tables)
            .map_err(|error| self.wrong(&error))
    }

    /// Books a batch, all or nothing, unless it is booked already.
    fn add(&self, batch: &UsageBatch) -> Result<(), Error> {
        let mut connection = self.connection.lock();
        let add = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            let process = batch.process.as_bytes().as_slice();
            let last = transaction
                .prepare_cached("SELECT seq FROM usage_batch WHERE process = ?1")?
                .query_row([process], |row| row.get::<_, i64>(0))
                .optional()?;
            if last.is_some_and(|last| last >= signed(batch.seq)) {
                return Ok(());
            }
            transaction
                .prepare_cached(
                    "INSERT INTO usage_batch VALUES (?1, ?2)
                     ON CONFLICT DO UPDATE SET seq = ?2",
                )?
                .execute(params![process, signed(batch.seq)])?;
            for row in &batch.rows {
                transaction
                    .prepare_cached(
                        "INSERT INTO usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
                     ON CONFLICT DO UPDATE SET requests = requests + ?4, refused = refused + ?5,
                         input_tokens = input_tokens + ?6, output_tokens = output_tokens + ?7",
                    )?
                    .execute(params![
                        row.day,
                        row.tenant,
                        row.model,
                        signed(row.requests),
                        signed(row.refused),
                        signed(row.input_tokens),
                        signed(row.output_tokens)
                    ])?;
            }
            transaction.commit()
        };
        add(&mut connection).map_err(|error| self.wrong(&error))
    }

    /// Rows of the days from `from` to `to`, inclusive, oldest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn rows(&self, from: u32, to: u32) -> Result<Vec<UsageRow>, Error> {
        let connection = self.connection.lock();
        let read = || {
            let mut statement = connection.prepare_cached(
                "SELECT day, tenant, model, requests, refused, input_tokens, output_tokens
                 FROM usage WHERE day BETWEEN ?1 AND ?2 ORDER BY day, tenant, model",
            )?;
            let rows = statement.query_map([from, to], |row| {
                Ok(UsageRow {
                    day: row.get(0)?,
                    tenant: row.get(1)?,
                    model: row.get(2)?,
                    requests: unsigned(row.get(3)?),
                    refused: unsigned(row.get(4)?),
                    input_tokens: unsigned(row.get(5)?),
                    output_tokens: unsigned(row.get(6)?),
                })
            })?;
            rows.collect::<Result<Vec<_>, _>>()
        };
        read().map_err(|error| self.wrong(&error))
    }

    /// Totals of all tenants on `day` and in its month up to then.
    pub(crate) fn month_totals(&self, day: u32) -> Result<Vec<TenantTotal>, Error> {
        // Days are numbers such as 20261115, so this range is the month so far.
        let rows = self.rows(month(day) * 100, day)?;
        let batch = UsageBatch::new(headworks_fleet::NodeToken::random(), 1, rows);
        let mut totals = batch.totals();
        totals.retain(|total| total.period == day || total.period == month(day));
        Ok(totals)
    }

    fn wrong(&self, error: &rusqlite::Error) -> Error {
        unusable(&self.path, error)
    }

    /// Runs `work` where blocking is allowed.
    fn blocking<'a, R: Send + 'static>(
        &self,
        work: impl FnOnce(&SqliteUsageStore) -> Result<R, Error> + Send + 'static,
    ) -> BoxFuture<'a, Result<R, Error>> {
        let store = self.clone();
        async move {
            let path = store.path.clone();
            let done = tokio::task::spawn_blocking(move || work(&store)).await;
            done.unwrap_or_else(|cause| {
                let cause = cause.to_string();
                Err(Error::Usage { path, cause })
            })
        }
        .boxed()
    }
}

impl UsageStore for SqliteUsageStore {
    fn book<'a>(
        &'a self,
        batch: &'a UsageBatch,
        tenants: &'a [String],
        day: u32,
    ) -> BoxFuture<'a, Result<Booked, Error>> {
        let (batch, tenants) = (batch.clone(), tenants.to_vec());
        self.blocking(move |store| {
            if !batch.rows.is_empty() {
                store.add(&batch)?;
            }
            let mut totals = match tenants.is_empty() {
                true => Vec::new(),
                false => store.month_totals(day)?,
            };
            totals.retain(|total| tenants.contains(&total.tenant));
            Ok(Booked { totals, nodes: 1 })
        })
    }

    fn totals(&self, day: u32) -> BoxFuture<'_, Result<Vec<TenantTotal>, Error>> {
        self.blocking(move |store| store.month_totals(day))
    }

    fn rows(&self, from: u32, to: u32) -> BoxFuture<'_, Result<Vec<UsageRow>, Error>> {
        self.blocking(move |store| store.rows(from, to))
    }
}

fn unusable(path: &str, error: &rusqlite::Error) -> Error {
    Error::Usage {
        path: path.to_owned(),
        cause: error.to_string(),
    }
}

// SQLite has signed integers only.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_fleet::NodeToken;

    fn batch(day: u32, tenant: &str, tokens: u64) -> UsageBatch {
        let row = UsageRow {
            day,
            tenant: tenant.into(),
            model: "m".into(),
            requests: 1,
            output_tokens: tokens,
            ..UsageRow::default()
        };
        UsageBatch::new(NodeToken::random(), 1, [row])
    }

    #[test]
    fn usage_adds_up_and_survives() {
        let path = std::env::temp_dir().join(format!("headworks-usage-{}.db", std::process::id()));
        let store = SqliteUsageStore::open(Some(&path)).unwrap();
        store.add(&batch(20_261_115, "a", 3)).unwrap();
        store.add(&batch(20_261_116, "b, c", 5)).unwrap();
        store.add(&batch(20_261_115, "a", 4)).unwrap();
        drop(store);
        let rows = SqliteUsageStore::open(Some(&path))
            .unwrap()
            .rows(0, u32::MAX)
            .unwrap();
        assert_eq!((rows[0].requests, rows[0].output_tokens), (2, 7));
        assert!(UsageRow::csv(&rows).ends_with("20261116,\"b, c\",m,1,0,0,5\n"));
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
        }
    }

    #[test]
    fn a_newer_file_is_refused_with_words() {
        let path = std::env::temp_dir().join(format!("headworks-newer-{}.db", std::process::id()));
        Connection::open(&path)
            .unwrap()
            .execute_batch("PRAGMA user_version = 99")
            .unwrap();
        let error = SqliteUsageStore::open(Some(&path)).err().unwrap();
        assert!(error.to_string().contains("version 99"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }
}
