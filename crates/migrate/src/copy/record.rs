//! The results of a copy as rows of the state file. `tasks` posts them; the store's writer commits
//! them after the destination is synced.

use super::tasks::{FolderWork, LARGE_FILE};
use crate::side::Side;
use crate::status::DstState;
use crate::store::{
    Failure, FolderId, Pair, ROOT, change_dst_below, put_destination, put_failure,
    remember_version, unpack_folder,
};
use headworks_storage::{Entry, Error, Kind, Posix};
use rusqlite::{Transaction, params};
use std::borrow::Cow;

/// The result of copying an entry.
pub(super) enum Record {
    /// The entry at the destination, the hash of its bytes, and the source's owner and permissions
    /// if they are others than listed.
    Done(Entry, Option<[u8; 32]>, Option<Posix>),
    Changed,
    Failed(Error),
}

pub(super) struct OwnedFailure {
    phase: &'static str,
    kind: String,
    cause: String,
    attempts: u32,
}

impl OwnedFailure {
    pub(super) fn as_ref(&self) -> Failure<'_> {
        Failure {
            phase: self.phase,
            kind: &self.kind,
            cause: &self.cause,
            attempts: self.attempts,
        }
    }
}

pub(super) fn failure(phase: &'static str, error: &Error, attempts: u32) -> OwnedFailure {
    let (kind, cause) = (format!("{:?}", error.kind()), error.to_string());
    OwnedFailure {
        phase,
        kind,
        cause,
        attempts,
    }
}

pub(super) fn write_record(
    transaction: &Transaction<'_>,
    pair: &Pair,
    record: &Record,
    pass: i64,
    attempt: u32,
) -> rusqlite::Result<()> {
    let name = &pair.entry.name;
    if pair.entry.size > LARGE_FILE {
        let mut delete =
            transaction.prepare_cached("DELETE FROM part WHERE parent = ? AND name = ?")?;
        delete.execute(params![pair.parent, name])?;
    }
    let failure = match record {
        Record::Done(entry, hash, posix) => {
            let recorded = without_losses(entry, &pair.entry);
            put_destination(transaction, pair.parent, &recorded, pass)?;
            write_loss(transaction, pair.parent, entry)?;
            if let Some(posix) = posix {
                write_posix(transaction, pair.parent, name, *posix)?;
            }
            write_versions(transaction, pair, entry)?;
            if let Some(hash) = hash {
                let mut insert = transaction
                    .prepare_cached("INSERT OR REPLACE INTO hash VALUES (?, ?, ?, ?)")?;
                insert.execute(params![
                    pair.path(),
                    entry.size.cast_signed(),
                    entry.modified,
                    hash
                ])?;
            }
            return Ok(());
        }
        Record::Changed => OwnedFailure {
            phase: "copy",
            kind: "Changed".into(),
            cause: "the source changed since it was listed".into(),
            attempts: attempt,
        },
        Record::Failed(error) => failure("copy", error, attempt),
    };
    put_failure(transaction, pair.parent, name, &failure.as_ref())
}

/// Returns a written entry with the attributes that the destination refused as they were asked for.
/// The loss is reported by itself, and the entry is done in this pass; the next one compares the
/// listed attributes and tries again.
pub(super) fn without_losses<'a>(written: &'a Entry, like: &Entry) -> Cow<'a, Entry> {
    let Some(lost) = &written.lost else {
        return Cow::Borrowed(written);
    };
    let mut entry = written.clone();
    for attribute in lost.split(", ") {
        match (attribute, &mut entry.posix, like.posix) {
            ("owner", Some(posix), Some(like)) => (posix.uid, posix.gid) = (like.uid, like.gid),
            ("permissions", Some(posix), Some(like)) => posix.mode = like.mode,
            ("time", ..) => entry.modified = like.modified,
            _ => {}
        }
    }
    Cow::Owned(entry)
}

/// Records the attributes that were not kept, if any.
pub(super) fn write_loss(
    transaction: &Transaction<'_>,
    parent: FolderId,
    written: &Entry,
) -> rusqlite::Result<()> {
    let Some(lost) = &written.lost else {
        return Ok(());
    };
    let mut insert = transaction.prepare_cached("INSERT OR REPLACE INTO loss VALUES (?, ?, ?)")?;
    insert
        .execute(params![parent, written.name, &**lost])
        .map(drop)
}

/// Remembers the versions that were equal on both sides, so that a later plan need not ask for
/// their times.
fn write_versions(
    transaction: &Transaction<'_>,
    pair: &Pair,
    written: &Entry,
) -> rusqlite::Result<()> {
    let path = pair.path();
    if pair.entry.version.is_some() {
        let query = "UPDATE source SET modified = ? WHERE parent = ? AND name = ?";
        let mut update = transaction.prepare_cached(query)?;
        update.execute(params![pair.entry.modified, pair.parent, pair.entry.name])?;
        remember_version(transaction, Side::Source, &path, &pair.entry)?;
    }
    // A destination without times takes the time of the source it was copied from.
    let dated = Entry {
        modified: written.modified.or(pair.entry.modified),
        ..written.clone()
    };
    remember_version(transaction, Side::Destination, &path, &dated)
}

/// Records the owner and permissions that a source entry has now: later comparisons are with what
/// was copied.
pub(super) fn write_posix(
    transaction: &Transaction<'_>,
    parent: FolderId,
    name: &[u8],
    posix: Posix,
) -> rusqlite::Result<()> {
    // Only an entry with a row of its own can be changed. The folder of the root has no folder.
    if parent >= ROOT {
        unpack_folder(transaction, parent)?;
    }
    let query = "UPDATE source SET mode = ?, uid = ?, gid = ? WHERE parent = ? AND name = ?";
    let mut update = transaction.prepare_cached(query)?;
    let row = params![posix.mode, posix.uid, posix.gid, parent, name];
    update.execute(row).map(drop)
}

/// Marks a folder whose time must be set again.
pub(super) fn mark_touched(
    transaction: &Transaction<'_>,
    folder: FolderId,
) -> rusqlite::Result<()> {
    let mut update =
        transaction.prepare_cached("UPDATE folder SET touched = 1 WHERE id = ? AND touched = 0")?;
    update.execute([folder]).map(drop)
}

pub(super) fn write_made(
    transaction: &Transaction<'_>,
    folder: &FolderWork,
    pass: i64,
) -> rusqlite::Result<()> {
    let mut update =
        transaction.prepare_cached("UPDATE folder SET dst = ?, touched = 1 WHERE id = ?")?;
    update.execute(params![DstState::Successful as i64, folder.id])?;
    write_made_entry(transaction, folder.parent, &folder.entry.name, pass)
}

pub(super) fn write_made_entry(
    transaction: &Transaction<'_>,
    parent: FolderId,
    name: &[u8],
    pass: i64,
) -> rusqlite::Result<()> {
    let made = Entry::new(name, Kind::Folder);
    put_destination(transaction, parent, &made, pass)?;
    mark_touched(transaction, parent)
}

/// Records that a folder could not be made. The entries below it become unknown, and are not tried
/// one by one.
pub(super) fn write_failed_folder(
    transaction: &Transaction<'_>,
    folder: &FolderWork,
    error: &Error,
    attempt: u32,
) -> rusqlite::Result<()> {
    let mut update = transaction.prepare_cached("UPDATE folder SET dst = ? WHERE id = ?")?;
    update.execute(params![DstState::Failed as i64, folder.id])?;
    change_dst_below(transaction, folder.id, DstState::Missing, DstState::Unknown)?;
    let failure = failure("copy", error, attempt);
    put_failure(
        transaction,
        folder.parent,
        &folder.entry.name,
        &failure.as_ref(),
    )
}
