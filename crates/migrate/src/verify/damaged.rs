//! Files whose bytes a verification found to differ.
//!
//! Their size and time are as they should be, so a plan takes them for unchanged. Each is marked in
//! the state file until it has been copied again: a plan forgets their copies, and the copy that
//! follows replaces them. The mark outlives passes, so that a file which cannot be copied today is
//! not forgotten.

use super::forget_copy;
use crate::store::FolderId;
use rusqlite::{Connection, Transaction, params};
use std::collections::{HashMap, HashSet};

/// Begins the keys of the marks in `meta`; the value is the path.
const PREFIX: &str = "damaged:";

/// Marks a file.
pub(super) fn mark(transaction: &Transaction<'_>, path: &[u8]) -> rusqlite::Result<()> {
    let insert = "INSERT OR REPLACE INTO meta VALUES (? || hex(?), ?)";
    transaction
        .execute(insert, params![PREFIX, path, path])
        .map(drop)
}

/// Whether any file is marked.
pub(crate) fn any(connection: &Connection) -> rusqlite::Result<bool> {
    let query = "SELECT EXISTS (SELECT 1 FROM meta WHERE key GLOB ? || '*')";
    connection.query_row(query, [PREFIX], |row| row.get(0))
}

/// Forgets the copies of all marked files, so that they are copied again.
pub(crate) fn forget_copies(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    for file in marked(transaction)? {
        if let Some(parent) = file.parent {
            forget_copy(transaction, parent, file.name())?;
        }
    }
    Ok(())
}

/// Removes the marks of files that have a copy again, or are gone from the source.
pub(crate) fn unmark_copied(transaction: &Transaction<'_>) -> rusqlite::Result<()> {
    let query = "SELECT EXISTS (SELECT 1 FROM source WHERE parent = ?1 AND name = ?2)
        AND NOT EXISTS (SELECT 1 FROM destination WHERE parent = ?1 AND name = ?2)";
    for file in marked(transaction)? {
        let is_open = match file.parent {
            Some(parent) => {
                let arguments = params![parent, file.name()];
                transaction.query_row(query, arguments, |row| row.get(0))?
            }
            None => false,
        };
        if !is_open {
            let delete = "DELETE FROM meta WHERE key = ? || hex(?)";
            transaction.execute(delete, params![PREFIX, file.path])?;
        }
    }
    Ok(())
}

/// A marked file.
struct Damaged {
    path: Vec<u8>,
    /// Its folder, if the plan has it.
    parent: Option<FolderId>,
}

impl Damaged {
    /// The path of its folder, with the slash at the end.
    fn folder(&self) -> &[u8] {
        &self.path[..self.path.len() - self.name().len()]
    }

    fn name(&self) -> &[u8] {
        let at = self.path.iter().rposition(|byte| *byte == b'/');
        &self.path[at.map_or(0, |at| at + 1)..]
    }
}

fn marked(transaction: &Transaction<'_>) -> rusqlite::Result<Vec<Damaged>> {
    let query = "SELECT value FROM meta WHERE key GLOB ? || '*'";
    let mut statement = transaction.prepare(query)?;
    let paths = statement.query_map([PREFIX], |row| row.get(0))?;
    let mut files: Vec<Damaged> = paths
        .map(|path| {
            Ok(Damaged {
                path: path?,
                parent: None,
            })
        })
        .collect::<rusqlite::Result<_>>()?;
    if files.is_empty() {
        return Ok(files);
    }
    // Folders have no index by path, so all are read, once.
    let mut folders: HashMap<Vec<u8>, FolderId> = HashMap::new();
    let wanted: HashSet<&[u8]> = files.iter().map(Damaged::folder).collect();
    let mut statement = transaction.prepare("SELECT id, path FROM folder")?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let path = row.get_ref(1)?.as_bytes()?;
        if wanted.contains(path) {
            folders.insert(path.to_vec(), row.get(0)?);
        }
    }
    for file in &mut files {
        file.parent = folders.get(file.folder()).copied();
    }
    Ok(files)
}
