//! Waits, queue depths and drops over time.

use super::super::plot::{Frame, Scale, count, escape, wait};
use super::super::text::{percent, seconds};
use super::super::{ClassReport, ClassSeries, Report};
use super::{WIDE, section, shorten, wide};
use std::fmt::Write;

/// Draws a panel per class with the p50 and p95 wait.
pub(super) fn waits(report: &Report, page: &mut String) {
    let slot = report.series.width;
    let seen: Vec<(&ClassReport, &ClassSeries)> = report
        .classes
        .iter()
        .zip(&report.series.classes)
        .filter(|(class, _)| class.counts.granted > 0)
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
    let scales = match seen.len() {
        1 => "Every step of the scale is ten times the last.",
        _ => "All panels have the same scale, every step ten times the last.",
    };
    let note = format!("The line is the p50 wait; the band extends to the p95 wait. {scales}");
    section(page, "Waits over time", &note);
    // A single panel gets the full width.
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
            "<figure><figcaption><b>{}</b> p50 {}, p99 {}</figcaption>{}</figure>",
            escape(&class.name),
            seconds(p50),
            seconds(p99),
            frame.svg(&format!("waits of {}", class.name))
        );
    }
    page.push_str("</div></section>");
}

/// Draws the share of each node.
pub(super) fn fleet(report: &Report, page: &mut String) {
    let Some(fleet) = &report.fleet else { return };
    let note = format!(
        "The part of the limit that each node had. {} calls started while a limit was exceeded.",
        fleet.calls_over
    );
    section(page, "Shares of the nodes", &note);
    let nodes = fleet.nodes.iter().take(12);
    let named: Vec<(String, Vec<f64>)> = nodes
        .map(|node| (node.name.clone(), node.shares.clone()))
        .collect();
    draw_lines(
        page,
        report,
        (&named, 1.0),
        percent,
        "shares of the nodes over time",
    );
    page.push_str("</section>");
}

/// Draws named lines, each with its own dash pattern and its name at its end.
pub(super) fn lines(page: &mut String, report: &Report, named: &[(String, Vec<f64>)], title: &str) {
    draw_lines(page, report, (named, report.series.width), count, title);
}

fn draw_lines(
    page: &mut String,
    report: &Report,
    (named, slot): (&[(String, Vec<f64>)], f64),
    value: impl Fn(f64) -> String,
    title: &str,
) {
    let most = named
        .iter()
        .flat_map(|(_, values)| values)
        .copied()
        .fold(0.0, f64::max);
    let mut frame = Frame::new(WIDE, 260.0, report.seconds, Scale::linear(most));
    frame.right = 170.0;
    frame.values(value);
    frame.times(10);
    let mut taken: Vec<f64> = Vec::new();
    for (index, (name, values)) in named.iter().enumerate() {
        let style = index % 6;
        let points: Vec<Option<f64>> = values.iter().copied().map(Some).collect();
        frame.line(&points, slot, &format!("line s{style}"));
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

/// The spot closest to `y` where a label overlaps no other.
fn free_spot(y: f64, taken: &mut Vec<f64>) -> f64 {
    let free = |spot: f64| {
        (8.0..250.0).contains(&spot) && taken.iter().all(|other| (spot - other).abs() >= 14.0)
    };
    let spots = (0..40).flat_map(|step| [y - f64::from(step) * 4.0, y + f64::from(step) * 4.0]);
    let spot = spots.into_iter().find(|spot| free(*spot)).unwrap_or(y);
    taken.push(spot);
    spot
}

pub(super) fn queue(report: &Report, page: &mut String) {
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
        .filter(|(class, _)| class.counts.offered > 0)
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
        "Waiting, running and delayed jobs at the end of each time slot.",
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

pub(super) fn drops(report: &Report, page: &mut String) {
    section(
        page,
        "Drops by reason",
        "Refused, shed, expired or failed jobs per second.",
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
