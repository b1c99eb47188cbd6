//! The page: one file, no network, drawn when it is written.

use super::plot::{Frame, Scale, count, escape, wait};
use super::text::{number, percent, seconds, short};
use super::{ClassReport, ClassSeries, Report, SideReport, TargetReport};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// So many targets are drawn, those with most to tell first.
const TARGETS: usize = 24;

/// Wide drawings.
const WIDE: f64 = 1080.0;

pub(super) fn html(report: &Report) -> String {
    let mut page = String::new();
    head(report, &mut page);
    expectations(report, &mut page);
    shares(report, &mut page);
    waits(report, &mut page);
    queue(report, &mut page);
    drops(report, &mut page);
    targets(report, &mut page);
    rounds(report, &mut page);
    tables(report, &mut page);
    page.push_str("</main></body></html>\n");
    page
}

fn head(report: &Report, page: &mut String) {
    let Report {
        policy,
        seed,
        totals,
        ..
    } = report;
    let name = escape(&report.scenario);
    let _ = write!(
        page,
        "<!doctype html><html lang=en><head><meta charset=utf-8><meta name=viewport content=\"width=device-width,initial-scale=1\">\
         <title>{name} – Headworks</title><style>{STYLE}</style></head><body>{PATTERNS}<main><header><h1>{name}</h1><p>{}</p></header><dl class=tiles>",
        escape(&report.about)
    );
    let mut tile = |name: &str, value: &str| {
        let _ = write!(page, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    tile("policy", policy);
    tile("simulated", &seconds(report.seconds));
    tile("seed", &seed.to_string());
    tile("handed in", &number(totals.offered));
    tile("done", &number(totals.done));
    tile("refused", &number(totals.refused));
    tile(
        "shed, failed",
        &number(totals.shed + totals.expired + totals.failed),
    );
    let p99 = totals.waits.p99.map_or_else(|| "–".to_owned(), seconds);
    tile("wait, 99 of 100", &p99);
    page.push_str("</dl>");
}

/// Patterns that tell states apart without colour.
const PATTERNS: &str = "<svg width=0 height=0 class=defs aria-hidden=true><defs>\
<pattern id=hatch width=6 height=6 patternUnits=userSpaceOnUse patternTransform=\"rotate(45)\"><rect width=6 height=6 class=pa /><line x1=0 y1=0 x2=0 y2=6 class=pl /></pattern>\
<pattern id=dots width=5 height=5 patternUnits=userSpaceOnUse><rect width=5 height=5 class=pb /><circle cx=2.5 cy=2.5 r=1.3 class=pd /></pattern>\
<pattern id=cross width=7 height=7 patternUnits=userSpaceOnUse><rect width=7 height=7 class=pc /><path d=\"M0 0L7 7M7 0L0 7\" class=pl /></pattern>\
</defs></svg>";

fn expectations(report: &Report, page: &mut String) {
    if report.expectations.is_empty() {
        return;
    }
    page.push_str("<section><h2>Promises</h2><ul class=promises>");
    for checked in &report.expectations {
        let (class, word) = if checked.met {
            ("kept", "✓ kept")
        } else {
            ("broken", "✗ broken")
        };
        let _ = write!(
            page,
            "<li class={class}><b>{word}</b> {}: <span>{} ({})</span></li>",
            escape(&checked.expected),
            short(checked.measured),
            escape(&checked.of)
        );
    }
    page.push_str("</ul></section>");
}

fn section(page: &mut String, title: &str, note: &str) {
    let _ = write!(page, "<section><h2>{title}</h2><p>{note}</p>");
}

fn wide(page: &mut String, svg: &str) {
    let _ = write!(page, "<div class=wide>{svg}</div>");
}

/// Bars of what each class got, with a mark where its weight would have it.
fn shares(report: &Report, page: &mut String) {
    let classes: Vec<&ClassReport> = report
        .classes
        .iter()
        .filter(|class| class.offered > 0)
        .collect();
    if classes.len() > 1 {
        let idle = match report.policy {
            "fifo" | "strict" => format!(" Under {} weights decide nothing.", report.policy),
            _ => String::new(),
        };
        let note = format!(
            "The bar is the part of all cost that went to a class, the mark the part that its weight gives it.{idle}"
        );
        section(page, "Shares against weights", &note);
        let rows: Vec<Bar<'_>> = classes
            .iter()
            .map(|class| Bar {
                name: &class.name,
                share: class.share,
                // In hybrid the first class is served before the rest is shared.
                due: class.weight_share.map(|due| due * (1.0 - unshared(report))),
                note: class.deviation,
            })
            .collect();
        bars(page, &rows, "shares of cost by class");
        page.push_str("</section>");
    }
    if report.flow_count > 1 {
        let note = match report.flow_count {
            many if many > 24 => format!(
                "The 24 of {} flows that were given most.",
                number(many as u64)
            ),
            _ => "The same for flows, over all classes.".to_owned(),
        };
        section(page, "Shares of the flows", &note);
        let rows: Vec<Bar<'_>> = report
            .flows
            .iter()
            .take(24)
            .map(|flow| Bar {
                name: &flow.name,
                share: flow.share,
                due: Some(flow.weight_share),
                note: Some(flow.deviation),
            })
            .collect();
        bars(page, &rows, "shares of cost by flow");
        page.push_str("</section>");
    }
}

/// The part of all cost that is not shared by weight.
fn unshared(report: &Report) -> f64 {
    let strict = report
        .classes
        .iter()
        .filter(|class| class.weight_share.is_none());
    strict.map(|class| class.share).sum()
}

struct Bar<'a> {
    name: &'a str,
    share: f64,
    due: Option<f64>,
    note: Option<f64>,
}

fn bars(page: &mut String, rows: &[Bar<'_>], title: &str) {
    let most = rows
        .iter()
        .map(|row| row.share.max(row.due.unwrap_or(0.0)))
        .fold(1e-9, f64::max);
    let (row_height, left, right) = (22.0, 150.0, 210.0);
    let height = rows.len() as f64 * row_height + 4.0;
    let width = |part: f64| (WIDE - left - right) * part / most;
    let mut svg = String::new();
    for (index, row) in rows.iter().enumerate() {
        let y = index as f64 * row_height + 4.0;
        let _ = write!(
            svg,
            "<text class=label x={:.0} y={:.1} text-anchor=end>{}</text><rect class=bar x={left} y={y:.1} width={:.1} height=14 rx=2 />",
            left - 8.0,
            y + 12.0,
            escape(&shorten(row.name)),
            width(row.share).max(0.5)
        );
        if let Some(due) = row.due {
            let x = left + width(due);
            let _ = write!(
                svg,
                "<line class=mark x1={x:.1} x2={x:.1} y1={:.1} y2={:.1} />",
                y - 3.0,
                y + 17.0
            );
        }
        let note = row
            .note
            .map_or_else(String::new, |off| format!(" ({:+.2} %)", off * 100.0));
        let x = left + width(row.share.max(row.due.unwrap_or(0.0))) + 8.0;
        let _ = write!(
            svg,
            "<text class=value x={x:.1} y={:.1}>{}{note}</text>",
            y + 12.0,
            percent(row.share)
        );
    }
    let svg = format!(
        "<svg viewBox=\"0 0 {WIDE:.0} {height:.0}\" role=img aria-label=\"{title}\">{svg}</svg>"
    );
    wide(page, &svg);
}

fn shorten(name: &str) -> String {
    if name.chars().count() <= 20 {
        return name.to_owned();
    }
    name.chars().take(19).chain(['…']).collect()
}

/// A panel for each class: half of its waits, and nineteen in twenty.
fn waits(report: &Report, page: &mut String) {
    let slot = report.series.width;
    let seen: Vec<(&ClassReport, &ClassSeries)> = report
        .classes
        .iter()
        .zip(&report.series.classes)
        .filter(|(class, _)| class.granted > 0)
        .collect();
    let all = || {
        let values = seen
            .iter()
            .flat_map(|(_, series)| series.wait_p50.iter().chain(&series.wait_p95));
        values.copied().flatten()
    };
    let most = all().fold(0.0, f64::max);
    if seen.is_empty() || most <= 0.0 {
        return;
    }
    let least = all().filter(|wait| *wait > 0.0).fold(most, f64::min);
    let scale = Scale::log(least.max(most / 1e5), most);
    section(
        page,
        "Waits over time",
        "The line is the wait that half of all did not exceed, the band reaches up to what nineteen in twenty did not. All panels have the same scale, every step ten times the last.",
    );
    // One alone has the whole width.
    let (kind, width, height, times) = match seen.len() {
        1 => ("wide", WIDE, 240.0, 10),
        _ => ("panels", 350.0, 150.0, 4),
    };
    let _ = write!(page, "<div class={kind}>");
    for (class, series) in seen {
        let mut frame = Frame::new(width, height, report.seconds, scale);
        frame.values(wait);
        frame.times(times);
        frame.band(&series.wait_p50, &series.wait_p95, slot, "band");
        frame.line(&series.wait_p95, slot, "edge");
        frame.line(&series.wait_p50, slot, "line");
        let (p50, p99) = (
            class.waits.p50.unwrap_or(0.0),
            class.waits.p99.unwrap_or(0.0),
        );
        let _ = write!(
            page,
            "<figure><figcaption><b>{}</b> half within {}, 99 of 100 within {}</figcaption>{}</figure>",
            escape(&class.name),
            seconds(p50),
            seconds(p99),
            frame.svg(&format!("waits of {}", class.name))
        );
    }
    page.push_str("</div></section>");
}

/// Named lines of one drawing, each with its own dash and its name at its end.
fn lines(page: &mut String, report: &Report, named: &[(String, Vec<f64>)], title: &str) {
    let most = named
        .iter()
        .flat_map(|(_, values)| values)
        .copied()
        .fold(0.0, f64::max);
    let mut frame = Frame::new(WIDE, 260.0, report.seconds, Scale::linear(most));
    frame.right = 170.0;
    frame.values(count);
    frame.times(10);
    let mut taken: Vec<f64> = Vec::new();
    for (index, (name, values)) in named.iter().enumerate() {
        let style = index % 6;
        let points: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
        frame.line(&points, report.series.width, &format!("line s{style}"));
        let last = values.last().copied().unwrap_or(0.0);
        let y = free_spot(frame.y(last), &mut taken);
        let x = frame.width - frame.right + 8.0;
        let label = format!(
            "<line class=\"line s{style}\" x1={x:.0} x2={:.0} y1={y:.1} y2={y:.1} /><text class=label x={:.0} y={:.1}>{}</text>",
            x + 22.0,
            x + 28.0,
            y + 4.0,
            escape(&shorten(name))
        );
        frame.add(&label);
    }
    wide(page, &frame.svg(title));
}

/// The spot nearest to `y` where a label covers no other.
fn free_spot(y: f64, taken: &mut Vec<f64>) -> f64 {
    let free = |spot: f64| {
        (8.0..250.0).contains(&spot) && taken.iter().all(|other| (spot - other).abs() >= 14.0)
    };
    let spots = (0..40).flat_map(|step| [y - f64::from(step) * 4.0, y + f64::from(step) * 4.0]);
    let spot = spots.into_iter().find(|spot| free(*spot)).unwrap_or(y);
    taken.push(spot);
    spot
}

fn queue(report: &Report, page: &mut String) {
    let series = &report.series;
    let floats = |values: &[u64]| {
        values
            .iter()
            .map(|value| *value as f64)
            .collect::<Vec<f64>>()
    };
    let seen: Vec<(&ClassReport, &ClassSeries)> = report
        .classes
        .iter()
        .zip(&series.classes)
        .filter(|(class, _)| class.offered > 0)
        .collect();
    let waiting: Vec<f64> = (0..series.running.len())
        .map(|slot| seen.iter().map(|(_, class)| class.depth[slot] as f64).sum())
        .collect();
    let mut named = vec![
        ("waiting".to_owned(), waiting),
        ("running".to_owned(), floats(&series.running)),
    ];
    if series.delayed.iter().any(|delayed| *delayed > 0) {
        named.push(("delayed".to_owned(), floats(&series.delayed)));
    }
    if report.most_workers.is_some() {
        named.push(("workers".to_owned(), floats(&series.workers)));
    }
    section(
        page,
        "Queue depth",
        "Jobs that wait, run, or are delayed, at the end of each slot of time.",
    );
    lines(page, report, &named, "queue depth over time");
    if seen.len() > 1 {
        let most = seen
            .iter()
            .flat_map(|(_, class)| &class.depth)
            .map(|depth| *depth as f64)
            .fold(0.0, f64::max);
        page.push_str("<div class=\"panels small\">");
        for (class, series) in seen {
            let depth: Vec<Option<f64>> = floats(&series.depth).into_iter().map(Some).collect();
            let ground = vec![Some(0.0); depth.len()];
            let mut frame = Frame::new(240.0, 96.0, report.seconds, Scale::linear(most));
            frame.left = 40.0;
            frame.values(count);
            frame.times(2);
            frame.band(&ground, &depth, report.series.width, "band");
            frame.line(&depth, report.series.width, "line");
            let _ = write!(
                page,
                "<figure><figcaption><b>{}</b> waiting</figcaption>{}</figure>",
                escape(&class.name),
                frame.svg(&format!("jobs of {} waiting", class.name))
            );
        }
        page.push_str("</div>");
    }
    page.push_str("</section>");
}

fn drops(report: &Report, page: &mut String) {
    section(
        page,
        "Drops by reason",
        "Jobs a second that were refused, shed, expired or failed.",
    );
    if report.series.drops.is_empty() {
        page.push_str("<p class=none>Nothing was dropped.</p></section>");
        return;
    }
    let named: Vec<(String, Vec<f64>)> = report
        .series
        .drops
        .iter()
        .map(|(why, counts)| {
            let rates = counts
                .iter()
                .map(|count| f64::from(*count) / report.series.width);
            (why.replace('_', " "), rates.collect())
        })
        .collect();
    lines(page, report, &named, "drops by reason over time");
    page.push_str("</section>");
}

fn targets(report: &Report, page: &mut String) {
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
            "<text class=label x={left:.0} y={:.1} text-anchor=end>{}</text><text class=value x={right:.0} y={:.1}>held {:.1} %</text>",
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
        // What is too short to be seen is drawn as a hair.
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

fn rounds(report: &Report, page: &mut String) {
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
    page.push_str("<p>Nodes that ended well, by side:</p>");
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

fn tables(report: &Report, page: &mut String) {
    page.push_str("<section><h2>Numbers</h2><div class=wide><table><thead><tr><th>class<th>weight<th>handed in<th>admitted<th>refused<th>shed<th>expired<th>failed<th>granted<th>aged<th>share<th>p50<th>p90<th>p99</thead><tbody>");
    let wait = |wait: Option<f64>| wait.map_or_else(|| "–".to_owned(), seconds);
    for class in report.classes.iter().filter(|class| class.offered > 0) {
        let cells = [
            class.weight.to_string(),
            number(class.offered),
            number(class.admitted),
            number(class.refused_in_all()),
            number(class.shed),
            number(class.expired),
            number(class.failed),
            number(class.granted),
            number(class.aged),
            percent(class.share),
            wait(class.waits.p50),
            wait(class.waits.p90),
            wait(class.waits.p99),
        ];
        let _ = write!(page, "<tr><th>{}", escape(&class.name));
        for cell in cells {
            let _ = write!(page, "<td>{cell}");
        }
    }
    page.push_str("</tbody></table></div></section>");
}
