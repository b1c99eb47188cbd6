//! SVG drawing: a frame with axes, and lines, bands and bars in it.
//!
//! Everything that carries meaning has a label, a dash or a pattern in addition to its colour.

use super::text::seconds;
use std::fmt::Write;

/// Escapes text for markup.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            letter => safe.push(letter),
        }
    }
    safe
}

/// The mapping from values to heights.
#[derive(Clone, Copy, Debug)]
pub(super) enum Scale {
    /// From 0 to this value.
    Linear(f64),
    /// From the first to the second value, logarithmic.
    Log(f64, f64),
}

impl Scale {
    /// A linear scale from 0 to a round value above `most`.
    pub(super) fn linear(most: f64) -> Self {
        Scale::Linear(round_up(most.max(4.0)))
    }

    /// A logarithmic scale between the enclosing powers of ten.
    pub(super) fn log(least: f64, most: f64) -> Self {
        let low = 10f64.powf(least.max(1e-6).log10().floor());
        let high = 10f64.powf(most.max(1e-6).log10().ceil());
        Scale::Log(low, high.max(low * 10.0))
    }

    /// The height, from 0 at the bottom to 1.
    fn height(self, value: f64) -> f64 {
        match self {
            Scale::Linear(most) => value / most,
            Scale::Log(low, high) => (value.max(low) / low).log10() / (high / low).log10(),
        }
        .clamp(0.0, 1.0)
    }

    fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear(most) => (0..=4).map(|n| most * f64::from(n) / 4.0).collect(),
            Scale::Log(low, high) => {
                let decades = (high / low).log10().round() as i32;
                let step = (decades / 4).max(1);
                (0..=decades)
                    .step_by(step as usize)
                    .map(|n| low * 10f64.powi(n))
                    .collect()
            }
        }
    }
}

/// Rounds up to 1, 2, 4 or 8 times a power of ten, so that four steps below it are round, too.
fn round_up(value: f64) -> f64 {
    let power = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 4.0, 8.0, 10.0];
    let step = steps
        .into_iter()
        .find(|step| value <= step * power * 1.000_001);
    step.unwrap_or(10.0) * power
}

/// Formats a count briefly.
pub(super) fn count(value: f64) -> String {
    match value {
        v if v >= 999_500.0 => format!("{} M", trim(v / 1e6)),
        v if v >= 9_995.0 => format!("{} k", trim(v / 1e3)),
        v => trim(v),
    }
}

fn trim(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Formats seconds as an axis label.
pub(super) fn wait(value: f64) -> String {
    match value {
        v if v < 0.000_999 => format!("{} µs", trim(v * 1e6)),
        v if v < 0.999 => format!("{} ms", trim(v * 1e3)),
        v => format!("{} s", trim(v)),
    }
}

/// One drawing: its size, margins and axes.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
    /// Seconds from left to right.
    pub(super) span: f64,
    pub(super) scale: Scale,
    body: String,
}

const TOP: f64 = 10.0;

impl Frame {
    pub(super) fn new(width: f64, height: f64, span: f64, scale: Scale) -> Self {
        Frame {
            width,
            height,
            left: 56.0,
            right: 12.0,
            bottom: 22.0,
            span: span.max(1e-9),
            scale,
            body: String::new(),
        }
    }

    pub(super) fn x(&self, at: f64) -> f64 {
        let inner = self.width - self.left - self.right;
        self.left + inner * (at / self.span).clamp(0.0, 1.0)
    }

    pub(super) fn y(&self, value: f64) -> f64 {
        let inner = self.height - TOP - self.bottom;
        TOP + inner * (1.0 - self.scale.height(value))
    }

    pub(super) fn add(&mut self, markup: &str) {
        self.body.push_str(markup);
    }

    /// Draws horizontal grid lines with their values.
    pub(super) fn values(&mut self, name: impl Fn(f64) -> String) {
        for tick in self.scale.ticks() {
            let (y, right) = (self.y(tick), self.width - self.right);
            let _ = write!(
                self.body,
                "<line class=grid x1={:.0} y1={y:.1} x2={right:.0} y2={y:.1} /><text class=tick x={:.0} y={:.1} text-anchor=end>{}</text>",
                self.left,
                self.left - 6.0,
                y + 4.0,
                name(tick)
            );
        }
    }

    /// Draws the time axis.
    pub(super) fn times(&mut self, wanted: u32) {
        let step = round_time(self.span / f64::from(wanted));
        let base = self.height - self.bottom;
        let mut at = 0.0;
        while at <= self.span * 1.000_001 {
            let x = self.x(at);
            let anchor = match at {
                0.0 => "start",
                at if at > self.span * 0.97 => "end",
                _ => "middle",
            };
            let _ = write!(
                self.body,
                "<line class=axis x1={x:.1} y1={base:.1} x2={x:.1} y2={:.1} /><text class=tick x={x:.1} y={:.1} text-anchor={anchor}>{}</text>",
                base + 4.0,
                base + 17.0,
                time(at)
            );
            at += step;
        }
        let _ = write!(
            self.body,
            "<line class=axis x1={:.1} y1={base:.1} x2={:.1} y2={base:.1} />",
            self.left,
            self.width - self.right
        );
    }

    /// Draws a line through a value in the middle of each slot; it breaks at missing values.
    pub(super) fn line(&mut self, values: &[Option<f64>], slot: f64, class: &str) {
        let mut path = String::new();
        let mut pen = 'M';
        for (index, value) in values.iter().enumerate() {
            let Some(value) = value else {
                pen = 'M';
                continue;
            };
            let x = self.x((index as f64 + 0.5) * slot);
            let _ = write!(path, "{pen}{x:.1} {:.1}", self.y(*value));
            pen = 'L';
        }
        let _ = write!(self.body, "<path class=\"{class}\" d=\"{path}\" />");
    }

    /// Fills the area between two lines; it breaks where either value is missing.
    pub(super) fn band(
        &mut self,
        low: &[Option<f64>],
        high: &[Option<f64>],
        slot: f64,
        class: &str,
    ) {
        let mut path = String::new();
        let points: Vec<Option<(f64, f64, f64)>> = low
            .iter()
            .zip(high)
            .enumerate()
            .map(|(index, (low, high))| {
                let x = self.x((index as f64 + 0.5) * slot);
                Some((x, self.y((*low)?), self.y((*high)?)))
            })
            .collect();
        for run in points.split(Option::is_none) {
            let run: Vec<(f64, f64, f64)> = run.iter().copied().flatten().collect();
            if run.is_empty() {
                continue;
            }
            let mut pen = 'M';
            let back = run.iter().rev().map(|(x, low, _)| (*x, *low));
            for (x, y) in run.iter().map(|(x, _, high)| (*x, *high)).chain(back) {
                let _ = write!(path, "{pen}{x:.1} {y:.1}");
                pen = 'L';
            }
            path.push('Z');
        }
        let _ = write!(self.body, "<path class=\"{class}\" d=\"{path}\" />");
    }

    /// Returns the drawing; `title` is its accessible label.
    pub(super) fn svg(self, title: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" role=img aria-label=\"{}\">{}</svg>",
            self.width,
            self.height,
            escape(title),
            self.body
        )
    }
}

fn round_time(step: f64) -> f64 {
    const STEPS: [f64; 22] = [
        0.001, 0.01, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0,
        1800.0, 3600.0, 7200.0, 21600.0, 43200.0, 86400.0, 604_800.0,
    ];
    let round = STEPS.into_iter().find(|round| step <= *round);
    round.unwrap_or(step)
}

/// Formats a time of the run.
fn time(at: f64) -> String {
    match at {
        0.0 => "0".to_owned(),
        at if at < 1.0 => seconds(at),
        at if at < 120.0 => format!("{} s", trim(at)),
        at if at < 7200.0 => format!("{} min", trim(at / 60.0)),
        at => format!("{} h", trim(at / 3600.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_round_and_cover_what_they_show() {
        for most in [0.0, 1.0, 3.0, 7.2, 99.0, 100.0, 1234.0, 1e9] {
            let Scale::Linear(top) = Scale::linear(most) else {
                panic!("linear scales are linear")
            };
            assert!(top >= most && top <= most.max(4.0) * 2.6, "{most}: {top}");
        }
        assert_eq!(Scale::log(0.003, 0.2).ticks().len(), 4);
        assert_eq!(Scale::log(0.0, 0.0).height(0.0), 0.0);
    }

    #[test]
    fn markup_in_names_is_only_text() {
        assert_eq!(escape("<b a='\"'>&"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;");
    }
}
