//! One side of the walk: its rounds, and the window that they have on the store.

use super::lister::Batch;
use super::walk::Summed;
use crate::error::Result;
use crate::status::{Dst, Src};
use crate::store::{FolderRow, ROOT, kind_of};
use headworks_core::rounds::{Discovered, Lease, Rounds, RoundsConfig};
use headworks_core::{Side, Time};
use headworks_pool::Pool;
use headworks_storage::{Capabilities, Cursor, Folder, Kind};
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Folders in memory a side.
pub(super) const WINDOW: usize = 4096;
/// Folders that are read from the store before the first of them is handed out.
const PAGE: usize = 512;

/// What a folder needs.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) row: FolderRow,
    /// `None`: it is listed. Otherwise its state follows without a call to the backend.
    pub(super) derived: Option<Dst>,
    pub(super) reached: Reached,
}

/// How far a listing came in this run.
#[derive(Debug, Default)]
pub(super) struct Reached {
    /// The last cursor that was handed to the store; an empty one if the backend has none.
    cursor: Mutex<Option<Cursor>>,
    /// Attempts that failed since the last page.
    failed: AtomicU32,
}

impl Reached {
    pub(super) fn cursor(&self) -> Option<Cursor> {
        self.cursor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// A page was handed over: the attempts count from here.
    pub(super) fn page(&self, cursor: Option<Cursor>) {
        *self.cursor.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(cursor.unwrap_or_default());
        self.failed.store(0, Relaxed);
    }

    /// An attempt failed; how many have, since the last page.
    pub(super) fn fail(&self) -> u32 {
        self.failed.fetch_add(1, Relaxed) + 1
    }
}

pub(super) struct Walked {
    pub(super) side: Side,
    pub(super) rounds: Rounds<Arc<Work>>,
    pub(super) pool: Pool<Batch>,
    /// Folders that are listed one after the other, at most, and how many of these batches run at
    /// once.
    pub(super) batch: usize,
    pub(super) workers: usize,
    /// The last folder of this round that was paged in.
    cursor: i64,
    /// What the destination can be called.
    pub(super) names: Capabilities,
    /// What is to do at which depth, until the pass starts.
    pub(super) pending: BTreeMap<u32, u64>,
}

impl Walked {
    pub(super) fn new(
        side: Side,
        pool: Pool<Batch>,
        (workers, batch): (usize, usize),
        budget: Duration,
        names: Capabilities,
        read: &Connection,
    ) -> Result<Walked> {
        let mut config = RoundsConfig::default();
        config.window = WINDOW;
        config.retry_budget = budget;
        Ok(Walked {
            side,
            rounds: Rounds::new(config),
            pool,
            batch,
            workers,
            cursor: 0,
            names,
            pending: pending(side, read)?,
        })
    }

    /// Starts the pass at the shallowest depth at which something is pending.
    pub(super) fn start(&mut self, now: Time) -> Result<()> {
        let mut depths = std::mem::take(&mut self.pending);
        let (depth, count) = depths.pop_first().unwrap_or((0, 0));
        self.rounds
            .start_pass(now, depth, Discovered::Count(count))?;
        for (depth, count) in depths {
            self.rounds.declare(now, depth, Discovered::Count(count))?;
        }
        Ok(())
    }

    pub(super) fn entered(&mut self) {
        self.cursor = 0;
    }

    /// Reads some more into the window if it has room, and hands out what may be listed: nothing,
    /// if there is no more.
    pub(super) fn lease(&mut self, now: Time, read: &Connection) -> Result<Vec<Lease<Arc<Work>>>> {
        if let Some(want) = self.rounds.wants() {
            let most = want.room.min(PAGE);
            let page = match self.side {
                Side::Leader => source_page(read, want.round, self.cursor, most)?,
                Side::Follower => {
                    destination_page(read, want.round, self.cursor, most, &self.names)?
                }
            };
            if let Some(last) = page.last() {
                self.cursor = last.row.id;
            }
            let found = page.len();
            let _ = self.rounds.load(want.round, page.into_iter().map(Arc::new));
            if found < most {
                // Excluded while they waited.
                self.rounds
                    .withdraw(now, want.round, (want.room - found) as u64)?;
            }
        }
        Ok(std::iter::from_fn(|| self.rounds.next(now)).collect())
    }
}

/// A destination folder whose parent is pending too is not counted: it is declared when that ends.
fn pending(side: Side, read: &Connection) -> Result<Summed> {
    let query = match side {
        Side::Leader => "SELECT depth, count(*) FROM folder WHERE src = 0 GROUP BY depth",
        Side::Follower => {
            "SELECT f.depth, count(*) FROM folder f LEFT JOIN folder p ON p.id = f.parent
             WHERE f.dst = 0 AND (p.id IS NULL OR p.dst <> 0) GROUP BY f.depth"
        }
    };
    let mut statement = read.prepare(query)?;
    let rows = statement.query_map([], |row| {
        Ok((row.get(0)?, row.get::<_, i64>(1)?.cast_unsigned()))
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn source_page(read: &Connection, depth: u32, after: i64, limit: usize) -> Result<Vec<Work>> {
    let mut statement = read.prepare_cached(
        "SELECT id, path, src_cursor FROM folder
         WHERE depth = ? AND id > ? AND src = 0 ORDER BY id LIMIT ?",
    )?;
    let rows = statement.query_map(params![depth, after, limit as i64], |row| {
        Ok(Work {
            row: FolderRow {
                id: row.get(0)?,
                path: Folder::from_bytes(row.get(1)?),
                depth,
                subfolders: 0,
                cursor: row.get(2)?,
            },
            derived: None,
            reached: Reached::default(),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The destination's root, if nothing is known of it yet.
pub(super) fn unknown_root(read: &Connection, names: &Capabilities) -> Result<Option<Work>> {
    let root = destination_page(read, 0, 0, 1, names)?.pop();
    Ok(root.filter(|root| root.derived.is_none()))
}

fn destination_page(
    read: &Connection,
    depth: u32,
    after: i64,
    limit: usize,
    names: &Capabilities,
) -> Result<Vec<Work>> {
    let mut statement = read.prepare_cached(
        "SELECT f.id, f.path, f.dst_cursor, f.subfolders, f.src, p.dst, d.kind, f.name, f.ahead
         FROM folder f
         LEFT JOIN folder p ON p.id = f.parent
         LEFT JOIN destination d ON d.parent = f.parent AND d.name = f.name
         WHERE f.depth = ? AND f.id > ? AND f.dst = 0 ORDER BY f.id LIMIT ?",
    )?;
    let rows = statement.query_map(params![depth, after, limit as i64], |row| {
        let id: i64 = row.get(0)?;
        let kind: Option<i64> = row.get(6)?;
        let above: Option<i64> = row.get(5)?;
        let src = Src::from_number(row.get(4)?);
        let ahead: Option<i64> = row.get(8)?;
        let derived = match id == ROOT {
            false if names.refuses(row.get_ref(7)?.as_blob()?).is_some() => Some(Dst::Conflict),
            _ if src != Src::Failed && ahead.is_some() => ahead.map(Dst::from_number),
            true if src == Src::Failed => Some(Dst::Unknown),
            true => None,
            false => derive(
                src,
                above.map_or(Dst::Unknown, Dst::from_number),
                kind.map(kind_of),
            ),
        };
        Ok(Work {
            row: FolderRow {
                id,
                path: Folder::from_bytes(row.get(1)?),
                depth,
                subfolders: row.get::<_, i64>(3)?.cast_unsigned(),
                cursor: row.get(2)?,
            },
            derived,
            reached: Reached::default(),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// What follows for a folder from its parent's state and what is there of its name.
fn derive(src: Src, parent: Dst, there: Option<Kind>) -> Option<Dst> {
    match (src, parent, there) {
        (Src::Failed | Src::Excluded | Src::Pending, _, _) => Some(Dst::Unknown),
        (_, Dst::Missing, _) => Some(Dst::Missing),
        (_, Dst::Conflict, _) => Some(Dst::Conflict),
        (_, Dst::Unknown | Dst::Failed | Dst::Pending, _) => Some(Dst::Unknown),
        (_, Dst::Successful, None) => Some(Dst::Missing),
        (_, Dst::Successful, Some(Kind::Folder)) => None,
        (_, Dst::Successful, Some(_)) => Some(Dst::Conflict),
    }
}
