//! The widgets of the page.

use super::browse::{self, BrowseCursor};
use super::jobs::{JobList, JobView};
use crate::plan::{LAG, MAX_LEAD};
use crate::progress::{Activity, Round as Counted};
use crate::store::ROOT;
use headworks_service::panel::{
    Body, Cell, Health, Line, LineKind, Paged, Round, RoundState, Rounds, Row, Series, Side,
    Snapshot, Unit, Widget,
};

/// Maximum number of jobs whose rounds are drawn; running jobs first.
const MAX_ROUND_WIDGETS: usize = 6;
/// Maximum number of rounds drawn per side; for deeper trees the last ones.
const MAX_ROUNDS: usize = 40;

pub(super) fn snapshot(jobs: &JobList) -> Snapshot {
    let mut widgets = vec![
        Widget::new("load", "Entries", Body::Series(load(jobs))),
        Widget::new("bytes", "Bytes", Body::Series(bytes(jobs))),
        Widget::new("jobs", "Jobs", Body::Table(job_table(jobs))),
    ];
    let mut drawn: Vec<(usize, &JobView)> = jobs.jobs.iter().enumerate().collect();
    drawn.sort_by_key(|(_, job)| job.holder.is_none());
    for (at, job) in drawn.into_iter().take(MAX_ROUND_WIDGETS) {
        if !job.rounds[0].is_empty() {
            let title = format!("Rounds of {}", name(job));
            let rounds = Body::Rounds(rounds(job));
            widgets.push(Widget::new(format!("rounds-{at}"), title, rounds));
        }
    }
    widgets.extend([
        Widget::new("statuses", "Statuses", Body::Table(statuses(jobs))),
        Widget::new("failures", "Failures", Body::Table(failures(jobs))),
        Widget::new("plan", "Plans", Body::Tree(plans(jobs))),
        Widget::new(
            "start-synthetic",
            "Synthetic migration",
            Body::Action {
                action: "start-synthetic".into(),
            },
        ),
    ]);
    Snapshot {
        title: "Migrations".into(),
        health: health(jobs),
        widgets,
    }
}

/// Returns the name of the state file without its extension.
pub(super) fn name(job: &JobView) -> String {
    let stem = job.path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

fn health(jobs: &JobList) -> Health {
    let failed = jobs.jobs.iter().filter(|job| job.failures > 0).count();
    let running = jobs.jobs.iter().any(|job| job.holder.is_some());
    if let Some(broken) = jobs.jobs.iter().find(|job| job.problem.is_some()) {
        let why = broken.problem.clone().unwrap_or_default();
        return Health::Warning(format!("{}: {why}", name(broken)));
    }
    match (failed, running) {
        (0, true) => Health::Good,
        (0, false) => Health::Idle,
        (failed, _) => Health::Warning(format!("{failed} jobs have failures")),
    }
}

fn line(name: &str, kind: LineKind, value: f64) -> Line {
    Line {
        name: name.into(),
        kind,
        value,
        limit: None,
    }
}

fn load(jobs: &JobList) -> Series {
    let live = || jobs.jobs.iter().filter_map(|job| job.live.as_ref());
    let found =
        |live: &crate::ProgressSnapshot| live.sides.iter().map(|side| side.entries).sum::<u64>();
    let running = jobs.jobs.iter().filter(|job| job.holder.is_some()).count();
    Series {
        unit: Unit::Count,
        lines: vec![
            line(
                "found",
                LineKind::Total,
                live().map(found).sum::<u64>() as f64,
            ),
            line(
                "done",
                LineKind::Total,
                live().map(|live| live.done).sum::<u64>() as f64,
            ),
            line(
                "failed",
                LineKind::Total,
                live().map(|live| live.failed).sum::<u64>() as f64,
            ),
            line("jobs running", LineKind::Level, running as f64),
        ],
    }
}

fn bytes(jobs: &JobList) -> Series {
    let rates = jobs.jobs.iter().filter_map(|job| job.live.as_ref());
    // Not a sum: the sum of no floats is minus zero.
    let rate = rates.fold(0.0, |sum, live| sum + live.byte_rate);
    Series {
        unit: Unit::BytesPerSecond,
        lines: vec![line("copied", LineKind::Level, rate)],
    }
}

fn job_table(jobs: &JobList) -> Paged {
    let rows = jobs.jobs.iter().map(|job| {
        let live = job.live.as_ref();
        let number = |value: Option<f64>| value.map_or(Cell::Empty, Cell::Number);
        let activity = match live {
            Some(live) => live.phase.clone(),
            None => job.stage.clone(),
        };
        let waits = live.and_then(|live| live.waits_for.clone());
        let cells = vec![
            Cell::Text(name(job)),
            Cell::Health(job_health(job)),
            Cell::Text(format!("{} → {}", job.source, job.destination)),
            Cell::Text(activity),
            number(live.map(|live| live.done as f64)),
            number(live.map(|live| live.total as f64)),
            number(live.map(|live| live.rate)),
            number(live.map(|live| live.byte_rate)),
            number(live.and_then(|live| live.eta)),
            number(Some(job.failures as f64)),
            waits.map_or(Cell::Empty, Cell::Text),
            job.holder.clone().map_or(Cell::Empty, Cell::Text),
        ];
        Row {
            id: job.id.clone(),
            cells,
            children: None,
        }
    });
    let names = [
        ("job", Unit::Count),
        ("state", Unit::Count),
        ("source → destination", Unit::Count),
        ("phase", Unit::Count),
        ("done", Unit::Count),
        ("total", Unit::Count),
        ("per second", Unit::PerSecond),
        ("throughput", Unit::BytesPerSecond),
        ("ETA", Unit::Seconds),
        ("failures", Unit::Count),
        ("waiting for", Unit::Count),
        ("runner", Unit::Count),
    ];
    Paged::new(&names, rows.collect(), None)
}

fn job_health(job: &JobView) -> Health {
    if let Some(problem) = &job.problem {
        return Health::Bad(problem.clone());
    }
    let troubled = job.outcome.as_ref().is_some_and(|outcome| {
        job.stage == "done" && (outcome.has_failures() || outcome.has_differences())
    });
    match (job.holder.is_some(), job.stage.as_str()) {
        _ if job.paused => Health::Warning("paused".into()),
        (true, _) => Health::Good,
        (false, "done") if troubled => {
            Health::Warning("done, but some entries were not copied".into())
        }
        (false, "done" | "planned") => Health::Idle,
        (false, _) => Health::Warning("interrupted: run it again to continue".into()),
    }
}

fn rounds(job: &JobView) -> Rounds {
    let side = |at: usize, name: &str| Side {
        name: name.into(),
        state: side_state(job, at),
        rounds: recent_rounds(&job.rounds[at]),
    };
    Rounds {
        unit: Unit::Count,
        leader: side(0, "source"),
        follower: side(1, "destination"),
        lag: LAG,
        max_lead: MAX_LEAD,
    }
}

fn recent_rounds(rounds: &[Counted]) -> Vec<Round> {
    let skipped = rounds.len().saturating_sub(MAX_ROUNDS);
    let recent = rounds.iter().skip(skipped).map(|round| Round {
        declared: round.declared,
        done: round.ended - round.failed.min(round.ended),
        failed: round.failed,
        closed: round.closed,
    });
    recent.collect()
}

fn side_state(job: &JobView, at: usize) -> RoundState {
    let Some(live) = &job.live else {
        let open = job.rounds[at]
            .iter()
            .any(|round| round.ended < round.declared);
        return match open {
            true => RoundState::Stopped,
            false => RoundState::Completed,
        };
    };
    match live.sides[at].activity {
        _ if live.phase != "plan" => RoundState::Completed,
        Activity::Waiting => RoundState::Waiting,
        Activity::Listing | Activity::Retrying => RoundState::Running,
        Activity::Held => RoundState::Held,
        Activity::Paused => RoundState::Paused,
        Activity::Done => RoundState::Completed,
    }
}

fn statuses(jobs: &JobList) -> Paged {
    let mut rows = Vec::new();
    for job in &jobs.jobs {
        let planned = job.summary.iter().flat_map(|summary| &summary.statuses);
        let planned = planned.map(|(word, count)| ("plan", word.clone(), *count));
        let done = job.outcome.iter().flat_map(|outcome| &outcome.classes);
        let done = done.map(|(class, count)| ("result", class.word().to_owned(), *count));
        for (when, word, count) in planned.chain(done) {
            rows.push(Row {
                id: format!("{} {when} {word}", job.id),
                cells: vec![
                    Cell::Text(name(job)),
                    Cell::from(when),
                    Cell::Text(word),
                    Cell::Number(count.entries as f64),
                    Cell::Number(count.bytes as f64),
                ],
                children: None,
            });
        }
    }
    let names = [
        ("job", Unit::Count),
        ("phase", Unit::Count),
        ("status", Unit::Count),
        ("entries", Unit::Count),
        ("bytes", Unit::Bytes),
    ];
    Paged::new(&names, rows, None)
}

/// Returns an empty table with a cursor to the first page: failures are read on demand.
fn failures(jobs: &JobList) -> Paged {
    let failed = jobs.jobs.iter().find(|job| job.failures > 0);
    let next = failed.map(|job| BrowseCursor::first_failure(&job.id).cursor());
    let mut paged = Paged::new(&browse::FAILURE_COLUMNS, Vec::new(), next);
    paged.total = Some(jobs.jobs.iter().map(|job| job.failures).sum());
    paged
}

fn plans(jobs: &JobList) -> Paged {
    let rows = jobs
        .jobs
        .iter()
        .filter(|job| job.problem.is_none())
        .map(|job| {
            let total = job.total.unwrap_or_default();
            let work = job
                .summary
                .as_ref()
                .map(crate::Summary::work)
                .unwrap_or_default();
            Row {
                id: browse::entry_id(&job.id, b""),
                cells: vec![
                    Cell::Text(name(job)),
                    Cell::Text(job.stage.clone()),
                    Cell::Number(total.entries as f64),
                    Cell::Number(total.bytes as f64),
                    Cell::Number(work.entries as f64),
                    Cell::Number(work.bytes as f64),
                    Cell::Empty,
                ],
                children: Some(BrowseCursor::folder(&job.id, ROOT).cursor()),
            }
        });
    Paged::new(&browse::PLAN_COLUMNS, rows.collect(), None)
}
