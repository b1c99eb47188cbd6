//! The state file: a durable record of both sides.
//!
//! SQLite in WAL mode. One thread writes in groups ([`Writer`]); readers have their own
//! connections. The process that runs the job holds the lock; other processes only read, or insert
//! requests into the `control` table.

mod lock;
mod packed;
mod pairs;
mod rows;
mod schema;
mod versions;
mod write_queue;
mod writer;

pub(crate) use lock::Lock;
pub use lock::lock_holder;
pub(crate) use packed::{PackedFiles, is_plain, plain_files, put_packed, unpack_folder};
pub(crate) use pairs::{PlainFiles, each_pair, find_pair, find_pairs, read_folder, read_pairs};
pub(crate) use rows::{
    ENTRY, ENTRY_COLUMNS, EntryRow, FolderRow, Pair, Selection, kind_from_number, put_destination,
    put_destinations, put_sources, read_entry,
};
pub(crate) use versions::{known_modified, recall_version, remember_version};
pub(crate) use writer::{CommitMode, Writer};

use crate::error::{Error, Result};
use crate::status::DstState;
use headworks_storage::Folder;
use rusqlite::{Connection, OpenFlags, OptionalExtension, ToSql, params};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A folder's id. The root has the id 1.
pub(crate) type FolderId = i64;

/// The key of an entry: its folder and its name.
pub(crate) type EntryKey = (FolderId, Vec<u8>);

pub(crate) const ROOT: FolderId = 1;

/// A state file.
#[derive(Clone, Debug)]
pub(crate) struct Store {
    path: PathBuf,
}

impl Store {
    /// Opens a state file for reading if it exists. Leaves nothing behind. While the connection is
    /// open, other connections need not recover the write-ahead log of a crash.
    pub(crate) fn probe(path: &Path) -> Result<Option<Connection>> {
        let not_state = |what| Error::NotState {
            path: path.to_owned(),
            what,
        };
        let found = match std::fs::metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(_) => return Err(not_state("not accessible")),
        };
        if found.is_dir() {
            return Err(not_state("a directory"));
        }
        if !found.is_file() {
            return Err(not_state("not a file"));
        }
        let store = Store {
            path: path.to_owned(),
        };
        let is_ours = store
            .read()
            .and_then(|read| Ok((schema::is_ours(&read)?, read)));
        match is_ours {
            Ok((true, read)) => Ok(Some(read)),
            Ok((false, _)) => Err(not_state("a database of another program")),
            Err(Error::State(error))
                if error.sqlite_error_code() == Some(rusqlite::ErrorCode::NotADatabase) =>
            {
                Err(not_state("not a state file"))
            }
            Err(error) => Err(error),
        }
    }

    /// Creates the file if it does not exist, and upgrades its schema. The caller must hold the
    /// lock.
    pub(crate) fn create(path: &Path) -> Result<Store> {
        let mut connection = Connection::open(path)?;
        configure(&connection)?;
        schema::upgrade(&mut connection)?;
        Ok(Store {
            path: path.to_owned(),
        })
    }

    /// Opens an existing file for reading.
    pub(crate) fn open(path: &Path) -> Result<Store> {
        let Some(read) = Store::probe(path)? else {
            return Err(Error::NoState(path.to_owned()));
        };
        let store = Store {
            path: path.to_owned(),
        };
        let version = schema::version(&read)?;
        schema::check_version(version)?;
        if version < schema::VERSION {
            let message = format!(
                "the state file has the older version {version}; `headworks migrate run` upgrades it"
            );
            return Err(Error::Refused(message));
        }
        Ok(store)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a connection that only reads. It may write, if this user may, because a connection
    /// that cannot leaves an empty log behind when it is closed.
    pub(crate) fn read(&self) -> Result<Connection> {
        let open = |access| {
            let flags = access | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            Connection::open_with_flags(&self.path, flags)
        };
        let writable = rustix::fs::access(&self.path, rustix::fs::Access::WRITE_OK).is_ok();
        let connection = match writable {
            true => open(OpenFlags::SQLITE_OPEN_READ_WRITE)?,
            false => open(OpenFlags::SQLITE_OPEN_READ_ONLY)?,
        };
        connection.busy_timeout(Duration::from_secs(30))?;
        connection.pragma_update(None, "query_only", true)?;
        connection.pragma_update(None, "cache_size", -4096)?;
        Ok(connection)
    }

    /// Moves the write-ahead log into the file, so that the file alone is the state: it can be
    /// copied or moved. The last connection that is closed removes the empty log.
    pub(crate) fn fold_log(&self) {
        let folded = Connection::open(&self.path).and_then(|connection| {
            connection.busy_timeout(Duration::from_secs(1))?;
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        });
        if let Err(error) = folded {
            tracing::debug!(%error, "the write-ahead log of the state file stays");
        }
    }

    /// Opens a connection for the writer, or for a process that inserts a request.
    pub(crate) fn write(&self) -> Result<Connection> {
        let connection = Connection::open(&self.path)?;
        configure(&connection)?;
        Ok(connection)
    }
}

fn configure(connection: &Connection) -> Result<()> {
    connection.busy_timeout(Duration::from_secs(30))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    // FULL: a commit survives a power failure, not only a crash of the process.
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    connection.pragma_update(None, "wal_autocheckpoint", 8192)?;
    connection.pragma_update(None, "temp_store", "FILE")?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

/// Returns a value of the `meta` table.
pub(crate) fn meta<T: rusqlite::types::FromSql>(
    connection: &Connection,
    key: &str,
) -> Result<Option<T>> {
    let mut statement = connection.prepare_cached("SELECT value FROM meta WHERE key = ?")?;
    Ok(statement.query_row([key], |row| row.get(0)).optional()?)
}

pub(crate) fn set_meta(
    connection: &Connection,
    key: &str,
    value: impl ToSql,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?, ?)")?;
    statement.execute(params![key, value]).map(drop)
}

/// Adds a line to `headworks migrate log`.
pub(crate) fn log(connection: &Connection, text: &str) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached("INSERT INTO event (at, text) VALUES (?, ?)")?;
    statement.execute(params![crate::now(), text]).map(drop)
}

/// A failure to be recorded.
pub(crate) struct Failure<'a> {
    pub(crate) phase: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) cause: &'a str,
    pub(crate) attempts: u32,
}

pub(crate) fn put_failure(
    connection: &Connection,
    parent: FolderId,
    name: &[u8],
    failure: &Failure<'_>,
) -> rusqlite::Result<()> {
    let mut statement =
        connection.prepare_cached("INSERT OR REPLACE INTO failure VALUES (?,?,?,?,?,?,?)")?;
    let Failure {
        phase,
        kind,
        cause,
        attempts,
    } = failure;
    statement
        .execute(params![
            parent,
            name,
            phase,
            kind,
            cause,
            attempts,
            crate::now()
        ])
        .map(drop)
}

/// Returns the id of the folder at a path.
pub(crate) fn folder_at(connection: &Connection, path: &Folder) -> Result<Option<FolderId>> {
    let query = "SELECT folder FROM source WHERE parent = ? AND name = ?";
    let mut statement = connection.prepare_cached(query)?;
    let mut at = ROOT;
    for name in path.names() {
        let below: Option<Option<FolderId>> = statement
            .query_row(params![at, name], |row| row.get(0))
            .optional()?;
        match below.flatten() {
            Some(folder) => at = folder,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// Returns whether the destination has a row of this name.
pub(crate) fn has_destination_row(
    connection: &Connection,
    parent: FolderId,
    name: &[u8],
) -> rusqlite::Result<bool> {
    let query = "SELECT EXISTS (SELECT 1 FROM destination WHERE parent = ? AND name = ?)";
    let mut statement = connection.prepare_cached(query)?;
    statement.query_row(params![parent, name], |row| row.get(0))
}

/// Returns the path of a folder.
pub(crate) fn path_of(connection: &Connection, folder: FolderId) -> Result<Folder> {
    let mut statement = connection.prepare_cached("SELECT path FROM folder WHERE id = ?")?;
    let path = statement.query_row([folder], |row| row.get(0))?;
    Ok(Folder::from_bytes(path))
}

/// Changes the destination state of a folder and everything below it, where it is `from`.
pub(crate) fn change_dst_below(
    connection: &Connection,
    folder: FolderId,
    from: DstState,
    to: DstState,
) -> rusqlite::Result<()> {
    let mut update = connection.prepare_cached(
        "WITH RECURSIVE below (id) AS (
             SELECT ?1 UNION ALL
             SELECT s.folder FROM below b JOIN source s ON s.parent = b.id WHERE s.folder IS NOT NULL
         )
         UPDATE folder SET dst = ?3 WHERE dst = ?2 AND id IN below",
    )?;
    update
        .execute(params![folder, from as i64, to as i64])
        .map(drop)
}

/// Returns the key of a folder's own entry.
pub(crate) fn folder_entry_key(
    connection: &Connection,
    folder: FolderId,
) -> rusqlite::Result<EntryKey> {
    let mut statement =
        connection.prepare_cached("SELECT parent, name FROM folder WHERE id = ?")?;
    statement.query_row([folder], |row| Ok((row.get(0)?, row.get(1)?)))
}
