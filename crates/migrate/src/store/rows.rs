//! Entries as rows, and pairs of them.

use super::FolderId;
use crate::error::Result;
use crate::status::{Dst, Src};
use headworks_storage::{Entry, Folder, Inode, Kind, Posix};
use rusqlite::{Connection, Row as SqlRow, params};
use std::borrow::Cow;
use std::sync::Arc;

/// An entry to be stored.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) entry: Entry,
    pub(crate) excluded: bool,
}

impl Row {
    /// The same, with its time.
    pub(crate) fn dated(&self, modified: Option<i64>) -> Cow<'_, Row> {
        if self.entry.modified == modified {
            return Cow::Borrowed(self);
        }
        let mut row = self.clone();
        row.entry.modified = modified;
        Cow::Owned(row)
    }
}

/// A folder to be listed.
#[derive(Clone, Debug)]
pub(crate) struct FolderRow {
    pub(crate) id: FolderId,
    pub(crate) path: Folder,
    pub(crate) depth: u32,
    pub(crate) subfolders: u64,
    pub(crate) cursor: Option<Vec<u8>>,
}

/// A source entry beside what the destination has of its name.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) parent: FolderId,
    pub(crate) folder: Arc<Folder>,
    pub(crate) parent_dst: Dst,
    pub(crate) entry: Entry,
    pub(crate) excluded: bool,
    /// The number of the folder that it is, if it is one that takes part.
    pub(crate) child: Option<FolderId>,
    pub(crate) child_src: Option<Src>,
    pub(crate) there: Option<Entry>,
    /// The pass in which it was copied, or 0.
    pub(crate) copied: i64,
    /// What became of the last attempt to copy it, if that failed: kind and cause.
    pub(crate) failure: Option<(String, String)>,
}

impl Pair {
    pub(crate) fn path(&self) -> Vec<u8> {
        self.folder.join(&self.entry.name)
    }
}

/// What a statement changed, told apart from errors that matter.
pub(crate) type Changes = rusqlite::Result<()>;

pub(crate) fn kind_number(kind: Kind) -> i64 {
    match kind {
        Kind::Folder => 0,
        Kind::File => 1,
        Kind::Symlink => 2,
        Kind::Special => 3,
    }
}

pub(crate) fn kind_of(number: i64) -> Kind {
    match number {
        0 => Kind::Folder,
        1 => Kind::File,
        2 => Kind::Symlink,
        _ => Kind::Special,
    }
}

// SQLite's integers are signed; sizes and inode numbers beyond 2^63 keep their bits.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

pub(crate) fn put_source(
    connection: &Connection,
    parent: FolderId,
    row: &Row,
    folder: Option<FolderId>,
) -> Changes {
    let entry = &row.entry;
    let posix = entry.posix;
    let mut statement = connection
        .prepare_cached("INSERT OR REPLACE INTO source VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")?;
    statement.execute(params![
        parent,
        entry.name,
        kind_number(entry.kind),
        signed(entry.size),
        entry.modified,
        posix.map(|p| p.mode),
        posix.map(|p| p.uid),
        posix.map(|p| p.gid),
        posix.and_then(|p| (p.device != 0).then(|| signed(p.device))),
        entry.target,
        entry.inode.map(|i| signed(i.device)),
        entry.inode.map(|i| signed(i.number)),
        folder,
        row.excluded,
        entry.version,
    ])?;
    if let Some(inode) = entry.inode
        && !row.excluded
    {
        let mut statement =
            connection.prepare_cached("INSERT OR REPLACE INTO link VALUES (?,?,?,?)")?;
        statement.execute(params![
            signed(inode.device),
            signed(inode.number),
            parent,
            entry.name
        ])?;
    }
    Ok(())
}

/// `copied` is the pass in which we made it so, or 0 if it was found so.
pub(crate) fn put_destination(
    connection: &Connection,
    parent: FolderId,
    entry: &Entry,
    copied: i64,
) -> Changes {
    let posix = entry.posix;
    let mut statement = connection.prepare_cached(
        "INSERT OR REPLACE INTO destination VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    )?;
    statement.execute(params![
        parent,
        entry.name,
        kind_number(entry.kind),
        signed(entry.size),
        entry.modified,
        posix.map(|p| p.mode),
        posix.map(|p| p.uid),
        posix.map(|p| p.gid),
        posix.and_then(|p| (p.device != 0).then(|| signed(p.device))),
        entry.target,
        entry.inode.map(|i| signed(i.device)),
        entry.inode.map(|i| signed(i.number)),
        copied,
        entry.version,
    ])?;
    Ok(())
}

/// Reads an entry of either table, but for its version; its columns begin at `from`.
pub(crate) fn read_entry(row: &SqlRow<'_>, from: usize) -> rusqlite::Result<Entry> {
    let mode: Option<u32> = row.get(from + 4)?;
    let posix = match mode {
        None => None,
        Some(mode) => Some(Posix {
            mode,
            uid: row.get(from + 5)?,
            gid: row.get(from + 6)?,
            device: row
                .get::<_, Option<i64>>(from + 7)?
                .unwrap_or(0)
                .cast_unsigned(),
        }),
    };
    let device: Option<i64> = row.get(from + 9)?;
    let inode = match device {
        None => None,
        Some(device) => Some(Inode {
            device: device.cast_unsigned(),
            number: row.get::<_, i64>(from + 10)?.cast_unsigned(),
        }),
    };
    Ok(Entry {
        name: row.get(from)?,
        kind: kind_of(row.get(from + 1)?),
        size: row.get::<_, i64>(from + 2)?.cast_unsigned(),
        modified: row.get(from + 3)?,
        posix,
        target: row.get(from + 8)?,
        inode,
        version: None,
    })
}

pub(crate) const ENTRY_COLUMNS: usize = 11;

/// The columns that [`read_entry`] reads, with `@` for the table.
pub(crate) const ENTRY: &str =
    "@name, @kind, @size, @modified, @mode, @uid, @gid, @special, @target, @device, @inode";

const PAIR: &str = "
    SELECT s.name, s.kind, s.size, s.modified, s.mode, s.uid, s.gid, s.special, s.target, s.device, s.inode,
           d.name, d.kind, d.size, d.modified, d.mode, d.uid, d.gid, d.special, d.target, d.device, d.inode,
           s.parent, s.excluded, s.folder, f.dst, c.src, d.copied, x.kind, x.cause, f.path,
           s.version, d.version
    FROM source s
    JOIN folder f ON f.id = s.parent
    LEFT JOIN destination d ON d.parent = s.parent AND d.name = s.name
    LEFT JOIN folder c ON c.id = s.folder
    LEFT JOIN failure x ON x.parent = s.parent AND x.name = s.name AND x.phase = 'copy'";

/// Up to `limit` source entries after a place, by folder and name, each with its counterpart.
pub(crate) fn read_pairs(
    connection: &Connection,
    after: &(FolderId, Vec<u8>),
    limit: usize,
) -> Result<Vec<Pair>> {
    let mut statement = connection.prepare_cached(&format!(
        "{PAIR} WHERE (s.parent, s.name) > (?1, ?2) ORDER BY s.parent, s.name LIMIT ?3"
    ))?;
    let mut rows = statement.query(params![after.0, after.1, limit as i64])?;
    let mut pairs: Vec<Pair> = Vec::new();
    while let Some(row) = rows.next()? {
        let pair = read_pair(row, pairs.last())?;
        pairs.push(pair);
    }
    Ok(pairs)
}

/// Up to `limit` source entries of one folder after a name.
pub(crate) fn read_folder(
    connection: &Connection,
    folder: FolderId,
    after: &[u8],
    limit: usize,
) -> Result<Vec<Pair>> {
    let mut statement = connection.prepare_cached(&format!(
        "{PAIR} WHERE s.parent = ?1 AND s.name > ?2 ORDER BY s.name LIMIT ?3"
    ))?;
    let mut rows = statement.query(params![folder, after, limit as i64])?;
    let mut pairs: Vec<Pair> = Vec::new();
    while let Some(row) = rows.next()? {
        let pair = read_pair(row, pairs.last())?;
        pairs.push(pair);
    }
    Ok(pairs)
}

/// One pair, by its place.
pub(crate) fn find_pair(
    connection: &Connection,
    folder: FolderId,
    name: &[u8],
) -> Result<Option<Pair>> {
    let query = format!("{PAIR} WHERE s.parent = ? AND s.name = ?");
    let mut statement = connection.prepare_cached(&query)?;
    let mut rows = statement.query(params![folder, name])?;
    let found = rows.next()?.map(|row| read_pair(row, None)).transpose()?;
    Ok(found)
}

/// Neighbours of one folder share its path.
fn read_pair(row: &SqlRow<'_>, before: Option<&Pair>) -> rusqlite::Result<Pair> {
    let at = 2 * ENTRY_COLUMNS;
    let parent = row.get(at)?;
    let folder = match before {
        Some(before) if before.parent == parent => before.folder.clone(),
        _ => Arc::new(Folder::from_bytes(row.get(at + 8)?)),
    };
    let there = match row.get_ref(ENTRY_COLUMNS)? {
        rusqlite::types::ValueRef::Null => None,
        _ => Some(Entry {
            version: row.get(at + 10)?,
            ..read_entry(row, ENTRY_COLUMNS)?
        }),
    };
    let kind: Option<String> = row.get(at + 6)?;
    let failure = match kind {
        None => None,
        Some(kind) => Some((kind, row.get(at + 7)?)),
    };
    Ok(Pair {
        parent,
        folder,
        parent_dst: Dst::from_number(row.get(at + 3)?),
        entry: Entry {
            version: row.get(at + 9)?,
            ..read_entry(row, 0)?
        },
        excluded: row.get(at + 1)?,
        child: row.get(at + 2)?,
        child_src: row.get::<_, Option<i64>>(at + 4)?.map(Src::from_number),
        there,
        copied: row.get::<_, Option<i64>>(at + 5)?.unwrap_or(0),
        failure,
    })
}
