//! Copying files, symlinks and special files: read from the state file page by page, and submitted
//! to the pool in batches.

use super::CopyRun;
use super::tasks::{LARGE_FILE, Task, TaskKind};
use crate::control;
use crate::error::Result;
use crate::filter::{globs, matches};
use crate::names;
use crate::progress::Phase;
use crate::queries::{StateReader, first_link, status};
use crate::side::Side;
use crate::status::Status;
use crate::store::{EntryKey, Pair, PlainFiles, read_pairs};
use globset::GlobSet;
use headworks_storage::{Fault, Folder, Kind, UploadPlan};
use rusqlite::{OptionalExtension, params};

/// Rows that are read and claimed together.
const PAGE: usize = 16_384;
/// Maximum number of entries in a batch, and their total size.
const BATCH: usize = 64;
/// Entries in a batch while nothing is known about the storages.
const FIRST_BATCH: usize = 4;
const BATCH_BYTES: u64 = 4 << 20;

impl CopyRun<'_> {
    pub(super) async fn copy_files(&self) -> Result<()> {
        let work = self.job.state()?.summary()?.work();
        self.job
            .progress
            .enter(Phase::Files, work.entries, work.bytes);
        self.discard_leftovers().await?;
        self.concurrency.restart();
        let first = globs(&control::priorities(self.job.state()?.connection())?)?;
        if !first.is_empty() {
            self.copy_matching(Some(&first)).await?;
        }
        self.copy_matching(None).await?;
        let unclaim = |transaction: &rusqlite::Transaction<'_>| {
            transaction.execute("DELETE FROM claim", []).map(drop)
        };
        self.job.writer.write(unclaim).await
    }

    /// Submits all files to copy, or only those that match.
    async fn copy_matching(&self, only: Option<&GlobSet>) -> Result<()> {
        let state = self.job.state()?;
        let mut after: EntryKey = (0, Vec::new());
        loop {
            let pairs = read_pairs(state.connection(), &after, PlainFiles::Differing, PAGE)?;
            let Some(last) = pairs.last() else { break };
            after = (last.parent, last.entry.name.clone());
            let wanted = self.files_to_copy(&state, pairs, only)?;
            if wanted.is_empty() {
                continue;
            }
            self.claim(after.clone()).await?;
            for batch in batches(wanted, || self.batch_size(), self.local) {
                let make_task = |slot| Task {
                    kind: TaskKind::Files(batch),
                    attempt: 0,
                    _slot: slot,
                };
                self.submit(make_task).await?;
            }
        }
        self.drain().await
    }

    /// Returns the number of entries in a batch: small enough that no worker idles while another
    /// has a long batch.
    pub(super) fn batch_size(&self) -> usize {
        // A far storage would show its speed only after a batch of round trips.
        let first = if self.local { FIRST_BATCH } else { 1 };
        self.concurrency.batch(first, BATCH)
    }

    fn files_to_copy(
        &self,
        state: &StateReader,
        pairs: Vec<Pair>,
        only: Option<&GlobSet>,
    ) -> Result<Vec<(Pair, Status)>> {
        let (mut wanted, mut kept) = (Vec::new(), Vec::new());
        for pair in pairs {
            let selected = only.is_none_or(|only| matches(only, &pair.path()));
            if pair.entry.kind == Kind::Folder || pair.failure.is_some() || !selected {
                continue;
            }
            let status = status(state.connection(), &self.job.compare, &pair)?;
            if let Some(entry) = self.options.existing.kept(&pair, status) {
                kept.push(entry);
                continue;
            }
            let hard_links = self.job.compare.destination.hard_links;
            let is_further_link = hard_links
                && status.needs_copy()
                && first_link(state.connection(), &pair)?.is_some();
            if status.needs_copy() && !is_further_link {
                wanted.push((pair, status));
            }
        }
        self.record_kept(kept)?;
        Ok(wanted)
    }

    /// Records, before anything is written, up to which entry temporary files may be left if this
    /// process dies.
    async fn claim(&self, (parent, name): EntryKey) -> Result<()> {
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            // Never moves back: the second sweep starts at the front again.
            let query = "INSERT INTO claim VALUES (1, ?1, ?2) ON CONFLICT (id) DO UPDATE
                         SET parent = ?1, name = ?2 WHERE (?1, ?2) > (parent, name)";
            transaction.execute(query, params![parent, name]).map(drop)
        };
        self.job.writer.write(write).await
    }

    /// Removes the temporary files of a run that died, except those of uploads that can be resumed.
    async fn discard_leftovers(&self) -> Result<()> {
        self.discard_released().await?;
        let state = self.job.state()?;
        let read = state.connection();
        let query = "SELECT parent, name FROM claim";
        let claimed: Option<EntryKey> = read
            .query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some(claimed) = claimed else {
            return Ok(());
        };
        let mut after: EntryKey = (0, Vec::new());
        while after < claimed {
            let pairs = read_pairs(read, &after, PlainFiles::Differing, PAGE)?;
            let Some(last) = pairs.last() else { break };
            after = (last.parent, last.entry.name.clone());
            for pair in pairs {
                let status = self.job.compare.status(&pair);
                if pair.entry.kind == Kind::Folder
                    || !(status.needs_copy() || status == Status::Excluded)
                {
                    continue;
                }
                let resume = self.resume_token(read, &pair)?;
                if resume.is_none() || status == Status::Excluded {
                    let temp = names::temp(&self.job.id, &pair.entry.name);
                    let plan = UploadPlan {
                        temp,
                        size: pair.entry.size,
                        resume,
                        ..UploadPlan::default()
                    };
                    self.discard_leftover(&pair.folder, &pair.entry.name, &plan)
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Removes what an upload left behind. One that cannot be removed stays, and is logged: it must
    /// not end every later run.
    pub(super) async fn discard_leftover(
        &self,
        folder: &Folder,
        name: &[u8],
        plan: &UploadPlan,
    ) -> Result<()> {
        match self.job.destination.discard(folder, name, plan).await {
            Ok(()) => Ok(()),
            Err(error) if error.fault() == Fault::Fatal => Err(Side::Destination.error(error)),
            Err(error) => {
                let message = format!("a temporary file is left behind: {error}");
                let write = move |transaction: &rusqlite::Transaction<'_>| {
                    crate::store::log(transaction, &message)
                };
                self.job.writer.write(write).await
            }
        }
    }

    /// Returns the token with which the upload of a large file can be resumed.
    fn resume_token(&self, read: &rusqlite::Connection, pair: &Pair) -> Result<Option<Vec<u8>>> {
        if pair.entry.size <= LARGE_FILE {
            return Ok(None);
        }
        let mut statement =
            read.prepare_cached("SELECT resume FROM part WHERE parent = ? AND name = ?")?;
        let key = params![pair.parent, pair.entry.name];
        Ok(statement.query_row(key, |row| row.get(0)).optional()?)
    }
}

/// Groups entries into batches of a size that is asked for each. Between local disks a batch may
/// span folders; a large file is a batch of its own.
pub(super) fn batches(
    wanted: Vec<(Pair, Status)>,
    max_entries: impl Fn() -> usize,
    across_folders: bool,
) -> impl Iterator<Item = Vec<(Pair, Status)>> {
    let mut wanted = wanted.into_iter().peekable();
    std::iter::from_fn(move || {
        let first = wanted.next()?;
        let (parent, mut bytes) = (first.0.parent, first.0.entry.size);
        let mut batch = vec![first];
        let max_entries = max_entries();
        while batch.len() < max_entries
            && let Some((pair, status)) = wanted.next_if(|(pair, _)| {
                (across_folders || pair.parent == parent) && bytes + pair.entry.size <= BATCH_BYTES
            })
        {
            bytes += pair.entry.size;
            batch.push((pair, status));
        }
        Some(batch)
    })
}
