//! Shares by class and flow.

use super::super::plot::escape;
use super::super::text::{number, percent};
use super::super::{ClassReport, Report};
use super::{WIDE, section, shorten, wide};
use std::fmt::Write;

/// Draws the share of each class as a bar, with a mark at the share of its weight.
pub(super) fn shares(report: &Report, page: &mut String) {
    let classes: Vec<&ClassReport> = report
        .classes
        .iter()
        .filter(|class| class.counts.offered > 0)
        .collect();
    if classes.len() > 1 {
        let marks = match report.policy {
            "fifo" | "strict" => format!("Weights have no effect under {}.", report.policy),
            _ => "The mark is the share of its weight, if the class was always backlogged."
                .to_owned(),
        };
        let note = format!("The bar is the share of the total cost. {marks}");
        section(page, "Shares against weights", &note);
        let rows: Vec<Bar<'_>> = classes
            .iter()
            .map(|class| {
                let (due, off) = class.compared();
                Bar {
                    name: &class.name,
                    share: class.share,
                    // Under `hybrid` the first class is served before the rest is shared.
                    due: due.map(|due| due * (1.0 - unshared(report))),
                    off,
                }
            })
            .collect();
        bars(page, &rows, "shares of cost by class");
        page.push_str("</section>");
    }
    if report.flow_count > 1 {
        let note = match report.flow_count {
            many if many > 24 => format!(
                "The 24 of {} flows with the highest cost.",
                number(many as u64)
            ),
            _ => "The same for flows, over all classes.".to_owned(),
        };
        section(page, "Shares of the flows", &note);
        let rows: Vec<Bar<'_>> = report
            .flows
            .iter()
            .take(24)
            .map(|flow| {
                let (due, off) = flow.compared();
                Bar {
                    name: &flow.name,
                    share: flow.share,
                    due,
                    off,
                }
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
    off: Option<f64>,
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
            .off
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
