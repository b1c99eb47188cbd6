//! Modification times that listings do not contain, fetched where the comparison depends on them.

use crate::error::{Error, Result};
use crate::job::Job;
use crate::side::Side;
use crate::store::{
    CommitMode, EntryKey, Pair, PlainFiles, Selection, read_pairs, recall_version, remember_version,
};
use futures_util::StreamExt;
use headworks_storage::{Backend, Entry, ErrorKind, Kind};
use rusqlite::{Connection, params};
use std::sync::Arc;

const PAGE: usize = 2048;
/// Concurrent stat calls.
const CONCURRENT_STATS: usize = 32;

/// Fetches the times of files that have the same size on both sides and no time on one of them.
pub(crate) async fn fetch_missing_times(job: &Job) -> Result<()> {
    let sides = [
        (Side::Source, job.source.clone()),
        (Side::Destination, job.destination.clone()),
    ];
    let untimed = |(_, backend): &(Side, Arc<dyn Backend>)| {
        let capabilities = backend.capabilities();
        !capabilities.listed_times && capabilities.modified.is_some()
    };
    let untimed: Vec<_> = sides.into_iter().filter(untimed).collect();
    if untimed.is_empty() || job.compare.precision.is_none() {
        return Ok(());
    }
    let state = job.state()?;
    let mut any_missing = false;
    for (side, _) in &untimed {
        any_missing |= lacks_times(state.connection(), *side)?;
    }
    if !any_missing {
        return Ok(());
    }
    let mut after: EntryKey = (0, Vec::new());
    loop {
        let pairs = read_pairs(state.connection(), &after, PlainFiles::All, PAGE)?;
        let Some(last) = pairs.last() else { break };
        after = (last.parent, last.entry.name.clone());
        let mut requests = Vec::new();
        for pair in &pairs {
            if decided_by_time(pair) && !is_known_copy(state.connection(), pair)? {
                let sides = untimed
                    .iter()
                    .filter(|(side, _)| modified_of(pair, *side).is_none());
                requests
                    .extend(sides.map(|(side, backend)| fetch_time(job, *side, &**backend, pair)));
            }
        }
        let mut requests = futures_util::stream::iter(requests).buffer_unordered(CONCURRENT_STATS);
        while let Some(fetched) = requests.next().await {
            fetched?;
            if job.stop.is_cancelled() {
                return Err(Error::Stopped);
            }
        }
    }
    job.writer.write(|_| Ok(())).await
}

/// Returns whether a side has any file without a time. A scan of all pairs would take much longer.
fn lacks_times(read: &Connection, side: Side) -> Result<bool> {
    let table = side.name();
    let query =
        format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE kind = 1 AND modified IS NULL)");
    Ok(read.query_row(&query, [], |row| row.get(0))?)
}

fn modified_of(pair: &Pair, side: Side) -> Option<i64> {
    match side {
        Side::Source => pair.entry.modified,
        Side::Destination => pair
            .existing
            .as_ref()
            .and_then(|existing| existing.modified),
    }
}

/// Returns whether only the times can tell the files apart.
fn decided_by_time(pair: &Pair) -> bool {
    let is_file = |entry: &Entry| entry.kind == Kind::File;
    let existing = pair.existing.as_ref();
    let identical =
        existing.is_some_and(|existing| is_file(existing) && existing.size == pair.entry.size);
    pair.selection == Selection::Included && is_file(&pair.entry) && identical
}

/// Returns whether both versions are known from a copy of one to the other.
fn is_known_copy(read: &Connection, pair: &Pair) -> Result<bool> {
    let existing = pair
        .existing
        .as_ref()
        .and_then(|existing| existing.version.as_ref());
    let (Some(source), Some(existing)) = (&pair.entry.version, existing) else {
        return Ok(false);
    };
    let path = pair.path();
    let known = recall_version(read, Side::Source, &path, source)?.is_some();
    Ok(known && recall_version(read, Side::Destination, &path, existing)?.is_some())
}

async fn fetch_time(job: &Job, side: Side, backend: &dyn Backend, pair: &Pair) -> Result<()> {
    let (parent, name, path) = (pair.parent, pair.entry.name.clone(), pair.path());
    let entry = match backend.stat(&pair.folder, Some(&name)).await {
        Ok(entry) => entry,
        // The copy will find out.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(side.error(error)),
    };
    // If listings have no version of the storage's own, the next plan will see what this one saw.
    let listed = match side {
        Side::Source => Some(&pair.entry),
        Side::Destination => pair.existing.as_ref(),
    };
    let listed = listed.filter(|listed| listed.etag().is_none());
    let version = listed.and_then(|listed| listed.version.clone());
    let entry = Entry {
        version: version.or(entry.version),
        ..entry
    };
    let write = move |transaction: &rusqlite::Transaction<'_>| {
        let table = side.name();
        let update = format!("UPDATE {table} SET modified = ? WHERE parent = ? AND name = ?");
        let mut update = transaction.prepare_cached(&update)?;
        update.execute(params![entry.modified, parent, name])?;
        remember_version(transaction, side, &path, &entry)
    };
    job.writer.post(CommitMode::Deferred, write, || {});
    Ok(())
}
