//! The report for a terminal.

use super::{LoadReport, NodeReport, Report, SideReport, TargetReport};
use std::fmt::Write;

/// Maximum rows of flows; targets get a few more.
const ROWS: usize = 10;

pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    head(report, &mut out);
    classes(report, &mut out);
    drops(report, &mut out);
    flows(report, &mut out);
    loads(report, &mut out);
    targets(report, &mut out);
    rounds(report, &mut out);
    fleet(report, &mut out);
    expectations(report, &mut out);
    out
}

/// Writes a table with columns as wide as their widest cell; the first column is left-aligned.
fn table(out: &mut String, header: &[&str], rows: &[Vec<String>]) {
    let wide = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells
            .chain([header[column].chars().count()])
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(wide).collect();
    let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push('\n');
}

/// Formats an integer in groups of three digits.
pub(super) fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Formats seconds in a suitable unit.
pub(crate) fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.000_5 => format!("{:.0} µs", s * 1e6),
        s if s < 0.009_95 => format!("{:.1} ms", s * 1e3),
        s if s < 0.999_5 => format!("{:.0} ms", s * 1e3),
        s if s < 99.5 => format!("{s:.1} s"),
        s if s < 5_970.0 => format!("{s:.0} s"),
        s => format!("{:.1} h", s / 3600.0),
    }
}

pub(super) fn maybe_seconds(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), seconds)
}

pub(super) fn percent(part: f64) -> String {
    format!("{:.2} %", part * 100.0)
}

/// The share by weight and the deviation, or dashes if they are not comparable.
fn compared((due, off): (Option<f64>, Option<f64>)) -> [String; 2] {
    let none = || "–".to_owned();
    let off = off.map_or_else(none, |part| format!("{:+.2} %", part * 100.0));
    [due.map_or_else(none, percent), off]
}

fn head(report: &Report, out: &mut String) {
    let Report {
        scenario,
        about,
        policy,
        seed,
        totals,
        left,
        ..
    } = report;
    let _ = writeln!(
        out,
        "{scenario}  ({policy}, {} simulated, seed {seed})",
        seconds(report.seconds)
    );
    if !about.is_empty() {
        let _ = writeln!(out, "{about}");
    }
    let _ = write!(
        out,
        "\n{} requests, {} jobs submitted, {} done; unfinished: {} waiting, {} delayed, {} running",
        number(totals.counts.requests),
        number(totals.counts.offered),
        number(totals.counts.done),
        number(left.waiting),
        number(left.delayed),
        number(left.running),
    );
    match report.most_workers {
        Some(most) => {
            let _ = writeln!(out, "; at most {most} workers\n");
        }
        None => out.push_str("\n\n"),
    }
}

fn classes(report: &Report, out: &mut String) {
    let header = [
        "class",
        "offered",
        "admitted",
        "refused",
        "shed",
        "expired",
        "failed",
        "granted",
        "share",
        "by weight",
        "deviation",
        "wait p50",
        "p90",
        "p99",
    ];
    let rows: Vec<Vec<String>> = report
        .classes
        .iter()
        .filter(|class| class.counts.offered > 0)
        .map(|class| {
            let [due, off] = compared(class.compared());
            vec![
                class.name.clone(),
                number(class.counts.offered),
                number(class.counts.admitted),
                number(class.refused_in_all()),
                number(class.counts.shed),
                number(class.counts.expired),
                number(class.counts.failed),
                number(class.counts.granted),
                percent(class.share),
                due,
                off,
                maybe_seconds(class.waits.p50),
                maybe_seconds(class.waits.p90),
                maybe_seconds(class.waits.p99),
            ]
        })
        .collect();
    table(out, &header, &rows);
}

fn drops(report: &Report, out: &mut String) {
    let drops: Vec<String> = report
        .series
        .drops
        .iter()
        .map(|(why, counts)| {
            let count: u64 = counts.iter().map(|count| u64::from(*count)).sum();
            format!("{} {}", why, number(count))
        })
        .collect();
    if !drops.is_empty() {
        let _ = writeln!(out, "dropped: {}\n", drops.join(", "));
    }
}

fn flows(report: &Report, out: &mut String) {
    if report.flow_count < 2 {
        return;
    }
    let header = [
        "flow",
        "offered",
        "admitted",
        "refused",
        "shed",
        "granted",
        "share",
        "by weight",
        "deviation",
    ];
    let mut rows: Vec<Vec<String>> = report
        .flows
        .iter()
        .take(ROWS)
        .map(|flow| {
            let [due, off] = compared(flow.compared());
            vec![
                flow.name.clone(),
                number(flow.tally.offered),
                number(flow.tally.admitted),
                number(flow.tally.refused),
                number(flow.tally.shed),
                number(flow.tally.granted),
                percent(flow.share),
                due,
                off,
            ]
        })
        .collect();
    more(&mut rows, report.flow_count, header.len());
    table(out, &header, &rows);
}

/// Adds a last row with the number of rows not shown.
fn more(rows: &mut Vec<Vec<String>>, count: usize, columns: usize) {
    if count > rows.len() {
        let mut row = vec![String::new(); columns];
        row[0] = format!("and {} more", count - rows.len());
        rows.push(row);
    }
}

pub(super) const LOAD_HEADER: [&str; 6] = [
    "load",
    "requests",
    "done",
    "returned",
    "readmitted",
    "gave up",
];

pub(super) fn load_row(load: &LoadReport) -> Vec<String> {
    vec![
        load.name.clone(),
        number(load.tally.requests),
        number(load.tally.done),
        number(load.tally.returned),
        match load.tally.returned {
            0 => "–".to_owned(),
            returned => percent(load.tally.readmitted as f64 / returned as f64),
        },
        number(load.tally.given_up),
    ]
}

fn loads(report: &Report, out: &mut String) {
    let rows: Vec<Vec<String>> = report
        .loads
        .iter()
        .filter(|load| load.tally.returned > 0 || load.tally.given_up > 0)
        .map(load_row)
        .collect();
    if !rows.is_empty() {
        table(out, &LOAD_HEADER, &rows);
    }
}

fn targets(report: &Report, out: &mut String) {
    let plain = |target: &TargetReport| target.failures == 0 && target.changes == 0;
    if report.targets.len() < 2 && report.targets.iter().all(plain) {
        return;
    }
    let header = [
        "target",
        "granted",
        "failures",
        "429",
        "changes",
        "suspended",
        "held",
    ];
    // Targets with the most changes come first.
    let mut order: Vec<&TargetReport> = report.targets.iter().collect();
    order.sort_by_key(|target| std::cmp::Reverse((target.changes, target.failures)));
    let mut rows: Vec<Vec<String>> = order
        .into_iter()
        .take(ROWS + 5)
        .map(|target| {
            vec![
                target.name.clone(),
                number(target.granted),
                number(target.failures),
                number(target.overloads),
                number(target.changes),
                number(target.suspensions),
                percent(target.held_share),
            ]
        })
        .collect();
    more(&mut rows, report.targets.len(), header.len());
    table(out, &header, &rows);
}

fn fleet(report: &Report, out: &mut String) {
    let Some(fleet) = &report.fleet else { return };
    let header = ["node", "granted", "mean share", "least", "most"];
    let row = |node: &NodeReport| {
        vec![
            node.name.clone(),
            number(node.granted),
            percent(node.mean_share),
            percent(node.least_share),
            percent(node.most_share),
        ]
    };
    let mut rows: Vec<Vec<String>> = fleet.nodes.iter().take(ROWS + 10).map(row).collect();
    more(&mut rows, fleet.nodes.len(), header.len());
    table(out, &header, &rows);
    if let (Some(least), Some(most)) = (fleet.least_use, fleet.most_use) {
        let (least, most) = (percent(least), percent(most));
        let _ = writeln!(out, "use of the limit over any 10 s: {least} to {most}");
    }
    let _ = writeln!(
        out,
        "calls over the limit: {}; changes of the allocator: {}",
        number(fleet.calls_over),
        fleet.takeovers
    );
    if let Some(violation) = &fleet.violation {
        let _ = writeln!(out, "first exceeded at {violation}");
    }
    out.push('\n');
}

fn rounds(report: &Report, out: &mut String) {
    let Some(rounds) = &report.rounds else { return };
    let header = [
        "side", "nodes", "failed", "passes", "rounds", "retried", "took p50", "p99", "ended at", "",
    ];
    let row = |name: &str, side: &SideReport| {
        vec![
            name.to_owned(),
            number(side.nodes),
            number(side.failed),
            side.passes.to_string(),
            side.rounds.len().to_string(),
            number(side.rounds.iter().map(|round| round.retried).sum()),
            maybe_seconds(side.took.p50),
            maybe_seconds(side.took.p99),
            maybe_seconds(side.rounds.last().map(|round| round.closed)),
            if side.completed {
                "completed"
            } else {
                "not completed"
            }
            .to_owned(),
        ]
    };
    let rows = [
        row("leader", &rounds.leader),
        row("follower", &rounds.follower),
    ];
    table(out, &header, &rows);
    let _ = writeln!(
        out,
        "the leader was at most {} rounds ahead\n",
        rounds.max_lead
    );
}

fn expectations(report: &Report, out: &mut String) {
    for checked in &report.expectations {
        let word = if checked.met { "met    " } else { "NOT MET" };
        let _ = writeln!(
            out,
            "{word}  {}: {} for {}",
            checked.expected,
            short(checked.measured),
            checked.of
        );
    }
}

/// Formats a number with as many digits as it needs.
pub(super) fn short(value: f64) -> String {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return format!("{value}");
    }
    format!("{value:.4}")
}
