//! How far a job is, for whoever looks: counters that nobody waits for.

use crate::store::Row;
use headworks_core::Side;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// What is being done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Nothing yet.
    #[default]
    Starting,
    /// Both trees are listed.
    Plan,
    /// What was found is added up.
    Summary,
    /// Folders are made.
    Folders,
    /// Files are copied.
    Files,
    /// Further names are given.
    Links,
    /// What is not on the source goes.
    Delete,
    /// Folders get their times.
    Settle,
    /// The destination is looked at again.
    Verify,
    /// All is done.
    Done,
}

impl Phase {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Plan => "plan",
            Phase::Summary => "adding up",
            Phase::Folders => "folders",
            Phase::Files => "copy",
            Phase::Links => "links",
            Phase::Delete => "delete",
            Phase::Settle => "folder times",
            Phase::Verify => "verify",
            Phase::Done => "done",
        }
    }
}

/// The counters of one side of a plan.
#[derive(Debug, Default)]
pub struct SideProgress {
    /// Folders that were listed in this run.
    pub folders: AtomicU64,
    /// Entries that were found in this run.
    pub entries: AtomicU64,
    /// The current round.
    pub round: AtomicU32,
    /// Folders of it that have ended.
    pub ended: AtomicU64,
    /// Folders of it, as far as known.
    pub declared: AtomicU64,
    /// Listings that failed and were tried again.
    pub retried: AtomicU64,
    /// Answers that asked for patience.
    pub overloads: AtomicU64,
}

/// The counters of a run.
#[derive(Debug, Default)]
pub struct Progress {
    phase: Mutex<Phase>,
    /// Source and destination.
    pub sides: [SideProgress; 2],
    /// What this phase has to do, in items.
    pub total: AtomicU64,
    /// What this phase has to do, in bytes.
    pub total_bytes: AtomicU64,
    /// Items done.
    pub done: AtomicU64,
    /// Bytes done.
    pub bytes: AtomicU64,
    /// Items that failed.
    pub failed: AtomicU64,
    /// Parts of large files that an earlier run had sent already.
    pub parts_kept: AtomicU64,
    /// Parts of large files that had to be sent again.
    pub parts_again: AtomicU64,
    /// Whether a pause holds everything.
    pub paused: std::sync::atomic::AtomicBool,
}

impl Progress {
    /// What is being done.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self
            .phase
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, phase: Phase, total: u64, bytes: u64) {
        *self
            .phase
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner) = phase;
        self.total.store(total, Relaxed);
        self.total_bytes.store(bytes, Relaxed);
        self.done.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }

    pub(crate) fn did(&self, items: u64, bytes: u64) {
        self.done.fetch_add(items, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn listed(&self, side: Side, rows: &[Row], last: bool) {
        let side = &self.sides[side as usize];
        side.entries.fetch_add(rows.len() as u64, Relaxed);
        side.folders.fetch_add(u64::from(last), Relaxed);
    }

    pub(crate) fn overloaded(&self, side: Side) {
        self.sides[side as usize].overloads.fetch_add(1, Relaxed);
    }
}
