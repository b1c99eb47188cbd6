//! Target states and rounds as bars over time.

use super::super::plot::{Frame, Scale, escape};
use super::super::text::{number, seconds};
use super::super::{Report, SideReport, TargetReport};
use super::time::lines;
use super::{WIDE, section, shorten, wide};
use std::fmt::Write;

/// Maximum number of targets drawn, those with the most changes first.
const TARGETS: usize = 24;

pub(super) fn targets(report: &Report, page: &mut String) {
    let mut told: Vec<&TargetReport> = report
        .targets
        .iter()
        .filter(|target| target.changes > 0)
        .collect();
    if told.is_empty() {
        return;
    }
    let quiet = report.targets.len() - told.len();
    told.sort_by_key(|target| std::cmp::Reverse((target.changes, target.failures)));
    let more = told.len().saturating_sub(TARGETS);
    told.truncate(TARGETS);
    let note = format!(
        "Plain is active, hatched suspended, dotted on probation, crossed disabled. {} never left active{}.",
        number(quiet as u64),
        if more > 0 {
            format!(", and {more} more are not drawn")
        } else {
            String::new()
        }
    );
    section(page, "Targets", &note);
    let row = 18.0;
    let mut frame = Frame::new(
        WIDE,
        told.len() as f64 * row + 40.0,
        report.seconds,
        Scale::Linear(1.0),
    );
    frame.left = 150.0;
    frame.right = 130.0;
    for (index, target) in told.iter().enumerate() {
        let y = 8.0 + index as f64 * row;
        states(&mut frame, target, y, report.seconds);
        let (left, right) = (frame.left - 8.0, frame.width - frame.right + 8.0);
        let text = format!(
            "<text class=label x={left:.0} y={:.1} text-anchor=end>{}</text><text class=value x={right:.0} y={:.1}>inactive {:.1} %</text>",
            y + 11.0,
            escape(&shorten(&target.name)),
            y + 11.0,
            target.held_share * 100.0
        );
        frame.add(&text);
    }
    frame.times(10);
    wide(page, &frame.svg("states of targets over time"));
    page.push_str("</section>");
}

fn states(frame: &mut Frame, target: &TargetReport, y: f64, end: f64) {
    let starts = std::iter::once((0.0, "active")).chain(target.states.iter().copied());
    let ends = target.states.iter().map(|(at, _)| *at).chain([end]);
    let mut markup = String::new();
    for ((from, state), to) in starts.zip(ends) {
        let (x, wide) = (frame.x(from), frame.x(to) - frame.x(from));
        // Very short intervals are drawn as a hairline.
        let wide = if state == "active" {
            wide
        } else {
            wide.max(0.6)
        };
        if wide > 0.0 {
            let _ = write!(
                markup,
                "<rect class=\"state {state}\" x={x:.2} y={y:.1} width={wide:.2} height=14><title>{} {state} {}–{}</title></rect>",
                escape(&target.name),
                seconds(from),
                seconds(to)
            );
        }
    }
    frame.add(&markup);
}

pub(super) fn rounds(report: &Report, page: &mut String) {
    let Some(rounds) = &report.rounds else { return };
    let sides = [("leader", &rounds.leader), ("follower", &rounds.follower)];
    let deepest = sides
        .iter()
        .flat_map(|(_, side)| &side.rounds)
        .map(|round| round.round)
        .max()
        .unwrap_or(0);
    let note = format!(
        "A bar is a round of one side, from when it was entered to when its last node ended: solid above for the leader, hatched below for the follower. The leader was at most {} rounds ahead.",
        rounds.max_lead
    );
    section(page, "Rounds", &note);
    let row = 20.0;
    let height = f64::from(deepest + 1) * row + 40.0;
    let mut frame = Frame::new(WIDE, height, report.seconds, Scale::Linear(1.0));
    frame.left = 90.0;
    frame.right = 60.0;
    for round in 0..=deepest {
        let y = 8.0 + f64::from(round) * row + 12.0;
        frame.add(&format!(
            "<text class=label x=82 y={y:.1} text-anchor=end>round {round}</text>"
        ));
    }
    for (index, (name, side)) in sides.iter().enumerate() {
        gantt(&mut frame, name, side, index as f64 * 8.0, row);
    }
    frame.times(10);
    wide(page, &frame.svg("rounds over time"));
    let floats = |values: &[u64]| {
        values
            .iter()
            .map(|value| *value as f64)
            .collect::<Vec<f64>>()
    };
    let nodes = [
        ("leader".to_owned(), floats(&report.series.leader_nodes)),
        ("follower".to_owned(), floats(&report.series.follower_nodes)),
    ];
    page.push_str("<p>Successful nodes, by side:</p>");
    lines(page, report, &nodes, "nodes over time");
    page.push_str("</section>");
}

fn gantt(frame: &mut Frame, name: &str, side: &SideReport, offset: f64, row: f64) {
    let mut markup = String::new();
    for round in &side.rounds {
        let x = frame.x(round.opened);
        let wide = (frame.x(round.closed) - x).max(1.0);
        let y = 8.0 + f64::from(round.round) * row + offset;
        let _ = write!(
            markup,
            "<rect class=\"round {name}\" x={x:.1} y={y:.1} width={wide:.1} height=7><title>{name}, round {} of pass {}: {} nodes, {} failed, {}–{}</title></rect>",
            round.round,
            round.pass,
            number(round.nodes),
            number(round.failed),
            seconds(round.opened),
            seconds(round.closed)
        );
        if wide > 60.0 || round.nodes > 0 && wide > 24.0 {
            let _ = write!(
                markup,
                "<text class=tick x={:.1} y={:.1}>{}</text>",
                x + wide + 4.0,
                y + 7.0,
                number(round.nodes)
            );
        }
    }
    frame.add(&markup);
}
