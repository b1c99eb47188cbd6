//! Usage store: usage by tenant, day and model, in SQLite.

use std::path::Path;

use rusqlite::{Connection, params};
use serde::Serialize;

use crate::error::Error;

/// Schema version. Older files are upgraded, newer ones rejected.
const VERSION: i64 = 1;

/// Usage of one tenant on one day with one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UsageRow {
    /// Calendar day, such as 20261115.
    pub day: u32,
    /// The tenant.
    pub tenant: String,
    /// The model; empty for requests without a successful response.
    pub model: String,
    /// Requests that ended.
    pub requests: u64,
    /// Requests that were rejected.
    pub refused: u64,
    /// Tokens of prompts.
    pub input_tokens: u64,
    /// Tokens of responses.
    pub output_tokens: u64,
}

/// The usage file, or a database in memory.
pub struct UsageStore {
    connection: Connection,
    path: String,
}

impl UsageStore {
    /// Opens or creates a usage file. Without a path, usage is kept in memory.
    ///
    /// # Errors
    /// If the file cannot be used, or was written by a newer version.
    pub fn open(path: Option<&Path>) -> Result<UsageStore, Error> {
        let name = path.map_or("memory".to_owned(), |path| path.display().to_string());
        let opened = path.map_or_else(Connection::open_in_memory, Connection::open);
        let connection = opened.map_err(|error| unusable(&name, &error))?;
        let store = UsageStore {
            connection,
            path: name,
        };
        store.prepare()?;
        Ok(store)
    }

    fn prepare(&self) -> Result<(), Error> {
        let version: i64 = self
            .connection
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
        // WAL lets `headworks gateway usage` read the file while the gateway writes it.
        let tables = format!(
            "PRAGMA journal_mode = WAL;
             PRAGMA busy_timeout = 5000;
             CREATE TABLE IF NOT EXISTS usage (
                 day INTEGER NOT NULL, tenant TEXT NOT NULL, model TEXT NOT NULL,
                 requests INTEGER NOT NULL, refused INTEGER NOT NULL,
                 input_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL,
                 PRIMARY KEY (day, tenant, model)) WITHOUT ROWID;
             PRAGMA user_version = {VERSION};"
        );
        self.connection
            .execute_batch(&tables)
            .map_err(|error| self.wrong(&error))
    }

    /// Adds rows to the stored ones, all or nothing.
    ///
    /// # Errors
    /// If the rows cannot be written. None is written then.
    pub fn add(&mut self, rows: &[UsageRow]) -> Result<(), Error> {
        let path = self.path.clone();
        let add = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            for row in rows {
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
        add(&mut self.connection).map_err(|error| unusable(&path, &error))
    }

    /// Rows of the days from `from` to `to`, inclusive, oldest first.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn rows(&self, from: u32, to: u32) -> Result<Vec<UsageRow>, Error> {
        let read = || {
            let mut statement = self.connection.prepare(
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

    fn wrong(&self, error: &rusqlite::Error) -> Error {
        unusable(&self.path, error)
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

/// Formats rows as CSV with a header line. Names are quoted where necessary.
pub(crate) fn csv(rows: &[UsageRow]) -> String {
    use std::fmt::Write;
    let mut text = "day,tenant,model,requests,refused,input_tokens,output_tokens\n".to_owned();
    for row in rows {
        let (tenant, model) = (quoted(&row.tenant), quoted(&row.model));
        let _ = writeln!(
            text,
            "{},{tenant},{model},{},{},{},{}",
            row.day, row.requests, row.refused, row.input_tokens, row.output_tokens
        );
    }
    text
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

impl UsageRow {
    /// Formats rows as CSV with a header line.
    #[must_use]
    pub fn csv(rows: &[UsageRow]) -> String {
        csv(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(day: u32, tenant: &str, tokens: u64) -> UsageRow {
        UsageRow {
            day,
            tenant: tenant.into(),
            model: "m".into(),
            requests: 1,
            output_tokens: tokens,
            ..UsageRow::default()
        }
    }

    #[test]
    fn usage_adds_up_and_survives() {
        let path = std::env::temp_dir().join(format!("headworks-usage-{}.db", std::process::id()));
        let mut store = UsageStore::open(Some(&path)).unwrap();
        store
            .add(&[row(20_261_115, "a", 3), row(20_261_116, "b, c", 5)])
            .unwrap();
        store.add(&[row(20_261_115, "a", 4)]).unwrap();
        drop(store);
        let rows = UsageStore::open(Some(&path))
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
        let error = UsageStore::open(Some(&path)).err().unwrap().to_string();
        assert!(error.contains("version 99"), "{error}");
        std::fs::remove_file(&path).unwrap();
    }
}
