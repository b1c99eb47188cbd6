//! Copying while the plan goes on.
//!
//! Whoever lists offers what is durable; what can be decided without the rest of the plan is copied
//! at once. All else, and whatever is passed over because there is enough to do, waits for the
//! plan: nothing here has to happen. It waits if it is a further name of a file, or so large that
//! the plan would have to wait for it; if the destination may have it and was not listed yet; and
//! if somebody gave rules, which are applied to a whole plan.

use super::files::batches;
use super::record::{touch, write_made_entry};
use super::tasks::{LARGE, Task, What};
use super::{Copy, CopyOptions};
use crate::error::{Error, Result};
use crate::job::Job;
use crate::names;
use crate::plan::Released;
use crate::state::State;
use crate::status::{Dst, Status};
use crate::store::{FolderId, Pair, ROOT, When, find_pairs, log};
use headworks_storage::{ErrorKind, Folder, Kind, Space, UploadPlan};
use rusqlite::{Connection, Transaction, params};
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;
use tokio_util::sync::CancellationToken;

/// A plan that takes less is worth having whole, before anything is written.
const PATIENCE: Duration = Duration::from_secs(1);
/// Folders that are remembered to be made, until the state file says so.
const REMEMBERED: usize = 16_384;

/// Copies what is released, until the plan is `over`. What goes wrong here will go wrong again
/// after the plan, and counts then.
pub(crate) async fn meanwhile(
    job: &Job,
    options: &CopyOptions,
    pages: Receiver<Vec<Released>>,
    over: CancellationToken,
) -> Result<()> {
    let is_short = over.run_until_cancelled(tokio::time::sleep(PATIENCE)).await;
    if is_short.is_none() || !is_ready(job).await {
        return Ok(());
    }
    let copy = Copy::new(job, options, Some(over.clone()))?;
    copy.tidy_released().await?;
    let mut early = Early {
        state: job.state()?,
        made: HashSet::new(),
        handed: 0,
        copy: &copy,
    };
    let ended = early.take(pages, &over).await;
    // What waits in the pool is let go, what runs comes to its end.
    over.cancelled().await;
    let _ = copy.pool.shutdown(Duration::from_secs(3600)).await;
    let write = move |transaction: &Transaction<'_>| match ended {
        Ok(()) => transaction.execute("DELETE FROM released", []).map(drop),
        Err(error) => log(transaction, &format!("copying waits for the plan: {error}")),
    };
    job.writer.write(write).await
}

/// Whether anything can be written there at all; if not, the pre-flight will say why.
async fn is_ready(job: &Job) -> bool {
    let writable = job.destination.writable().await;
    let makeable = |error: &headworks_storage::Error| error.kind() == ErrorKind::NotFound;
    job.destination.capabilities().write && writable.as_ref().err().is_none_or(makeable)
}

struct Early<'c, 'j> {
    copy: &'c Copy<'j>,
    state: State,
    /// Folders that were made, of which the state file may not know yet.
    made: HashSet<FolderId>,
    /// Bytes handed in so far.
    handed: u64,
}

/// A folder that has to be made before something can be put into it.
struct Step {
    id: FolderId,
    parent: FolderId,
    name: Vec<u8>,
    path: Folder,
}

impl Early<'_, '_> {
    async fn take(
        &mut self,
        mut pages: Receiver<Vec<Released>>,
        over: &CancellationToken,
    ) -> Result<()> {
        while let Some(Some(page)) = over.run_until_cancelled(pages.recv()).await {
            if has_rules(self.state.connection())? {
                return Ok(());
            }
            let mut folders = Vec::new();
            for released in page {
                let (way, wanted) = (self.way_to(released.folder)?, self.wanted(&released)?);
                let way = way.filter(|_| !wanted.is_empty());
                folders.extend(way.map(|_| (released.folder, wanted)));
            }
            if !self.fits(&folders).await {
                return Ok(());
            }
            self.copy_into(folders).await?;
        }
        Ok(())
    }

    async fn copy_into(&mut self, folders: Vec<(FolderId, Vec<(Pair, Status)>)>) -> Result<()> {
        let mut all = Vec::new();
        for (folder, wanted) in folders {
            // Looked for again: an earlier one may have made some of it.
            if let Some(way) = self.way_to(folder)?
                && self.make(way).await
            {
                all.extend(wanted);
            }
        }
        match all.is_empty() {
            true => Ok(()),
            false => self.hand_in(all).await,
        }
    }

    /// What is to be copied of a page. That its folder is there will be seen to.
    fn wanted(&self, released: &Released) -> Result<Vec<(Pair, Status)>> {
        let mut wanted = Vec::new();
        let found = find_pairs(self.state.connection(), released.folder, &released.names)?;
        for mut pair in found {
            pair.parent_dst = Dst::Successful;
            let status = self.copy.job.compare.status(&pair);
            let alone = pair.entry.inode.is_none() && pair.entry.size <= LARGE;
            let fresh = pair.failure.is_none() && pair.entry.kind != Kind::Folder;
            if alone && fresh && status.is_work() {
                wanted.push((pair, status));
            }
        }
        Ok(wanted)
    }

    /// Whether the destination has room, also for what was handed in and is not there yet.
    async fn fits(&self, folders: &[(FolderId, Vec<(Pair, Status)>)]) -> bool {
        let pairs = || folders.iter().flat_map(|(_, wanted)| wanted);
        let bytes: u64 = pairs().map(|(pair, _)| pair.entry.size).sum();
        let made = (pairs().count() + folders.len()) as u64;
        let copied = self.copy.job.progress.bytes.load(Relaxed);
        let needed = bytes + self.handed.saturating_sub(copied);
        match self.copy.job.destination.space().await {
            Ok(Some(Space { bytes, entries })) => {
                needed <= bytes && entries.is_none_or(|free| made <= free)
            }
            Ok(None) => true,
            Err(error) => error.kind() == ErrorKind::NotFound,
        }
    }

    /// The folders to make before something can be put into this one, the outermost first; `None`
    /// as long as the destination may have something of its name that was not listed yet.
    fn way_to(&self, folder: FolderId) -> Result<Option<Vec<Step>>> {
        let mut statement = self.state.connection().prepare_cached(
            "SELECT f.parent, f.name, f.path, iif(f.dst = 0, coalesce(f.ahead, 0), f.dst),
                 EXISTS (SELECT 1 FROM destination d WHERE d.parent = f.parent AND d.name = f.name)
             FROM folder f WHERE f.id = ?",
        )?;
        let mut way = Vec::new();
        let mut at = folder;
        while !self.made.contains(&at) {
            let (step, dst, there) = statement.query_row([at], |row| {
                let step = Step {
                    id: at,
                    parent: row.get(0)?,
                    name: row.get(1)?,
                    path: Folder::from_bytes(row.get(2)?),
                };
                Ok((step, Dst::from_number(row.get(3)?), row.get::<_, bool>(4)?))
            })?;
            let refused = self.copy.job.compare.destination.refuses(&step.name);
            match dst {
                Dst::Successful => break,
                Dst::Missing => {}
                // Not there, if all that is there was listed: which the folder above will tell.
                Dst::Pending if at != ROOT && !there && refused.is_none() => {}
                _ => return Ok(None),
            }
            let parent = step.parent;
            way.push(step);
            if at == ROOT {
                break;
            }
            at = parent;
        }
        way.reverse();
        Ok(Some(way))
    }

    /// Makes folders; whether it worked.
    async fn make(&mut self, way: Vec<Step>) -> bool {
        let job = self.copy.job;
        let pass = self.copy.pass;
        if self.made.len() > REMEMBERED {
            self.made.clear();
        }
        for step in way {
            // Where folders exist by what is in them, the first file makes it.
            let needs_call = job.compare.destination.folders || step.path.is_root();
            if needs_call && job.destination.make_folder(&step.path).await.is_err() {
                return false;
            }
            self.made.insert(step.id);
            let write = move |transaction: &Transaction<'_>| {
                let mut update = transaction.prepare_cached(
                    "UPDATE folder SET ahead = 1, dst = iif(dst = 3, 1, dst) WHERE id = ?",
                )?;
                update.execute([step.id])?;
                touch(transaction, step.id)?;
                write_made_entry(transaction, step.parent, &step.name, pass)
            };
            job.writer.post(When::Synced, write, || {});
        }
        true
    }

    async fn hand_in(&mut self, wanted: Vec<(Pair, Status)>) -> Result<()> {
        self.handed += wanted.iter().map(|(pair, _)| pair.entry.size).sum::<u64>();
        let places = wanted
            .iter()
            .map(|(pair, _)| (pair.folder.clone(), pair.entry.name.clone()));
        let places: Vec<_> = places.collect();
        let note = move |transaction: &Transaction<'_>| {
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO released VALUES (?, ?)")?;
            for (folder, name) in &places {
                insert.execute(params![folder.as_bytes(), name])?;
            }
            Ok(())
        };
        let noted = self.copy.job.writer.write_when(When::Apart, note);
        noted.await?;
        for batch in batches(wanted, self.copy.batch(), self.copy.local) {
            let make = |room| Task {
                what: What::Files(batch),
                attempt: 0,
                _room: room,
            };
            self.copy.hand_in(make).await?;
        }
        Ok(())
    }
}

fn has_rules(read: &Connection) -> Result<bool> {
    let query = "SELECT EXISTS (SELECT 1 FROM rule)";
    Ok(read.query_row(query, [], |row| row.get(0))?)
}

/// An entry is no longer in hand.
pub(super) fn let_go(transaction: &Transaction<'_>, pair: &Pair) -> rusqlite::Result<()> {
    let mut delete =
        transaction.prepare_cached("DELETE FROM released WHERE folder = ? AND name = ?")?;
    let place = params![pair.folder.as_bytes(), pair.entry.name];
    delete.execute(place).map(drop)
}

impl Copy<'_> {
    /// Removes the temporary files of an earlier run that died while it planned.
    pub(super) async fn tidy_released(&self) -> Result<()> {
        let state = self.job.state()?;
        let mut select = state
            .connection()
            .prepare("SELECT folder, name FROM released")?;
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let left: Vec<(Vec<u8>, Vec<u8>)> = rows.collect::<rusqlite::Result<_>>()?;
        if left.is_empty() {
            return Ok(());
        }
        for (folder, name) in left {
            let temp = names::temp(&self.job.id, &name);
            let plan = UploadPlan {
                temp,
                ..UploadPlan::default()
            };
            let folder = Folder::from_bytes(folder);
            let tidied = self.job.destination.discard(&folder, &name, &plan).await;
            tidied.map_err(|error| Error::Storage {
                side: "destination",
                error,
            })?;
        }
        let forget = |transaction: &Transaction<'_>| {
            transaction.execute("DELETE FROM released", []).map(drop)
        };
        self.job.writer.write(forget).await
    }
}
