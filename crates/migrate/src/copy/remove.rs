//! Removal of what is at the destination only.
//!
//! Only below folders that were listed on both sides: what is unknown is never touched. An entry is
//! counted with all that is in it, and its count is durable before it goes, so that no kill and no
//! number of runs of a pass exceeds the limit.

use super::record::{failure, touch};
use super::survey::{Survey, Surveyor};
use super::{Copy, CopyOptions, Delete};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::names::QUARANTINE;
use crate::progress::Phase;
use crate::state::State;
use crate::status::Status;
use crate::store::{FolderId, When, meta, path_of, put_failure, read_pairs};
use headworks_storage::{Entry, ErrorKind, Fault, Folder, failpoint};
use rusqlite::{OptionalExtension, Transaction, params};

/// Source entries that are looked at together for what stands in their way.
const PAGE: usize = 4096;

/// An entry of the destination that is to go.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) parent: FolderId,
    pub(super) folder: Folder,
    pub(super) entry: Entry,
}

/// An entry of the destination that `--delete` removes or moves, with all that is in it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Deletion {
    /// Where it is, below the root.
    pub path: Vec<u8>,
    /// How many entries go with it, itself among them.
    pub entries: u64,
}

/// Calls `each` for everything that would go; how many entries that is in all, with those that went
/// already in this pass.
pub(super) async fn each_deletion(
    job: &Job,
    options: &CopyOptions,
    mut each: impl FnMut(&Deletion) -> Result<()>,
) -> Result<u64> {
    let state = job.state()?;
    let mut total = gone(&state)?;
    if options.delete == Delete::Keep {
        return Ok(total);
    }
    let surveyor = Surveyor::new(job, &state, options)?;
    let mut look = async |candidate: &Candidate| -> Result<()> {
        let survey = surveyor.survey(&candidate.folder, &candidate.entry).await;
        let entries = match survey {
            Ok(survey) => survey.entries,
            // It stays: a deletion that cannot be counted is recorded as failed.
            Err(error) if error.fault() != Fault::Fatal => 0,
            Err(error) => return Err(of_destination(error)),
        };
        if entries > 0 && counted(&state, candidate)?.is_none() {
            total += entries;
            let path = candidate.folder.join(&candidate.entry.name);
            each(&Deletion { path, entries })?;
        }
        Ok(())
    };
    let mut after = (0, Vec::new());
    loop {
        let pairs = read_pairs(state.connection(), &after, PAGE)?;
        let Some(last) = pairs.last() else { break };
        after = (last.parent, last.entry.name.clone());
        for pair in pairs {
            let is_conflict = job.compare.status(&pair) == Status::TypeConflict;
            if let Some(there) = pair.there.filter(|_| is_conflict) {
                let folder = Folder::clone(&pair.folder);
                look(&Candidate {
                    parent: pair.parent,
                    folder,
                    entry: there,
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
            look(&Candidate {
                parent,
                folder,
                entry,
            })
            .await?;
        }
    }
    Ok(total)
}

/// Why so many deletions must not be, if they must not.
pub(super) fn obstacle(state: &State, options: &CopyOptions, total: u64) -> Result<Option<String>> {
    if let Some(limit) = options.delete.limit()
        && total > limit
    {
        let words = format!(
            "{total} entries are to be {}, more than the limit of {limit} (--max-delete)",
            options.delete.participle()
        );
        return Ok(Some(words));
    }
    if total > 0 && !options.allow_empty_source && is_source_empty(state)? {
        let words = "the source is empty, and everything at the destination is to go: check that it is mounted, or say --allow-empty-source";
        return Ok(Some(words.to_owned()));
    }
    Ok(None)
}

fn is_source_empty(state: &State) -> Result<bool> {
    let query = "SELECT NOT EXISTS (SELECT 1 FROM source WHERE parent <> 0 AND excluded = 0)
                 AND NOT EXISTS (SELECT 1 FROM files WHERE entries > 0)";
    Ok(state.connection().query_row(query, [], |row| row.get(0))?)
}

/// How many entries went in this pass.
fn gone(state: &State) -> Result<u64> {
    let mut sum = 0;
    for key in ["deleted", "quarantined"] {
        let count: Option<i64> = meta(state.connection(), key)?;
        sum += count.unwrap_or(0).cast_unsigned();
    }
    Ok(sum)
}

/// How many entries were counted for a candidate whose removal was begun.
fn counted(state: &State, candidate: &Candidate) -> Result<Option<i64>> {
    let query = "SELECT entries FROM removal WHERE parent = ? AND name = ?";
    let mut statement = state.connection().prepare_cached(query)?;
    let place = params![candidate.parent, candidate.entry.name];
    Ok(statement.query_row(place, |row| row.get(0)).optional()?)
}

fn of_destination(error: headworks_storage::Error) -> Error {
    Error::Storage {
        side: "destination",
        error,
    }
}

/// Adds to a count of this pass.
fn add(transaction: &Transaction<'_>, counter: &str, entries: i64) -> rusqlite::Result<()> {
    let query = "INSERT INTO meta VALUES (?1, max(?2, 0))
                 ON CONFLICT (key) DO UPDATE SET value = max(value + ?2, 0)";
    let mut statement = transaction.prepare_cached(query)?;
    statement.execute(params![counter, entries]).map(drop)
}

fn forget_removal(
    transaction: &Transaction<'_>,
    parent: FolderId,
    name: &[u8],
) -> rusqlite::Result<()> {
    let query = "DELETE FROM removal WHERE parent = ? AND name = ?";
    let mut statement = transaction.prepare_cached(query)?;
    statement.execute(params![parent, name]).map(drop)
}

/// The destination no longer has an entry.
pub(super) fn write_gone(
    transaction: &Transaction<'_>,
    parent: FolderId,
    name: &[u8],
) -> rusqlite::Result<()> {
    let query = "DELETE FROM destination WHERE parent = ? AND name = ?";
    let mut statement = transaction.prepare_cached(query)?;
    statement.execute(params![parent, name])?;
    forget_removal(transaction, parent, name)?;
    touch(transaction, parent)
}

impl Copy<'_> {
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
        self.settled().await
    }

    async fn delete_page(&self, state: &State, page: Vec<Candidate>) -> Result<()> {
        let mut chosen = Vec::new();
        for candidate in page {
            self.heed().await?;
            let survey = self.surveyor.survey(&candidate.folder, &candidate.entry);
            match survey.await {
                Ok(Survey { entries: 0, .. }) => {}
                Ok(survey) => chosen.push((candidate, survey)),
                Err(error) => self.not_deleted(&candidate, error)?,
            }
        }
        self.count_removals(state, &chosen).await?;
        for (candidate, survey) in &chosen {
            self.heed().await?;
            let Candidate { folder, entry, .. } = candidate;
            let done = match survey.protected {
                0 => self.put_away(folder, &entry.name).await,
                _ => self.prune(folder.child(&entry.name)).await,
            };
            match done {
                Ok(()) => self.record_gone(candidate, survey.protected == 0),
                Err(error) => self.not_deleted(candidate, error)?,
            }
            self.job.progress.did(1, 0);
        }
        Ok(())
    }

    /// Counts what is about to go, durably; fails if that would exceed the limit.
    pub(super) async fn count_removals(
        &self,
        state: &State,
        chosen: &[(Candidate, Survey)],
    ) -> Result<()> {
        let mut fresh = Vec::new();
        for (candidate, survey) in chosen {
            if counted(state, candidate)?.is_none() {
                let name = candidate.entry.name.clone();
                fresh.push((candidate.parent, name, survey.entries.cast_signed()));
            }
        }
        let sum: i64 = fresh.iter().map(|(_, _, entries)| entries).sum();
        let total = gone(state)? + sum.cast_unsigned();
        if let Some(words) = obstacle(state, self.options, total)? {
            return Err(Error::Preflight(words));
        }
        if fresh.is_empty() {
            return Ok(());
        }
        let counter = self.options.delete.counter();
        let write = move |transaction: &Transaction<'_>| {
            let query = "INSERT INTO removal (parent, name, entries) VALUES (?, ?, ?)";
            let mut insert = transaction.prepare_cached(query)?;
            for (parent, name, entries) in &fresh {
                insert.execute(params![parent, name, entries])?;
            }
            add(transaction, counter, sum)
        };
        self.job.writer.write(write).await
    }

    fn record_gone(&self, candidate: &Candidate, all: bool) {
        let (parent, name) = (candidate.parent, candidate.entry.name.clone());
        let write = move |transaction: &Transaction<'_>| match all {
            true => write_gone(transaction, parent, &name),
            false => forget_removal(transaction, parent, &name),
        };
        self.job.writer.post(When::Synced, write, || {});
    }

    /// Records that an entry stays although it should go. Ends the run if the whole storage is
    /// gone.
    pub(super) fn not_deleted(
        &self,
        candidate: &Candidate,
        error: headworks_storage::Error,
    ) -> Result<()> {
        if error.fault() == Fault::Fatal {
            return Err(of_destination(error));
        }
        let (parent, name) = (candidate.parent, candidate.entry.name.clone());
        let counter = self.options.delete.counter();
        let failure = failure("delete", &error, self.job.settings.attempts);
        let write = move |transaction: &Transaction<'_>| {
            let query = "SELECT entries FROM removal WHERE parent = ? AND name = ?";
            let place = params![parent, name];
            let entries: Option<i64> = transaction
                .query_row(query, place, |row| row.get(0))
                .optional()?;
            add(transaction, counter, -entries.unwrap_or(0))?;
            forget_removal(transaction, parent, &name)?;
            put_failure(transaction, parent, &name, &failure.as_ref())
        };
        self.job.writer.post(When::Synced, write, || {});
        Ok(())
    }

    /// Removes what is in a folder, except what is protected and the folders that it is in.
    async fn prune(&self, folder: Folder) -> headworks_storage::Result<()> {
        let mut folders = vec![folder];
        while let Some(folder) = folders.pop() {
            for entry in self.surveyor.children(&folder).await? {
                if self.surveyor.protects(&folder, &entry) {
                    continue;
                }
                match self.surveyor.survey(&folder, &entry).await?.protected {
                    0 => self.put_away(&folder, &entry.name).await?,
                    _ => folders.push(folder.child(&entry.name)),
                }
            }
        }
        Ok(())
    }

    /// Moves or removes an entry with all that is in it. One that is gone already is fine.
    pub(super) async fn put_away(
        &self,
        folder: &Folder,
        name: &[u8],
    ) -> headworks_storage::Result<()> {
        let call = async || match self.options.delete {
            Delete::Quarantine { .. } => self.quarantine(folder, name).await.map(drop),
            _ => self.job.destination.remove(folder, name).await,
        };
        let done = self.surveyor.attempt(call).await;
        failpoint::hit("after-put-away");
        match done {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// The folder of this pass in which entries of a folder are kept.
    pub(super) fn quarantine_of(&self, folder: &Folder) -> Folder {
        let pass = format!("pass-{}", self.pass);
        let root = Folder::root().child(QUARANTINE).child(pass.as_bytes());
        folder.names().fold(root, |place, name| place.child(name))
    }

    /// Moves an entry to the same path below the folder of this pass; where that is. A name that is
    /// taken there gets a number.
    pub(super) async fn quarantine(
        &self,
        folder: &Folder,
        name: &[u8],
    ) -> headworks_storage::Result<(Folder, Vec<u8>)> {
        let destination = &self.job.destination;
        let place = self.quarantine_of(folder);
        let mut made = Folder::root();
        for level in place.names() {
            made = made.child(level);
            destination.make_folder(&made).await?;
        }
        let mut taken = 0;
        let mut new = name.to_vec();
        loop {
            match destination.rename(folder, name, (&place, &new)).await {
                Err(error) if error.kind() == ErrorKind::Exists => {
                    taken += 1;
                    new = format!("{taken}").into_bytes();
                    new.push(b'-');
                    new.extend(name.iter().take(240));
                }
                Err(error) => return Err(error),
                Ok(()) => return Ok((place, new)),
            }
        }
    }
}
