//! One side of the walk: its rounds, and their window on the store.

use super::lister::Batch;
use super::walk::CountByDepth;
use crate::concurrency::Concurrency;
use crate::error::Result;
use crate::side::Side;
use crate::status::{DstState, SrcState};
use crate::store::{FolderRow, ROOT, kind_from_number};
use headworks_core::Time;
use headworks_core::rounds::{Discovered, Lease, Rounds, RoundsConfig};
use headworks_pool::Pool;
use headworks_storage::{Capabilities, Cursor, Folder, Kind};
use parking_lot::Mutex;
use rusqlite::{Connection, params};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of folders in memory per side.
pub(super) const WINDOW: usize = 4096;
/// Folders read from the store before the first of them is leased.
const PAGE: usize = 512;

/// A folder of the current round.
#[derive(Debug)]
pub(super) struct PendingFolder {
    pub(super) row: FolderRow,
    /// The state that follows without a call to the backend; `None` if the folder must be listed.
    pub(super) derived: Option<DstState>,
    pub(super) progress: ListingProgress,
}

/// The progress of a listing in this run.
#[derive(Debug, Default)]
pub(super) struct ListingProgress {
    /// The last cursor handed to the store; empty if the backend has no cursors.
    cursor: Mutex<Option<Cursor>>,
    /// Failed attempts since the last page.
    failed: AtomicU32,
}

impl ListingProgress {
    pub(super) fn cursor(&self) -> Option<Cursor> {
        self.cursor.lock().clone()
    }

    /// Records a page handed to the store. Attempts count from here.
    pub(super) fn page_stored(&self, cursor: Option<Cursor>) {
        *self.cursor.lock() = Some(cursor.unwrap_or_default());
        self.failed.store(0, Relaxed);
    }

    /// Records a failed attempt. Returns the number of failures since the last page.
    pub(super) fn record_failure(&self) -> u32 {
        self.failed.fetch_add(1, Relaxed) + 1
    }
}

/// How the listings of a side are cut and limited.
pub(super) struct ListingLimits {
    pub(super) concurrency: Concurrency,
    /// Maximum number of folders per batch.
    pub(super) max_batch: usize,
    pub(super) _adjust: AbortOnDropHandle<()>,
}

pub(super) struct SideState {
    pub(super) side: Side,
    pub(super) rounds: Rounds<Arc<PendingFolder>>,
    pub(super) pool: Pool<Batch>,
    pub(super) limits: ListingLimits,
    /// The last folder of this round that was read from the store.
    cursor: i64,
    /// The capabilities of the destination, for its rules about names.
    pub(super) destination: Capabilities,
    /// Pending folders by depth, until the pass starts.
    pub(super) pending: BTreeMap<u32, u64>,
}

impl SideState {
    pub(super) fn new(
        side: Side,
        pool: Pool<Batch>,
        limits: ListingLimits,
        budget: Duration,
        destination: Capabilities,
        read: &Connection,
    ) -> Result<SideState> {
        let mut config = RoundsConfig::default();
        config.window = WINDOW;
        config.retry_budget = budget;
        Ok(SideState {
            side,
            rounds: Rounds::new(config),
            pool,
            limits,
            cursor: 0,
            destination,
            pending: count_pending(side, read)?,
        })
    }

    /// Starts the pass at the shallowest depth with pending folders.
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

    pub(super) fn reset_paging(&mut self) {
        self.cursor = 0;
    }

    /// Reads more folders into the window if it has room, and leases those that may be listed.
    /// The list is empty if no folder may be listed.
    pub(super) fn lease(
        &mut self,
        now: Time,
        read: &Connection,
    ) -> Result<Vec<Lease<Arc<PendingFolder>>>> {
        if let Some(request) = self.rounds.wants() {
            let limit = request.room.min(PAGE);
            let page = match self.side {
                Side::Source => source_page(read, request.round, self.cursor, limit)?,
                Side::Destination => {
                    destination_page(read, request.round, self.cursor, limit, &self.destination)?
                }
            };
            if let Some(last) = page.last() {
                self.cursor = last.row.id;
            }
            let loaded = page.len();
            let _ = self
                .rounds
                .load(request.round, page.into_iter().map(Arc::new));
            if loaded < limit {
                // The missing ones were excluded while they waited.
                self.rounds
                    .withdraw(now, request.round, (request.room - loaded) as u64)?;
            }
        }
        Ok(std::iter::from_fn(|| self.rounds.next(now)).collect())
    }
}

/// Counts the pending folders by depth. A destination folder whose parent is pending too is not
/// counted: it is declared when the parent is finished.
fn count_pending(side: Side, read: &Connection) -> Result<CountByDepth> {
    let query = match side {
        Side::Source => "SELECT depth, count(*) FROM folder WHERE src = 0 GROUP BY depth",
        Side::Destination => {
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

fn source_page(
    read: &Connection,
    depth: u32,
    after: i64,
    limit: usize,
) -> Result<Vec<PendingFolder>> {
    let mut statement = read.prepare_cached(
        "SELECT id, path, src_cursor FROM folder
         WHERE depth = ? AND id > ? AND src = 0 ORDER BY id LIMIT ?",
    )?;
    let rows = statement.query_map(params![depth, after, limit as i64], |row| {
        Ok(PendingFolder {
            row: FolderRow {
                id: row.get(0)?,
                path: Folder::from_bytes(row.get(1)?),
                depth,
                subfolders: 0,
                cursor: row.get(2)?,
            },
            derived: None,
            progress: ListingProgress::default(),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Returns the destination's root, if it has not been listed.
pub(super) fn unlisted_root(
    read: &Connection,
    destination: &Capabilities,
) -> Result<Option<PendingFolder>> {
    let root = destination_page(read, 0, 0, 1, destination)?.pop();
    Ok(root.filter(|root| root.derived.is_none()))
}

fn destination_page(
    read: &Connection,
    depth: u32,
    after: i64,
    limit: usize,
    destination: &Capabilities,
) -> Result<Vec<PendingFolder>> {
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
        let src = SrcState::from_code(row.get(4)?);
        let ahead: Option<i64> = row.get(8)?;
        let derived = match id == ROOT {
            false
                if destination
                    .name_problem(row.get_ref(7)?.as_blob()?)
                    .is_some() =>
            {
                Some(DstState::Conflict)
            }
            _ if src != SrcState::Failed && ahead.is_some() => ahead.map(DstState::from_code),
            true if src == SrcState::Failed => Some(DstState::Unknown),
            true => None,
            false => derive_state(
                src,
                above.map_or(DstState::Unknown, DstState::from_code),
                kind.map(kind_from_number),
            ),
        };
        Ok(PendingFolder {
            row: FolderRow {
                id,
                path: Folder::from_bytes(row.get(1)?),
                depth,
                subfolders: row.get::<_, i64>(3)?.cast_unsigned(),
                cursor: row.get(2)?,
            },
            derived,
            progress: ListingProgress::default(),
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Derives the state of a folder from its parent's state and the entry of its name.
fn derive_state(src: SrcState, parent: DstState, existing: Option<Kind>) -> Option<DstState> {
    match (src, parent, existing) {
        (SrcState::Failed | SrcState::Excluded | SrcState::Pending, _, _) => {
            Some(DstState::Unknown)
        }
        (_, DstState::Missing, _) => Some(DstState::Missing),
        (_, DstState::Conflict, _) => Some(DstState::Conflict),
        (_, DstState::Unknown | DstState::Failed | DstState::Pending, _) => Some(DstState::Unknown),
        (_, DstState::Successful, None) => Some(DstState::Missing),
        (_, DstState::Successful, Some(Kind::Folder)) => None,
        (_, DstState::Successful, Some(_)) => Some(DstState::Conflict),
    }
}
