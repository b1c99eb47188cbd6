//! The plain files of a folder, packed into one row.
//!
//! Most entries are files with few attributes: a name, a size, a time, an owner. A plan would spend
//! most of its time on a row for each of them. A folder that was listed in one page therefore has
//! one row with all of its plain files, ordered by name. Only the other entries get their own rows:
//! folders, symlinks, hard links, and files that have a version or are excluded. A source entry is
//! in exactly one of the two places. If the destination has exactly these plain files, the folder
//! is marked as `identical` and has no rows for them; a row of the destination overrides that mark.

use super::rows::{EntryRow, Selection, put_destinations, put_sources};
use super::{FolderId, has_destination_row};
use headworks_storage::{Entry, Kind, Posix};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension};
use std::sync::LazyLock;

/// The plain files of a folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct PackedFiles {
    entries: usize,
    /// Their total size.
    bytes: u64,
    /// The stored encoding. Equal files have equal encodings.
    blob: Vec<u8>,
    /// When the storage noted the last change of each. Not stored: it differs between the sides.
    changed: Vec<Option<i64>>,
    previous: Previous,
}

/// The previous file, against which the next is encoded: neighbours have much in common.
#[derive(Clone, Copy, Debug, Default)]
struct Previous {
    modified: i64,
    posix: Option<Posix>,
}

/// Returns whether an included entry needs no row of its own.
pub(crate) fn is_plain(entry: &Entry) -> bool {
    let usual = entry.kind == Kind::File && entry.target.is_none() && entry.modified.is_some();
    let alone = entry.inode.is_none() && entry.version.is_none();
    let device = entry.posix.map_or(0, |posix| posix.device);
    usual && alone && device == 0
}

impl PackedFiles {
    pub(crate) fn len(&self) -> usize {
        self.entries
    }

    /// Adds the next plain file, in the order of names.
    pub(crate) fn add(&mut self, entry: &Entry) {
        let modified = entry.modified.unwrap_or_default();
        let equals_source = entry.posix == self.previous.posix;
        self.push_varint((entry.name.len() as u64) << 1 | u64::from(equals_source));
        self.blob.extend_from_slice(&entry.name);
        self.push_varint(entry.size);
        self.push_varint(zigzag(modified.wrapping_sub(self.previous.modified)));
        if !equals_source {
            let mode = entry.posix.map_or(0, |posix| u64::from(posix.mode) + 1);
            self.push_varint(mode);
            if let Some(posix) = entry.posix {
                self.push_varint(posix.uid.into());
                self.push_varint(posix.gid.into());
            }
        }
        self.previous = Previous {
            modified,
            posix: entry.posix,
        };
        self.changed.push(entry.changed);
        self.entries += 1;
        self.bytes = self.bytes.wrapping_add(entry.size);
    }

    /// Appends a varint (LEB128): seven bits per byte, the lowest first.
    fn push_varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.blob.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.blob.push(number as u8);
    }

    /// Returns whether the source folder has the same plain files.
    pub(crate) fn equals_source(
        &self,
        connection: &Connection,
        folder: FolderId,
    ) -> rusqlite::Result<bool> {
        let mut select = connection.prepare_cached(SELECT)?;
        let mut rows = select.query([folder])?;
        Ok(match rows.next()? {
            Some(row) => row.get_ref(0)?.as_blob()? == self.blob,
            None => false,
        })
    }

    pub(crate) fn unpack(&self) -> rusqlite::Result<Vec<Entry>> {
        let mut entries = unpack(&self.blob)?;
        for (entry, changed) in entries.iter_mut().zip(&self.changed) {
            entry.changed = *changed;
        }
        Ok(entries)
    }
}

/// Folders per statement.
const CHUNK: usize = 8;

static PUT_MANY: LazyLock<String> = LazyLock::new(|| {
    let rows = ["(?,?,?,?)"; CHUNK].join(",");
    format!("INSERT OR REPLACE INTO files VALUES {rows}")
});
const PUT_ONE: &str = "INSERT OR REPLACE INTO files VALUES (?,?,?,?)";

/// Stores packed files of source folders.
pub(crate) fn put_packed(
    connection: &Connection,
    folders: &[(FolderId, &PackedFiles)],
) -> rusqlite::Result<()> {
    let (many, rest) = folders.as_chunks::<CHUNK>();
    for folders in many {
        insert_packed(connection, &PUT_MANY, folders)?;
    }
    for folder in rest {
        insert_packed(connection, PUT_ONE, &[*folder])?;
    }
    Ok(())
}

fn insert_packed(
    connection: &Connection,
    statement: &str,
    folders: &[(FolderId, &PackedFiles)],
) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(statement)?;
    for (at, (folder, files)) in folders.iter().enumerate() {
        let at = 4 * at;
        insert.raw_bind_parameter(at + 1, folder)?;
        insert.raw_bind_parameter(at + 2, files.entries as i64)?;
        insert.raw_bind_parameter(at + 3, files.bytes.cast_signed())?;
        insert.raw_bind_parameter(at + 4, &files.blob)?;
    }
    insert.raw_execute().map(drop)
}

const SELECT: &str = "SELECT packed FROM files WHERE folder = ?";

/// Maps a signed number to a small unsigned one if its magnitude is small (zigzag encoding).
fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Unpacks files, in the order of names.
pub(super) fn unpack(blob: &[u8]) -> rusqlite::Result<Vec<Entry>> {
    let mut left = blob;
    let mut last = Previous::default();
    let mut entries = Vec::new();
    while !left.is_empty() {
        let Some(entry) = read_file(&mut left, &mut last) else {
            let message = "the packed files of a folder are damaged";
            return Err(rusqlite::Error::FromSqlConversionFailure(
                0,
                Type::Blob,
                message.into(),
            ));
        };
        entries.push(entry);
    }
    Ok(entries)
}

fn read_file(left: &mut &[u8], last: &mut Previous) -> Option<Entry> {
    let head = read_varint(left)?;
    let (name, rest) = left.split_at_checked(usize::try_from(head >> 1).ok()?)?;
    *left = rest;
    let size = read_varint(left)?;
    last.modified = last.modified.wrapping_add(unzigzag(read_varint(left)?));
    if head & 1 == 0 {
        last.posix = match read_varint(left)?.checked_sub(1) {
            None => None,
            Some(mode) => Some(Posix {
                mode: u32::try_from(mode).ok()?,
                uid: u32::try_from(read_varint(left)?).ok()?,
                gid: u32::try_from(read_varint(left)?).ok()?,
                device: 0,
            }),
        };
    }
    Some(Entry {
        size,
        modified: Some(last.modified),
        posix: last.posix,
        ..Entry::new(name, Kind::File)
    })
}

fn read_varint(left: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = left.split_first()?;
        *left = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

/// Returns the plain files of a source folder.
pub(crate) fn plain_files(
    connection: &Connection,
    folder: FolderId,
) -> rusqlite::Result<Vec<Entry>> {
    let mut select = connection.prepare_cached(SELECT)?;
    let found = select.query_row([folder], |row| unpack(row.get_ref(0)?.as_blob()?));
    Ok(found.optional()?.unwrap_or_default())
}

/// Unpacks a folder into rows on both sides, because one of its files is about to change.
pub(crate) fn unpack_folder(connection: &Connection, folder: FolderId) -> rusqlite::Result<()> {
    let files = plain_files(connection, folder)?;
    let identical: bool =
        connection.query_row("SELECT alike FROM folder WHERE id = ?", [folder], |row| {
            row.get(0)
        })?;
    for entry in &files {
        if identical && !has_destination_row(connection, folder, &entry.name)? {
            put_destinations(connection, folder, [entry], 0)?;
        }
    }
    let selection = Selection::Included;
    let rows = files.into_iter().map(|entry| EntryRow { entry, selection });
    let rows: Vec<EntryRow> = rows.collect();
    let rows: Vec<_> = rows.iter().map(|row| (row, None)).collect();
    put_sources(connection, folder, &rows)?;
    if identical {
        // The totals of the plan stay as they were.
        let keep = "INSERT INTO total SELECT folder, entries, bytes, 0, 0, 0 FROM files WHERE folder = ?
             ON CONFLICT (folder) DO UPDATE SET entries = entries + excluded.entries, bytes = bytes + excluded.bytes";
        connection.execute(keep, [folder])?;
    }
    connection.execute("DELETE FROM files WHERE folder = ?", [folder])?;
    connection
        .execute("UPDATE folder SET alike = 0 WHERE id = ?", [folder])
        .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &[u8], size: u64, modified: i64, mode: Option<u32>) -> Entry {
        let posix = mode.map(|mode| Posix {
            mode,
            uid: 1000,
            gid: u32::MAX,
            device: 0,
        });
        Entry {
            size,
            modified: Some(modified),
            posix,
            ..Entry::new(name, Kind::File)
        }
    }

    fn packed(files: &[Entry]) -> PackedFiles {
        files
            .iter()
            .fold(PackedFiles::default(), |mut packed, file| {
                packed.add(file);
                packed
            })
    }

    #[test]
    fn packed_files_unpack_unchanged() {
        let files = [
            file(b"", 0, 0, None),
            file(b"\xff/\0", u64::MAX, i64::MIN, Some(0)),
            file(b"b", 127, i64::MAX, Some(0o100_644)),
            file(b"c", 128, -1, Some(0o100_644)),
            file(&[b'x'; 300], 1 << 40, 1_700_000_000_000_000_000, None),
            Entry {
                changed: Some(9),
                ..file(b"z", 1, 1_700_000_000_000_000_001, Some(u32::MAX))
            },
        ];
        let packed = packed(&files);
        assert_eq!(packed.unpack().unwrap(), files);
        assert_eq!(packed.len(), 6);
    }

    #[test]
    fn truncated_data_is_an_error() {
        let files = [file(b"a", 300, 5, Some(1)), file(b"b", 1, 6, Some(1))];
        let whole = packed(&files).blob;
        let first = packed(&files[..1]).blob.len();
        for cut in (1..whole.len()).filter(|cut| *cut != first) {
            assert!(unpack(&whole[..cut]).is_err(), "cut at {cut}");
        }
        assert!(unpack(&[0xff; 20]).is_err());
    }
}
