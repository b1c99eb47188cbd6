//! Deletion of entries that only the destination has.
//!
//! Only folders that were listed on both sides are considered: an unknown entry is never touched.
//! An entry is counted with everything in it, and the count is durable before the entry is removed,
//! so no crash and no number of runs of a pass exceeds the limit.

use super::record::{failure, mark_touched};
use super::survey::{Survey, Surveyor};
use super::{CopyOptions, CopyRun, Delete};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::names::QUARANTINE;
use crate::progress::Phase;
use crate::queries::StateReader;
use crate::side::Side;
use crate::status::Status;
use crate::store::{CommitMode, FolderId, PlainFiles, meta, path_of, put_failure, read_pairs};
use headworks_storage::{Entry, ErrorKind, Fault, Folder, Kind, failpoint};
use rusqlite::{OptionalExtension, Transaction, params};

/// Source entries per page of the search for type conflicts.
const PAGE: usize = 4096;

/// An entry of the destination to remove.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) parent: FolderId,
    pub(super) folder: Folder,
    pub(super) entry: Entry,
}

/// An entry of the destination that `--delete` removes or quarantines, with everything in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deletion {
    /// Its path below the root.
    pub path: Vec<u8>,
    /// Number of entries removed with it, including itself.
    pub entries: u64,
}

/// Calls `each` for every entry to remove. Returns the total number of entries, including those
/// already removed in this pass.
pub(super) async fn each_deletion(
    job: &Job,
    options: &CopyOptions,
    mut each: impl FnMut(&Deletion) -> Result<()>,
) -> Result<u64> {
    let state = job.state()?;
    let mut total = deleted_so_far(&state)?;
    if options.delete == Delete::Keep {
        return Ok(total);
    }
    let surveyor = Surveyor::new(job, &state, options)?;
    let mut visit = async |candidate: &Candidate| -> Result<()> {
        let survey = surveyor.survey(&candidate.folder, &candidate.entry).await;
        let is_begun = counted_entries(&state, candidate)?.is_some();
        let entries = match survey {
            Ok(survey) if survey.unseen > 0 && !is_begun => 0,
            Ok(survey) => survey.entries,
            // It stays: a deletion that cannot be counted is recorded as failed.
            Err(error) if error.fault() != Fault::Fatal => 0,
            Err(error) => return Err(Side::Destination.error(error)),
        };
        if entries > 0 && !is_begun {
            total += entries;
            let path = candidate.folder.join(&candidate.entry.name);
            each(&Deletion { path, entries })?;
        }
        Ok(())
    };
    let mut after = (0, Vec::new());
    loop {
        let pairs = read_pairs(state.connection(), &after, PlainFiles::All, PAGE)?;
        let Some(last) = pairs.last() else { break };
        after = (last.parent, last.entry.name.clone());
        for pair in pairs {
            let is_conflict = job.compare.status(&pair) == Status::TypeConflict
                && !options.existing.keeps_conflicting(&pair);
            if let Some(existing) = pair.existing.filter(|_| is_conflict) {
                let folder = Folder::clone(&pair.folder);
                visit(&Candidate {
                    parent: pair.parent,
                    folder,
                    entry: existing,
                })
                .await?;
            }
        }
    }
    let mut after = (0, Vec::new());
    loop {
        let page = state.extra_entries(&after, options.delete_excluded)?;
        let Some((parent, entry)) = page.last() else {
            break;
        };
        after = (*parent, entry.name.clone());
        for (parent, entry) in page {
            let folder = path_of(state.connection(), parent)?;
            visit(&Candidate {
                parent,
                folder,
                entry,
            })
            .await?;
        }
    }
    Ok(total)
}

/// Returns why this many deletions are refused, if they are.
pub(super) fn deletion_obstacle(
    state: &StateReader,
    options: &CopyOptions,
    total: u64,
) -> Result<Option<String>> {
    if let Some(limit) = options.delete.limit()
        && total > limit
    {
        let message = format!(
            "{total} entries are to be {}, which is more than the limit of {limit} (--max-delete)",
            options.delete.participle()
        );
        return Ok(Some(message));
    }
    if total > 0 && !options.allow_empty_source && is_source_empty(state)? {
        let message = "the source is empty, so everything at the destination would be deleted; check that the source is mounted, or pass --allow-empty-source";
        return Ok(Some(message.to_owned()));
    }
    Ok(None)
}

fn is_source_empty(state: &StateReader) -> Result<bool> {
    let query = "SELECT NOT EXISTS (SELECT 1 FROM source WHERE parent <> 0 AND excluded = 0)
                 AND NOT EXISTS (SELECT 1 FROM files WHERE entries > 0)";
    Ok(state.connection().query_row(query, [], |row| row.get(0))?)
}

/// Returns how many entries were removed in this pass.
fn deleted_so_far(state: &StateReader) -> Result<u64> {
    let mut sum = 0;
    for key in ["deleted", "quarantined"] {
        let count: Option<i64> = meta(state.connection(), key)?;
        sum += count.unwrap_or(0).cast_unsigned();
    }
    Ok(sum)
}

/// Returns how many entries were counted for a candidate whose removal has begun.
pub(super) fn counted_entries(state: &StateReader, candidate: &Candidate) -> Result<Option<i64>> {
    let query = "SELECT entries FROM removal WHERE parent = ? AND name = ?";
    let mut statement = state.connection().prepare_cached(query)?;
    let target = params![candidate.parent, candidate.entry.name];
    Ok(statement.query_row(target, |row| row.get(0)).optional()?)
}

/// Adds to a counter of this pass.
fn add_to_counter(
    transaction: &Transaction<'_>,
    counter: &str,
    entries: i64,
) -> rusqlite::Result<()> {
    let query = "INSERT INTO meta VALUES (?1, max(?2, 0))
                 ON CONFLICT (key) DO UPDATE SET value = max(value + ?2, 0)";
    let mut statement = transaction.prepare_cached(query)?;
    statement.execute(params![counter, entries]).map(drop)
}

/// Whether a listing would still show the same entry. Without a version or a time to compare, it
/// counts as another.
pub(super) fn was_listed_as(listed: &Entry, current: &Entry) -> bool {
    let times = listed.modified.zip(current.modified);
    let same_time = times.map(|(listed, current)| listed == current);
    if (listed.kind, listed.size, &listed.target) != (current.kind, current.size, &current.target) {
        return false;
    }
    match (listed.kind, listed.etag().zip(current.etag())) {
        // Of a folder in an object store no time is known.
        (Kind::Folder, _) => same_time.unwrap_or(true),
        (_, Some((listed, current))) => listed == current,
        (_, None) => {
            // Where listings have no modification times, the upload time tells as much.
            let uploads = listed.changed.zip(current.changed);
            let same_upload = || uploads.is_some_and(|(listed, current)| listed == current);
            same_time.unwrap_or_else(same_upload) && !current.was_changed_since(listed)
        }
    }
}

pub(super) fn changed(path: &[u8]) -> headworks_storage::Error {
    let message =
        "it changed since it was listed, so it is kept; plan again to see its current state";
    headworks_storage::Error::new(ErrorKind::Changed, "delete", path, message)
}

fn clear_removal(
    transaction: &Transaction<'_>,
    parent: FolderId,
    name: &[u8],
) -> rusqlite::Result<()> {
    let query = "DELETE FROM removal WHERE parent = ? AND name = ?";
    let mut statement = transaction.prepare_cached(query)?;
    statement.execute(params![parent, name]).map(drop)
}

/// Records that the destination no longer has an entry.
pub(super) fn write_deleted(
    transaction: &Transaction<'_>,
    parent: FolderId,
    name: &[u8],
) -> rusqlite::Result<()> {
    let query = "DELETE FROM destination WHERE parent = ? AND name = ?";
    let mut statement = transaction.prepare_cached(query)?;
    statement.execute(params![parent, name])?;
    clear_removal(transaction, parent, name)?;
    mark_touched(transaction, parent)
}

impl CopyRun<'_> {
    pub(super) async fn delete_extra(&self) -> Result<()> {
        if self.options.delete == Delete::Keep {
            return Ok(());
        }
        let state = self.job.state()?;
        self.job.progress.enter(Phase::Delete, 0, 0);
        let mut after = (0, Vec::new());
        loop {
            let page = state.extra_entries(&after, self.options.delete_excluded)?;
            let Some((parent, entry)) = page.last() else {
                break;
            };
            after = (*parent, entry.name.clone());
            let mut candidates = Vec::new();
            for (parent, entry) in page {
                let folder = path_of(state.connection(), parent)?;
                candidates.push(Candidate {
                    parent,
                    folder,
                    entry,
                });
            }
            self.delete_page(&state, candidates).await?;
        }
        self.drain().await
    }

    async fn delete_page(&self, state: &StateReader, page: Vec<Candidate>) -> Result<()> {
        let mut selected = Vec::new();
        for candidate in page {
            self.apply_control().await?;
            let is_begun = counted_entries(state, &candidate)?.is_some();
            match self.survey_unchanged(&candidate, is_begun).await {
                Ok(Survey { entries: 0, .. }) => {}
                Ok(survey) => selected.push((candidate, survey, is_begun)),
                Err(error) => self.record_undeleted(&candidate, error)?,
            }
        }
        let counted = selected.iter();
        let counted = counted.map(|(candidate, survey, _)| (candidate.clone(), *survey));
        self.count_removals(state, &counted.collect::<Vec<_>>())
            .await?;
        for (candidate, survey, is_begun) in &selected {
            self.apply_control().await?;
            let Candidate { folder, entry, .. } = candidate;
            // The page took its time.
            let checked = match is_begun {
                true => Ok(()),
                false => self.check_unchanged(candidate).await,
            };
            let done = match (checked, survey.protected) {
                (Err(error), _) => Err(error),
                (Ok(()), 0) => self.delete_or_quarantine(folder, &entry.name).await,
                (Ok(()), _) => self.prune(folder.child(&entry.name)).await,
            };
            match done {
                Ok(()) => self.record_deleted(candidate, survey.protected == 0),
                Err(error) => self.record_undeleted(candidate, error)?,
            }
            self.job.progress.add_done(1, 0);
        }
        Ok(())
    }

    /// Counts what a deletion removes. Fails if the entry is not what the plan listed, or something
    /// inside was written since: what nobody has seen in the plan must not be removed. A removal
    /// that has begun has changed the folder itself.
    pub(super) async fn survey_unchanged(
        &self,
        candidate: &Candidate,
        is_begun: bool,
    ) -> headworks_storage::Result<Survey> {
        let survey = self.surveyor.survey(&candidate.folder, &candidate.entry);
        let survey = survey.await?;
        if survey.entries == 0 || is_begun {
            return Ok(survey);
        }
        self.check_unchanged(candidate).await?;
        match survey.unseen {
            0 => Ok(survey),
            _ => Err(changed(&candidate.folder.join(&candidate.entry.name))),
        }
    }

    /// Fails if an entry is not what the plan listed: a version that another program wrote since
    /// must not be removed.
    pub(super) async fn check_unchanged(
        &self,
        candidate: &Candidate,
    ) -> headworks_storage::Result<()> {
        let Candidate { folder, entry, .. } = candidate;
        let destination = &self.job.destination;
        let call = async || destination.stat(folder, Some(&entry.name)).await;
        let current = match self.surveyor.with_retries(call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            current => current?,
        };
        match was_listed_as(entry, &current) {
            true => Ok(()),
            false => Err(changed(&folder.join(&entry.name))),
        }
    }

    /// Counts the entries to be removed, durably. Fails if that exceeds the limit.
    pub(super) async fn count_removals(
        &self,
        state: &StateReader,
        selected: &[(Candidate, Survey)],
    ) -> Result<()> {
        let mut uncounted = Vec::new();
        for (candidate, survey) in selected {
            if counted_entries(state, candidate)?.is_none() {
                let name = candidate.entry.name.clone();
                uncounted.push((candidate.parent, name, survey.entries.cast_signed()));
            }
        }
        let sum: i64 = uncounted.iter().map(|(_, _, entries)| entries).sum();
        let total = deleted_so_far(state)? + sum.cast_unsigned();
        if let Some(message) = deletion_obstacle(state, self.options, total)? {
            return Err(Error::Preflight(message));
        }
        if uncounted.is_empty() {
            return Ok(());
        }
        let counter = self.options.delete.counter();
        let write = move |transaction: &Transaction<'_>| {
            let query = "INSERT INTO removal (parent, name, entries) VALUES (?, ?, ?)";
            let mut insert = transaction.prepare_cached(query)?;
            for (parent, name, entries) in &uncounted {
                insert.execute(params![parent, name, entries])?;
            }
            add_to_counter(transaction, counter, sum)
        };
        self.job.writer.write(write).await
    }

    fn record_deleted(&self, candidate: &Candidate, all: bool) {
        let (parent, name) = (candidate.parent, candidate.entry.name.clone());
        let write = move |transaction: &Transaction<'_>| match all {
            true => write_deleted(transaction, parent, &name),
            false => clear_removal(transaction, parent, &name),
        };
        self.job.writer.post(CommitMode::AfterSync, write, || {});
    }

    /// Records that an entry could not be removed. Fails the run if the whole storage is gone.
    pub(super) fn record_undeleted(
        &self,
        candidate: &Candidate,
        error: headworks_storage::Error,
    ) -> Result<()> {
        if error.fault() == Fault::Fatal {
            return Err(Side::Destination.error(error));
        }
        let (parent, name) = (candidate.parent, candidate.entry.name.clone());
        let counter = self.options.delete.counter();
        let failure = failure("delete", &error, self.job.settings.attempts);
        let write = move |transaction: &Transaction<'_>| {
            let query = "SELECT entries FROM removal WHERE parent = ? AND name = ?";
            let target = params![parent, name];
            let entries: Option<i64> = transaction
                .query_row(query, target, |row| row.get(0))
                .optional()?;
            add_to_counter(transaction, counter, -entries.unwrap_or(0))?;
            clear_removal(transaction, parent, &name)?;
            put_failure(transaction, parent, &name, &failure.as_ref())
        };
        self.job.writer.post(CommitMode::AfterSync, write, || {});
        Ok(())
    }

    /// Removes the contents of a folder, except protected entries and the folders that contain
    /// them.
    async fn prune(&self, folder: Folder) -> headworks_storage::Result<()> {
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in self.surveyor.children(&folder).await? {
                if self.surveyor.protects(&folder, &entry) {
                    continue;
                }
                match self.surveyor.survey(&folder, &entry).await?.protected {
                    0 => self.delete_or_quarantine(&folder, &entry.name).await?,
                    _ => folders.push(folder.child(&entry.name)),
                }
            }
        }
        Ok(())
    }

    /// Quarantines or removes an entry with everything in it. Succeeds if it is gone already.
    pub(super) async fn delete_or_quarantine(
        &self,
        folder: &Folder,
        name: &[u8],
    ) -> headworks_storage::Result<()> {
        let call = async || match self.options.delete {
            Delete::Quarantine { .. } => self.quarantine(folder, name).await.map(drop),
            _ => self.job.destination.remove(folder, name).await,
        };
        let done = self.surveyor.with_retries(call).await;
        failpoint::hit("after-put-away");
        match done {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Returns this pass's quarantine folder for the entries of a folder.
    pub(super) fn quarantine_folder(&self, folder: &Folder) -> Folder {
        let pass = format!("pass-{}", self.pass);
        let root = Folder::root().child(QUARANTINE).child(pass.as_bytes());
        folder.names().fold(root, |target, name| target.child(name))
    }

    /// Moves an entry to the same path below this pass's quarantine folder, and returns where it
    /// is. A name that is taken there gets a numeric prefix.
    pub(super) async fn quarantine(
        &self,
        folder: &Folder,
        name: &[u8],
    ) -> headworks_storage::Result<(Folder, Vec<u8>)> {
        let destination = &self.job.destination;
        let target = self.quarantine_folder(folder);
        let mut made = Folder::root();
        for level in target.names() {
            made = made.child(level);
            destination.make_folder(&made).await?;
        }
        let mut taken = 0;
        let mut new = name.to_vec();
        loop {
            match destination.rename(folder, name, (&target, &new)).await {
                Err(error) if error.kind() == ErrorKind::Exists => {
                    taken += 1;
                    new = format!("{taken}").into_bytes();
                    new.push(b'-');
                    new.extend(name.iter().take(240));
                }
                Err(error) => {
                    self.remove_empty_quarantine(&target).await;
                    return Err(error);
                }
                Ok(()) => return Ok((target, new)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(modified: Option<i64>, changed: Option<i64>, version: Option<&str>) -> Entry {
        Entry {
            size: 5,
            modified,
            changed,
            version: version.map(|version| version.as_bytes().to_vec()),
            ..Entry::new("x", Kind::File)
        }
    }

    #[test]
    fn an_entry_that_was_rewritten_is_another() {
        // An object: its listing has no modification time.
        let listed = file(None, Some(1), Some("a"));
        assert!(was_listed_as(&listed, &file(Some(7), Some(1), Some("a"))));
        assert!(!was_listed_as(&listed, &file(Some(7), Some(1), Some("b"))));
        let dated = file(None, Some(1), Some("written 1"));
        assert!(was_listed_as(&dated, &file(Some(7), Some(1), Some("a"))));
        assert!(!was_listed_as(&dated, &file(Some(7), Some(2), Some("a"))));
        let unknown = file(None, None, None);
        assert!(!was_listed_as(&unknown, &file(Some(7), None, None)));
        // A file whose time was set back.
        let listed = file(Some(7), Some(9), None);
        assert!(was_listed_as(&listed, &listed));
        assert!(!was_listed_as(&listed, &file(Some(8), Some(9), None)));
        assert!(!was_listed_as(&listed, &file(Some(7), Some(10), None)));
        assert!(was_listed_as(&listed, &file(Some(7), None, None)));
        let folder = Entry::new("x", Kind::Folder);
        assert!(was_listed_as(&folder, &folder));
    }
}
