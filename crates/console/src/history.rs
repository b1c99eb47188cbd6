//! The history of every series, at several resolutions.
//!
//! A [`History`] takes the time as an argument and owns nothing but numbers. It stores a gauge as
//! it is and a counter as its rate; a coarser resolution stores the means over its step. Memory is
//! bounded by the number of lines and of points per line.

use std::collections::{BTreeMap, VecDeque};

use headworks_service::panel::{Body, Line, LineKind, PanelDescription};
use schemars::JsonSchema;
use serde::Serialize;

/// A time range and its resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The name in URLs.
    pub name: &'static str,
    /// Seconds per point.
    pub step: u64,
    /// Number of points kept.
    pub points: u64,
}

/// The last ten minutes, two hours and 24 hours.
pub const SPANS: [Span; 3] = [
    span("10m", 1, 600),
    span("2h", 10, 720),
    span("24h", 120, 720),
];

/// Maximum number of lines. Each takes 32 KiB once it is a day old.
const MAX_LINES: usize = 512;

const fn span(name: &'static str, step: u64, points: u64) -> Span {
    Span { name, step, points }
}

/// The newest values of the series of one panel, by widget.
pub type Points = BTreeMap<String, Vec<Option<f64>>>;

/// The history of all series.
#[derive(Debug, Default)]
pub struct History {
    /// Tracks by panel and widget.
    series: BTreeMap<(String, String), BTreeMap<String, Track>>,
    lines: usize,
}

/// The history of one series, for a chart. All lines share the same times.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SeriesHistory {
    /// Seconds per point.
    pub step: u64,
    /// Unix times in seconds.
    pub times: Vec<u64>,
    /// The lines.
    pub lines: Vec<LineHistory>,
}

/// The history of one line.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LineHistory {
    /// The name of the line.
    pub name: String,
    /// One value per time; `None` where unknown.
    pub values: Vec<Option<f64>>,
}

impl History {
    /// Records the state of `panel` at `now`, a Unix time in seconds, and returns the newest point
    /// of each of its series.
    pub fn record(&mut self, now: f64, panel: &PanelDescription) -> Points {
        let mut points = Points::new();
        for widget in &panel.snapshot.widgets {
            let Body::Series(series) = &widget.body else {
                continue;
            };
            let key = (panel.name.clone(), widget.id.clone());
            let values = series.lines.iter();
            let values = values.map(|line| self.line(now, &key, line)).collect();
            points.insert(widget.id.clone(), values);
        }
        points
    }

    fn line(&mut self, now: f64, key: &(String, String), line: &Line) -> Option<f64> {
        let known = self.series.get(key);
        if !known.is_some_and(|tracks| tracks.contains_key(&line.name)) {
            if self.lines == MAX_LINES {
                return None;
            }
            self.lines += 1;
        }
        let tracks = self.series.entry(key.clone()).or_default();
        let track = tracks.entry(line.name.clone()).or_default();
        track.push(now, line)
    }

    /// The history of a series over `SPANS[span]`, up to `now`.
    #[must_use]
    pub fn series(
        &self,
        now: f64,
        panel: &str,
        widget: &str,
        span: usize,
    ) -> Option<SeriesHistory> {
        let Span { step, points, .. } = SPANS[span];
        let tracks = self.series.get(&(panel.to_owned(), widget.to_owned()))?;
        let end = now as u64 / step;
        let oldest = tracks
            .values()
            .filter_map(|track| track.rings[span].oldest());
        let begin = oldest
            .min()
            .unwrap_or(end)
            .max((end + 1).saturating_sub(points));
        let lines = tracks.iter().map(|(name, track)| LineHistory {
            name: name.clone(),
            values: track.rings[span].values(begin, end),
        });
        Some(SeriesHistory {
            step,
            times: (begin..=end).map(|bucket| bucket * step).collect(),
            lines: lines.collect(),
        })
    }
}

/// The history of one line.
#[derive(Debug, Default)]
struct Track {
    before: Option<(f64, f64)>,
    rings: [Ring; SPANS.len()],
}

impl Track {
    fn push(&mut self, now: f64, line: &Line) -> Option<f64> {
        let before = self.before.replace((now, line.value));
        let value = match line.kind {
            LineKind::Total => rate(before, (now, line.value)),
            _ => Some(line.value),
        }?;
        for (ring, span) in self.rings.iter_mut().zip(&SPANS) {
            ring.push(now as u64 / span.step, value, span.points as usize);
        }
        Some(value)
    }
}

/// The rate of a counter; `None` if the counter was reset.
fn rate(before: Option<(f64, f64)>, (now, value): (f64, f64)) -> Option<f64> {
    let (then, old) = before?;
    (now > then && value >= old).then(|| (value - old) / (now - then))
}

/// Means per time bucket; the newest bucket is last and still open.
#[derive(Debug, Default)]
struct Ring {
    means: VecDeque<(u64, f32)>,
    /// The number of values in the newest mean.
    weight: u32,
}

impl Ring {
    fn push(&mut self, bucket: u64, value: f64, most: usize) {
        match self.means.back_mut() {
            Some((newest, mean)) if *newest == bucket => {
                self.weight += 1;
                *mean += (value as f32 - *mean) / self.weight as f32;
                return;
            }
            // The clock was set back, so old and new buckets cannot be told apart.
            Some((newest, _)) if *newest > bucket => self.means.clear(),
            _ => {}
        }
        if self.means.len() == most {
            self.means.pop_front();
        }
        self.means.push_back((bucket, value as f32));
        self.weight = 1;
    }

    fn oldest(&self) -> Option<u64> {
        self.means.front().map(|(bucket, _)| *bucket)
    }

    fn values(&self, begin: u64, end: u64) -> Vec<Option<f64>> {
        let mut values = vec![None; (end + 1).saturating_sub(begin) as usize];
        for (bucket, mean) in &self.means {
            let at = bucket.checked_sub(begin);
            if let Some(slot) = at.and_then(|at| values.get_mut(at as usize)) {
                *slot = Some(f64::from(*mean));
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_service::panel::{Series, Snapshot, Widget};

    fn panel(kind: LineKind, value: f64) -> PanelDescription {
        let line = Line {
            name: "water".into(),
            kind,
            value,
            limit: None,
        };
        let series = Series {
            lines: vec![line],
            ..Series::default()
        };
        let widgets = vec![Widget::new("flow", "Flow", Body::Series(series))];
        PanelDescription {
            name: "works".into(),
            snapshot: Snapshot {
                widgets,
                ..Snapshot::default()
            },
            ..PanelDescription::default()
        }
    }

    fn values(history: &History, now: f64, span: usize) -> Vec<Option<f64>> {
        let past = history.series(now, "works", "flow", span).unwrap();
        assert_eq!(past.times.len(), past.lines[0].values.len());
        past.lines[0].values.clone()
    }

    #[test]
    fn levels_are_kept_and_averaged() {
        let mut history = History::default();
        for second in 0..20 {
            history.record(
                1000.0 + f64::from(second),
                &panel(LineKind::Level, f64::from(second)),
            );
        }
        let fine = values(&history, 1019.0, 0);
        assert_eq!((fine.len(), fine[3]), (20, Some(3.0)));
        assert_eq!(values(&history, 1019.0, 1), [Some(4.5), Some(14.5)]);
    }

    #[test]
    fn totals_are_kept_as_how_fast_they_grow() {
        let mut history = History::default();
        let grown = [
            (1.0, 10.0),
            (2.0, 15.0),
            (4.0, 35.0),
            (5.0, 0.0),
            (6.0, 2.0),
        ];
        let points = grown
            .map(|(now, value)| history.record(now, &panel(LineKind::Total, value))["flow"][0]);
        // The first value has no rate, and neither has one after a reset.
        assert_eq!(points, [None, Some(5.0), Some(10.0), None, Some(2.0)]);
        assert_eq!(
            values(&history, 6.0, 0),
            [Some(5.0), None, Some(10.0), None, Some(2.0)]
        );
    }

    #[test]
    fn memory_is_bounded_and_a_clock_set_back_begins_anew() {
        let mut history = History::default();
        for second in 0..5000 {
            history.record(f64::from(second), &panel(LineKind::Level, 1.0));
        }
        assert_eq!(values(&history, 4999.0, 0).len(), 600);
        history.record(100.0, &panel(LineKind::Level, 7.0));
        assert_eq!(values(&history, 100.0, 0), [Some(7.0)]);
        for line in 0..2 * MAX_LINES {
            let mut many = panel(LineKind::Level, 1.0);
            many.name = format!("works {line}");
            history.record(100.0, &many);
        }
        assert_eq!(history.lines, MAX_LINES);
    }
}
