//! What was seen, as widgets.

use super::browse::{self, Browse};
use super::jobs::{Known, Seen};
use crate::plan::{LAG, MAX_LEAD};
use crate::progress::{Doing, Round as Counted};
use crate::store::ROOT;
use headworks_service::panel::{
    Body, Cell, Health, Line, LineKind, Paged, Round, RoundState, Rounds, Row, Series, Side,
    Snapshot, Unit, Widget,
};

/// Jobs whose rounds are drawn: those that run, then the others.
const DRAWN: usize = 6;
/// Rounds of a side that are drawn; of deeper trees the last.
const ROUNDS: usize = 40;

pub(super) fn snapshot(seen: &Seen) -> Snapshot {
    let mut widgets = vec![
        Widget::new("load", "Entries", Body::Series(load(seen))),
        Widget::new("bytes", "Bytes", Body::Series(bytes(seen))),
        Widget::new("jobs", "Jobs", Body::Table(jobs(seen))),
    ];
    let mut drawn: Vec<(usize, &Known)> = seen.jobs.iter().enumerate().collect();
    drawn.sort_by_key(|(_, job)| job.holder.is_none());
    for (at, job) in drawn.into_iter().take(DRAWN) {
        if !job.rounds[0].is_empty() {
            let title = format!("Rounds of {}", name(job));
            let rounds = Body::Rounds(rounds(job));
            widgets.push(Widget::new(format!("rounds-{at}"), title, rounds));
        }
    }
    widgets.extend([
        Widget::new("statuses", "What was found", Body::Table(statuses(seen))),
        Widget::new("failures", "Failures", Body::Table(failures(seen))),
        Widget::new("plan", "Plans", Body::Tree(plans(seen))),
        Widget::new(
            "start-synthetic",
            "Something to watch",
            Body::Action {
                action: "start-synthetic".into(),
            },
        ),
    ]);
    Snapshot {
        title: "Migrations".into(),
        health: health(seen),
        widgets,
    }
}

/// The state file's name without its ending.
pub(super) fn name(job: &Known) -> String {
    let stem = job.path.file_stem().unwrap_or_default();
    stem.to_string_lossy().into_owned()
}

fn health(seen: &Seen) -> Health {
    let failed = seen.jobs.iter().filter(|job| job.failures > 0).count();
    let running = seen.jobs.iter().any(|job| job.holder.is_some());
    if let Some(broken) = seen.jobs.iter().find(|job| job.problem.is_some()) {
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

fn load(seen: &Seen) -> Series {
    let live = || seen.jobs.iter().filter_map(|job| job.live.as_ref());
    let found = |live: &crate::Live| live.sides.iter().map(|side| side.entries).sum::<u64>();
    let running = seen.jobs.iter().filter(|job| job.holder.is_some()).count();
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

fn bytes(seen: &Seen) -> Series {
    let rates = seen.jobs.iter().filter_map(|job| job.live.as_ref());
    // Not a sum: that of nothing is minus zero.
    let rate = rates.fold(0.0, |sum, live| sum + live.byte_rate);
    Series {
        unit: Unit::BytesPerSecond,
        lines: vec![line("copied", LineKind::Level, rate)],
    }
}

fn jobs(seen: &Seen) -> Paged {
    let rows = seen.jobs.iter().map(|job| {
        let live = job.live.as_ref();
        let number = |value: Option<f64>| value.map_or(Cell::Empty, Cell::Number);
        let doing = match live {
            Some(live) => live.phase.clone(),
            None => job.stage.clone(),
        };
        let waits = live.and_then(|live| live.waits_for.clone());
        let cells = vec![
            Cell::Text(name(job)),
            Cell::Health(job_health(job)),
            Cell::Text(format!("{} → {}", job.source, job.destination)),
            Cell::Text(doing),
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
        ("from and to", Unit::Count),
        ("phase", Unit::Count),
        ("done", Unit::Count),
        ("of", Unit::Count),
        ("a second", Unit::PerSecond),
        ("bytes", Unit::BytesPerSecond),
        ("left", Unit::Seconds),
        ("failures", Unit::Count),
        ("waits for", Unit::Count),
        ("runner", Unit::Count),
    ];
    Paged::new(&names, rows.collect(), None)
}

fn job_health(job: &Known) -> Health {
    if let Some(problem) = &job.problem {
        return Health::Bad(problem.clone());
    }
    let troubled = job.outcome.as_ref().is_some_and(|outcome| {
        job.stage == "done" && (outcome.has_failures() || outcome.has_differences())
    });
    match (job.holder.is_some(), job.stage.as_str()) {
        _ if job.paused => Health::Warning("paused".into()),
        (true, _) => Health::Good,
        (false, "done") if troubled => Health::Warning("done, but not everything is there".into()),
        (false, "done" | "planned") => Health::Idle,
        (false, _) => Health::Warning("cut off: run it again to go on".into()),
    }
}

fn rounds(job: &Known) -> Rounds {
    let side = |at: usize, name: &str| Side {
        name: name.into(),
        state: side_state(job, at),
        rounds: draw(&job.rounds[at]),
    };
    Rounds {
        unit: Unit::Count,
        leader: side(0, "source"),
        follower: side(1, "destination"),
        lag: LAG,
        max_lead: MAX_LEAD,
    }
}

fn draw(rounds: &[Counted]) -> Vec<Round> {
    let skipped = rounds.len().saturating_sub(ROUNDS);
    let shown = rounds.iter().skip(skipped).map(|round| Round {
        declared: round.declared,
        done: round.ended - round.failed.min(round.ended),
        failed: round.failed,
        closed: round.closed,
    });
    shown.collect()
}

fn side_state(job: &Known, at: usize) -> RoundState {
    let Some(live) = &job.live else {
        let open = job.rounds[at]
            .iter()
            .any(|round| round.ended < round.declared);
        return match open {
            true => RoundState::Stopped,
            false => RoundState::Completed,
        };
    };
    match live.sides[at].doing {
        _ if live.phase != "plan" => RoundState::Completed,
        Doing::Waiting => RoundState::Waiting,
        Doing::Listing | Doing::Retrying => RoundState::Running,
        Doing::Held => RoundState::Held,
        Doing::Paused => RoundState::Paused,
        Doing::Done => RoundState::Completed,
    }
}

fn statuses(seen: &Seen) -> Paged {
    let mut rows = Vec::new();
    for job in &seen.jobs {
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
        ("by", Unit::Count),
        ("status", Unit::Count),
        ("entries", Unit::Count),
        ("bytes", Unit::Bytes),
    ];
    Paged::new(&names, rows, None)
}

/// Empty, and the way to the first page: failures are read when somebody asks.
fn failures(seen: &Seen) -> Paged {
    let failed = seen.jobs.iter().find(|job| job.failures > 0);
    let next = failed.map(|job| Browse::first_failure(&job.id).cursor());
    let mut paged = Paged::new(&browse::FAILURE_COLUMNS, Vec::new(), next);
    paged.total = Some(seen.jobs.iter().map(|job| job.failures).sum());
    paged
}

fn plans(seen: &Seen) -> Paged {
    let rows = seen
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
                children: Some(Browse::folder(&job.id, ROOT).cursor()),
            }
        });
    Paged::new(&browse::PLAN_COLUMNS, rows.collect(), None)
}
