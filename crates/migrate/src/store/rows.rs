//! Entries as rows, and pairs of them.

use super::FolderId;
use crate::status::{DstState, SrcState};
use headworks_storage::{Entry, Folder, Inode, Kind, Posix};
use rusqlite::{Connection, Row as SqlRow, Statement, params};
use std::borrow::Cow;
use std::sync::{Arc, LazyLock};

/// Whether a source entry takes part in the migration. The numbers are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    Included = 0,
    /// By a filter.
    Excluded = 1,
    /// The destination cannot tell its name from that of another entry of the folder.
    NameConflict = 2,
}

impl Selection {
    pub(crate) fn from_code(number: i64) -> Selection {
        match number {
            0 => Selection::Included,
            2 => Selection::NameConflict,
            _ => Selection::Excluded,
        }
    }
}

/// An entry to be stored.
#[derive(Clone, Debug)]
pub(crate) struct EntryRow {
    /// The entry on the source.
    pub(crate) entry: Entry,
    pub(crate) selection: Selection,
}

impl EntryRow {
    pub(crate) fn is_included(&self) -> bool {
        self.selection == Selection::Included
    }

    /// Returns the row with another time.
    pub(crate) fn with_modified(&self, modified: Option<i64>) -> Cow<'_, EntryRow> {
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

/// A source entry paired with the destination entry of the same name.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) parent: FolderId,
    pub(crate) folder: Arc<Folder>,
    pub(crate) parent_dst: DstState,
    pub(crate) entry: Entry,
    pub(crate) selection: Selection,
    /// The id of the folder that it is, if it is one that takes part.
    pub(crate) child: Option<FolderId>,
    pub(crate) child_src: Option<SrcState>,
    /// The entry of the same name at the destination.
    pub(crate) existing: Option<Entry>,
    /// The pass in which it was copied, or 0.
    pub(crate) copied: i64,
    /// The kind and cause of the last failure to copy it.
    pub(crate) failure: Option<(String, String)>,
}

impl Pair {
    pub(crate) fn path(&self) -> Vec<u8> {
        self.folder.join(&self.entry.name)
    }
}

pub(crate) fn kind_number(kind: Kind) -> i64 {
    match kind {
        Kind::Folder => 0,
        Kind::File => 1,
        Kind::Symlink => 2,
        Kind::Special => 3,
    }
}

pub(crate) fn kind_from_number(number: i64) -> Kind {
    match number {
        0 => Kind::Folder,
        1 => Kind::File,
        2 => Kind::Symlink,
        _ => Kind::Special,
    }
}

// SQLite's integers are signed; sizes and inode numbers above 2^63 keep their bits.
fn signed(number: u64) -> i64 {
    number.cast_signed()
}

/// Rows per statement.
const ROWS_PER_INSERT: usize = 8;
/// Columns of the tables.
const SOURCE_COLUMNS: usize = 15;
const DESTINATION_COLUMNS: usize = 15;

/// Returns a statement that inserts this many rows.
fn insert(table: &str, columns: usize, rows: usize) -> String {
    let row = format!("({})", vec!["?"; columns].join(","));
    let rows = vec![row; rows].join(",");
    format!("INSERT OR REPLACE INTO {table} VALUES {rows}")
}

static SOURCES: LazyLock<String> =
    LazyLock::new(|| insert("source", SOURCE_COLUMNS, ROWS_PER_INSERT));
static ONE_SOURCE: LazyLock<String> = LazyLock::new(|| insert("source", SOURCE_COLUMNS, 1));
static DESTINATIONS: LazyLock<String> =
    LazyLock::new(|| insert("destination", DESTINATION_COLUMNS, ROWS_PER_INSERT));
static ONE_DESTINATION: LazyLock<String> =
    LazyLock::new(|| insert("destination", DESTINATION_COLUMNS, 1));

/// Binds the columns that both tables have, starting at `at`.
fn bind_entry(
    statement: &mut Statement<'_>,
    at: usize,
    parent: FolderId,
    entry: &Entry,
) -> rusqlite::Result<()> {
    let posix = entry.posix;
    statement.raw_bind_parameter(at, parent)?;
    statement.raw_bind_parameter(at + 1, entry.name.as_slice())?;
    statement.raw_bind_parameter(at + 2, kind_number(entry.kind))?;
    statement.raw_bind_parameter(at + 3, signed(entry.size))?;
    statement.raw_bind_parameter(at + 4, entry.modified)?;
    statement.raw_bind_parameter(at + 5, posix.map(|p| p.mode))?;
    statement.raw_bind_parameter(at + 6, posix.map(|p| p.uid))?;
    statement.raw_bind_parameter(at + 7, posix.map(|p| p.gid))?;
    let special = posix.and_then(|p| (p.device != 0).then(|| signed(p.device)));
    statement.raw_bind_parameter(at + 8, special)?;
    statement.raw_bind_parameter(at + 9, entry.target.as_deref())?;
    statement.raw_bind_parameter(at + 10, entry.inode.map(|i| signed(i.device)))?;
    statement.raw_bind_parameter(at + 11, entry.inode.map(|i| signed(i.number)))
}

/// Stores entries of a source folder, each with its folder id if it is a folder.
pub(crate) fn put_sources(
    connection: &Connection,
    parent: FolderId,
    rows: &[(&EntryRow, Option<FolderId>)],
) -> rusqlite::Result<()> {
    let bind = |statement: &mut Statement<'_>,
                at: usize,
                (row, folder): &(&EntryRow, Option<FolderId>)| {
        bind_entry(statement, at, parent, &row.entry)?;
        statement.raw_bind_parameter(at + 12, *folder)?;
        statement.raw_bind_parameter(at + 13, row.selection as i64)?;
        statement.raw_bind_parameter(at + 14, row.entry.version.as_deref())
    };
    for chunk in rows.chunks(ROWS_PER_INSERT) {
        if chunk.len() == ROWS_PER_INSERT {
            let mut many = connection.prepare_cached(&SOURCES)?;
            for (at, row) in chunk.iter().enumerate() {
                bind(&mut many, at * SOURCE_COLUMNS + 1, row)?;
            }
            many.raw_execute()?;
            continue;
        }
        let mut one = connection.prepare_cached(&ONE_SOURCE)?;
        for row in chunk {
            bind(&mut one, 1, row)?;
            one.raw_execute()?;
        }
    }
    for (row, _) in rows {
        put_link(connection, parent, row)?;
    }
    Ok(())
}

/// Records that a name shares its inode with others.
fn put_link(connection: &Connection, parent: FolderId, row: &EntryRow) -> rusqlite::Result<()> {
    let Some(inode) = row.entry.inode.filter(|_| row.is_included()) else {
        return Ok(());
    };
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO link VALUES (?,?,?,?)")?;
    let (device, number) = (signed(inode.device), signed(inode.number));
    statement
        .execute(params![device, number, parent, row.entry.name])
        .map(drop)
}

/// Stores entries of a destination folder. `copied` is the pass that copied them, or 0 if they were
/// listed.
pub(crate) fn put_destinations<'e>(
    connection: &Connection,
    parent: FolderId,
    entries: impl IntoIterator<Item = &'e Entry>,
    copied: i64,
) -> rusqlite::Result<()> {
    let bind = |statement: &mut Statement<'_>, at: usize, entry: &Entry| {
        bind_entry(statement, at, parent, entry)?;
        statement.raw_bind_parameter(at + 12, copied)?;
        statement.raw_bind_parameter(at + 13, entry.version.as_deref())?;
        // Our own renames and links are changes after the entry was looked at.
        let changed = entry.changed.filter(|_| copied == 0);
        statement.raw_bind_parameter(at + 14, changed)
    };
    let entries: Vec<&Entry> = entries.into_iter().collect();
    for chunk in entries.chunks(ROWS_PER_INSERT) {
        if chunk.len() == ROWS_PER_INSERT {
            let mut many = connection.prepare_cached(&DESTINATIONS)?;
            for (at, entry) in chunk.iter().enumerate() {
                bind(&mut many, at * DESTINATION_COLUMNS + 1, entry)?;
            }
            many.raw_execute()?;
            continue;
        }
        let mut one = connection.prepare_cached(&ONE_DESTINATION)?;
        for entry in chunk {
            bind(&mut one, 1, entry)?;
            one.raw_execute()?;
        }
    }
    Ok(())
}

/// Stores one entry of a destination folder.
pub(crate) fn put_destination(
    connection: &Connection,
    parent: FolderId,
    entry: &Entry,
    copied: i64,
) -> rusqlite::Result<()> {
    put_destinations(connection, parent, [entry], copied)
}

/// Reads an entry of either table, except its version and the time of its last change. Its columns
/// start at `from`.
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
        kind: kind_from_number(row.get(from + 1)?),
        size: row.get::<_, i64>(from + 2)?.cast_unsigned(),
        modified: row.get(from + 3)?,
        changed: None,
        posix,
        target: row.get(from + 8)?,
        inode,
        version: None,
        lost: None,
    })
}

pub(crate) const ENTRY_COLUMNS: usize = 11;

/// The columns that [`read_entry`] reads, with `@` for the table.
pub(crate) const ENTRY: &str =
    "@name, @kind, @size, @modified, @mode, @uid, @gid, @special, @target, @device, @inode";
