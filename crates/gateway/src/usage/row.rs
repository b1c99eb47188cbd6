//! One row of usage, and its CSV form.

use serde::Serialize;

/// Usage of one tenant on one day with one model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct UsageRow {
    /// Calendar day, such as 20261115.
    pub day: u32,
    /// The tenant.
    pub tenant: String,
    /// The model; empty for requests without a successful response.
    pub model: String,
    /// Requests that ended.
    pub requests: u64,
    /// Requests that were rejected.
    pub refused: u64,
    /// Tokens of prompts.
    pub input_tokens: u64,
    /// Tokens of responses.
    pub output_tokens: u64,
}

/// Formats rows as CSV with a header line. Names are quoted where necessary.
fn csv(rows: &[UsageRow]) -> String {
    use std::fmt::Write;
    let mut text = "day,tenant,model,requests,refused,input_tokens,output_tokens\n".to_owned();
    for row in rows {
        let (tenant, model) = (quoted(&row.tenant), quoted(&row.model));
        let _ = writeln!(
            text,
            "{},{tenant},{model},{},{},{},{}",
            row.day, row.requests, row.refused, row.input_tokens, row.output_tokens
        );
    }
    text
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}

impl UsageRow {
    /// Tokens of prompts and responses.
    #[must_use]
    pub fn tokens(&self) -> u64 {
        self.input_tokens + self.output_tokens
    }

    pub(super) fn add(&mut self, other: &UsageRow) {
        self.requests += other.requests;
        self.refused += other.refused;
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
    }

    /// Formats rows as CSV with a header line.
    #[must_use]
    pub fn csv(rows: &[UsageRow]) -> String {
        csv(rows)
    }
}
