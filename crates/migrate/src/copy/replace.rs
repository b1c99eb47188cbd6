//! Replacing destination entries of another type than the source's.
//!
//! Nothing is removed before its replacement is complete. A file, link or special file is first
//! written under a temporary name; then the old entry is removed and the new one renamed. A folder
//! is complete only when everything in it is: the file in its way is quarantined, and removed at
//! the end of the copy, or kept if something in the folder failed.

use super::record::{Record, mark_touched, write_record};
use super::remove::{Candidate, changed, counted_entries, was_listed_as, write_deleted};
use super::survey::Survey;
use super::tasks::ErrorAction;
use super::transfer::{Revealed, TransferOutcome};
use super::{CopyRun, Delete};
use crate::error::Result;
use crate::names;
use crate::queries::StateReader;
use crate::side::Side;
use crate::status::{DstState, Status};
use crate::store::{CommitMode, FolderId, Pair, PlainFiles, change_dst_below, log, read_pairs};
use headworks_storage::{Entry, ErrorKind, Fault, Folder, Kind, display, failpoint};
use rusqlite::{Transaction, params};

/// Rows that are read together.
const PAGE: usize = 4096;

/// A file that stays in quarantine until the folder that replaces it is complete.
struct QuarantinedFile {
    parent: FolderId,
    name: Vec<u8>,
    /// The folder that replaces it.
    replaced_by: FolderId,
    folder: Folder,
    new: Vec<u8>,
}

fn candidate(pair: &Pair) -> Option<Candidate> {
    Some(Candidate {
        parent: pair.parent,
        folder: Folder::clone(&pair.folder),
        entry: pair.existing.clone()?,
    })
}

impl CopyRun<'_> {
    /// Calls `each` for the type conflicts whose source entry is (or is not) a folder.
    async fn each_conflict(
        &self,
        folders: bool,
        mut each: impl AsyncFnMut(&StateReader, Pair) -> Result<()>,
    ) -> Result<()> {
        if self.options.delete == Delete::Keep {
            return Ok(());
        }
        let state = self.job.state()?;
        let mut after = (0, Vec::new());
        let mut kept = Vec::new();
        loop {
            let pairs = read_pairs(state.connection(), &after, PlainFiles::Differing, PAGE)?;
            let Some(last) = pairs.last() else { break };
            after = (last.parent, last.entry.name.clone());
            for pair in pairs {
                let is_conflict = self.job.compare.status(&pair) == Status::TypeConflict;
                let is_asked = (pair.entry.kind == Kind::Folder) == folders;
                if !is_conflict || !is_asked || pair.existing.is_none() || pair.failure.is_some() {
                    continue;
                }
                if let Some(entry) = self.options.existing.kept_conflicting(&pair) {
                    kept.push(entry);
                    continue;
                }
                self.apply_control().await?;
                each(&state, pair).await?;
            }
        }
        self.record_kept(kept)?;
        self.drain().await
    }

    /// Quarantines the files that are in the way of folders.
    pub(super) async fn quarantine_blocking_files(&self) -> Result<()> {
        self.each_conflict(true, async |state, pair| {
            let Some(candidate) = candidate(&pair) else {
                return Ok(());
            };
            if self.surveyor.protects(&candidate.folder, &candidate.entry) {
                return Ok(());
            }
            let survey = Survey {
                entries: 1,
                ..Survey::default()
            };
            if let Err(error) = self.check_unchanged(&candidate).await {
                return self.record_undeleted(&candidate, error);
            }
            self.count_removals(state, &[(candidate.clone(), survey)])
                .await?;
            let name = &candidate.entry.name;
            let call = async || self.quarantine(&candidate.folder, name).await;
            let moved = self.surveyor.with_retries(call).await;
            failpoint::hit("after-put-away");
            let file = match moved {
                Ok(file) => file,
                // A run that died moved it and had not recorded that.
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    (self.quarantine_folder(&candidate.folder), name.clone())
                }
                Err(error) => return self.record_undeleted(&candidate, error),
            };
            self.record_quarantined(pair, file);
            Ok(())
        })
        .await
    }

    fn record_quarantined(&self, pair: Pair, (folder, new): (Folder, Vec<u8>)) {
        let is_permanent = matches!(self.options.delete, Delete::Permanent { .. });
        let write = move |transaction: &Transaction<'_>| {
            let (parent, name) = (pair.parent, &pair.entry.name);
            let forget = "DELETE FROM destination WHERE parent = ? AND name = ?";
            match is_permanent {
                true => {
                    transaction.execute(forget, params![parent, name])?;
                    let query =
                        "UPDATE removal SET folder = ?, kept = ? WHERE parent = ? AND name = ?";
                    let row = params![folder.as_bytes(), new, parent, name];
                    transaction.prepare_cached(query)?.execute(row)?;
                    mark_touched(transaction, parent)?;
                }
                false => write_deleted(transaction, parent, name)?,
            }
            match pair.child {
                Some(child) => {
                    change_dst_below(transaction, child, DstState::Conflict, DstState::Missing)
                }
                None => Ok(()),
            }
        };
        self.job.writer.post(CommitMode::AfterSync, write, || {});
    }

    /// Replaces destination entries of another type with files, links and special files.
    pub(super) async fn replace_conflicting(&self) -> Result<()> {
        self.each_conflict(false, async |state, pair| {
            let Some(candidate) = candidate(&pair) else {
                return Ok(());
            };
            match self.already_replaced(&pair, &candidate).await {
                Ok(None) => {}
                Ok(Some(entry)) => {
                    let entry = self.copier.as_listed(entry);
                    self.record_replaced(pair, Record::Done(entry, None, None));
                    return Ok(());
                }
                Err(error) => return self.record_undeleted(&candidate, error),
            }
            let is_begun = counted_entries(state, &candidate)?.is_some();
            match self.survey_unchanged(&candidate, is_begun).await {
                // Protected entries stay, and so does the folder that contains them.
                Ok(survey) if survey.protected > 0 => Ok(()),
                Ok(survey) => {
                    self.replace(state, pair, candidate, (survey, is_begun))
                        .await
                }
                Err(error) => self.record_undeleted(&candidate, error),
            }
        })
        .await
    }

    /// Returns the current entry if a run that died has already replaced it. Fails if it is neither
    /// that nor what was listed.
    async fn already_replaced(
        &self,
        pair: &Pair,
        candidate: &Candidate,
    ) -> headworks_storage::Result<Option<Entry>> {
        let Candidate { folder, entry, .. } = candidate;
        let destination = &self.job.destination;
        let call = async || destination.stat(folder, Some(&entry.name)).await;
        let current = match self.surveyor.with_retries(call).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            current => current?,
        };
        // The new entry is no folder. Whether the old one is as listed is looked at later.
        if was_listed_as(entry, &current) || current.kind == Kind::Folder {
            return Ok(None);
        }
        match self.job.compare.difference(&pair.entry, &current) {
            Status::Same => Ok(Some(current)),
            _ => Err(changed(&pair.path())),
        }
    }

    async fn replace(
        &self,
        state: &StateReader,
        mut pair: Pair,
        candidate: Candidate,
        (survey, is_begun): (Survey, bool),
    ) -> Result<()> {
        let staged = names::staged(&self.job.id, &pair.entry.name);
        let record = match self.stage_entry(&pair, &staged).await? {
            Staged::Done(entry, hash, revealed) => {
                self.count_removals(state, &[(candidate.clone(), survey)])
                    .await?;
                match self.swap(&candidate, &staged, is_begun).await {
                    Ok(()) => {
                        revealed.apply(&mut pair.entry);
                        let name = pair.entry.name.clone();
                        let entry = self.copier.as_listed(Entry { name, ..*entry });
                        Record::Done(entry, hash, revealed.posix)
                    }
                    Err(error) => {
                        // Once the old entry is gone, the new one is all that is left of the name.
                        if self.is_there(&candidate).await {
                            let _ = self.job.destination.remove(&pair.folder, &staged).await;
                        }
                        return self.record_undeleted(&candidate, error);
                    }
                }
            }
            Staged::Failed(record) => record,
            Staged::Stopped => return Ok(()),
        };
        self.record_replaced(pair, record);
        Ok(())
    }

    /// Returns whether the old entry is certainly still there.
    async fn is_there(&self, candidate: &Candidate) -> bool {
        let Candidate { folder, entry, .. } = candidate;
        let destination = &self.job.destination;
        let call = async || destination.stat(folder, Some(&entry.name)).await;
        self.surveyor.with_retries(call).await.is_ok()
    }

    fn record_replaced(&self, pair: Pair, record: Record) {
        let (pass, attempts) = (self.pass, self.job.settings.attempts);
        let write = move |transaction: &Transaction<'_>| {
            if matches!(record, Record::Done(..)) {
                write_deleted(transaction, pair.parent, &pair.entry.name)?;
            }
            write_record(transaction, &pair, &record, pass, attempts)
        };
        self.job.writer.post(CommitMode::AfterSync, write, || {});
        self.job.progress.add_done(1, 0);
    }

    /// Removes the old entry and gives its name to the complete new one.
    async fn swap(
        &self,
        candidate: &Candidate,
        staged: &[u8],
        is_begun: bool,
    ) -> headworks_storage::Result<()> {
        let Candidate { folder, entry, .. } = candidate;
        // The new entry took its time.
        self.survey_unchanged(candidate, is_begun).await?;
        self.delete_or_quarantine(folder, &entry.name).await?;
        let destination = &self.job.destination;
        let call = async || {
            destination
                .rename(folder, staged, (folder, &entry.name))
                .await
        };
        self.surveyor.with_retries(call).await
    }

    /// Copies an entry under a temporary name.
    async fn stage_entry(&self, pair: &Pair, name: &[u8]) -> Result<Staged> {
        for attempt in 1.. {
            let error = match self.copier.copy_entry_as(pair, Status::Missing, name).await {
                Ok(TransferOutcome::Done(entry, hash, revealed))
                    if pair.entry.kind != Kind::File || entry.size == pair.entry.size =>
                {
                    return Ok(Staged::Done(entry, hash, revealed));
                }
                Ok(TransferOutcome::Done(entry, ..)) => {
                    let (came, size) = (entry.size, pair.entry.size);
                    headworks_storage::Error::truncated(&pair.path(), came, size)
                }
                Ok(TransferOutcome::Changed) => return Ok(Staged::Failed(Record::Changed)),
                Ok(TransferOutcome::Stopped) => return Ok(Staged::Stopped),
                Err(error) => error,
            };
            let pause = match self.copier.classify(&error, attempt) {
                ErrorAction::Abort => {
                    self.apply_control().await?;
                    return Ok(Staged::Stopped);
                }
                ErrorAction::Record => {
                    self.copier.discard_upload(pair).await;
                    return Ok(Staged::Failed(Record::Failed(error)));
                }
                ErrorAction::Retry(Fault::Overload(wait)) => wait,
                ErrorAction::Retry(_) => {
                    self.job.settings.backoff.delay(attempt, fastrand::u64(..))
                }
            };
            tokio::time::sleep(pause).await;
            self.apply_control().await?;
        }
        unreachable!("attempts are bounded")
    }

    /// Removes quarantined files whose replacing folders are complete; the others stay.
    pub(super) async fn remove_replaced(&self) -> Result<()> {
        for file in self.quarantined_files()? {
            let state = self.job.state()?;
            let is_permanent = matches!(self.options.delete, Delete::Permanent { .. });
            let mut is_removed = is_permanent && is_complete(&state, file.replaced_by)?;
            let mut reason = "the folder that replaces it was not copied completely".to_owned();
            if is_removed {
                let destination = &self.job.destination;
                let call = async || destination.remove(&file.folder, &file.new).await;
                match self.surveyor.with_retries(call).await {
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(error) if error.fault() == Fault::Fatal => {
                        return Err(Side::Destination.error(error));
                    }
                    // It must not end every later run.
                    Err(error) => (is_removed, reason) = (false, error.to_string()),
                    Ok(()) => {}
                }
                self.remove_empty_quarantine(&file.folder).await;
            }
            let write = move |transaction: &Transaction<'_>| {
                let forget = "DELETE FROM removal WHERE parent = ? AND name = ?";
                transaction.execute(forget, params![file.parent, file.name])?;
                if is_removed {
                    return Ok(());
                }
                let less = "UPDATE meta SET value = max(value - 1, 0) WHERE key = 'deleted'";
                transaction.execute(less, [])?;
                let more = "INSERT INTO meta VALUES ('quarantined', 1)
                            ON CONFLICT (key) DO UPDATE SET value = value + 1";
                transaction.execute(more, [])?;
                let path = file.folder.join(&file.new);
                let message = format!("{}: kept in quarantine: {reason}", display(&path));
                log(transaction, &message)
            };
            self.job.writer.write(write).await?;
        }
        Ok(())
    }

    fn quarantined_files(&self) -> Result<Vec<QuarantinedFile>> {
        let state = self.job.state()?;
        let mut statement = state.connection().prepare(
            "SELECT r.parent, r.name, r.folder, r.kept, s.folder FROM removal r
             JOIN source s ON s.parent = r.parent AND s.name = r.name
             WHERE r.kept IS NOT NULL AND s.folder IS NOT NULL",
        )?;
        let rows = statement.query_map([], |row| {
            Ok(QuarantinedFile {
                parent: row.get(0)?,
                name: row.get(1)?,
                folder: Folder::from_bytes(row.get(2)?),
                new: row.get(3)?,
                replaced_by: row.get(4)?,
            })
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Removes quarantine folders that are empty. If that fails, they stay.
    pub(super) async fn remove_empty_quarantine(&self, folder: &Folder) {
        let mut at = folder.clone();
        while let Some((above, name)) = at.split()
            && let Ok(children) = self.surveyor.children(&at).await
            && children.is_empty()
        {
            let name = name.to_vec();
            if self.job.destination.remove(&above, &name).await.is_err() {
                return;
            }
            at = above;
        }
    }
}

/// The result of copying an entry under a temporary name.
enum Staged {
    Done(Box<Entry>, Option<[u8; 32]>, Revealed),
    Failed(Record),
    Stopped,
}

/// Returns whether everything below a folder was copied.
fn is_complete(state: &StateReader, folder: FolderId) -> Result<bool> {
    let mut statement = state.connection().prepare_cached(
        "WITH RECURSIVE below (id) AS (
             SELECT ?1 UNION ALL
             SELECT s.folder FROM below b JOIN source s ON s.parent = b.id
             WHERE s.folder IS NOT NULL AND s.excluded = 0
         )
         SELECT NOT EXISTS (SELECT 1 FROM folder WHERE id IN below AND dst <> 1)
            AND NOT EXISTS (SELECT 1 FROM failure WHERE parent IN below)",
    )?;
    Ok(statement.query_row([folder], |row| row.get(0))?)
}
