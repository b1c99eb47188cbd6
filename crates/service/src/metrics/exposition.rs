//! The Prometheus text exposition format, version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Write};

use super::family::{Family, Kind};

/// The samples of one scrape. All samples of a family are kept together, as the format requires,
/// even if several collectors write them.
#[derive(Debug, Default)]
pub struct Exposition {
    families: BTreeMap<&'static str, (Family, String)>,
}

impl Exposition {
    /// Adds samples to `family`.
    pub fn family(&mut self, family: &Family) -> Samples<'_> {
        let entry = self.families.entry(family.name);
        let (family, text) = entry.or_insert_with(|| (*family, String::new()));
        Samples {
            family: *family,
            text,
        }
    }
}

impl Display for Exposition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, (family, samples)) in &self.families {
            let help = family.help.replace('\\', r"\\").replace('\n', r"\n");
            writeln!(f, "# HELP {name} {help}")?;
            writeln!(f, "# TYPE {name} {}", family.kind.name())?;
            f.write_str(samples)?;
        }
        Ok(())
    }
}

/// A writer for the samples of one family.
#[derive(Debug)]
pub struct Samples<'a> {
    family: Family,
    text: &'a mut String,
}

impl Samples<'_> {
    /// Adds the value of a counter or gauge under `labels`.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) -> &mut Self {
        debug_assert!(
            self.family.kind != Kind::Histogram,
            "a histogram has buckets"
        );
        self.line("", labels, None, value);
        self
    }

    /// Adds a histogram under `labels`. `counts` are observations per bucket (not cumulative), the
    /// last one above the last bound; `sum` is the sum of all observations.
    pub fn histogram(
        &mut self,
        labels: &[(&str, &str)],
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) -> &mut Self {
        debug_assert!(
            self.family.kind == Kind::Histogram,
            "only a histogram has buckets"
        );
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let mut total = 0u64;
        for (bound, count) in bounds.zip(counts.iter().copied().chain(std::iter::repeat(0))) {
            total = total.saturating_add(count);
            self.line("_bucket", labels, Some(bound), total as f64);
        }
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, total as f64);
        self
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], le: Option<f64>, value: f64) {
        let _ = write!(self.text, "{}{suffix}", self.family.name);
        let mut mark = '{';
        for (name, text) in labels {
            let _ = write!(self.text, "{mark}{name}=\"{}\"", Escaped(text));
            mark = ',';
        }
        if let Some(le) = le {
            let _ = write!(self.text, "{mark}le=\"{}\"", Number(le));
            mark = ',';
        }
        let close = if mark == ',' { "}" } else { "" };
        let _ = writeln!(self.text, "{close} {}", Number(value));
    }
}

/// A label value with backslash, quote and newline escaped.
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '\\' => f.write_str(r"\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str(r"\n")?,
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// A number in the notation of the format.
struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n if n.is_nan() => f.write_str("NaN"),
            f64::INFINITY => f.write_str("+Inf"),
            f64::NEG_INFINITY => f.write_str("-Inf"),
            n => write!(f, "{n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::test_parser;
    use proptest::prelude::*;

    const DEPTH: Family = Family::gauge("queue_depth", "Jobs that wait.\nAll of them.");
    const SERVED: Family = Family::counter("headworks_served", "Served.");
    const WAIT: Family = Family::histogram("headworks_wait_seconds", "Waits.");

    #[test]
    fn looks_as_the_format_says() {
        let mut out = Exposition::default();
        out.family(&WAIT)
            .histogram(&[("class", "p0")], &[0.1, 1.0], &[3, 2, 1], 4.5);
        out.family(&DEPTH).sample(&[], 7.0);
        out.family(&SERVED).sample(&[("flow", "a\"b\\c\nd")], 1.0);
        out.family(&DEPTH).sample(&[("class", "p1")], f64::NAN);
        insta::assert_snapshot!(out, @r#"
        # HELP headworks_served Served.
        # TYPE headworks_served counter
        headworks_served{flow="a\"b\\c\nd"} 1
        # HELP headworks_wait_seconds Waits.
        # TYPE headworks_wait_seconds histogram
        headworks_wait_seconds_bucket{class="p0",le="0.1"} 3
        headworks_wait_seconds_bucket{class="p0",le="1"} 5
        headworks_wait_seconds_bucket{class="p0",le="+Inf"} 6
        headworks_wait_seconds_sum{class="p0"} 4.5
        headworks_wait_seconds_count{class="p0"} 6
        # HELP queue_depth Jobs that wait.\nAll of them.
        # TYPE queue_depth gauge
        queue_depth 7
        queue_depth{class="p1"} NaN
        "#);
    }

    proptest! {
        #[test]
        fn any_label_and_number_reads_back(label in any::<String>(), value in any::<f64>()) {
            let mut out = Exposition::default();
            out.family(&SERVED).sample(&[("label", &label)], value);
            let samples = test_parser::parse(&out.to_string()).unwrap();
            prop_assert_eq!(&samples[0].labels, &[("label".to_owned(), label)]);
            prop_assert!(samples[0].value == value || value.is_nan());
        }
    }
}
