//! Source entries paired with destination entries of the same name.
//!
//! All tables are ordered by folder and name, so they are read in one merge scan: a lookup per name
//! would cost several times as much.

use super::packed::{plain_files, unpack};
use super::rows::{ENTRY, ENTRY_COLUMNS, Pair, Selection, read_entry};
use super::{EntryKey, FolderId};
use crate::error::Result;
use crate::status::{DstState, SrcState};
use headworks_storage::{Entry, Folder};
use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::{CachedStatement, Connection, OptionalExtension, Row, Rows, Statement, params};
use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

/// Returns the columns of an entry, its folder, and the rest.
fn columns(rest: &str) -> String {
    format!("{ENTRY}, @parent, {rest}").replace('@', "x.")
}

const ORDER: &str = "ORDER BY x.parent, x.name";
const FROM: &str = "FROM source x LEFT JOIN folder c ON c.id = x.folder";

static SOURCE: LazyLock<String> = LazyLock::new(|| {
    let columns = columns("@excluded, @folder, @version, c.src");
    format!("SELECT {columns} {FROM} WHERE (x.parent, x.name) > (?, ?) AND x.parent <= ? {ORDER}")
});
const ALL_FILES: &str =
    "SELECT folder, packed FROM files WHERE folder BETWEEN ? AND ? ORDER BY folder";
// There are usually few, and folders are much smaller than packed files, so the folders are scanned
// first.
const DIFFERING_FILES: &str =
    "SELECT p.folder, p.packed FROM folder f CROSS JOIN files p ON p.folder = f.id
     WHERE f.id BETWEEN ? AND ? AND NOT (f.alike = 1 AND f.dst = 1) ORDER BY f.id";
static ONE_SOURCE: LazyLock<String> = LazyLock::new(|| {
    let columns = columns("@excluded, @folder, @version, c.src");
    format!("SELECT {columns} {FROM} WHERE x.parent = ? AND x.name = ?")
});
static DESTINATION: LazyLock<String> = LazyLock::new(|| {
    let columns = columns("@copied, @version, @changed");
    format!("SELECT {columns} FROM destination x WHERE (x.parent, x.name) >= (?, ?) {ORDER}")
});
const FAILURE: &str = "SELECT name, parent, kind, cause FROM failure
     WHERE (parent, name) >= (?, ?) AND phase = 'copy' ORDER BY parent, name";

/// Which plain files to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainFiles {
    All,
    /// Only those that are not identical at the destination.
    Differing,
}

/// Returns up to `limit` pairs after a key.
pub(crate) fn read_pairs(
    connection: &Connection,
    after: &EntryKey,
    plain: PlainFiles,
    limit: usize,
) -> Result<Vec<Pair>> {
    let after = (after.0, after.1.as_slice());
    read(connection, after, FolderId::MAX, plain, limit)
}

/// Returns up to `limit` pairs of one folder after a name.
pub(crate) fn read_folder(
    connection: &Connection,
    folder: FolderId,
    after: &[u8],
    limit: usize,
) -> Result<Vec<Pair>> {
    read(connection, (folder, after), folder, PlainFiles::All, limit)
}

/// Returns one pair.
pub(crate) fn find_pair(
    connection: &Connection,
    folder: FolderId,
    name: &[u8],
) -> Result<Option<Pair>> {
    Ok(find_pairs(connection, folder, &[name])?.pop())
}

/// Returns the pairs of one folder with these names, which must be ordered.
pub(crate) fn find_pairs(
    connection: &Connection,
    folder: FolderId,
    names: &[impl AsRef<[u8]>],
) -> Result<Vec<Pair>> {
    let Some(first) = names.first() else {
        return Ok(Vec::new());
    };
    let mut one = connection.prepare_cached(&ONE_SOURCE)?;
    let files = plain_files(connection, folder)?;
    let mut statements = Statements::new(connection)?;
    let mut reader = statements.pair_reader(connection, (folder, first.as_ref()))?;
    let mut pairs = Vec::new();
    for name in names.iter().map(AsRef::as_ref) {
        let row = one
            .query_row(params![folder, name], SourceEntry::read)
            .optional()?;
        let plain = || files.binary_search_by(|file| file.name.as_slice().cmp(name));
        let found = match row {
            Some(row) => Some(row),
            None => plain()
                .ok()
                .map(|at| SourceEntry::plain(folder, files[at].clone())),
        };
        if let Some(found) = found {
            pairs.extend(reader.pair(found)?);
        }
    }
    Ok(pairs)
}

/// Returns up to `limit` pairs after a key and in folders up to `last`.
fn read(
    connection: &Connection,
    after: (FolderId, &[u8]),
    last: FolderId,
    plain: PlainFiles,
    limit: usize,
) -> Result<Vec<Pair>> {
    let mut pairs: Vec<Pair> = Vec::new();
    each_pair(connection, after, last, plain, |pair| {
        pairs.push(pair);
        Ok(pairs.len() < limit)
    })?;
    Ok(pairs)
}

/// Calls `each` with pairs after a key until it returns `false`. It is one read transaction, which
/// prevents checkpoints meanwhile.
pub(crate) fn each_pair(
    connection: &Connection,
    after: (FolderId, &[u8]),
    last: FolderId,
    plain: PlainFiles,
    mut each: impl FnMut(Pair) -> Result<bool>,
) -> Result<()> {
    let mut rows = connection.prepare_cached(&SOURCE)?;
    let mut files = connection.prepare_cached(match plain {
        PlainFiles::All => ALL_FILES,
        PlainFiles::Differing => DIFFERING_FILES,
    })?;
    let mut sources = SourceCursor {
        rows: rows.query(params![after.0, after.1, last])?,
        begun: false,
        files: files.query([after.0, last])?,
        folder: after.0,
        plain: Vec::new().into_iter(),
    };
    let mut statements = Statements::new(connection)?;
    let mut reader = statements.pair_reader(connection, after)?;
    while let Some(found) = sources.next(after)? {
        if let Some(pair) = reader.pair(found)?
            && !each(pair)?
        {
            break;
        }
    }
    Ok(())
}

/// A source entry.
struct SourceEntry {
    parent: FolderId,
    entry: Entry,
    selection: Selection,
    child: Option<FolderId>,
    child_src: Option<SrcState>,
    /// Whether it is packed and has no row of its own.
    plain: bool,
}

impl SourceEntry {
    fn read(row: &Row<'_>) -> rusqlite::Result<SourceEntry> {
        Ok(SourceEntry {
            parent: row.get(ENTRY_COLUMNS)?,
            entry: Entry {
                version: row.get(ENTRY_COLUMNS + 3)?,
                ..read_entry(row, 0)?
            },
            selection: Selection::from_code(row.get(ENTRY_COLUMNS + 1)?),
            child: row.get(ENTRY_COLUMNS + 2)?,
            child_src: row
                .get::<_, Option<i64>>(ENTRY_COLUMNS + 4)?
                .map(SrcState::from_code),
            plain: false,
        })
    }

    fn plain(parent: FolderId, entry: Entry) -> SourceEntry {
        SourceEntry {
            parent,
            entry,
            selection: Selection::Included,
            child: None,
            child_src: None,
            plain: true,
        }
    }
}

/// A merged cursor over source rows and packed source files.
struct SourceCursor<'s> {
    rows: Rows<'s>,
    begun: bool,
    files: Rows<'s>,
    /// The folder of the unpacked files.
    folder: FolderId,
    plain: std::vec::IntoIter<Entry>,
}

impl SourceCursor<'_> {
    fn next(&mut self, after: (FolderId, &[u8])) -> rusqlite::Result<Option<SourceEntry>> {
        if !self.begun {
            self.begun = true;
            self.rows.advance()?;
        }
        while self.plain.as_slice().is_empty()
            && let Some(row) = self.files.next()?
        {
            self.folder = row.get(0)?;
            let mut files = unpack(row.get_ref(1)?.as_blob()?)?;
            if self.folder == after.0 {
                files.retain(|file| file.name.as_slice() > after.1);
            }
            self.plain = files.into_iter();
        }
        let plain = self.plain.as_slice().first();
        let is_row = match (self.rows.get(), plain) {
            (None, None) => return Ok(None),
            (row, plain) => match (row, plain) {
                (Some(row), Some(plain)) => {
                    let parent: FolderId = row.get(ENTRY_COLUMNS)?;
                    (parent, row.get_ref(0)?.as_blob()?) < (self.folder, plain.name.as_slice())
                }
                (row, _) => row.is_some(),
            },
        };
        if !is_row {
            let plain = self.plain.next();
            return Ok(plain.map(|entry| SourceEntry::plain(self.folder, entry)));
        }
        let found = self.rows.get().map(SourceEntry::read).transpose()?;
        self.rows.advance()?;
        Ok(found)
    }
}

/// The statements that are merged with the source.
struct Statements<'c> {
    destination: CachedStatement<'c>,
    failure: CachedStatement<'c>,
}

impl<'c> Statements<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<Statements<'c>> {
        Ok(Statements {
            destination: connection.prepare_cached(&DESTINATION)?,
            failure: connection.prepare_cached(FAILURE)?,
        })
    }

    fn pair_reader<'s>(
        &'s mut self,
        connection: &'s Connection,
        from: (FolderId, &[u8]),
    ) -> rusqlite::Result<PairReader<'s>> {
        Ok(PairReader {
            existing: MergeCursor::new(&mut self.destination, from, ENTRY_COLUMNS)?,
            failed: MergeCursor::new(&mut self.failure, from, 1)?,
            folders: FolderCache::new(connection)?,
        })
    }
}

struct PairReader<'s> {
    existing: MergeCursor<'s>,
    failed: MergeCursor<'s>,
    folders: FolderCache<'s>,
}

impl PairReader<'_> {
    /// Pairs an entry; entries must be ordered. Returns `None` for the root's own entry, which has
    /// no parent.
    fn pair(&mut self, found: SourceEntry) -> rusqlite::Result<Option<Pair>> {
        let SourceEntry { parent, entry, .. } = found;
        let Some((folder, parent_dst, identical)) = self.folders.at(parent)? else {
            return Ok(None);
        };
        let (existing, copied) = match self.existing.find(parent, &entry.name)? {
            Some(row) => {
                let existing = Entry {
                    version: row.get(ENTRY_COLUMNS + 2)?,
                    changed: row.get(ENTRY_COLUMNS + 3)?,
                    ..read_entry(row, 0)?
                };
                (Some(existing), row.get(ENTRY_COLUMNS + 1)?)
            }
            None => ((found.plain && identical).then(|| entry.clone()), 0),
        };
        let failure = match self.failed.find(parent, &entry.name)? {
            Some(row) => Some((row.get(2)?, row.get(3)?)),
            None => None,
        };
        Ok(Some(Pair {
            parent,
            folder,
            parent_dst,
            selection: found.selection,
            child_src: found.child_src,
            child: found.child,
            entry,
            existing,
            copied,
            failure,
        }))
    }
}

/// A cursor over another table, advanced as far as the source. Its first column is the name.
struct MergeCursor<'s> {
    rows: Rows<'s>,
    /// The index of the folder column.
    parent: usize,
    begun: bool,
}

impl<'s> MergeCursor<'s> {
    fn new(
        statement: &'s mut Statement<'_>,
        from: (FolderId, &[u8]),
        parent: usize,
    ) -> rusqlite::Result<MergeCursor<'s>> {
        Ok(MergeCursor {
            rows: statement.query(params![from.0, from.1])?,
            parent,
            begun: false,
        })
    }

    /// Returns the row with a key, if any. Keys must be ordered.
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

/// The path of a folder, its state at the destination, and whether its plain files are identical.
type FolderInfo = (Arc<Folder>, DstState, bool);

/// Caches the last folder: consecutive entries are mostly in the same one.
struct FolderCache<'c> {
    at: CachedStatement<'c>,
    last: Option<(FolderId, FolderInfo)>,
}

impl<'c> FolderCache<'c> {
    fn new(connection: &'c Connection) -> rusqlite::Result<FolderCache<'c>> {
        Ok(FolderCache {
            at: connection.prepare_cached(
                "SELECT path, iif(dst = 0, coalesce(ahead, 0), dst), alike FROM folder WHERE id = ?",
            )?,
            last: None,
        })
    }

    fn at(&mut self, id: FolderId) -> rusqlite::Result<Option<FolderInfo>> {
        if self.last.as_ref().is_none_or(|(last, _)| *last != id) {
            let found = self.at.query_row([id], |row| {
                let path = Folder::from_bytes(row.get(0)?);
                let dst = DstState::from_code(row.get(1)?);
                Ok((id, (Arc::new(path), dst, row.get(2)?)))
            });
            self.last = found.optional()?;
        }
        Ok(self.last.as_ref().map(|(_, known)| known.clone()))
    }
}
