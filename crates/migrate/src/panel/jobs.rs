//! What a look at the state files saw.

use crate::error::Result;
use crate::progress::{Live, Round};
use crate::state::{Count, Outcome, State, Summary};
use crate::store::{ROOT, holder};
use std::path::{Path, PathBuf};

/// Jobs that are looked at; a page is not the place for more.
const JOBS: usize = 100;

/// All jobs at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) jobs: Vec<Known>,
}

/// One job.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// What rows and actions call it: the path of its state file.
    pub(super) id: String,
    pub(super) path: PathBuf,
    /// Why nothing is known of it.
    pub(super) problem: Option<String>,
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) stage: String,
    pub(super) pass: String,
    pub(super) paused: bool,
    /// Who runs it now.
    pub(super) holder: Option<String>,
    /// What the runner left of itself.
    pub(super) live: Option<Live>,
    /// The rounds of both sides.
    pub(super) rounds: [Vec<Round>; 2],
    pub(super) summary: Option<Summary>,
    pub(super) outcome: Option<Outcome>,
    pub(super) failures: u64,
    /// What the plan found in all.
    pub(super) total: Option<Count>,
    /// By what it can be told that nothing changed.
    changed: Option<(std::time::SystemTime, u64)>,
}

/// The files that are named, and those in folders that are.
pub(super) fn state_files(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for place in places {
        let Ok(entries) = std::fs::read_dir(place) else {
            files.push(place.clone());
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

pub(super) fn look(files: &[PathBuf], last: &Seen) -> Seen {
    let known = |path: &PathBuf| {
        let before = last.jobs.iter().find(|job| job.path == *path);
        let id = path.display().to_string();
        let seen = look_at(path, before).unwrap_or_else(|error| Known {
            problem: Some(error.to_string()),
            ..Known::default()
        });
        Known {
            id,
            path: path.clone(),
            ..seen
        }
    };
    Seen {
        jobs: files.iter().map(known).collect(),
    }
}

fn look_at(path: &Path, before: Option<&Known>) -> Result<Known> {
    let runner = holder(path);
    let changed = changed(path);
    if let Some(before) = before
        && runner.is_none()
        && before.holder.is_none()
        && before.changed == changed
        && changed.is_some()
    {
        return Ok(before.clone());
    }
    let state = State::open(path)?;
    let live = runner.as_ref().and_then(|_| state.live());
    let pass = state.fact("pass")?;
    let shown = live
        .as_ref()
        .map(|live| [0, 1].map(|at| live.sides[at].rounds.clone()));
    let rounds = match (shown, before) {
        (Some(rounds), _) if !rounds[0].is_empty() => rounds,
        // A copy changes nothing of the rounds that are known already.
        (Some(_), Some(before)) if before.pass == pass && !before.rounds[0].is_empty() => {
            before.rounds.clone()
        }
        _ => state.rounds()?,
    };
    Ok(Known {
        source: state.fact("source")?,
        destination: state.fact("destination")?,
        stage: state.fact("stage")?,
        paused: state.fact("paused")? == "1",
        pass,
        holder: runner,
        live,
        rounds,
        summary: state.summary().ok(),
        outcome: state.last_outcome(),
        failures: state.failure_count()?,
        total: state.total(ROOT)?.map(|total| total.found),
        changed,
        ..Known::default()
    })
}

/// The youngest change of the file or its log, and the size of the log.
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
