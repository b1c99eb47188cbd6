//! Text formatting of values, health and sparklines.

use headworks_service::panel::{Cell, Health, Unit};

/// Formats `value` in `unit`, short enough for a table column.
pub(super) fn number(value: f64, unit: Unit) -> String {
    match unit {
        Unit::Percent => format!("{value:.1} %"),
        Unit::Seconds => seconds(value),
        Unit::Bytes => bytes(value),
        Unit::Tokens => format!("{} tok", count(value)),
        Unit::PerSecond => format!("{}/s", count(value)),
        Unit::BytesPerSecond => format!("{}/s", bytes(value)),
        Unit::TokensPerSecond => format!("{} tok/s", count(value)),
        _ => count(value),
    }
}

fn count(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{:.1}G", value / 1e9),
        size if size >= 1e6 => format!("{:.1}M", value / 1e6),
        size if size >= 1e5 => format!("{:.0}k", value / 1e3),
        size if size >= 100.0 || value.fract() == 0.0 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

fn seconds(value: f64) -> String {
    match value.abs() {
        0.0 => "0 s".to_owned(),
        size if size < 0.001 => format!("{:.0} µs", value * 1e6),
        size if size < 1.0 => format!("{:.0} ms", value * 1e3),
        size if size < 120.0 => format!("{value:.1} s"),
        size if size < 7200.0 => format!("{:.0} min", value / 60.0),
        _ => format!("{:.1} h", value / 3600.0),
    }
}

fn bytes(mut value: f64) -> String {
    let mut name = "B";
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value.abs() < 1024.0 {
            break;
        }
        (value, name) = (value / 1024.0, next);
    }
    format!("{value:.1} {name}")
}

pub(super) fn health(health: &Health) -> String {
    match health {
        Health::Good => "● good".into(),
        Health::Idle => "○ idle".into(),
        Health::Warning(why) => format!("▲ {why}"),
        Health::Bad(why) => format!("■ {why}"),
        _ => "?".into(),
    }
}

pub(super) fn cell(cell: &Cell, unit: Unit) -> String {
    match cell {
        Cell::Flag(yes) => if *yes { "yes" } else { "no" }.into(),
        Cell::Number(value) => number(*value, unit),
        Cell::Text(text) => text.replace(char::is_control, " "),
        Cell::Health(state) => health(state),
        _ => "–".into(),
    }
}

/// A sparkline of the last values, with a gap where a value is missing.
pub(super) fn spark(values: &[Option<f64>], width: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = &values[values.len().saturating_sub(width)..];
    let highest = shown.iter().flatten().copied().fold(0.0, f64::max);
    let bar = |value: &Option<f64>| match value {
        Some(value) if highest > 0.0 => BARS[((value / highest * 7.0).round() as usize).min(7)],
        Some(_) => BARS[0],
        None => ' ',
    };
    shown.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let shown = [
            number(12.0, Unit::Count),
            number(1_234_567.0, Unit::Count),
            number(0.0421, Unit::Seconds),
            number(3_000_000.0, Unit::BytesPerSecond),
            number(12.345, Unit::Percent),
        ];
        assert_eq!(shown, ["12", "1.2M", "42 ms", "2.9 MiB/s", "12.3 %"]);
    }

    #[test]
    fn bars_show_the_newest_and_leave_gaps() {
        let values = [Some(9.0), Some(0.0), None, Some(4.0), Some(8.0)];
        assert_eq!(spark(&values, 4), "▁ ▅█");
    }
}
