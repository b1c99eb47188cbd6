//! Requests from other processes: pause, resume, retry, and the rules of `review`.
//!
//! A request is a row of the `control` table. If no process runs the job, the requester applies it
//! itself under the lock; otherwise the runner polls the table and applies it.

use crate::error::{Error, Result};
use crate::filter::{covers, globs, matches};
use crate::job::{stage, stored_probe};
use crate::names::is_quarantine;
use crate::plan::FoldedNames;
use crate::progress::{Progress, ProgressSnapshot, RateMeter};
use crate::store::{
    CommitMode, EntryKey, Lock, Selection, Store, Writer, log, meta, plain_files, set_meta,
    unpack_folder,
};
use globset::GlobSet;
use headworks_storage::{Capabilities, Folder, Probe, failpoint};
use parking_lot::Mutex;
use rusqlite::{Connection, Transaction, params};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::task::JoinHandle;

/// A request to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// Pauses the job until it is resumed.
    Pause,
    /// Resumes a paused job.
    Resume,
    /// Makes failed listings and copies pending again.
    Retry,
    /// Excludes the entries that match a pattern.
    Exclude(String),
    /// Includes entries again that `exclude` left out.
    Include(String),
    /// Copies the entries that match a pattern before all others.
    Prioritise(String),
}

impl Request {
    fn has_pattern(&self) -> bool {
        !matches!(self, Request::Pause | Request::Resume | Request::Retry)
    }

    fn verb_and_argument(&self) -> (&'static str, &str) {
        match self {
            Request::Pause => ("pause", ""),
            Request::Resume => ("resume", ""),
            Request::Retry => ("retry", ""),
            Request::Exclude(pattern) => ("exclude", pattern),
            Request::Include(pattern) => ("include", pattern),
            Request::Prioritise(pattern) => ("prioritise", pattern),
        }
    }
}

/// Sends a request to a job. Returns the runner that will apply it, or `None` if no runner holds
/// the job and the request is applied already.
///
/// # Errors
/// When the state file cannot be used, or the pattern is invalid.
pub fn send_request(state: &Path, request: &Request) -> Result<Option<String>> {
    let store = Store::open(state)?;
    let (verb, argument) = request.verb_and_argument();
    if request.has_pattern() {
        globs(&[argument])?;
    }
    let connection = store.write()?;
    connection.execute(
        "INSERT INTO control (verb, argument) VALUES (?, ?)",
        params![verb, argument],
    )?;
    match Lock::acquire(state) {
        Ok(_lock) => {
            apply_pending(&connection)?;
            Ok(None)
        }
        Err(Error::Locked { holder }) => Ok(Some(holder)),
        Err(error) => Err(error),
    }
}

/// Applies the pending requests. The caller must hold the lock.
pub(crate) fn apply_pending(connection: &Connection) -> Result<()> {
    let transaction = connection.unchecked_transaction()?;
    apply(&transaction)?;
    failpoint::hit("before-control-commit");
    transaction.commit()?;
    failpoint::hit("after-control-commit");
    Ok(())
}

fn apply(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT id, verb, argument FROM control ORDER BY id")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let pending: Vec<(i64, String, String)> = rows.collect::<rusqlite::Result<_>>()?;
    for (id, verb, argument) in pending {
        match verb.as_str() {
            "pause" => set_meta(connection, "paused", 1)?,
            "resume" => set_meta(connection, "paused", 0)?,
            "retry" => retry(connection)?,
            _ => {
                let rule = "INSERT OR REPLACE INTO rule (verb, pattern) VALUES (?, ?)";
                connection.execute(rule, params![verb, argument])?;
                apply_rule(connection, &verb, &argument)?;
            }
        }
        log(connection, format!("request: {verb} {argument}").trim_end())?;
        connection.execute("DELETE FROM control WHERE id = ?", [id])?;
    }
    Ok(())
}

fn apply_rule(connection: &Connection, verb: &str, pattern: &str) -> rusqlite::Result<()> {
    match verb {
        "exclude" => set_excluded(connection, pattern, true),
        "include" => set_excluded(connection, pattern, false),
        _ => Ok(()),
    }
}

/// Applies all rules in the order in which they were given. A walk does not know the rules, so they
/// are applied to its result.
pub(crate) fn apply_rules(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("SELECT verb, pattern FROM rule ORDER BY id")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rules: Vec<(String, String)> = rows.collect::<rusqlite::Result<_>>()?;
    rules
        .iter()
        .try_for_each(|(verb, pattern)| apply_rule(connection, verb, pattern))
}

/// Returns the patterns of entries to copy first.
pub(crate) fn priorities(connection: &Connection) -> Result<Vec<String>> {
    let mut statement =
        connection.prepare("SELECT pattern FROM rule WHERE verb = 'prioritise' ORDER BY id")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Makes failed entries pending again, and destination folders that are unknown because of them.
fn retry(connection: &Connection) -> rusqlite::Result<()> {
    let listings = connection.execute("UPDATE folder SET src = 0, dst = 0 WHERE src = 2", [])?
        + connection.execute("UPDATE folder SET dst = 0 WHERE dst = 2", [])?;
    if listings > 0 {
        connection.execute("UPDATE folder SET dst = 0 WHERE dst = 4", [])?;
        set_meta(connection, "stage", stage::PLANNING)?;
    }
    let failures = connection.execute("DELETE FROM failure WHERE kind <> 'Kept'", [])?;
    // A finished copy with failures has work again.
    if failures > 0 && listings == 0 {
        let reopen = "UPDATE meta SET value = ? WHERE key = 'stage' AND value = ?";
        connection.execute(reopen, [stage::COPYING, stage::DONE])?;
    }
    Ok(())
}

fn set_excluded(connection: &Connection, pattern: &str, excluded: bool) -> rusqlite::Result<()> {
    let Ok(set) = globs(&[pattern]) else {
        return log(connection, &format!("invalid pattern `{pattern}`"));
    };
    if excluded {
        unpack_matching(connection, &set)?;
    }
    let mut select = connection.prepare(
        "SELECT f.path, s.parent, s.name FROM source s JOIN folder f ON f.id = s.parent WHERE s.excluded = ?",
    )?;
    let mut rows = select.query([!excluded])?;
    let mut matching: Vec<(i64, Vec<u8>)> = Vec::new();
    while let Some(row) = rows.next()? {
        let folder = Folder::from_bytes(row.get(0)?);
        let name: Vec<u8> = row.get(2)?;
        let is_matching = covers(&set, &folder) || matches(&set, &folder.join(&name));
        // The quarantine of an earlier job is no part of the source, whatever is included.
        if is_matching && (excluded || !is_quarantine(&folder, &name)) {
            matching.push((row.get(1)?, name));
        }
    }
    let mut update = connection
        .prepare_cached("UPDATE source SET excluded = ? WHERE parent = ? AND name = ?")?;
    for (parent, name) in &matching {
        update.execute(params![excluded, parent, name])?;
    }
    match excluded {
        true => Ok(()),
        false => mark_conflicts(connection, &matching),
    }
}

/// Marks entries that were included again although the destination cannot tell their names from
/// those of others, which may have been copied already.
fn mark_conflicts(connection: &Connection, included: &[EntryKey]) -> rusqlite::Result<()> {
    let probe = stored_probe(connection).ok().flatten();
    let folds = |probe: &Probe| probe.folds_case || probe.folds_unicode;
    let Some(probe) = probe.filter(folds) else {
        return Ok(());
    };
    let destination = Capabilities::read_only().restricted_to(&probe);
    let mut mark = connection
        .prepare_cached("UPDATE source SET excluded = ? WHERE parent = ? AND name = ?")?;
    let mut others =
        connection.prepare_cached("SELECT name FROM source WHERE parent = ? AND excluded = 0")?;
    let mut included = included.to_vec();
    included.sort();
    for folder in included.chunk_by(|(a, _), (b, _)| a == b) {
        let parent = folder[0].0;
        let mut taken = FoldedNames::new(destination);
        for file in plain_files(connection, parent)? {
            taken.take(&file.name);
        }
        let mut rows = others.query([parent])?;
        while let Some(row) = rows.next()? {
            let name: Vec<u8> = row.get(0)?;
            if folder.binary_search(&(parent, name.clone())).is_err() {
                taken.take(&name);
            }
        }
        for (parent, name) in folder {
            if !taken.take(name) {
                mark.execute(params![Selection::NameConflict as i64, parent, name])?;
            }
        }
    }
    Ok(())
}

/// Unpacks the folders that contain a matching plain file: only files with rows can be excluded.
fn unpack_matching(connection: &Connection, set: &GlobSet) -> rusqlite::Result<()> {
    let mut select =
        connection.prepare("SELECT f.id, f.path FROM files p JOIN folder f ON f.id = p.folder")?;
    let mut rows = select.query([])?;
    let mut matching = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, path) = (row.get(0)?, Folder::from_bytes(row.get(1)?));
        let mut files = plain_files(connection, id)?.into_iter();
        if covers(set, &path) || files.any(|file| matches(set, &path.join(&file.name))) {
            matching.push(id);
        }
    }
    matching
        .into_iter()
        .try_for_each(|id| unpack_folder(connection, id))
}

/// Interval at which a runner polls for requests, and after how many polls it stores a progress
/// snapshot.
const POLL_INTERVAL: Duration = Duration::from_millis(300);
const SNAPSHOT_EVERY: u32 = 4;

/// Spawns the task that applies requests from other processes and stores progress snapshots for
/// them.
pub(crate) fn spawn_control_task(
    store: Store,
    writer: Writer,
    progress: Arc<Progress>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let Ok(read) = store.read() else { return };
        let read = Mutex::new(read);
        let mut meter = RateMeter::default();
        let mut stored = ProgressSnapshot::default();
        for tick in 0_u32.. {
            let (pending, paused) = poll(&read.lock());
            progress.paused.store(paused, Relaxed);
            if pending
                && writer
                    .write(|transaction| apply(transaction))
                    .await
                    .is_err()
            {
                return;
            }
            let snapshot = meter.snapshot(&progress);
            if tick % SNAPSHOT_EVERY == 0 && !differs_only_in_time(&snapshot, &stored) {
                stored = snapshot;
                store_snapshot(&writer, &stored).await;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    })
}

/// Returns whether a request is pending, and whether the job is paused.
fn poll(read: &Connection) -> (bool, bool) {
    let pending = read.query_row("SELECT EXISTS (SELECT 1 FROM control)", [], |row| {
        row.get(0)
    });
    let paused: Option<i64> = meta(read, "paused").unwrap_or(None);
    (pending.unwrap_or(false), paused.unwrap_or(0) == 1)
}

fn differs_only_in_time(one: &ProgressSnapshot, other: &ProgressSnapshot) -> bool {
    let at = other.at;
    ProgressSnapshot { at, ..one.clone() } == *other
}

async fn store_snapshot(writer: &Writer, snapshot: &ProgressSnapshot) {
    let json = serde_json::to_string(snapshot).unwrap_or_default();
    let write = move |transaction: &Transaction<'_>| set_meta(transaction, "live", json);
    let writer = writer.clone();
    // `post` blocks while the writer's queue is full.
    let _ =
        tokio::task::spawn_blocking(move || writer.post(CommitMode::Deferred, write, || {})).await;
}
