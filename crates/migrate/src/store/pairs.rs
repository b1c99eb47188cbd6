//! Source entries beside what the destination has of their names.
//!
//! Both tables are in the order of folder and name, so they are read side by side, each from front to back: looking every name up
//! would cost several times as much.

use super::FolderId;
use super::rows::{ENTRY, ENTRY_COLUMNS, Pair, read_entry};
use crate::error::Result;
use crate::status::{Dst, Src};
use headworks_storage::{Entry, Folder};
use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, Rows, Statement, params};
use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

type Place = (FolderId, Vec<u8>);

/// The columns of an entry, then its folder's number, then the rest.
fn columns(rest: &str) -> String {
    format!("{}, parent, {rest}", ENTRY.replace('@', ""))
}

const ORDER: &str = "ORDER BY parent, name";

static SOURCE: LazyLock<String> = LazyLock::new(|| {
    let columns = columns("excluded, folder, version");
    format!(
        "SELECT {columns} FROM source WHERE (parent, name) > (?, ?) AND parent <= ? {ORDER} LIMIT ?"
    )
});
static ONE: LazyLock<String> = LazyLock::new(|| {
    let columns = columns("excluded, folder, version");
    format!("SELECT {columns} FROM source WHERE parent = ? AND name = ?")
});
static DESTINATION: LazyLock<String> = LazyLock::new(|| {
    let columns = columns("copied, version");
    format!("SELECT {columns} FROM destination WHERE (parent, name) >= (?, ?) {ORDER}")
});
const FAILURE: &str = "SELECT name, parent, kind, cause FROM failure
     WHERE (parent, name) >= (?, ?) AND phase = 'copy' ORDER BY parent, name";

/// Up to `limit` source entries after a place, by folder and name, each with its counterpart.
pub(crate) fn read_pairs(
    connection: &Connection,
    after: &Place,
    limit: usize,
) -> Result<Vec<Pair>> {
    read_pairs_until(connection, after, FolderId::MAX, limit)
}

/// The same, of folders with numbers up to `last`.
pub(crate) fn read_pairs_until(
    connection: &Connection,
    after: &Place,
    last: FolderId,
    limit: usize,
) -> Result<Vec<Pair>> {
    let mut source = connection.prepare_cached(&SOURCE)?;
    let rows = source.query(params![after.0, after.1, last, limit as i64])?;
    read(connection, rows, (after.0, &after.1))
}

/// Up to `limit` source entries of one folder after a name.
pub(crate) fn read_folder(
    connection: &Connection,
    folder: FolderId,
    after: &[u8],
    limit: usize,
) -> Result<Vec<Pair>> {
    let mut source = connection.prepare_cached(&SOURCE)?;
    let rows = source.query(params![folder, after, folder, limit as i64])?;
    read(connection, rows, (folder, after))
}

/// One pair, by its place.
pub(crate) fn find_pair(
    connection: &Connection,
    folder: FolderId,
    name: &[u8],
) -> Result<Option<Pair>> {
    let mut source = connection.prepare_cached(&ONE)?;
    let rows = source.query(params![folder, name])?;
    Ok(read(connection, rows, (folder, name))?.pop())
}

/// Source rows from a place on, each with what is beside it.
fn read(connection: &Connection, mut rows: Rows<'_>, from: (FolderId, &[u8])) -> Result<Vec<Pair>> {
    let mut destination = connection.prepare_cached(&DESTINATION)?;
    let mut failure = connection.prepare_cached(FAILURE)?;
    let mut there = Beside::new(&mut destination, from, ENTRY_COLUMNS)?;
    let mut failed = Beside::new(&mut failure, from, 1)?;
    let mut folders = Folders::new(connection)?;
    let mut pairs: Vec<Pair> = Vec::new();
    while let Some(row) = rows.next()? {
        let parent = row.get(ENTRY_COLUMNS)?;
        let entry = Entry {
            version: row.get(ENTRY_COLUMNS + 3)?,
            ..read_entry(row, 0)?
        };
        let Some((folder, parent_dst)) = folders.at(parent)? else {
            continue; // the root's own entry is in no folder
        };
        let child: Option<FolderId> = row.get(ENTRY_COLUMNS + 2)?;
        let (there, copied) = match there.find(parent, &entry.name)? {
            Some(row) => {
                let version = row.get(ENTRY_COLUMNS + 2)?;
                let there = Entry {
                    version,
                    ..read_entry(row, 0)?
                };
                (Some(there), row.get(ENTRY_COLUMNS + 1)?)
            }
            None => (None, 0),
        };
        let failure = match failed.find(parent, &entry.name)? {
            Some(row) => Some((row.get(2)?, row.get(3)?)),
            None => None,
        };
        pairs.push(Pair {
            parent,
            folder,
            parent_dst,
            excluded: row.get(ENTRY_COLUMNS + 1)?,
            child_src: child.map(|child| folders.src(child)).transpose()?,
            child,
            entry,
            there,
            copied,
            failure,
        });
    }
    Ok(pairs)
}

/// Rows of another table, read as far as the source is. Their first column is the name.
struct Beside<'s> {
    rows: Rows<'s>,
    /// Which column is the folder.
    parent: usize,
    begun: bool,
}

impl<'s> Beside<'s> {
    fn new(
        statement: &'s mut Statement<'_>,
        from: (FolderId, &[u8]),
        parent: usize,
    ) -> rusqlite::Result<Beside<'s>> {
        Ok(Beside {
            rows: statement.query(params![from.0, from.1])?,
            parent,
            begun: false,
        })
    }

    /// The row of a place, if there is one. Places must come in order.
    fn find(&mut self, parent: FolderId, name: &[u8]) -> rusqlite::Result<Option<&Row<'s>>> {
        if !self.begun {
            self.begun = true;
            self.rows.advance()?;
        }
        while let Some(row) = self.rows.get() {
            let folder: FolderId = row.get(self.parent)?;
            let order = (folder, row.get_ref(0)?.as_blob()?).cmp(&(parent, name));
            match order {
                Ordering::Less => self.rows.advance()?,
                Ordering::Equal => break,
                Ordering::Greater => return Ok(None),
            }
        }
        Ok(self.rows.get())
    }
}

/// What is known of folders; neighbours are mostly in the same one.
struct Folders<'c> {
    at: CachedStatement<'c>,
    src: CachedStatement<'c>,
    last: Option<(FolderId, Arc<Folder>, Dst)>,
}

impl<'c> Folders<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Folders<'c>> {
        Ok(Folders {
            at: connection.prepare_cached(
                "SELECT path, iif(dst = 0, coalesce(ahead, 0), dst) FROM folder WHERE id = ?",
            )?,
            src: connection.prepare_cached("SELECT src FROM folder WHERE id = ?")?,
            last: None,
        })
    }

    /// The path of a folder, and how its counterpart is.
    fn at(&mut self, id: FolderId) -> rusqlite::Result<Option<(Arc<Folder>, Dst)>> {
        if self.last.as_ref().is_none_or(|(last, ..)| *last != id) {
            let found = self.at.query_row([id], |row| {
                let path = Folder::from_bytes(row.get(0)?);
                Ok((id, Arc::new(path), Dst::from_number(row.get(1)?)))
            });
            self.last = found.optional()?;
        }
        let known = self.last.as_ref();
        Ok(known.map(|(_, path, dst)| (path.clone(), *dst)))
    }

    fn src(&mut self, id: FolderId) -> rusqlite::Result<Src> {
        self.src
            .query_row([id], |row| Ok(Src::from_number(row.get(0)?)))
    }
}
