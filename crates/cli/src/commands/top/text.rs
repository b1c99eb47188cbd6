//! Panels as lines of text, for the screen and for `--once`.

use headworks_console::History;
use headworks_service::panel::{
    Body, HeatMap, LineKind, Paged, PanelDescription, Rounds, Series, Side, Unit, Widget,
};

use super::format::{cell, health, number, spark};

/// Maximum table rows shown; the console has the rest.
const ROWS: usize = 30;
/// Maximum column width.
const WIDEST: usize = 40;
const SPARK: usize = 60;

/// All widgets of `panel`.
pub(super) fn panel(panel: &PanelDescription, history: &History, time: f64) -> Vec<String> {
    let mut lines = vec![title(panel), String::new()];
    for widget in &panel.snapshot.widgets {
        let body = widget_lines(panel, widget, history, time);
        if !body.is_empty() {
            lines.push(widget.title.to_uppercase());
            lines.extend(body);
            lines.push(String::new());
        }
    }
    lines
}

/// The health and first series of every panel.
pub(super) fn overview(panels: &[PanelDescription], history: &History, time: f64) -> Vec<String> {
    let mut lines = Vec::new();
    for panel in panels {
        lines.push(title(panel));
        let first = panel.snapshot.widgets.iter();
        let first = first
            .clone()
            .find(|widget| matches!(widget.body, Body::Series(_)));
        lines.extend(
            first
                .into_iter()
                .flat_map(|first| widget_lines(panel, first, history, time)),
        );
        lines.push(String::new());
    }
    if panels.is_empty() {
        lines.push("no panels".into());
    }
    lines
}

fn title(panel: &PanelDescription) -> String {
    let snapshot = &panel.snapshot;
    format!("{}  {}", snapshot.title, health(&snapshot.health))
}

fn widget_lines(
    panel: &PanelDescription,
    widget: &Widget,
    history: &History,
    time: f64,
) -> Vec<String> {
    match &widget.body {
        Body::Series(shown) => series(panel, widget, shown, history, time),
        Body::Table(table) | Body::Tree(table) => paged(table),
        Body::Rounds(rounds) => rounds_lines(rounds),
        Body::HeatMap(heat) => heat_map(heat),
        _ => Vec::new(),
    }
}

fn series(
    panel: &PanelDescription,
    widget: &Widget,
    shown: &Series,
    history: &History,
    time: f64,
) -> Vec<String> {
    let past = history.series(time, &panel.name, &widget.id, 0);
    let line = |line: &headworks_service::panel::Line| {
        let lines = past.iter().flat_map(|past| &past.lines);
        let values = lines.clone().find(|known| known.name == line.name);
        let values = values.map_or(&[][..], |known| &known.values);
        let newest = values.last().copied().flatten();
        let value = match (line.kind, newest) {
            (LineKind::Total, Some(rate)) => format!("{}/s", number(rate, shown.unit)),
            (LineKind::Total, None) => format!("{} total", number(line.value, shown.unit)),
            _ => number(line.value, shown.unit),
        };
        let limit = line
            .limit
            .map(|limit| format!(" of {}", number(limit, shown.unit)));
        let value = value + limit.as_deref().unwrap_or_default();
        format!("  {:<22} {value:>20}  {}", line.name, spark(values, SPARK))
    };
    shown.lines.iter().map(line).collect()
}

fn paged(table: &Paged) -> Vec<String> {
    let head = table.columns.iter().map(|column| column.name.clone());
    let rows = table.page.rows.iter().take(ROWS).map(|row| {
        let cells = row.cells.iter().zip(&table.columns);
        cells
            .map(|(shown, column)| cell(shown, column.unit))
            .collect()
    });
    let mut lines = aligned(
        &std::iter::once(head.collect())
            .chain(rows)
            .collect::<Vec<_>>(),
    );
    let shown = table.page.rows.len().min(ROWS) as u64;
    if let Some(more) = table
        .total
        .and_then(|total| total.checked_sub(shown))
        .filter(|more| *more > 0)
    {
        lines.push(format!("  … and {more} more"));
    }
    lines
}

/// Aligns cells in columns as wide as their widest cell.
fn aligned(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or(0)
            .min(WIDEST)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let row = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let cut: String = cell.chars().take(*width).collect();
            format!("{cut:<width$}")
        });
        format!("  {}", cells.collect::<Vec<_>>().join("  "))
            .trim_end()
            .to_owned()
    };
    rows.iter().map(row).collect()
}

fn rounds_lines(rounds: &Rounds) -> Vec<String> {
    [&rounds.leader, &rounds.follower].map(side).to_vec()
}

fn side(side: &Side) -> String {
    let state = format!("{:?}", side.state).to_lowercase();
    let Some(current) = side.rounds.last() else {
        return format!("  {}: {state}", side.name);
    };
    format!(
        "  {}: {state}, round {}: {} of {} done, {} failed",
        side.name,
        side.rounds.len() - 1,
        current.done,
        current.declared,
        current.failed
    )
}

fn heat_map(heat: &HeatMap) -> Vec<String> {
    let shown =
        |value: &Option<f64>, unit: Unit| value.map_or("–".into(), |value| number(value, unit));
    let head = std::iter::once(String::new()).chain(heat.columns.iter().cloned());
    let rows = heat.rows.iter().zip(&heat.values).map(|(name, values)| {
        let values = values.iter().map(|value| shown(value, heat.unit));
        std::iter::once(name.clone()).chain(values).collect()
    });
    aligned(
        &std::iter::once(head.collect())
            .chain(rows)
            .collect::<Vec<_>>(),
    )
}
