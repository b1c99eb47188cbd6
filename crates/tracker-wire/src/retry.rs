//! The `retry in` field of a failure response (BEP 31).

use crate::bencode::Value;
use std::time::Duration;

/// The value of `retry in`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryIn {
    /// The tracker accepts announces again after this time.
    After(Duration),
    /// The tracker never wants this announce again.
    Never,
}

impl RetryIn {
    /// Parses minutes as an integer or as text, or the word `never`. Returns `None` for anything
    /// else.
    #[must_use]
    pub fn parse(value: &Value<'_>) -> Option<RetryIn> {
        match value {
            Value::Int(minutes) => after_minutes(u64::try_from(*minutes).ok()?),
            Value::Bytes(text) => {
                let text = std::str::from_utf8(text).ok()?.trim();
                if text.eq_ignore_ascii_case("never") {
                    return Some(RetryIn::Never);
                }
                after_minutes(text.parse().ok()?)
            }
            Value::List(_) | Value::Dict(_) => None,
        }
    }
}

/// Converts minutes. Values beyond a year are clamped, so that untrusted input cannot overflow a
/// deadline.
fn after_minutes(minutes: u64) -> Option<RetryIn> {
    let minutes = minutes.min(366 * 24 * 60);
    Some(RetryIn::After(Duration::from_secs(minutes * 60)))
}
