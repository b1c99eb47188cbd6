//! The entries of lists that are not used: each is counted and named.

use std::collections::HashMap;

/// The most entries per list that are named at the usual level. Others are named at `debug`: a list
/// may have thousands.
const NAMED: usize = 20;

/// The reason why an entry of a list is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SkipReason {
    /// It is no forwarder, or none that its list may name.
    Unusable,
    /// An earlier entry is the same forwarder.
    Duplicate,
    /// It is this tracker.
    Ourselves,
    /// No more forwarders can be numbered until a restart.
    Limit,
}

impl SkipReason {
    pub(crate) const ALL: [SkipReason; 4] = [
        SkipReason::Unusable,
        SkipReason::Duplicate,
        SkipReason::Ourselves,
        SkipReason::Limit,
    ];

    /// Returns the name in metrics and logs.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SkipReason::Unusable => "unusable",
            SkipReason::Duplicate => "duplicate",
            SkipReason::Ourselves => "ourselves",
            SkipReason::Limit => "limit",
        }
    }
}

/// The numbers of entries that the active configuration does not use.
#[derive(Debug, Default)]
pub(crate) struct SkippedEntries {
    counts: [usize; SkipReason::ALL.len()],
    /// The number of named entries by list.
    named: HashMap<String, usize>,
}

impl SkippedEntries {
    /// Counts an entry of a list and names it in the log. `entry` says which one it is, without a
    /// secret.
    pub(crate) fn add(&mut self, list: &str, entry: &str, reason: SkipReason) {
        self.counts[reason as usize] += 1;
        let named = match self.named.get_mut(list) {
            Some(named) => named,
            None => self.named.entry(list.to_owned()).or_default(),
        };
        *named += 1;
        let text = reason.name();
        // Duplicates and ourselves are usual in a published list.
        match reason {
            _ if *named > NAMED => {
                tracing::debug!(list, entry, reason = text, "entry of a list skipped");
            }
            SkipReason::Unusable | SkipReason::Limit => {
                tracing::warn!(list, entry, reason = text, "entry of a list skipped");
            }
            SkipReason::Duplicate | SkipReason::Ourselves => {
                tracing::info!(list, entry, reason = text, "entry of a list skipped");
            }
        }
        if *named == NAMED {
            tracing::info!(list, "more skipped entries are named at the level `debug`");
        }
    }

    /// Returns the number of entries that are not used for a reason.
    pub(crate) fn count(&self, reason: SkipReason) -> usize {
        self.counts[reason as usize]
    }
}
