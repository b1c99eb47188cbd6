//! The modification times of known versions, kept across passes.
//!
//! Listings of some object stores do not contain the modification times of files. A version that
//! was copied or looked up is remembered with its time.

use crate::side::Side;
use headworks_storage::Entry;
use rusqlite::{Connection, OptionalExtension, params};

/// Returns the time of a version: `None` if the version is unknown, `Some(None)` if it is only
/// known that it was copied.
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

/// Returns the time of a listed entry, from the listing or from a remembered version.
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
