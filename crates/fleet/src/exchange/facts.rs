//! Facts that all nodes share: suspensions, overrides, learned limits, configuration fingerprints.
//!
//! A node receives all of them whenever one has changed, together with its tick, and keeps them in
//! memory. The version is random and compared for inequality, so it is right even after a restored
//! backup. Remaining times are measured by the *fleet clock*, which the allocator advances by the
//! time that passes on its own clock: no wall clock is involved.

use std::time::Duration;

use bytes::Bytes;

use crate::error::{Error, Result};

/// A fact that all nodes share.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fact {
    /// Its key, such as `suspension/openai`.
    pub key: String,
    /// Its value.
    pub body: Bytes,
    /// The time until it expires, if it does. The receiver counts it down by itself.
    pub remaining: Option<Duration>,
}

/// All facts, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Facts {
    /// The facts that have not expired, ordered by key.
    pub facts: Vec<Fact>,
}

impl Facts {
    /// Returns the fact with this key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Fact> {
        self.facts.iter().find(|fact| fact.key == key)
    }
}

/// A change of one fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FactChange {
    pub(super) key: String,
    pub(super) body: Option<Bytes>,
    pub(super) lasts: Option<Duration>,
}

impl FactChange {
    /// Sets a fact until it is removed.
    #[must_use]
    pub fn set(key: impl Into<String>, body: impl Into<Bytes>) -> FactChange {
        FactChange {
            key: key.into(),
            body: Some(body.into()),
            lasts: None,
        }
    }

    /// Lets the fact expire. After a crash of the server it may last for its whole time again,
    /// never for longer.
    #[must_use]
    pub fn lasting(self, time: Duration) -> FactChange {
        FactChange {
            lasts: Some(time),
            ..self
        }
    }

    /// Removes a fact.
    #[must_use]
    pub fn remove(key: impl Into<String>) -> FactChange {
        FactChange {
            key: key.into(),
            body: None,
            lasts: None,
        }
    }
}

const MAX_KEY: usize = 256;
const MAX_FACT: usize = 64 << 10;

/// Refuses facts that are too large to be sent to every node.
pub(super) fn check(changes: &[FactChange]) -> Result<()> {
    for change in changes {
        limit("a fact's key", change.key.len(), MAX_KEY)?;
        limit(
            "a fact",
            change.body.as_ref().map_or(0, Bytes::len),
            MAX_FACT,
        )?;
    }
    Ok(())
}

fn limit(what: &'static str, size: usize, limit: usize) -> Result<()> {
    if size <= limit {
        return Ok(());
    }
    Err(Error::TooLarge { what, size, limit })
}

/// Milliseconds as a column.
pub(super) fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 4)
}

/// The remaining time of a fact: what the fleet clock leaves, and never more than it was to last.
/// The clock can go back when the server loses its content.
pub(super) fn remaining(expires_ms: i64, lasts_ms: i64, clock_ms: i64) -> Option<Duration> {
    let left = expires_ms.saturating_sub(clock_ms).min(lasts_ms);
    u64::try_from(left)
        .ok()
        .filter(|left| *left > 0)
        .map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_bounded_by_both() {
        assert_eq!(remaining(1000, 500, 800), Some(Duration::from_millis(200)));
        assert_eq!(remaining(1000, 500, 1000), None);
        assert_eq!(remaining(1000, 500, 2000), None);
        // The clock went back to 0.
        assert_eq!(remaining(1000, 500, 0), Some(Duration::from_millis(500)));
    }
}
