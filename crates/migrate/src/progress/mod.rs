//! How far a job is, for whoever looks: counters that nobody waits for.
//!
//! Whoever does something adds to [`Progress`]; whoever shows it makes a [`ProgressSnapshot`] picture of it
//! with a [`RateMeter`], now and then. A runner leaves one in the state file about once a second, for
//! other processes.

mod snapshot;

pub use snapshot::{ProgressSnapshot, RateMeter, SideSnapshot};

use crate::side::Side;
use headworks_core::rounds::{Progress as RoundsProgress, State};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    FolderTimes,
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
            Phase::FolderTimes => "folder times",
            Phase::Verify => "verify",
            Phase::Done => "done",
        }
    }
}

/// What a side of a plan does, or waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Activity {
    /// Not begun: the other side goes first.
    #[default]
    Waiting,
    /// Folders are listed.
    Listing,
    /// All that is left of its round is waiting for another attempt.
    Retrying,
    /// Its round is over, and the other side is too far away.
    Held,
    /// Somebody asked for a pause.
    Paused,
    /// Nothing is left to list.
    Done,
}

impl Activity {
    const ALL: [Activity; 6] = [
        Activity::Waiting,
        Activity::Listing,
        Activity::Retrying,
        Activity::Held,
        Activity::Paused,
        Activity::Done,
    ];

    fn of(rounds: &RoundsProgress, state: State) -> Activity {
        match state {
            State::Waiting => Activity::Waiting,
            State::Paused => Activity::Paused,
            State::Completed | State::Stopped => Activity::Done,
            State::Running if rounds.closed.is_some() => Activity::Held,
            State::Running if rounds.leased == 0 && rounds.ready == 0 && rounds.delayed > 0 => {
                Activity::Retrying
            }
            State::Running => Activity::Listing,
        }
    }

    /// What is waited for, in words; nothing while it lists, and when it is done.
    #[must_use]
    pub const fn waits_for(self) -> Option<&'static str> {
        match self {
            Activity::Waiting | Activity::Held => Some("waits for the other side"),
            Activity::Retrying => Some("waits to try again"),
            Activity::Paused => Some("paused"),
            Activity::Listing | Activity::Done => None,
        }
    }
}

/// One round of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Round {
    /// Folders of it, as far as known.
    pub declared: u64,
    /// Those that have ended, well or not.
    pub ended: u64,
    /// Those of the ended that failed.
    pub failed: u64,
    /// Whether all have.
    pub closed: bool,
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
    /// Listings that failed and were tried again.
    pub retried: AtomicU64,
    /// Answers that asked for patience.
    pub overloads: AtomicU64,
    /// Folders whose listing an earlier run had begun, and that were listed from the start again.
    pub relisted: AtomicU64,
    /// Folders whose listing was gone on with at a page that an earlier run had reached.
    pub resumed_listings: AtomicU64,
    activity: AtomicU8,
    rounds: Mutex<Vec<Round>>,
}

impl SideProgress {
    /// What it does, or waits for.
    #[must_use]
    pub fn activity(&self) -> Activity {
        Activity::ALL[usize::from(self.activity.load(Relaxed)) % Activity::ALL.len()]
    }

    /// The rounds of this run, from the root on; those of earlier runs are empty.
    #[must_use]
    pub fn rounds(&self) -> Vec<Round> {
        self.rounds
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn update(&self, rounds: &RoundsProgress, state: State) {
        self.round.store(rounds.round, Relaxed);
        self.activity
            .store(Activity::of(rounds, state) as u8, Relaxed);
        let mut known = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        let at = rounds.round as usize;
        if known.len() <= at {
            // The rounds before it closed while nobody looked.
            known
                .iter_mut()
                .for_each(|round| (round.ended, round.closed) = (round.declared, true));
            known.resize(at + 1, Round::default());
        }
        known[at] = Round {
            declared: rounds.declared,
            ended: rounds.ended,
            failed: rounds.failed,
            closed: rounds.closed.is_some(),
        };
    }
}

/// How often what is held by a pause looks whether it may go on.
const PAUSE_POLL: Duration = Duration::from_millis(50);

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
    /// Whether this run goes on with what an earlier one left.
    pub resumed: AtomicBool,
    /// Parts of large files that an earlier run had sent already.
    pub parts_kept: AtomicU64,
    /// Parts of large files that had to be sent again.
    pub parts_again: AtomicU64,
    /// Whether a pause holds everything.
    pub paused: AtomicBool,
    /// Whether the destination is being synced, which everything that was copied waits for.
    pub syncing: AtomicBool,
}

impl Progress {
    /// What is being done.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, phase: Phase, total: u64, bytes: u64) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.total.store(total, Relaxed);
        self.total_bytes.store(bytes, Relaxed);
        self.done.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
    }

    /// Waits while the job is paused, and no longer than until `is_over`.
    pub(crate) async fn wait_while_paused(&self, is_over: impl Fn() -> bool) {
        while self.paused.load(Relaxed) && !is_over() {
            tokio::time::sleep(PAUSE_POLL).await;
        }
    }

    pub(crate) fn add_done(&self, items: u64, bytes: u64) {
        self.done.fetch_add(items, Relaxed);
        self.bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn listed(&self, side: Side, entries: usize, last: bool) {
        let side = &self.sides[side as usize];
        side.entries.fetch_add(entries as u64, Relaxed);
        side.folders.fetch_add(u64::from(last), Relaxed);
    }

    pub(crate) fn overloaded(&self, side: Side) {
        self.sides[side as usize].overloads.fetch_add(1, Relaxed);
    }

    /// What going on with an earlier run cost, in words; nothing if this run began at the
    /// beginning.
    #[must_use]
    pub fn resume_cost(&self) -> Option<String> {
        let over = |count: fn(&SideProgress) -> &AtomicU64| -> u64 {
            self.sides
                .iter()
                .map(|side| count(side).load(Relaxed))
                .sum()
        };
        let parts = (
            self.parts_kept.load(Relaxed),
            self.parts_again.load(Relaxed),
        );
        self.resumed.load(Relaxed).then(|| {
            format!(
                "resumed: {} folders listed again, {} gone on with, {} parts kept, {} parts sent again",
                over(|side| &side.relisted),
                over(|side| &side.resumed_listings),
                parts.0,
                parts.1
            )
        })
    }
}
