//! Files, symlinks and special files: found in the state file page by page, handed to the pool in
//! batches.

use super::Copy;
use super::tasks::{LARGE, Task, What};
use crate::control;
use crate::error::{Error, Result};
use crate::filter::{globs, matches};
use crate::names;
use crate::progress::Phase;
use crate::state::{State, leader, status};
use crate::status::Status;
use crate::store::{FolderId, Pair, read_pairs};
use globset::GlobSet;
use headworks_storage::{Kind, UploadPlan};
use rusqlite::{OptionalExtension, params};

/// Rows that are read, and claimed, at once.
const PAGE: usize = 16_384;
/// Entries in a batch, and their bytes.
const BATCH: usize = 64;
const BATCH_BYTES: u64 = 4 << 20;

type Place = (FolderId, Vec<u8>);

impl Copy<'_> {
    pub(super) async fn copy_files(&self) -> Result<()> {
        let work = self.job.state()?.summary()?.work();
        self.job
            .progress
            .enter(Phase::Files, work.entries, work.bytes);
        self.tidy().await?;
        let first = globs(&control::priorities(self.job.state()?.connection())?)?;
        if !first.is_empty() {
            self.sweep(Some(&first)).await?;
        }
        self.sweep(None).await?;
        let unclaim = |transaction: &rusqlite::Transaction<'_>| {
            transaction.execute("DELETE FROM claim", []).map(drop)
        };
        self.job.writer.write(unclaim).await
    }

    /// Hands in all that is to be copied, or only what is wanted first.
    async fn sweep(&self, only: Option<&GlobSet>) -> Result<()> {
        let state = self.job.state()?;
        let mut after: Place = (0, Vec::new());
        loop {
            let pairs = read_pairs(state.connection(), &after, PAGE)?;
            let Some(last) = pairs.last() else { break };
            after = (last.parent, last.entry.name.clone());
            let wanted = self.wanted(&state, pairs, only)?;
            if wanted.is_empty() {
                continue;
            }
            self.claim(after.clone()).await?;
            for batch in batches(wanted, self.batch(), self.local) {
                let make = |room| Task {
                    what: What::Files(batch),
                    attempt: 0,
                    _room: room,
                };
                self.hand_in(make).await?;
            }
        }
        self.settled().await
    }

    /// How many entries a worker takes at once: few enough that no worker waits for another.
    pub(super) fn batch(&self) -> usize {
        let (here, there) = (
            self.job.source.capabilities().workers.1,
            self.job.compare.destination.workers.1,
        );
        (BATCH * 8 / here.max(there).max(1)).clamp(1, BATCH)
    }

    fn wanted(
        &self,
        state: &State,
        pairs: Vec<Pair>,
        only: Option<&GlobSet>,
    ) -> Result<Vec<(Pair, Status)>> {
        let mut wanted = Vec::new();
        for pair in pairs {
            let chosen = only.is_none_or(|only| matches(only, &pair.path()));
            if pair.entry.kind == Kind::Folder || pair.failure.is_some() || !chosen {
                continue;
            }
            let status = status(state.connection(), &self.job.compare, &pair)?;
            let links = self.job.compare.destination.hard_links;
            let further = links && status.is_work() && leader(state.connection(), &pair)?.is_some();
            if status.is_work() && !further {
                wanted.push((pair, status));
            }
        }
        Ok(wanted)
    }

    /// Notes, before anything is written, up to where temporary files may be left if this process
    /// dies.
    async fn claim(&self, (parent, name): Place) -> Result<()> {
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            // Never back: a second sweep begins at the front again.
            let query = "INSERT INTO claim VALUES (1, ?1, ?2) ON CONFLICT (id) DO UPDATE
                         SET parent = ?1, name = ?2 WHERE (?1, ?2) > (parent, name)";
            transaction.execute(query, params![parent, name]).map(drop)
        };
        self.job.writer.write(write).await
    }

    /// Removes the temporary files of an earlier run that died, except those that are gone on with.
    async fn tidy(&self) -> Result<()> {
        self.tidy_released().await?;
        let state = self.job.state()?;
        let read = state.connection();
        let query = "SELECT parent, name FROM claim";
        let claimed: Option<Place> = read
            .query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))
            .optional()?;
        let Some(claimed) = claimed else {
            return Ok(());
        };
        let mut after: Place = (0, Vec::new());
        while after < claimed {
            let pairs = read_pairs(read, &after, PAGE)?;
            let Some(last) = pairs.last() else { break };
            after = (last.parent, last.entry.name.clone());
            for pair in pairs {
                let status = self.job.compare.status(&pair);
                if pair.entry.kind == Kind::Folder
                    || !(status.is_work() || status == Status::Excluded)
                {
                    continue;
                }
                let resume = self.under_way(read, &pair)?;
                if resume.is_none() || status == Status::Excluded {
                    let temp = names::temp(&self.job.id, &pair.entry.name);
                    let plan = UploadPlan {
                        temp,
                        size: pair.entry.size,
                        resume,
                        ..UploadPlan::default()
                    };
                    let tidied = self
                        .job
                        .destination
                        .discard(&pair.folder, &pair.entry.name, &plan)
                        .await;
                    tidied.map_err(|error| Error::Storage {
                        side: "destination",
                        error,
                    })?;
                }
            }
        }
        Ok(())
    }

    /// How to go on with a file of which parts are durable.
    fn under_way(&self, read: &rusqlite::Connection, pair: &Pair) -> Result<Option<Vec<u8>>> {
        if pair.entry.size <= LARGE {
            return Ok(None);
        }
        let mut statement =
            read.prepare_cached("SELECT resume FROM part WHERE parent = ? AND name = ?")?;
        let place = params![pair.parent, pair.entry.name];
        Ok(statement.query_row(place, |row| row.get(0)).optional()?)
    }
}

/// Neighbours go together, between disks also of several folders; a large file goes alone.
pub(super) fn batches(
    wanted: Vec<(Pair, Status)>,
    most: usize,
    across: bool,
) -> Vec<Vec<(Pair, Status)>> {
    let mut batches: Vec<Vec<(Pair, Status)>> = Vec::new();
    let mut bytes = 0;
    for (pair, status) in wanted {
        let size = pair.entry.size;
        let fits = batches
            .last()
            .and_then(|batch| batch.last().map(|last| (batch.len(), last)))
            .is_some_and(|(count, (last, _))| {
                (across || last.parent == pair.parent)
                    && count < most
                    && bytes + size <= BATCH_BYTES
            });
        match batches.last_mut() {
            Some(batch) if fits => batch.push((pair, status)),
            _ => {
                bytes = 0;
                batches.push(vec![(pair, status)]);
            }
        }
        bytes += size;
    }
    batches
}
