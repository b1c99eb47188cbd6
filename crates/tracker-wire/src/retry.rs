//! BEP 31: when a tracker that fails wants to be asked again.

use crate::bencode::Value;
use std::time::Duration;

/// What `retry in` said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryIn {
    /// After so long.
    After(Duration),
    /// Not at all.
    Never,
}

impl RetryIn {
    /// Reads a number of minutes, as an integer or as text, or `never`. What makes no sense says
    /// nothing.
    #[must_use]
    pub fn read(value: &Value<'_>) -> Option<RetryIn> {
        match value {
            Value::Int(minutes) => minutes_of(u64::try_from(*minutes).ok()?),
            Value::Bytes(text) => {
                let text = std::str::from_utf8(text).ok()?.trim();
                if text.eq_ignore_ascii_case("never") {
                    return Some(RetryIn::Never);
                }
                minutes_of(text.parse().ok()?)
            }
            Value::List(_) | Value::Dict(_) => None,
        }
    }
}

/// More than a year is a year: nobody's clock should overflow on a stranger's number.
fn minutes_of(minutes: u64) -> Option<RetryIn> {
    let minutes = minutes.min(366 * 24 * 60);
    Some(RetryIn::After(Duration::from_secs(minutes * 60)))
}
