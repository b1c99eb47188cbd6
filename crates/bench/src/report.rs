//! Report of a bench: measurements, and the bounds that `--check` enforces.

use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Nanoseconds, instructions, bytes or a count.
    pub(crate) unit: &'static str,
    pub(crate) value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu: Option<f64>,
}

/// A bound on one measurement or on the ratio of two.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bound {
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) at_most: f64,
    pub(crate) holds: bool,
}

/// Results of a run.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) load_average: String,
    pub(crate) rounds: usize,
    /// Remarks that the reader needs to understand the results.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) notes: Vec<String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) bounds: Vec<Bound>,
}

impl Report {
    pub(crate) fn new(rounds: usize) -> Self {
        let load_average = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load_average = load_average
            .split(' ')
            .take(3)
            .collect::<Vec<_>>()
            .join(" ");
        Report {
            load_average,
            rounds,
            ..Report::default()
        }
    }

    pub(crate) fn row(&mut self, name: &str, unit: &'static str, value: f64, cpu: Option<f64>) {
        self.rows.push(Row {
            name: name.into(),
            unit,
            value,
            cpu,
        });
    }

    pub(crate) fn value(&self, name: &str) -> Option<f64> {
        self.rows
            .iter()
            .find(|row| row.name == name)
            .map(|row| row.value)
    }

    pub(crate) fn bound(&mut self, what: String, value: f64, at_most: f64) {
        self.bounds.push(Bound {
            what,
            value,
            at_most,
            holds: value <= at_most,
        });
    }

    /// Bounds a measurement by a multiple of another one, if both exist.
    pub(crate) fn ratio(&mut self, name: &str, other: &str, at_most: f64) {
        if let (Some(value), Some(of)) = (self.value(name), self.value(other)) {
            self.bound(format!("{name} ÷ {other}"), value / of, at_most);
        }
    }

    /// Prints the report. A closed pipe is not an error.
    pub(crate) fn print(&self, json: bool) {
        let text = match json {
            true => serde_json::to_string_pretty(self).expect("a report is plain values") + "\n",
            false => self.table(),
        };
        let _ = std::io::stdout().write_all(text.as_bytes());
    }

    fn table(&self) -> String {
        let mut table = format!(
            "medians of {} interleaved rounds; load average {}\n{:<58} {:>12} {:>12}\n",
            self.rounds, self.load_average, "", "wall", "cpu"
        );
        for note in &self.notes {
            table += &format!("{note}\n");
        }
        for Row {
            name,
            unit,
            value,
            cpu,
        } in &self.rows
        {
            let cpu = cpu.map_or_else(String::new, |cpu| format!("{cpu:.1} {unit}"));
            let value = format!("{value:.1} {unit}");
            table += &format!("{name:<58} {value:>12} {cpu:>12}\n");
        }
        table.push('\n');
        for Bound {
            what,
            value,
            at_most,
            holds,
        } in &self.bounds
        {
            let verdict = if *holds { "holds" } else { "MISSED" };
            table += &format!("{what:<84} {value:>8.3}  at most {at_most:<8.3} {verdict}\n");
        }
        table
    }

    pub(crate) fn exit(&self, check: bool) -> ExitCode {
        let missed = check && self.bounds.iter().any(|bound| !bound.holds);
        ExitCode::from(if missed { 4 } else { 0 })
    }
}
