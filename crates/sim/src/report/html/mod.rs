//! The HTML report: one self-contained file with SVG drawings.

mod bands;
mod shares;
mod time;

use super::Report;
use super::plot::escape;
use super::text::{LOAD_HEADER, load_row, maybe_seconds, number, percent, seconds, short};
use std::fmt::Write;

const STYLE: &str = include_str!("page.css");

/// Width of the wide drawings.
const WIDE: f64 = 1080.0;

pub(super) fn html(report: &Report) -> String {
    let mut page = String::new();
    head(report, &mut page);
    expectations(report, &mut page);
    shares::shares(report, &mut page);
    time::waits(report, &mut page);
    time::queue(report, &mut page);
    time::drops(report, &mut page);
    bands::targets(report, &mut page);
    bands::rounds(report, &mut page);
    time::fleet(report, &mut page);
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
    tile("submitted", &number(totals.counts.offered));
    tile("done", &number(totals.counts.done));
    tile("refused", &number(totals.refused));
    tile(
        "shed, failed",
        &number(totals.counts.shed + totals.counts.expired + totals.counts.failed),
    );
    tile("p99 wait", &maybe_seconds(totals.waits.p99));
    page.push_str("</dl>");
}

/// Patterns that distinguish states without colour.
const PATTERNS: &str = "<svg width=0 height=0 class=defs aria-hidden=true><defs>\
<pattern id=hatch width=6 height=6 patternUnits=userSpaceOnUse patternTransform=\"rotate(45)\"><rect width=6 height=6 class=pa /><line x1=0 y1=0 x2=0 y2=6 class=pl /></pattern>\
<pattern id=dots width=5 height=5 patternUnits=userSpaceOnUse><rect width=5 height=5 class=pb /><circle cx=2.5 cy=2.5 r=1.3 class=pd /></pattern>\
<pattern id=cross width=7 height=7 patternUnits=userSpaceOnUse><rect width=7 height=7 class=pc /><path d=\"M0 0L7 7M7 0L0 7\" class=pl /></pattern>\
</defs></svg>";

fn expectations(report: &Report, page: &mut String) {
    if report.expectations.is_empty() {
        return;
    }
    page.push_str("<section><h2>Expectations</h2><ul class=expectations>");
    for checked in &report.expectations {
        let (class, word) = if checked.met {
            ("met", "✓ met")
        } else {
            ("missed", "✗ not met")
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

/// Shortens a name to fit next to a drawing.
fn shorten(name: &str) -> String {
    if name.chars().count() <= 20 {
        return name.to_owned();
    }
    name.chars().take(19).chain(['…']).collect()
}

fn tables(report: &Report, page: &mut String) {
    page.push_str("<section><h2>Numbers</h2>");
    let header = [
        "class",
        "weight",
        "submitted",
        "admitted",
        "refused",
        "shed",
        "expired",
        "failed",
        "granted",
        "aged",
        "share",
        "p50",
        "p90",
        "p99",
    ];
    let seen = report
        .classes
        .iter()
        .filter(|class| class.counts.offered > 0);
    let rows = seen.map(|class| {
        vec![
            class.name.clone(),
            class.weight.to_string(),
            number(class.counts.offered),
            number(class.counts.admitted),
            number(class.refused_in_all()),
            number(class.counts.shed),
            number(class.counts.expired),
            number(class.counts.failed),
            number(class.counts.granted),
            number(class.counts.aged),
            percent(class.share),
            maybe_seconds(class.waits.p50),
            maybe_seconds(class.waits.p90),
            maybe_seconds(class.waits.p99),
        ]
    });
    table(page, &header, rows);
    if !report.loads.is_empty() {
        table(page, &LOAD_HEADER, report.loads.iter().map(load_row));
    }
    page.push_str("</section>");
}

/// Writes a table. The first cell of a row is its name.
fn table(page: &mut String, header: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    page.push_str("<div class=wide><table><thead><tr>");
    for name in header {
        let _ = write!(page, "<th>{name}");
    }
    page.push_str("</thead><tbody>");
    for row in rows {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let tag = if column == 0 { "th" } else { "td" };
            let _ = write!(page, "<{tag}>{}", escape(cell));
        }
    }
    page.push_str("</tbody></table></div>");
}
