//! The state of all jobs, read from their state files.

use crate::error::Result;
use crate::progress::{ProgressSnapshot, Round};
use crate::queries::{Count, Outcome, StateReader, Summary};
use crate::store::{ROOT, lock_holder};
use std::path::{Path, PathBuf};

/// Maximum number of jobs that the page shows.
const JOBS: usize = 100;

/// All jobs at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct JobList {
    pub(super) jobs: Vec<JobView>,
}

/// A job, as read from its state file.
#[derive(Clone, Debug, Default)]
pub(super) struct JobView {
    /// The id of the job in rows and actions: the path of its state file.
    pub(super) id: String,
    pub(super) path: PathBuf,
    /// Why the state file could not be read.
    pub(super) problem: Option<String>,
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) stage: String,
    pub(super) pass: String,
    pub(super) paused: bool,
    /// The process that runs the job.
    pub(super) holder: Option<String>,
    /// The last progress snapshot of the runner.
    pub(super) live: Option<ProgressSnapshot>,
    /// The rounds of both sides.
    pub(super) rounds: [Vec<Round>; 2],
    pub(super) summary: Option<Summary>,
    pub(super) outcome: Option<Outcome>,
    pub(super) failures: u64,
    /// The totals of the plan.
    pub(super) total: Option<Count>,
    /// Modification time and log size, to detect that nothing changed.
    changed: Option<(std::time::SystemTime, u64)>,
}

/// Returns the configured files, and the state files in configured folders.
pub(super) fn state_files(locations: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for location in locations {
        let Ok(entries) = std::fs::read_dir(location) else {
            files.push(location.clone());
            continue;
        };
        let mut found: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "db"))
            .collect();
        found.sort();
        files.extend(found);
    }
    files.truncate(JOBS);
    files
}

pub(super) fn read_jobs(files: &[PathBuf], last: &JobList) -> JobList {
    let known = |path: &PathBuf| {
        let before = last.jobs.iter().find(|job| job.path == *path);
        let id = path.display().to_string();
        let jobs = read_job(path, before).unwrap_or_else(|error| JobView {
            problem: Some(error.to_string()),
            ..JobView::default()
        });
        JobView {
            id,
            path: path.clone(),
            ..jobs
        }
    };
    JobList {
        jobs: files.iter().map(known).collect(),
    }
}

fn read_job(path: &Path, before: Option<&JobView>) -> Result<JobView> {
    let runner = lock_holder(path);
    let changed = changed(path);
    if let Some(before) = before
        && runner.is_none()
        && before.holder.is_none()
        && before.changed == changed
        && changed.is_some()
    {
        return Ok(before.clone());
    }
    let state = StateReader::open(path)?;
    let live = runner.as_ref().and_then(|_| state.live());
    let pass = state.meta_value("pass")?;
    let live_rounds = live
        .as_ref()
        .map(|live| [0, 1].map(|at| live.sides[at].rounds.clone()));
    let rounds = match (live_rounds, before) {
        (Some(rounds), _) if !rounds[0].is_empty() => rounds,
        // A copy does not change the rounds, so those read before are still right.
        (Some(_), Some(before)) if before.pass == pass && !before.rounds[0].is_empty() => {
            before.rounds.clone()
        }
        _ => state.rounds()?,
    };
    Ok(JobView {
        source: state.meta_value("source")?,
        destination: state.meta_value("destination")?,
        stage: state.meta_value("stage")?,
        paused: state.meta_value("paused")? == "1",
        pass,
        holder: runner,
        live,
        rounds,
        summary: state.summary().ok(),
        outcome: state.last_outcome(),
        failures: state.failure_count()?,
        total: state.total(ROOT)?.map(|total| total.found),
        changed,
        ..JobView::default()
    })
}

/// Returns the latest modification of the file or its WAL, and the size of the WAL.
fn changed(path: &Path) -> Option<(std::time::SystemTime, u64)> {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let file = std::fs::metadata(path).ok()?;
    let log = std::fs::metadata(PathBuf::from(log)).ok();
    let at = file.modified().ok()?;
    let logged = log.as_ref().and_then(|log| log.modified().ok());
    Some((
        logged.map_or(at, |logged| logged.max(at)),
        log.map_or(0, |log| log.len()),
    ))
}
