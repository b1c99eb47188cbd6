//! The tables, and the migrations from older versions.

use crate::error::{Error, Result};
use headworks_storage::failpoint;
use rusqlite::Connection;

/// One migration per version. A file of version `n` is upgraded by the migrations from `n` on.
const MIGRATIONS: [&str; 8] = [
    "
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;

-- One row per folder of the source, with the state of its listing on either side.
CREATE TABLE folder (
    id INTEGER PRIMARY KEY,
    parent INTEGER NOT NULL,
    name BLOB NOT NULL,
    depth INTEGER NOT NULL,
    path BLOB NOT NULL,
    src INTEGER NOT NULL DEFAULT 0,
    dst INTEGER NOT NULL DEFAULT 0,
    -- The cursors at which an interrupted listing resumes.
    src_cursor BLOB,
    dst_cursor BLOB,
    subfolders INTEGER NOT NULL DEFAULT 0,
    -- Whether an entry was written into it, so that its time must be set again.
    touched INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX folder_depth ON folder (depth);

-- Entries by side: the source's rows say what must exist, the destination's rows what exists.
CREATE TABLE source (
    parent INTEGER NOT NULL, name BLOB NOT NULL, kind INTEGER NOT NULL, size INTEGER NOT NULL,
    modified INTEGER, mode INTEGER, uid INTEGER, gid INTEGER, special INTEGER, target BLOB,
    device INTEGER, inode INTEGER,
    folder INTEGER, excluded INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
CREATE TABLE destination (
    parent INTEGER NOT NULL, name BLOB NOT NULL, kind INTEGER NOT NULL, size INTEGER NOT NULL,
    modified INTEGER, mode INTEGER, uid INTEGER, gid INTEGER, special INTEGER, target BLOB,
    device INTEGER, inode INTEGER,
    copied INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;

-- Names of the source that share a file with others.
CREATE TABLE link (
    device INTEGER NOT NULL, inode INTEGER NOT NULL, parent INTEGER NOT NULL, name BLOB NOT NULL,
    PRIMARY KEY (device, inode, parent, name)
) WITHOUT ROWID;

CREATE TABLE failure (
    parent INTEGER NOT NULL, name BLOB NOT NULL, phase TEXT NOT NULL,
    kind TEXT NOT NULL, cause TEXT NOT NULL, attempts INTEGER NOT NULL, at INTEGER NOT NULL,
    PRIMARY KEY (parent, name, phase)
) WITHOUT ROWID;

-- Large files in progress: up to where they are durable, and their hash so far.
CREATE TABLE part (
    parent INTEGER NOT NULL, name BLOB NOT NULL, done INTEGER NOT NULL, resume BLOB NOT NULL, hash BLOB,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;

-- Up to which entry a runner may leave temporary files if it dies.
CREATE TABLE claim (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name BLOB NOT NULL);

-- Kept across passes: the hash of a path when it had this size and time.
CREATE TABLE hash (
    path BLOB PRIMARY KEY, size INTEGER NOT NULL, modified INTEGER, sha256 BLOB NOT NULL
) WITHOUT ROWID;

CREATE TABLE rule (id INTEGER PRIMARY KEY, verb TEXT NOT NULL, pattern TEXT NOT NULL, UNIQUE (verb, pattern));
CREATE TABLE control (id INTEGER PRIMARY KEY, verb TEXT NOT NULL, argument TEXT NOT NULL DEFAULT '');
CREATE TABLE event (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, text TEXT NOT NULL);
",
    "
-- The totals of a plan at and below each folder, for browsing.
CREATE TABLE total (
    folder INTEGER PRIMARY KEY,
    entries INTEGER NOT NULL, bytes INTEGER NOT NULL,
    work INTEGER NOT NULL, work_bytes INTEGER NOT NULL,
    trouble INTEGER NOT NULL
);
",
    "
-- The version that a storage assigns to an object, such as an etag.
ALTER TABLE source ADD COLUMN version BLOB;
ALTER TABLE destination ADD COLUMN version BLOB;

-- Kept across passes: when a version of a path was modified, where listings do not say it.
-- Without a time: both sides were equal when each had its recorded version.
CREATE TABLE known (
    side INTEGER NOT NULL, path BLOB NOT NULL, version BLOB NOT NULL, modified INTEGER,
    PRIMARY KEY (side, path)
) WITHOUT ROWID;
",
    "
-- State of the destination's folder, if known before its turn: 1 listed, 3 missing.
ALTER TABLE folder ADD COLUMN ahead INTEGER;

-- Files copied during the plan: if the runner dies, temporary files of them may be left.
CREATE TABLE released (folder BLOB NOT NULL, name BLOB NOT NULL, PRIMARY KEY (folder, name)) WITHOUT ROWID;
",
    "
-- The plain files of a source folder in one row (`packed.rs`); they have no rows in `source`.
CREATE TABLE files (
    folder INTEGER PRIMARY KEY, entries INTEGER NOT NULL, bytes INTEGER NOT NULL, packed BLOB NOT NULL
);
-- Whether the destination has exactly these files; it then has no rows for them either.
ALTER TABLE folder ADD COLUMN alike INTEGER NOT NULL DEFAULT 0;
",
    "
-- Entries of the destination that are about to be removed, counted with everything in them. A file
-- that a folder replaces is kept in quarantine, at `folder` and `kept`, until the folder is complete.
CREATE TABLE removal (
    parent INTEGER NOT NULL, name BLOB NOT NULL, entries INTEGER NOT NULL, folder BLOB, kept BLOB,
    PRIMARY KEY (parent, name)
) WITHOUT ROWID;
",
    "
-- Attributes that the destination refused to keep of entries that were copied.
CREATE TABLE loss (
    parent INTEGER NOT NULL, name BLOB NOT NULL, lost TEXT NOT NULL, PRIMARY KEY (parent, name)
) WITHOUT ROWID;
",
    "
-- When the storage last noted a change of an entry, if it says so. Unknown of what we wrote.
ALTER TABLE destination ADD COLUMN changed INTEGER;
-- Up to the same byte, the checksum that the source states of the whole file.
ALTER TABLE part ADD COLUMN checksum BLOB;
",
];

pub(super) const VERSION: usize = MIGRATIONS.len();

/// Marks an SQLite file as a state file: `HWMG`.
const APPLICATION: i64 = 0x4857_4d47;
/// Files up to this version have no mark.
const LAST_UNMARKED: usize = 3;

/// Returns whether a file is a state file or empty. Read-only.
pub(super) fn is_ours(connection: &Connection) -> Result<bool> {
    let application: i64 =
        connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables =
        "SELECT count(*), count(*) FILTER (WHERE name IN ('meta', 'folder', 'source', 'claim'))
                  FROM sqlite_schema WHERE type = 'table'";
    let (all, known): (i64, i64) =
        connection.query_row(tables, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let version = version(connection)?;
    Ok(match application {
        APPLICATION => true,
        0 => all == 0 && version == 0 || known == 4 && (1..=LAST_UNMARKED).contains(&version),
        _ => false,
    })
}

/// Upgrades the tables; refuses those of a newer program.
pub(super) fn upgrade(connection: &mut Connection) -> Result<()> {
    let version = version(connection)?;
    check_version(version)?;
    if version == VERSION {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    for migration in &MIGRATIONS[version..] {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", VERSION as i64)?;
    transaction.pragma_update(None, "application_id", APPLICATION)?;
    failpoint::hit("before-schema-commit");
    transaction.commit()?;
    failpoint::hit("after-schema-commit");
    Ok(())
}

pub(super) fn version(connection: &Connection) -> Result<usize> {
    let version: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

pub(super) fn check_version(version: usize) -> Result<()> {
    if version > VERSION {
        return Err(Error::NewerState {
            found: version,
            known: VERSION,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_file_is_upgraded_and_keeps_its_rows() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(MIGRATIONS[0]).unwrap();
        connection.pragma_update(None, "user_version", 1).unwrap();
        connection
            .execute("INSERT INTO meta VALUES ('job', 'kept')", [])
            .unwrap();
        upgrade(&mut connection).unwrap();
        assert_eq!(version(&connection).unwrap(), VERSION);
        let kept: String = connection
            .query_row("SELECT value FROM meta WHERE key = 'job'", [], |r| r.get(0))
            .unwrap();
        assert_eq!(kept, "kept");
        connection.execute("DELETE FROM total", []).unwrap();
    }

    #[test]
    fn state_files_are_distinguished_from_databases_of_other_programs() {
        let mut ours = Connection::open_in_memory().unwrap();
        assert!(is_ours(&ours).unwrap());
        upgrade(&mut ours).unwrap();
        assert!(is_ours(&ours).unwrap());
        let old = Connection::open_in_memory().unwrap();
        old.execute_batch(MIGRATIONS[0]).unwrap();
        old.pragma_update(None, "user_version", 1).unwrap();
        assert!(is_ours(&old).unwrap());
        let other = Connection::open_in_memory().unwrap();
        other.execute_batch("CREATE TABLE meta (x)").unwrap();
        assert!(!is_ours(&other).unwrap());
        other.pragma_update(None, "user_version", 2).unwrap();
        assert!(!is_ours(&other).unwrap());
        let marked = Connection::open_in_memory().unwrap();
        marked.pragma_update(None, "application_id", 1).unwrap();
        assert!(!is_ours(&marked).unwrap());
    }

    #[test]
    fn a_newer_file_is_refused() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", 99).unwrap();
        let refused = upgrade(&mut connection).unwrap_err().to_string();
        assert!(refused.contains("version 99"), "{refused}");
    }
}
