//! Coverage of simulations: which situations occurred, so that a test can require all of them.

use std::collections::BTreeMap;

/// Counts by name; two can be merged.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
}

impl Coverage {
    pub(crate) fn note(&mut self, what: impl Into<String>) {
        *self.counts.entry(what.into()).or_default() += 1;
    }

    /// The number of times a situation occurred.
    #[must_use]
    pub fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    pub(crate) fn has(&self, what: &str) -> bool {
        self.count(what) > 0
    }

    /// Adds the counts of another.
    pub fn add(&mut self, other: &Coverage) {
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }

    /// All situations that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.counts
            .iter()
            .map(|(what, count)| (what.as_str(), *count))
    }
}
