//! Reading a state file: what was found, what became of it, and why.

mod explain;
mod findings;

pub use findings::{Class, Count, Explained, Failed, Line, Outcome, Summary};

use crate::error::{Error, Result};
use crate::filter::Filters;
use crate::status::{Compare, Difference, Status};
use crate::store::{FolderId, Pair, Store, meta, read_pairs};
use headworks_storage::Kind;
use rusqlite::{Connection, OptionalExtension, params};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Rows that are read at once.
const PAGE: usize = 4096;

/// A state file, open for reading.
pub struct State {
    store: Store,
    read: Connection,
}

impl State {
    /// Opens it, also while another process works on it.
    ///
    /// # Errors
    /// When it is not there, or of a newer program.
    pub fn open(path: &Path) -> Result<State> {
        let store = Store::existing(path)?;
        let read = store.read()?;
        Ok(State { store, read })
    }

    /// A value that the job keeps: `source`, `destination`, `stage`, `pass`, …
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn fact(&self, key: &str) -> Result<String> {
        let value: Option<rusqlite::types::Value> = meta(&self.read, key)?;
        Ok(match value {
            Some(rusqlite::types::Value::Text(text)) => text,
            Some(rusqlite::types::Value::Integer(number)) => number.to_string(),
            Some(rusqlite::types::Value::Blob(bytes)) => bytes.escape_ascii().to_string(),
            _ => String::new(),
        })
    }

    fn compare(&self) -> Result<Compare> {
        let open = |side, key| {
            let place: Option<Vec<u8>> = meta(&self.read, key)?;
            let place = OsString::from_vec(place.unwrap_or_default());
            headworks_storage::open(&place).map_err(|error| Error::Storage { side, error })
        };
        let (source, destination) = (
            open("source", "source")?,
            open("destination", "destination")?,
        );
        let filters: String = meta(&self.read, "filters")?.unwrap_or_default();
        let filters: Filters = serde_json::from_str(&filters).unwrap_or_default();
        Ok(Compare::new(
            source.capabilities(),
            destination.capabilities(),
            filters.specials,
        ))
    }

    /// Goes through all source entries, by folder and name.
    pub(crate) fn scan(
        &self,
        compare: &Compare,
        mut each: impl FnMut(&Pair, Status) -> Result<()>,
    ) -> Result<()> {
        let mut after = (0, vec![]);
        loop {
            let pairs = read_pairs(&self.read, &after, PAGE)?;
            let Some(last) = pairs.last() else {
                return Ok(());
            };
            after = (last.parent, last.entry.name.clone());
            for pair in &pairs {
                each(pair, status(&self.read, compare, pair)?)?;
            }
        }
    }

    /// What the plan found, counted anew.
    pub(crate) fn count(&self, compare: &Compare) -> Result<Summary> {
        let mut summary = Summary::default();
        self.scan(compare, |pair, status| {
            let count = summary.statuses.entry(status.word().into()).or_default();
            count.add(pair.entry.size);
            summary.source.add(pair.entry.size);
            Ok(())
        })?;
        self.extra(|_, _, _, size| {
            let count = summary
                .statuses
                .entry(Status::NotOnSrc.word().into())
                .or_default();
            count.add(size);
            Ok(())
        })?;
        summary.failed_folders = self.failed_folders()?;
        Ok(summary)
    }

    /// What the plan found, as it was when it finished.
    ///
    /// # Errors
    /// When the file cannot be read, or no plan has finished.
    pub fn summary(&self) -> Result<Summary> {
        let json: Option<String> = meta(&self.read, "plan")?;
        json.and_then(|json| serde_json::from_str(&json).ok())
            .ok_or_else(|| {
                Error::NotNow(
                    "no plan has finished yet: run `headworks migrate plan SRC DST` to its end"
                        .into(),
                )
            })
    }

    /// Goes through what is at the destination only.
    pub(crate) fn extra(
        &self,
        mut each: impl FnMut(FolderId, &[u8], Kind, u64) -> Result<()>,
    ) -> Result<()> {
        let mut statement = self.read.prepare_cached(
            "SELECT d.parent, d.name, d.kind, d.size FROM destination d
             JOIN folder f ON f.id = d.parent
             LEFT JOIN source s ON s.parent = d.parent AND s.name = d.name
             WHERE s.name IS NULL AND f.dst = 1 AND f.src = 1 ORDER BY d.parent, d.name",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let name: Vec<u8> = row.get(1)?;
            let kind = crate::store::kind_of(row.get(2)?);
            each(
                row.get(0)?,
                &name,
                kind,
                row.get::<_, i64>(3)?.cast_unsigned(),
            )?;
        }
        Ok(())
    }

    fn failed_folders(&self) -> Result<u64> {
        let query = "SELECT count(*) FROM folder WHERE src = 2 OR dst = 2";
        Ok(self
            .read
            .query_row(query, [], |row| row.get::<_, i64>(0))?
            .cast_unsigned())
    }

    /// What became of everything.
    ///
    /// # Errors
    /// When the file cannot be read.
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
        self.extra(|_, _, _, _| {
            outcome.not_on_src += 1;
            Ok(())
        })?;
        outcome.failed_folders = self.failed_folders()?;
        let query = "SELECT count(*), coalesce(sum(size), 0) FROM source WHERE parent <> 0";
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

    /// Goes through every entry of both sides, by folder and name, those at the destination only at the end.
    ///
    /// # Errors
    /// When the file cannot be read, or `each` says so.
    pub fn lines(&self, mut each: impl FnMut(&Line) -> Result<()>) -> Result<()> {
        let pass = self.pass()?;
        self.scan(&self.compare()?, |pair, status| {
            each(&Line {
                path: pair.path(),
                kind: pair.entry.kind,
                size: pair.entry.size,
                status,
                class: class(pair, status, pass),
            })
        })?;
        let mut path = self.read.prepare("SELECT path FROM folder WHERE id = ?")?;
        self.extra(|parent, name, kind, size| {
            let mut path: Vec<u8> = path.query_row([parent], |row| row.get(0))?;
            path.extend_from_slice(name);
            each(&Line {
                path,
                kind,
                size,
                status: Status::NotOnSrc,
                class: Class::Left,
            })
        })
    }

    /// What did not work.
    ///
    /// # Errors
    /// When the file cannot be read, or `each` says so.
    pub fn failures(&self, mut each: impl FnMut(&Failed) -> Result<()>) -> Result<()> {
        let mut statement = self.read.prepare(
            "SELECT coalesce(f.path, x''), x.name, x.phase, x.kind, x.cause, x.attempts
             FROM failure x LEFT JOIN folder f ON f.id = x.parent ORDER BY x.parent, x.name",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let mut path: Vec<u8> = row.get(0)?;
            path.extend(row.get::<_, Vec<u8>>(1)?);
            each(&Failed {
                path: path.escape_ascii().to_string(),
                phase: row.get(2)?,
                kind: row.get(3)?,
                cause: row.get(4)?,
                attempts: row.get(5)?,
            })?;
        }
        Ok(())
    }

    /// The hashes that are known, as `sha256sum` prints them.
    ///
    /// # Errors
    /// When the file cannot be read, or `each` says so.
    pub fn manifest(&self, mut each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
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

    /// The last events, oldest first, with their times.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn log(&self, last: usize) -> Result<Vec<(i64, String)>> {
        let mut statement = self.read.prepare(
            "SELECT at, text FROM (SELECT * FROM event ORDER BY id DESC LIMIT ?) ORDER BY id",
        )?;
        let rows = statement.query_map([last as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Folders by the state of their listings: of the source pending, successful, failed; the same of the destination.
    ///
    /// # Errors
    /// When the file cannot be read.
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

    /// The state file's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.store.path()
    }
}

/// One pair, by its place.
pub(crate) fn find_pair(read: &Connection, parent: FolderId, name: &[u8]) -> Result<Option<Pair>> {
    // A place just before the name, and from there on until it is found or passed.
    let mut after = (parent, name.to_vec());
    if let Some(last) = after.1.pop()
        && last > 0
    {
        after.1.extend([last - 1, 255, 255, 255]);
    }
    loop {
        let pairs = read_pairs(read, &after, 4)?;
        let Some(last) = pairs.last() else {
            return Ok(None);
        };
        let passed = (last.parent, last.entry.name.as_slice()) >= (parent, name);
        after = (last.parent, last.entry.name.clone());
        if passed {
            return Ok(pairs
                .into_iter()
                .find(|pair| pair.parent == parent && pair.entry.name == name));
        }
    }
}

/// The status of a pair, also of a further name of a file.
pub(crate) fn status(read: &Connection, compare: &Compare, pair: &Pair) -> Result<Status> {
    let status = compare.status(pair);
    if status != Status::Same || !compare.destination.hard_links {
        return Ok(status);
    }
    let Some((parent, name)) = leader(read, pair)? else {
        return Ok(status);
    };
    let mut statement =
        read.prepare_cached("SELECT device, inode FROM destination WHERE parent = ? AND name = ?")?;
    let inode: Option<(Option<i64>, Option<i64>)> = statement
        .query_row(params![parent, name], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let ours = pair.there.as_ref().and_then(|there| there.inode);
    let ours = ours.map(|inode| {
        (
            Some(inode.device.cast_signed()),
            Some(inode.number.cast_signed()),
        )
    });
    Ok(match ours.is_some() && ours == inode {
        true => status,
        false => Status::Different(Difference::Link),
    })
}

/// The first name of the file that a source entry is a further name of; `None` if it is the first, or the only one here.
pub(crate) fn leader(read: &Connection, pair: &Pair) -> Result<Option<(FolderId, Vec<u8>)>> {
    let Some(inode) = pair.entry.inode.filter(|_| pair.entry.kind != Kind::Folder) else {
        return Ok(None);
    };
    let mut statement = read
        .prepare_cached("SELECT parent, name FROM link WHERE device = ? AND inode = ? ORDER BY parent, name LIMIT 1")?;
    let first: Option<(FolderId, Vec<u8>)> = statement
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
        (_, Some(_)) => Class::Failed,
        (Status::Missing | Status::Different(_) | Status::NotOnSrc, None) => Class::Left,
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `sha256sum` marks a line in which it escaped something with a backslash in front.
fn manifest_line(path: &[u8], hash: &[u8]) -> Vec<u8> {
    let odd = path.iter().any(|b| matches!(b, b'\n' | b'\\' | b'\r'));
    let mut line = if odd { b"\\".to_vec() } else { Vec::new() };
    line.extend(hex(hash).bytes());
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
