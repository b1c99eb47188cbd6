//! Copying while the plan is still running (`docs/adr/0013`).
//!
//! The listers offer the names of durable pages; this module copies those that can be decided
//! without the rest of the plan. Everything else waits for the copy after the plan, so nothing here
//! is required to happen. An entry waits if
//! * it is a further name of a file, or so large that the plan would have to wait for it;
//! * its folder may exist at the destination and has not been listed yet;
//! * the job has rules, which apply to a whole plan.

use super::files::batches;
use super::record::{mark_touched, write_made_entry};
use super::tasks::{LARGE_FILE, Task, TaskKind};
use super::{CopyOptions, CopyRun};
use crate::error::Result;
use crate::job::Job;
use crate::names;
use crate::plan::DurableNames;
use crate::queries::StateReader;
use crate::status::{DstState, Status};
use crate::store::{CommitMode, FolderId, Pair, ROOT, find_pairs, log};
use headworks_storage::{Entry, ErrorKind, Folder, Kind, Space, UploadPlan};
use rusqlite::{Connection, Transaction, params};
use std::collections::HashSet;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// A plan that finishes sooner is better finished before anything is written.
const START_DELAY: Duration = Duration::from_secs(1);
/// Maximum number of made folders that are remembered until the state file knows them.
const MADE_LIMIT: usize = 16_384;

/// Copies released files until `plan_done` is cancelled. A file that fails here is tried again
/// after the plan, and only that failure counts.
pub(crate) async fn copy_during_plan(
    job: &Job,
    options: &CopyOptions,
    pages: Receiver<Vec<DurableNames>>,
    plan_done: CancellationToken,
) -> Result<()> {
    let is_short = plan_done
        .run_until_cancelled(tokio::time::sleep(START_DELAY))
        .await;
    if is_short.is_none() || !is_destination_ready(job).await {
        return Ok(());
    }
    let copy = CopyRun::new(job, options, Some(plan_done.clone()))?;
    copy.discard_released().await?;
    let mut overlap = Overlap {
        state: job.state()?,
        made: HashSet::new(),
        room: room(job, options).await,
        copy: &copy,
    };
    let result = overlap.run(pages, &plan_done).await;
    // Queued tasks are dropped; running ones finish.
    plan_done.cancelled().await;
    let _ = copy.pool.shutdown(Duration::from_secs(3600)).await;
    let write = move |transaction: &Transaction<'_>| match result {
        Ok(()) => transaction.execute("DELETE FROM released", []).map(drop),
        Err(error) => log(transaction, &format!("copying waits for the plan: {error}")),
    };
    job.writer.write(write).await
}

/// Returns whether the destination can be written to. If not, the preflight reports why.
async fn is_destination_ready(job: &Job) -> bool {
    let writable = job.destination.writable().await;
    let makeable = |error: &headworks_storage::Error| error.kind() == ErrorKind::NotFound;
    job.destination.capabilities().write && writable.as_ref().err().is_none_or(makeable)
}

/// Returns how much may be written before the plan tells the size of the whole: half of what is
/// free, so that a disk that is too small is found with room on it. `None` without a limit.
async fn room(job: &Job, options: &CopyOptions) -> Option<Space> {
    if options.ignore_free_space {
        return None;
    }
    match job.destination.space().await {
        Ok(Some(Space { bytes, entries })) => Some(Space {
            bytes: bytes / 2,
            entries: entries.map(|free| free / 2),
        }),
        Ok(None) => None,
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(_) => Some(Space {
            bytes: 0,
            entries: None,
        }),
    }
}

struct Overlap<'c, 'j> {
    copy: &'c CopyRun<'j>,
    state: StateReader,
    /// Made folders that the state file may not know yet.
    made: HashSet<FolderId>,
    /// The space that may still be used.
    room: Option<Space>,
}

/// A folder that must be made before a file can be written into it.
struct MissingFolder {
    id: FolderId,
    parent: FolderId,
    name: Vec<u8>,
    path: Folder,
}

impl Overlap<'_, '_> {
    async fn run(
        &mut self,
        mut pages: Receiver<Vec<DurableNames>>,
        plan_done: &CancellationToken,
    ) -> Result<()> {
        while let Some(Some(page)) = plan_done.run_until_cancelled(pages.recv()).await {
            if has_rules(self.state.connection())? {
                return Ok(());
            }
            let mut folders = Vec::new();
            for released in page {
                let (missing, to_copy) = (
                    self.folders_to_make(released.folder)?,
                    self.to_copy(&released)?,
                );
                let missing = missing.filter(|_| !to_copy.is_empty());
                folders.extend(missing.map(|_| (released.folder, to_copy)));
            }
            if !self.take_room(&folders) {
                return Ok(());
            }
            self.copy_into(folders).await?;
        }
        Ok(())
    }

    async fn copy_into(&mut self, folders: Vec<(FolderId, Vec<(Pair, Status)>)>) -> Result<()> {
        let mut all = Vec::new();
        for (folder, to_copy) in folders {
            // An earlier folder may have made some of these.
            if let Some(missing) = self.folders_to_make(folder)?
                && self.make_folders(missing).await
            {
                all.extend(to_copy);
            }
        }
        match all.is_empty() {
            true => Ok(()),
            false => self.submit(all).await,
        }
    }

    /// Returns the files of a page to copy now. The caller makes sure that the folder exists.
    fn to_copy(&self, released: &DurableNames) -> Result<Vec<(Pair, Status)>> {
        let mut to_copy = Vec::new();
        let found = find_pairs(self.state.connection(), released.folder, &released.names)?;
        for mut pair in found {
            pair.parent_dst = DstState::Successful;
            let status = self.copy.job.compare.status(&pair);
            let has_links = |entry: &Entry| entry.inode.is_some();
            let is_linked = has_links(&pair.entry) || pair.existing.as_ref().is_some_and(has_links);
            let decidable = !is_linked && pair.entry.size <= LARGE_FILE;
            let untried = pair.failure.is_none() && pair.entry.kind != Kind::Folder;
            let kept = self.copy.options.existing.keeps(&pair, status);
            if decidable && untried && status.needs_copy() && !kept {
                to_copy.push((pair, status));
            }
        }
        Ok(to_copy)
    }

    /// Takes the room for these files. Returns whether there was enough.
    fn take_room(&mut self, folders: &[(FolderId, Vec<(Pair, Status)>)]) -> bool {
        let Some(room) = &mut self.room else {
            return true;
        };
        let pairs = || folders.iter().flat_map(|(_, to_copy)| to_copy);
        let bytes: u64 = pairs().map(|(pair, _)| pair.entry.size).sum();
        let made = (pairs().count() + folders.len()) as u64;
        let left = (
            room.bytes.checked_sub(bytes),
            room.entries.unwrap_or(u64::MAX).checked_sub(made),
        );
        let (Some(bytes), Some(entries)) = left else {
            return false;
        };
        (room.bytes, room.entries) = (bytes, room.entries.map(|_| entries));
        true
    }

    /// Returns the missing folders on the path to `folder`, outermost first, or `None` while the
    /// destination may have an entry of one of these names that has not been listed yet.
    fn folders_to_make(&self, folder: FolderId) -> Result<Option<Vec<MissingFolder>>> {
        let mut statement = self.state.connection().prepare_cached(
            "SELECT f.parent, f.name, f.path, iif(f.dst = 0, coalesce(f.ahead, 0), f.dst),
                 EXISTS (SELECT 1 FROM destination d WHERE d.parent = f.parent AND d.name = f.name)
             FROM folder f WHERE f.id = ?",
        )?;
        let mut missing = Vec::new();
        let mut at = folder;
        while !self.made.contains(&at) {
            let (folder, dst, on_destination) = statement.query_row([at], |row| {
                let folder = MissingFolder {
                    id: at,
                    parent: row.get(0)?,
                    name: row.get(1)?,
                    path: Folder::from_bytes(row.get(2)?),
                };
                Ok((
                    folder,
                    DstState::from_code(row.get(3)?),
                    row.get::<_, bool>(4)?,
                ))
            })?;
            let refused = self.copy.job.compare.destination.name_problem(&folder.name);
            match dst {
                DstState::Successful => break,
                DstState::Missing => {}
                // Missing if the parent was listed completely, which the next step up decides.
                DstState::Pending if at != ROOT && !on_destination && refused.is_none() => {}
                _ => return Ok(None),
            }
            let parent = folder.parent;
            missing.push(folder);
            if at == ROOT {
                break;
            }
            at = parent;
        }
        missing.reverse();
        Ok(Some(missing))
    }

    /// Makes folders. Returns whether all of them were made.
    async fn make_folders(&mut self, missing: Vec<MissingFolder>) -> bool {
        let job = self.copy.job;
        let pass = self.copy.pass;
        if self.made.len() > MADE_LIMIT {
            self.made.clear();
        }
        for folder in missing {
            // Object stores have no folders; the first file creates it.
            let needs_call = job.compare.destination.folders || folder.path.is_root();
            if needs_call && job.destination.make_folder(&folder.path).await.is_err() {
                return false;
            }
            self.made.insert(folder.id);
            let write = move |transaction: &Transaction<'_>| {
                let mut update = transaction.prepare_cached(
                    "UPDATE folder SET ahead = 1, dst = iif(dst = 3, 1, dst) WHERE id = ?",
                )?;
                update.execute([folder.id])?;
                mark_touched(transaction, folder.id)?;
                write_made_entry(transaction, folder.parent, &folder.name, pass)
            };
            job.writer.post(CommitMode::AfterSync, write, || {});
        }
        true
    }

    async fn submit(&mut self, to_copy: Vec<(Pair, Status)>) -> Result<()> {
        let keys = to_copy
            .iter()
            .map(|(pair, _)| (pair.folder.clone(), pair.entry.name.clone()));
        let keys: Vec<_> = keys.collect();
        let insert = move |transaction: &Transaction<'_>| {
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO released VALUES (?, ?)")?;
            for (folder, name) in &keys {
                insert.execute(params![folder.as_bytes(), name])?;
            }
            Ok(())
        };
        let inserted = self
            .copy
            .job
            .writer
            .write_with_mode(CommitMode::Prompt, insert);
        inserted.await?;
        for batch in batches(to_copy, || self.copy.batch_size(), self.copy.local) {
            let make_task = |slot| Task {
                kind: TaskKind::Files(batch),
                attempt: 0,
                _slot: slot,
            };
            self.copy.submit(make_task).await?;
        }
        Ok(())
    }
}

fn has_rules(read: &Connection) -> Result<bool> {
    let query = "SELECT EXISTS (SELECT 1 FROM rule)";
    Ok(read.query_row(query, [], |row| row.get(0))?)
}

/// Removes an entry from the `released` table: no temporary file of it can be left.
pub(super) fn clear_released(transaction: &Transaction<'_>, pair: &Pair) -> rusqlite::Result<()> {
    let mut delete =
        transaction.prepare_cached("DELETE FROM released WHERE folder = ? AND name = ?")?;
    let key = params![pair.folder.as_bytes(), pair.entry.name];
    delete.execute(key).map(drop)
}

impl CopyRun<'_> {
    /// Removes the temporary files of a run that died while it planned.
    pub(super) async fn discard_released(&self) -> Result<()> {
        let state = self.job.state()?;
        let mut select = state
            .connection()
            .prepare("SELECT folder, name FROM released")?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let leftovers: Vec<(Vec<u8>, Vec<u8>)> = rows.collect::<rusqlite::Result<_>>()?;
        if leftovers.is_empty() {
            return Ok(());
        }
        for (folder, name) in leftovers {
            let temp = names::temp(&self.job.id, &name);
            let plan = UploadPlan {
                temp,
                ..UploadPlan::default()
            };
            let folder = Folder::from_bytes(folder);
            self.discard_leftover(&folder, &name, &plan).await?;
        }
        let forget = |transaction: &Transaction<'_>| {
            transaction.execute("DELETE FROM released", []).map(drop)
        };
        self.job.writer.write(forget).await
    }
}
