//! Progress counters of a job, which nothing waits for.
//!
//! The workers add to [`Progress`]; a display takes a [`ProgressSnapshot`] of it with a
//! [`RateMeter`] from time to time. A runner stores one in the state file about once per second,
//! for other processes.

mod snapshot;

pub use snapshot::{ProgressSnapshot, RateMeter, SideSnapshot};

use crate::side::Side;
use headworks_core::rounds::{Progress as RoundsProgress, State};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The current phase of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// Nothing has started yet.
    #[default]
    Starting,
    /// Both trees are listed.
    Plan,
    /// The result of the plan is counted.
    Summary,
    /// Folders are made.
    Folders,
    /// Files are copied.
    Files,
    /// Hard links are made.
    Links,
    /// Extra entries are deleted.
    Delete,
    /// Folders get their attributes.
    FolderTimes,
    /// The destination is verified.
    Verify,
    /// The job is done.
    Done,
}

impl Phase {
    /// Returns the name of the phase.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Phase::Starting => "starting",
            Phase::Plan => "plan",
            Phase::Summary => "counting",
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

/// The activity of a side of a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Activity {
    /// Not started: the other side goes first.
    #[default]
    Waiting,
    /// Folders are being listed.
    Listing,
    /// All folders left in its round wait for a retry.
    Retrying,
    /// Its round is finished, and the other side is too far behind or ahead.
    Held,
    /// The job is paused.
    Paused,
    /// All folders are listed.
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

    /// Returns what the side is waiting for; `None` while it lists, and when it is done.
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
    /// Folders in the round, as far as known.
    pub declared: u64,
    /// Finished folders, successful or not.
    pub ended: u64,
    /// Finished folders that failed.
    pub failed: u64,
    /// Whether all folders are finished.
    pub closed: bool,
}

/// Calls to a storage that run at a time.
#[derive(Debug, Default)]
pub struct Calls {
    /// The present limit.
    pub limit: AtomicU64,
    /// The number of running calls.
    pub running: AtomicU64,
}

impl Calls {
    pub(crate) fn set(&self, limit: usize, running: u64) {
        self.limit.store(limit as u64, Relaxed);
        self.running.store(running, Relaxed);
    }

    pub(crate) fn get(&self) -> (u64, u64) {
        (self.limit.load(Relaxed), self.running.load(Relaxed))
    }
}

/// The counters of one side of a plan.
#[derive(Debug, Default)]
pub struct SideProgress {
    /// Folders listed in this run.
    pub folders: AtomicU64,
    /// Entries found in this run.
    pub entries: AtomicU64,
    /// The current round.
    pub round: AtomicU32,
    /// Listings that failed and were retried.
    pub retried: AtomicU64,
    /// Overload responses.
    pub overloads: AtomicU64,
    /// Folders whose listing an earlier run had started and that were listed from the start again.
    pub relisted: AtomicU64,
    /// Folders whose listing was resumed at a page that an earlier run had reached.
    pub resumed_listings: AtomicU64,
    /// Running listings.
    pub calls: Calls,
    activity: AtomicU8,
    rounds: Mutex<Vec<Round>>,
}

impl SideProgress {
    /// Returns what the side is doing.
    #[must_use]
    pub fn activity(&self) -> Activity {
        Activity::ALL[usize::from(self.activity.load(Relaxed)) % Activity::ALL.len()]
    }

    /// Returns the rounds of this run, starting at the root; those of earlier runs are empty.
    #[must_use]
    pub fn rounds(&self) -> Vec<Round> {
        self.rounds.lock().clone()
    }

    pub(crate) fn update(&self, rounds: &RoundsProgress, state: State) {
        self.round.store(rounds.round, Relaxed);
        self.activity
            .store(Activity::of(rounds, state) as u8, Relaxed);
        let mut known = self.rounds.lock();
        let at = rounds.round as usize;
        if known.len() <= at {
            // The rounds before it closed between two updates.
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

/// Interval at which paused work checks whether it may continue.
const PAUSE_POLL: Duration = Duration::from_millis(50);

/// The counters of a run.
#[derive(Debug, Default)]
pub struct Progress {
    phase: Mutex<Phase>,
    /// Source and destination.
    pub sides: [SideProgress; 2],
    /// Items to do in this phase.
    pub total: AtomicU64,
    /// Bytes to do in this phase.
    pub total_bytes: AtomicU64,
    /// Items done.
    pub done: AtomicU64,
    /// Bytes done.
    pub bytes: AtomicU64,
    /// Entries that this run worked on, in all phases and attempts.
    worked: AtomicU64,
    /// Bytes that this run sent, in all phases and attempts.
    sent: AtomicU64,
    /// Running transfers.
    pub transfers: Calls,
    /// Items that failed.
    pub failed: AtomicU64,
    /// Whether this run resumes an earlier one.
    pub resumed: AtomicBool,
    /// Parts of large files that an earlier run had sent already.
    pub parts_kept: AtomicU64,
    /// Parts of large files that were sent again.
    pub parts_again: AtomicU64,
    /// Whether the job is paused.
    pub paused: AtomicBool,
    /// Whether the destination is being synced, which every copied entry waits for.
    pub syncing: AtomicBool,
}

impl Progress {
    /// Returns the current phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        *self.phase.lock()
    }

    pub(crate) fn enter(&self, phase: Phase, total: u64, bytes: u64) {
        *self.phase.lock() = phase;
        self.total.store(total, Relaxed);
        self.total_bytes.store(bytes, Relaxed);
        self.done.store(0, Relaxed);
        self.bytes.store(0, Relaxed);
        self.transfers.set(0, 0);
    }

    /// Waits while the job is paused, at most until `is_over`.
    pub(crate) async fn wait_while_paused(&self, is_over: impl Fn() -> bool) {
        while self.paused.load(Relaxed) && !is_over() {
            tokio::time::sleep(PAUSE_POLL).await;
        }
    }

    /// Returns the work of a copy so far: an entry, or a mebibyte of a large one. It never goes
    /// back, and counts each entry when it is finished: what is counted in batches looks as if
    /// nothing was done for a while, and then much at once.
    pub(crate) fn copied_units(&self) -> f64 {
        self.worked.load(Relaxed) as f64 + self.sent.load(Relaxed) as f64 / f64::from(1 << 20)
    }

    pub(crate) fn add_worked(&self, entries: usize) {
        self.worked.fetch_add(entries as u64, Relaxed);
    }

    /// Returns the work of a side's plan so far: a folder, or a thousand entries of a large one.
    pub(crate) fn listed_units(&self, side: Side) -> f64 {
        let side = &self.sides[side as usize];
        side.folders.load(Relaxed) as f64 + side.entries.load(Relaxed) as f64 / 1000.0
    }

    /// Returns the bytes that this run has sent, including repetitions.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.sent.load(Relaxed)
    }

    pub(crate) fn add_sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
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

    /// Describes what resuming cost; `None` if this run started from scratch.
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
                "resumed: {} folders listed again, {} listings continued, {} parts kept, {} parts sent again",
                over(|side| &side.relisted),
                over(|side| &side.resumed_listings),
                parts.0,
                parts.1
            )
        })
    }
}
