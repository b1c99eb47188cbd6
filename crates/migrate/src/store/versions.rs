//! What is known of a version that a storage gave to a file, also in later passes.
//!
//! Listings of object storages do not say when a file was modified. Who copied or looked at a
//! version knows it.

use crate::side::Side;
use headworks_storage::Entry;
use rusqlite::{Connection, OptionalExtension, params};

/// When this version was modified: `None` if nothing is known of it, `Some(None)` if only that we
/// copied it.
pub(crate) fn recall_version(
    connection: &Connection,
    side: Side,
    path: &[u8],
    version: &[u8],
) -> rusqlite::Result<Option<Option<i64>>> {
    let query = "SELECT modified FROM known WHERE side = ? AND path = ? AND version = ?";
    let mut statement = connection.prepare_cached(query)?;
    let found = params![side as i64, path, version];
    statement.query_row(found, |row| row.get(0)).optional()
}

pub(crate) fn remember_version(
    connection: &Connection,
    side: Side,
    path: &[u8],
    entry: &Entry,
) -> rusqlite::Result<()> {
    let Some(version) = &entry.version else {
        return Ok(());
    };
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO known VALUES (?, ?, ?, ?)")?;
    statement
        .execute(params![side as i64, path, version, entry.modified])
        .map(drop)
}

/// The time of a listed entry, if it is known from before.
pub(crate) fn known_modified(
    connection: &Connection,
    side: Side,
    path: &[u8],
    entry: &Entry,
) -> rusqlite::Result<Option<i64>> {
    match (entry.modified, &entry.version) {
        (None, Some(version)) => Ok(recall_version(connection, side, path, version)?.flatten()),
        (modified, _) => Ok(modified),
    }
}
