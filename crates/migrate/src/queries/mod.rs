//! Queries of a state file: what was found, what became of it, and why.

mod browse;
mod count;
mod explain;
mod reports;
mod totals;

pub(crate) use browse::BrowsedEntry;
pub use reports::{
    Class, Count, EntryReport, Explanation, FailedEntry, LostAttributes, Outcome, Summary,
};
pub(crate) use totals::{Totals, roll_up};

use crate::copy::KEPT;
use crate::error::{Error, Result};
use crate::filter::Filters;
use crate::job::{stored_capabilities, stored_probe};
use crate::progress::ProgressSnapshot;
use crate::status::{Comparison, Difference, SrcState, Status};
use crate::store::{
    ENTRY, ENTRY_COLUMNS, EntryKey, FolderId, Pair, PlainFiles, ROOT, Store, each_pair, meta,
    path_of, plain_files, read_entry, read_pairs,
};
use headworks_storage::display;
use headworks_storage::{Entry, Kind};
use rusqlite::{Connection, OptionalExtension, params};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Rows that are read together.
const PAGE: usize = 4096;

/// A range of folder ids.
type FolderRange = std::ops::Range<FolderId>;

const ALL_FOLDERS: FolderRange = ROOT..FolderId::MAX;

/// Returns a key before a folder's first entry, and after all names that the previous folder can
/// have.
pub(crate) fn key_before(folder: FolderId) -> EntryKey {
    (folder - 1, vec![0xff; 2048])
}

/// An entry that only the destination has.
pub(crate) struct Extra {
    pub(crate) parent: FolderId,
    pub(crate) name: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) size: u64,
}

/// A state file, open for reading.
pub struct StateReader {
    store: Store,
    read: Connection,
}

impl StateReader {
    /// Opens a state file, also while another process runs the job.
    ///
    /// # Errors
    /// When it does not exist, or belongs to a newer program.
    pub fn open(path: &Path) -> Result<StateReader> {
        let store = Store::open(path)?;
        let read = store.read()?;
        Ok(StateReader { store, read })
    }

    /// Returns a stored value: `source`, `destination`, `stage`, `pass`, …
    ///
    /// # Errors
    /// When the state file cannot be read.
    pub fn meta_value(&self, key: &str) -> Result<String> {
        let value: Option<rusqlite::types::Value> = meta(&self.read, key)?;
        Ok(match value {
            Some(rusqlite::types::Value::Text(text)) => text,
            Some(rusqlite::types::Value::Integer(number)) => number.to_string(),
            Some(rusqlite::types::Value::Blob(bytes)) => display(&bytes).to_string(),
            _ => String::new(),
        })
    }

    fn compare(&self) -> Result<Comparison> {
        let open = |side, key| {
            let location: Option<Vec<u8>> = meta(&self.read, key)?;
            let location = OsString::from_vec(location.unwrap_or_default());
            headworks_storage::open(&location).map_err(|error| Error::BadLocation { side, error })
        };
        let filters: String = meta(&self.read, "filters")?.unwrap_or_default();
        let filters: Filters = serde_json::from_str(&filters).unwrap_or_default();
        let destination = open("destination", "destination");
        // The result is that of the process that runs the job, and the same for every reader.
        if let Some([source, mut stored]) = stored_capabilities(&self.read)? {
            let found = destination.ok();
            stored.name_rule = found.and_then(|found| found.capabilities().name_rule);
            return Ok(Comparison::new(source, stored, filters.specials));
        }
        let (source, destination) = (open("source", "source")?, destination?);
        if let Some(probe) = stored_probe(&self.read)? {
            destination.probe(Some(probe));
        }
        Ok(Comparison::new(
            source.capabilities(),
            destination.capabilities(),
            filters.specials,
        ))
    }

    /// Calls `each` for all source entries, by folder and name.
    pub(crate) fn scan(
        &self,
        compare: &Comparison,
        mut each: impl FnMut(&Pair, Status) -> Result<()>,
    ) -> Result<()> {
        let mut after = key_before(ALL_FOLDERS.start);
        loop {
            let pairs = read_pairs(&self.read, &after, PlainFiles::All, PAGE)?;
            let Some(last) = pairs.last() else {
                return Ok(());
            };
            after = (last.parent, last.entry.name.clone());
            for pair in &pairs {
                each(pair, status(&self.read, compare, pair)?)?;
            }
        }
    }

    /// Calls `each` for the entries of a range of folders, except identical plain files. It is one
    /// scan: each new start would search all remaining folders for plain files that differ.
    fn scan_folders(
        &self,
        compare: &Comparison,
        folders: FolderRange,
        mut each: impl FnMut(&Pair, Status),
    ) -> Result<()> {
        let (folder, name) = key_before(folders.start);
        let look = |pair: Pair| {
            each(&pair, status(&self.read, compare, &pair)?);
            Ok(true)
        };
        let last = folders.end - 1;
        each_pair(
            &self.read,
            (folder, &name),
            last,
            PlainFiles::Differing,
            look,
        )
    }

    /// Returns the summary of the last finished plan.
    ///
    /// # Errors
    /// When the state file cannot be read, or no plan is finished.
    pub fn summary(&self) -> Result<Summary> {
        let json: Option<String> = meta(&self.read, "plan")?;
        json.and_then(|json| serde_json::from_str(&json).ok())
            .ok_or_else(|| {
                Error::Refused(
                    "no plan is finished: run `headworks migrate plan SRC DST` to its end".into(),
                )
            })
    }

    /// Calls `each` for all entries that only the destination has.
    pub(crate) fn extra(&self, each: impl FnMut(&Extra) -> Result<()>) -> Result<()> {
        self.extra_in(ALL_FOLDERS, each)
    }

    /// Calls `each` for those in a range of folders.
    pub(super) fn extra_in(
        &self,
        folders: FolderRange,
        mut each: impl FnMut(&Extra) -> Result<()>,
    ) -> Result<()> {
        let mut after = key_before(folders.start);
        loop {
            let page = self.extra_page(&after, folders.end - 1)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = (last.parent, last.name.clone());
            page.iter().try_for_each(&mut each)?;
        }
    }

    /// Returns a page of entries that only the destination has, after a key and in folders with ids
    /// up to `last`.
    pub(crate) fn extra_page(&self, after: &EntryKey, last: FolderId) -> Result<Vec<Extra>> {
        self.extra_limited(after.clone(), last, PAGE)
    }

    /// Returns at most `limit` of them; an empty page only if there are no more.
    fn extra_limited(
        &self,
        mut after: EntryKey,
        last: FolderId,
        limit: usize,
    ) -> Result<Vec<Extra>> {
        let mut statement = self.read.prepare_cached(
            "SELECT d.parent, d.name, d.kind, d.size FROM destination d
             JOIN folder f ON f.id = d.parent
             LEFT JOIN source s ON s.parent = d.parent AND s.name = d.name
             WHERE (d.parent, d.name) > (?1, ?2) AND d.parent <= ?4 AND s.name IS NULL AND f.dst = 1 AND f.src = 1
             ORDER BY d.parent, d.name LIMIT ?3",
        )?;
        loop {
            let rows =
                statement.query_map(params![after.0, after.1, limit as i64, last], |row| {
                    Ok(Extra {
                        parent: row.get(0)?,
                        name: row.get(1)?,
                        kind: crate::store::kind_from_number(row.get(2)?),
                        size: row.get::<_, i64>(3)?.cast_unsigned(),
                    })
                })?;
            let mut page = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            let Some(end) = page.last() else {
                return Ok(page);
            };
            after = (end.parent, end.name.clone());
            self.drop_plain_files(&mut page)?;
            if !page.is_empty() {
                return Ok(page);
            }
        }
    }

    /// Removes the entries that are plain files of the source.
    fn drop_plain_files(&self, page: &mut Vec<Extra>) -> Result<()> {
        let mut plain = PlainNames::new(&self.read);
        let mut left = Vec::new();
        for extra in page.drain(..) {
            if !plain.has(extra.parent, &extra.name)? {
                left.push(extra);
            }
        }
        *page = left;
        Ok(())
    }

    /// Returns a page of entries that only the destination has, as they were listed. With
    /// `excluded` it contains entries that the source has and a filter excludes, too. It is empty
    /// only if there are no more.
    pub(crate) fn extra_entries(
        &self,
        after: &EntryKey,
        excluded: bool,
    ) -> Result<Vec<(FolderId, Entry)>> {
        const PAGE: i64 = 512;
        let mut after = after.clone();
        let query = format!(
            "SELECT d.parent, {}, d.version, d.changed FROM destination d
             JOIN folder f ON f.id = d.parent
             LEFT JOIN source s ON s.parent = d.parent AND s.name = d.name
             WHERE (d.parent, d.name) > (?1, ?2) AND (s.name IS NULL OR ?3 AND s.excluded)
                 AND f.dst = 1 AND f.src = 1
             ORDER BY d.parent, d.name LIMIT ?4",
            ENTRY.replace('@', "d.")
        );
        let mut statement = self.read.prepare_cached(&query)?;
        loop {
            let rows = statement.query_map(params![after.0, after.1, excluded, PAGE], |row| {
                let entry = Entry {
                    version: row.get(1 + ENTRY_COLUMNS)?,
                    changed: row.get(2 + ENTRY_COLUMNS)?,
                    ..read_entry(row, 1)?
                };
                Ok((row.get::<_, FolderId>(0)?, entry))
            })?;
            let page = rows.collect::<rusqlite::Result<Vec<_>>>()?;
            let Some((parent, last)) = page.last() else {
                return Ok(page);
            };
            after = (*parent, last.name.clone());
            let mut plain = PlainNames::new(&self.read);
            let mut left = Vec::new();
            for (parent, entry) in page {
                if !plain.has(parent, &entry.name)? {
                    left.push((parent, entry));
                }
            }
            if !left.is_empty() {
                return Ok(left);
            }
        }
    }

    fn failed_folders(&self) -> Result<u64> {
        let query = "SELECT count(*) FROM folder WHERE src = 2 OR dst = 2";
        Ok(self
            .read
            .query_row(query, [], |row| row.get::<_, i64>(0))?
            .cast_unsigned())
    }

    /// Returns the number of source folders whose entries are not known.
    pub(crate) fn unlisted_folders(&self) -> Result<u64> {
        let query = "SELECT count(*) FROM folder WHERE src IN (?, ?)";
        let states = [SrcState::Pending as i64, SrcState::Failed as i64];
        let count: i64 = self.read.query_row(query, states, |row| row.get(0))?;
        Ok(count.cast_unsigned())
    }

    /// Returns the outcome of the job so far.
    ///
    /// # Errors
    /// When the state file cannot be read.
    pub fn outcome(&self) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let pass = self.pass()?;
        self.scan(&self.compare()?, |pair, status| {
            let class = class(pair, status, pass);
            outcome
                .classes
                .entry(class)
                .or_default()
                .add(pair.entry.size);
            Ok(())
        })?;
        self.extra(|_| {
            outcome.not_on_src += 1;
            Ok(())
        })?;
        outcome.failed_folders = self.failed_folders()?;
        let counter = |key| -> Result<u64> {
            let count: Option<i64> = meta(&self.read, key)?;
            Ok(count.unwrap_or(0).cast_unsigned())
        };
        outcome.quarantined = counter("quarantined")?;
        outcome.deleted = counter("deleted")?;
        let query = "SELECT count(*) FROM failure WHERE phase = 'delete'";
        outcome.not_deleted = self
            .read
            .query_row(query, [], |row| row.get::<_, i64>(0))?
            .cast_unsigned();
        let query = "SELECT count(*) FROM loss";
        outcome.incomplete = self
            .read
            .query_row(query, [], |row| row.get::<_, i64>(0))?
            .cast_unsigned();
        let query = "SELECT sum(entries), sum(bytes) FROM (
             SELECT count(*) entries, coalesce(sum(size), 0) bytes FROM source WHERE parent <> 0
             UNION ALL SELECT coalesce(sum(entries), 0), coalesce(sum(bytes), 0) FROM files)";
        let (entries, bytes): (i64, i64) = self
            .read
            .query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        outcome.source = Count {
            entries: entries.cast_unsigned(),
            bytes: bytes.cast_unsigned(),
        };
        Ok(outcome)
    }

    pub(crate) fn pass(&self) -> Result<i64> {
        Ok(meta(&self.read, "pass")?.unwrap_or(1))
    }

    /// Returns when the plan of this pass began, in nanoseconds since 1970, by the clock of the
    /// destination if it has one of its own.
    pub(crate) fn plan_began(&self) -> Result<i64> {
        if let Some(there) = meta(&self.read, "began_there")? {
            return Ok(there);
        }
        let began = match meta(&self.read, "pass_began")? {
            None => meta(&self.read, "began")?,
            began => began,
        };
        Ok(began.unwrap_or(0))
    }

    /// Calls `each` for every entry of both sides, by folder and name; those that only the
    /// destination has come last.
    ///
    /// # Errors
    /// When the state file cannot be read, or `each` fails.
    pub fn entries(&self, mut each: impl FnMut(&EntryReport) -> Result<()>) -> Result<()> {
        let pass = self.pass()?;
        self.scan(&self.compare()?, |pair, status| {
            each(&EntryReport {
                path: pair.path(),
                kind: pair.entry.kind,
                size: pair.entry.size,
                status,
                class: class(pair, status, pass),
            })
        })?;
        self.extra(|extra| {
            each(&EntryReport {
                path: path_of(&self.read, extra.parent)?.join(&extra.name),
                kind: extra.kind,
                size: extra.size,
                status: Status::NotOnSrc,
                class: Class::Left,
            })
        })
    }

    /// Returns the last progress snapshot of a runner.
    #[must_use]
    pub fn live(&self) -> Option<ProgressSnapshot> {
        let json: Option<String> = meta(&self.read, "live").ok()?;
        serde_json::from_str(&json?).ok()
    }

    /// Calls `each` for every failure.
    ///
    /// # Errors
    /// When the state file cannot be read, or `each` fails.
    pub fn failures(&self, mut each: impl FnMut(&FailedEntry) -> Result<()>) -> Result<()> {
        let mut statement = self.read.prepare(
            "SELECT coalesce(f.path, x''), x.name, x.phase, x.kind, x.cause, x.attempts
             FROM failure x LEFT JOIN folder f ON f.id = x.parent WHERE x.kind <> ?
             ORDER BY x.parent, x.name",
        )?;
        let mut rows = statement.query([KEPT])?;
        while let Some(row) = rows.next()? {
            let mut path: Vec<u8> = row.get(0)?;
            path.extend(row.get::<_, Vec<u8>>(1)?);
            each(&FailedEntry {
                path: display(&path).to_string(),
                phase: row.get(2)?,
                kind: row.get(3)?,
                cause: row.get(4)?,
                attempts: row.get(5)?,
            })?;
        }
        Ok(())
    }

    /// Calls `each` for every entry that was copied without some of its attributes.
    ///
    /// # Errors
    /// When the state file cannot be read, or `each` fails.
    pub fn losses(&self, mut each: impl FnMut(&LostAttributes) -> Result<()>) -> Result<()> {
        let mut statement = self.read.prepare(
            "SELECT coalesce(f.path, x''), l.name, l.lost
             FROM loss l LEFT JOIN folder f ON f.id = l.parent ORDER BY l.parent, l.name",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let mut path: Vec<u8> = row.get(0)?;
            path.extend(row.get::<_, Vec<u8>>(1)?);
            each(&LostAttributes {
                path: display(&path).to_string(),
                lost: row.get(2)?,
            })?;
        }
        Ok(())
    }

    /// Calls `each` with the known hashes, as `sha256sum` prints them.
    ///
    /// # Errors
    /// When the state file cannot be read, or `each` fails.
    pub fn manifest(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.check_integrity()?;
        let mut statement = self
            .read
            .prepare("SELECT path, sha256 FROM hash ORDER BY path")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let (path, hash): (Vec<u8>, Vec<u8>) = (row.get(0)?, row.get(1)?);
            each(&manifest_line(&path, &hash))?;
        }
        Ok(())
    }

    /// Checks the integrity of the file. A damaged one may read as if it had fewer rows.
    fn check_integrity(&self) -> Result<()> {
        let query = "PRAGMA quick_check(1)";
        let found: String = self.read.query_row(query, [], |row| row.get(0))?;
        match found.as_str() {
            "ok" => Ok(()),
            _ => Err(Error::Damaged(found)),
        }
    }

    /// Returns the last events with their times, oldest first.
    ///
    /// # Errors
    /// When the state file cannot be read.
    pub fn log(&self, last: usize) -> Result<Vec<(i64, String)>> {
        let mut statement = self.read.prepare(
            "SELECT at, text FROM (SELECT * FROM event ORDER BY id DESC LIMIT ?) ORDER BY id",
        )?;
        let rows = statement.query_map([last as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Returns the numbers of pending, successful and failed source folders, then of destination
    /// folders.
    ///
    /// # Errors
    /// When the state file cannot be read.
    pub fn folders(&self) -> Result<[u64; 6]> {
        let query = "SELECT sum(src = 0), sum(src = 1), sum(src = 2), sum(dst = 0), sum(dst IN (1, 3)), sum(dst = 2) FROM folder";
        let mut counts = [0; 6];
        self.read.query_row(query, [], |row| {
            for (at, count) in counts.iter_mut().enumerate() {
                *count = row.get::<_, Option<i64>>(at)?.unwrap_or(0).cast_unsigned();
            }
            Ok(())
        })?;
        Ok(counts)
    }

    pub(crate) fn connection(&self) -> &Connection {
        &self.read
    }

    /// Returns the path of the state file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.store.path()
    }
}

/// The plain files of the last folder that was queried.
struct PlainNames<'a> {
    read: &'a Connection,
    folder: FolderId,
    files: Vec<Entry>,
}

impl PlainNames<'_> {
    fn new(read: &Connection) -> PlainNames<'_> {
        PlainNames {
            read,
            folder: 0,
            files: Vec::new(),
        }
    }

    fn has(&mut self, folder: FolderId, name: &[u8]) -> Result<bool> {
        if self.folder != folder {
            (self.folder, self.files) = (folder, plain_files(self.read, folder)?);
        }
        let found = self
            .files
            .binary_search_by(|file| file.name.as_slice().cmp(name));
        Ok(found.is_ok())
    }
}

/// Returns the status of a pair, including hard links.
pub(crate) fn status(read: &Connection, compare: &Comparison, pair: &Pair) -> Result<Status> {
    let status = compare.status(pair);
    if !compare.destination.hard_links {
        return Ok(status);
    }
    // Attributes belong to the file and so to all of its names at the destination, of which the
    // source may have made several files: this name gets a file of its own.
    let has_links = |entry: &Entry| entry.kind != Kind::Folder && entry.inode.is_some();
    if status == Status::Different(Difference::Metadata)
        && pair.existing.as_ref().is_some_and(has_links)
    {
        return Ok(Status::Different(Difference::Link));
    }
    if status != Status::Same {
        return Ok(status);
    }
    let Some((parent, name)) = first_link(read, pair)? else {
        return Ok(status);
    };
    let mut statement =
        read.prepare_cached("SELECT device, inode FROM destination WHERE parent = ? AND name = ?")?;
    let inode: Option<(Option<i64>, Option<i64>)> = statement
        .query_row(params![parent, name], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let own_inode = pair.existing.as_ref().and_then(|existing| existing.inode);
    let own_inode = own_inode.map(|inode| {
        (
            Some(inode.device.cast_signed()),
            Some(inode.number.cast_signed()),
        )
    });
    Ok(match own_inode.is_some() && own_inode == inode {
        true => status,
        false => Status::Different(Difference::Link),
    })
}

/// Returns the first name of the file that a source entry is a further name of; `None` if it is the
/// first or only one.
pub(crate) fn first_link(read: &Connection, pair: &Pair) -> Result<Option<EntryKey>> {
    let Some(inode) = pair.entry.inode.filter(|_| pair.entry.kind != Kind::Folder) else {
        return Ok(None);
    };
    // A name that was excluded after the plan is not copied, so it cannot be linked to.
    let mut statement = read.prepare_cached(
        "SELECT l.parent, l.name FROM link l
         JOIN source s ON s.parent = l.parent AND s.name = l.name
         WHERE l.device = ? AND l.inode = ? AND s.excluded = 0
         ORDER BY l.parent, l.name LIMIT 1",
    )?;
    let first: Option<EntryKey> = statement
        .query_row(
            params![inode.device.cast_signed(), inode.number.cast_signed()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    Ok(first.filter(|(parent, name)| (*parent, name) != (pair.parent, &pair.entry.name)))
}

fn class(pair: &Pair, status: Status, pass: i64) -> Class {
    match (status, &pair.failure) {
        (Status::Excluded, _) => Class::Excluded,
        (Status::Same, _) if pair.copied == pass => Class::Copied,
        (Status::Same, _) => Class::Same,
        (Status::TypeConflict, None) => Class::TypeConflict,
        (Status::NameConflict, _) => Class::NameConflict,
        (Status::Unsupported, _) => Class::Unsupported,
        (Status::Unknown, _) => Class::Unknown,
        (_, Some((kind, _))) if kind == "Changed" => Class::Changed,
        (_, Some((kind, _))) if kind == KEPT => Class::Kept,
        (_, Some(_)) => Class::Failed,
        (Status::Missing | Status::Different(_) | Status::NotOnSrc, None) => Class::Left,
    }
}

/// Formats a line of `sha256sum`, which starts with a backslash if the path contains an escape.
fn manifest_line(path: &[u8], hash: &[u8]) -> Vec<u8> {
    let odd = path.iter().any(|b| matches!(b, b'\n' | b'\\' | b'\r'));
    let mut line = if odd { b"\\".to_vec() } else { Vec::new() };
    line.extend(hex::encode(hash).bytes());
    line.extend(b"  ./");
    for &byte in path {
        match byte {
            b'\n' => line.extend(b"\\n"),
            b'\r' => line.extend(b"\\r"),
            b'\\' => line.extend(b"\\\\"),
            _ => line.push(byte),
        }
    }
    line.push(b'\n');
    line
}
