//! Reading a state file: what was found, what became of it, and why.

use crate::error::{Error, Result};
use crate::filter::Filters;
use crate::status::{Compare, Difference, Status};
use crate::store::{FolderId, Pair, Store, meta, read_pairs};
use headworks_storage::Kind;
use rusqlite::{Connection, OptionalExtension, params};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Rows that are read at once.
const PAGE: usize = 4096;

/// So many entries, with so many bytes in their files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Entries of any kind.
    pub entries: u64,
    /// Bytes in files.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes += bytes;
    }
}

/// What a plan found, by status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// By the word of the status.
    pub statuses: BTreeMap<String, Count>,
    /// Everything on the source.
    pub source: Count,
    /// Folders that could not be listed.
    pub failed_folders: u64,
}

impl Summary {
    /// The count of a status.
    #[must_use]
    pub fn of(&self, status: Status) -> Count {
        self.statuses
            .get(status.word())
            .copied()
            .unwrap_or_default()
    }

    /// What a copy has to do.
    #[must_use]
    pub fn work(&self) -> Count {
        let mut work = Count::default();
        for status in Status::ALL.into_iter().filter(|status| status.is_work()) {
            let count = self.of(status);
            work.entries += count.entries;
            work.bytes += count.bytes;
        }
        work
    }
}

/// How a source entry ended. Every entry is in exactly one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    /// It was there already.
    Same,
    /// We brought it there.
    Copied,
    /// A filter left it out.
    Excluded,
    /// Not done yet.
    Left,
    /// The source changed while it was copied: the next pass takes it.
    Changed,
    /// It could not be copied.
    Failed,
    /// A folder stands where a file should, or the reverse.
    TypeConflict,
    /// The destination cannot have the name.
    NameConflict,
    /// The destination cannot have such a thing, or was not asked to.
    Unsupported,
    /// Below a folder that could not be listed.
    Unknown,
}

impl Class {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Class::Same => "same",
            Class::Copied => "copied",
            Class::Excluded => "excluded",
            Class::Left => "left",
            Class::Changed => "changed",
            Class::Failed => "failed",
            Class::TypeConflict => "type_conflict",
            Class::NameConflict => "name_conflict",
            Class::Unsupported => "unsupported",
            Class::Unknown => "unknown",
        }
    }
}

/// What became of everything.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Outcome {
    /// By class.
    pub classes: BTreeMap<Class, Count>,
    /// Everything on the source, counted by itself.
    pub source: Count,
    /// What is at the destination only.
    pub not_on_src: u64,
    /// Folders that could not be listed.
    pub failed_folders: u64,
}

impl Outcome {
    /// Whether every source entry is in exactly one class.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let entries: u64 = self.classes.values().map(|count| count.entries).sum();
        entries == self.source.entries
    }

    fn any(&self, classes: &[Class]) -> bool {
        classes.iter().any(|class| self.classes.contains_key(class))
    }

    /// Whether something that should be there could not be brought there.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.failed_folders > 0
            || !self.adds_up()
            || self.any(&[Class::Changed, Class::Failed, Class::Unknown, Class::Left])
    }

    /// Whether something was knowingly not brought there.
    #[must_use]
    pub fn has_differences(&self) -> bool {
        self.any(&[Class::TypeConflict, Class::NameConflict, Class::Unsupported])
    }
}

/// An entry and its status.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Line {
    /// Where it is.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    pub size: u64,
    /// How it stands.
    pub status: Status,
    /// How it ended, so far.
    pub class: Class,
}

/// Something that did not work.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Failed {
    /// Where.
    pub path: String,
    /// While doing what.
    pub phase: String,
    /// Which kind of error.
    pub kind: String,
    /// In words.
    pub cause: String,
    /// How often it was tried.
    pub attempts: u32,
}

impl Failed {
    /// What to do about it.
    #[must_use]
    pub fn next_step(&self) -> &'static str {
        match self.kind.as_str() {
            "Changed" => "run it again: the next pass copies it as it is then",
            "NotFound" => "it went away while the job ran; the next pass knows",
            "Denied" => "give this user the permission, then `headworks migrate retry`",
            "NoSpace" => "make room at the destination, then run it again",
            _ => "`headworks migrate retry`, then run it again",
        }
    }
}

/// Everything known about one path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explained {
    /// The lines to show.
    pub lines: Vec<String>,
}

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

    /// Everything known about a path.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn explain(&self, path: &[u8]) -> Result<Explained> {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let cut = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (folder, name) = path.split_at(cut);
        let shown = path.escape_ascii().to_string();
        let query = "SELECT id FROM folder WHERE path = ?";
        let parent: Option<FolderId> = self
            .read
            .query_row(query, [folder], |row| row.get(0))
            .optional()?;
        let mut lines = vec![shown];
        let Some(parent) = parent else {
            lines.push(
                "the folder it would be in is not on the source, not listed yet, or excluded"
                    .into(),
            );
            return Ok(Explained { lines });
        };
        match find_pair(&self.read, parent, name)? {
            Some(pair) => self.explain_pair(&pair, &mut lines)?,
            None => lines.push(self.explain_extra(parent, name)?),
        }
        let mut statement = self
            .read
            .prepare("SELECT phase, cause, attempts FROM failure WHERE parent = ? AND name = ?")?;
        let mut rows = statement.query(params![parent, name])?;
        while let Some(row) = rows.next()? {
            let (phase, cause, attempts): (String, String, u32) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            lines.push(format!(
                "failed while: {phase}, after {attempts} attempts: {cause}"
            ));
        }
        Ok(Explained { lines })
    }

    fn explain_pair(&self, pair: &Pair, lines: &mut Vec<String>) -> Result<()> {
        let compare = self.compare()?;
        let status = status(&self.read, &compare, pair)?;
        let class = class(pair, status, self.pass()?);
        let shown = |entry: &headworks_storage::Entry| {
            let time = entry.modified.map_or("unknown".into(), crate::clock);
            format!("{:?}, {} bytes, modified {time}", entry.kind, entry.size)
        };
        lines.push(format!("status: {status}; class: {}", class.word()));
        lines.push(format!("source: {}", shown(&pair.entry)));
        match &pair.there {
            Some(there) => lines.push(format!("destination: {}", shown(there))),
            None => lines.push("destination: nothing known of that name".into()),
        }
        let query = "SELECT sha256 FROM hash WHERE path = ?";
        let hash: Option<Vec<u8>> = self
            .read
            .query_row(query, [pair.path()], |row| row.get(0))
            .optional()?;
        if let Some(hash) = hash {
            lines.push(format!("sha256: {}", hex(&hash)));
        }
        let query = "SELECT done FROM part WHERE parent = ? AND name = ?";
        let part: Option<i64> = self
            .read
            .query_row(query, params![pair.parent, pair.entry.name], |row| {
                row.get(0)
            })
            .optional()?;
        if let Some(done) = part {
            lines.push(format!(
                "under way: {done} bytes are durable at the destination"
            ));
        }
        Ok(())
    }

    fn explain_extra(&self, parent: FolderId, name: &[u8]) -> Result<String> {
        let query = "SELECT count(*) FROM destination WHERE parent = ? AND name = ?";
        let there: i64 = self
            .read
            .query_row(query, params![parent, name], |row| row.get(0))?;
        Ok(match there {
            0 => "not on the source, and not known at the destination".into(),
            _ => "status: not_on_src (at the destination only; a copy leaves it unless told to delete)".into(),
        })
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
