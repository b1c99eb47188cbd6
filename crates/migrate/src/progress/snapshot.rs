//! A snapshot of a run: progress, rates, ETA, and what it is waiting for.

use super::{Activity, Phase, Progress, Round};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// The window over which rates are measured.
const WINDOW: Duration = Duration::from_secs(10);

/// A run at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ProgressSnapshot {
    /// The current phase.
    pub phase: String,
    /// The time of the snapshot, in nanoseconds since 1970.
    pub at: i64,
    /// Items done in this phase; in a plan, folders.
    pub done: u64,
    /// Items to do in this phase, as far as known.
    pub total: u64,
    /// Bytes done in this phase.
    pub bytes: u64,
    /// Bytes to do in this phase.
    pub total_bytes: u64,
    /// Items that failed.
    pub failed: u64,
    /// Items per second.
    pub rate: f64,
    /// Bytes per second.
    pub byte_rate: f64,
    /// Estimated seconds until the end of the phase; in a plan, of its current rounds.
    pub eta: Option<f64>,
    /// The event that the run is waiting for, if any.
    pub waits_for: Option<String>,
    /// Whether the job is paused.
    pub paused: bool,
    /// The limit of concurrent transfers, and how many of them run; 0 while not known.
    #[serde(default)]
    pub transfers: (u64, u64),
    /// Source and destination.
    pub sides: [SideSnapshot; 2],
}

/// One side of a plan at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SideSnapshot {
    /// The activity of the side.
    #[serde(rename = "doing")]
    pub activity: Activity,
    /// The current round.
    pub round: u32,
    /// Folders listed in this run.
    pub folders: u64,
    /// Entries found in this run.
    pub entries: u64,
    /// Listings that were retried.
    pub retried: u64,
    /// Overload responses.
    pub overloads: u64,
    /// The limit of concurrent listings, and how many of them run; 0 while not known.
    #[serde(default)]
    pub listings: (u64, u64),
    /// The rounds, starting at the root.
    pub rounds: Vec<Round>,
}

/// Measures rates over the last seconds of a run.
#[derive(Debug, Default)]
pub struct RateMeter {
    phase: Phase,
    samples: VecDeque<(Instant, u64, u64)>,
}

impl RateMeter {
    /// Takes a snapshot.
    pub fn snapshot(&mut self, progress: &Progress) -> ProgressSnapshot {
        self.snapshot_at(progress, Instant::now())
    }

    fn snapshot_at(&mut self, progress: &Progress, now: Instant) -> ProgressSnapshot {
        let phase = progress.phase();
        if phase != self.phase {
            self.phase = phase;
            self.samples.clear();
        }
        let sides = [side(progress, 0), side(progress, 1)];
        let (done, total) = match phase {
            Phase::Plan => plan_counts(&sides),
            _ => (progress.done.load(Relaxed), progress.total.load(Relaxed)),
        };
        let (bytes, total_bytes) = (
            progress.bytes.load(Relaxed),
            progress.total_bytes.load(Relaxed),
        );
        let (rate, byte_rate) = self.rates(now, done, bytes);
        let paused = progress.paused.load(Relaxed);
        let left = |total: u64, done: u64, rate: f64| match total.saturating_sub(done) {
            0 => Some(0.0),
            left if rate > 0.0 => Some(left as f64 / rate),
            _ => None,
        };
        let (items, in_bytes) = (left(total, done, rate), left(total_bytes, bytes, byte_rate));
        ProgressSnapshot {
            phase: phase.word().into(),
            at: crate::now(),
            done,
            total,
            bytes,
            total_bytes,
            failed: progress.failed.load(Relaxed),
            rate,
            byte_rate,
            // The larger of the two: many small files, or a few large ones.
            eta: items
                .zip(in_bytes)
                .map(|(a, b)| a.max(b))
                .filter(|_| !paused),
            waits_for: waits_for(progress, phase, &sides),
            paused,
            transfers: progress.transfers.get(),
            sides,
        }
    }

    fn rates(&mut self, now: Instant, done: u64, bytes: u64) -> (f64, f64) {
        self.samples.push_back((now, done, bytes));
        while self
            .samples
            .get(1)
            .is_some_and(|(at, ..)| now.duration_since(*at) >= WINDOW)
        {
            self.samples.pop_front();
        }
        let Some(&(since, was, had)) = self.samples.front() else {
            return (0.0, 0.0);
        };
        let seconds = now.duration_since(since).as_secs_f64();
        match seconds > 0.0 {
            true => (
                done.saturating_sub(was) as f64 / seconds,
                bytes.saturating_sub(had) as f64 / seconds,
            ),
            false => (0.0, 0.0),
        }
    }
}

fn side(progress: &Progress, at: usize) -> SideSnapshot {
    let side = &progress.sides[at];
    SideSnapshot {
        activity: side.activity(),
        round: side.round.load(Relaxed),
        folders: side.folders.load(Relaxed),
        entries: side.entries.load(Relaxed),
        retried: side.retried.load(Relaxed),
        overloads: side.overloads.load(Relaxed),
        listings: side.calls.get(),
        rounds: side.rounds(),
    }
}

/// Returns the finished and the known folders of both sides.
fn plan_counts(sides: &[SideSnapshot; 2]) -> (u64, u64) {
    let rounds = || sides.iter().flat_map(|side| &side.rounds);
    (
        rounds().map(|round| round.ended).sum(),
        rounds().map(|round| round.declared).sum(),
    )
}

fn waits_for(progress: &Progress, phase: Phase, sides: &[SideSnapshot; 2]) -> Option<String> {
    if progress.paused.load(Relaxed) {
        return Some("`headworks migrate resume`".into());
    }
    if phase == Phase::Plan {
        let named = ["source", "destination"].into_iter().zip(sides);
        let parts = named.filter_map(|(name, side)| {
            let waits = side.activity.waits_for()?;
            Some(format!("the {name} {waits}"))
        });
        let parts: Vec<String> = parts.collect();
        return (!parts.is_empty()).then(|| parts.join(", "));
    }
    let syncing = progress.syncing.load(Relaxed);
    syncing.then(|| "the destination to sync".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_left_follow_from_the_last_seconds() {
        let progress = Progress::default();
        progress.enter(Phase::Files, 100, 1000);
        let mut meter = RateMeter::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(meter.snapshot_at(&progress, at(0)).eta, None);
        progress.add_done(10, 200);
        let snapshot = meter.snapshot_at(&progress, at(5));
        assert_eq!((snapshot.rate, snapshot.byte_rate), (2.0, 40.0));
        assert_eq!(
            snapshot.eta,
            Some(45.0),
            "by items, which take longer than bytes"
        );
        // After twenty idle seconds the earlier samples are out of the window.
        meter.snapshot_at(&progress, at(15));
        let snapshot = meter.snapshot_at(&progress, at(25));
        assert_eq!((snapshot.rate, snapshot.eta), (0.0, None));
        // A new phase starts from zero.
        progress.enter(Phase::FolderTimes, 7, 0);
        let snapshot = meter.snapshot_at(&progress, at(26));
        assert_eq!((snapshot.done, snapshot.total, snapshot.rate), (0, 7, 0.0));
    }

    #[test]
    fn a_paused_job_waits_for_resume() {
        let progress = Progress::default();
        progress.enter(Phase::Files, 2, 0);
        progress.add_done(1, 0);
        progress.paused.store(true, Relaxed);
        let snapshot = RateMeter::default().snapshot(&progress);
        assert_eq!(snapshot.eta, None);
        assert_eq!(
            snapshot.waits_for.as_deref(),
            Some("`headworks migrate resume`")
        );
    }
}
