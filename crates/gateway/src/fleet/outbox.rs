//! Everything that this process has to say to the others with the next exchange.

use std::collections::BTreeMap;
use std::sync::Arc;

use headworks_fleet::{FactChange, NodeToken};
use parking_lot::Mutex;

use super::wire::PoolHint;
use crate::upstream::Hints;

/// Messages that wait for the next exchange.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    changes: Mutex<Vec<FactChange>>,
    hints: Mutex<Hinted>,
    forget: Mutex<Vec<NodeToken>>,
}

/// Statements of upstreams about their limits.
#[derive(Debug, Default)]
struct Hinted {
    /// Not in any report yet.
    waiting: BTreeMap<Arc<str>, PoolHint>,
    /// In every report until the allocator has read one of them.
    sent: Vec<PoolHint>,
    /// The first report that has them.
    sent_with: u64,
}

impl Outbox {
    /// Changes a shared fact soon.
    pub(crate) fn change(&self, change: FactChange) {
        self.changes.lock().push(change);
    }

    pub(crate) fn take_changes(&self) -> Vec<FactChange> {
        std::mem::take(&mut self.changes.lock())
    }

    /// Keeps changes that could not be sent, in front of later ones.
    pub(crate) fn put_back(&self, mut changes: Vec<FactChange>) {
        let mut waiting = self.changes.lock();
        changes.append(&mut waiting);
        *waiting = changes;
    }

    /// Removes a node soon.
    pub(crate) fn forget(&self, node: NodeToken) {
        self.forget.lock().push(node);
    }

    pub(crate) fn take_forgotten(&self) -> Vec<NodeToken> {
        std::mem::take(&mut self.forget.lock())
    }

    /// Notes what an upstream said about the limits of its pool.
    pub(crate) fn hint(&self, pool: &str, hints: &Hints) {
        let waiting = &mut self.hints.lock().waiting;
        if !waiting.contains_key(pool) {
            let hint = PoolHint {
                pool: pool.into(),
                overloaded: false,
                rps: None,
                tokens_per_sec: None,
            };
            waiting.insert(hint.pool.clone(), hint);
        }
        if let Some(hint) = waiting.get_mut(pool) {
            hint.overloaded |= hints.overloaded;
            hint.rps = hints.rps.or(hint.rps);
            hint.tokens_per_sec = hints.tokens_per_sec.or(hint.tokens_per_sec);
        }
    }

    /// The hints for the report with this number, and the number of the first report that has
    /// them. The allocator counts them once, by that number.
    pub(crate) fn hints(&self, report: u64) -> (u64, Vec<PoolHint>) {
        let mut hinted = self.hints.lock();
        if hinted.sent.is_empty() {
            hinted.sent = std::mem::take(&mut hinted.waiting).into_values().collect();
            hinted.sent_with = report;
        }
        // A node that joins anew counts its reports from the beginning.
        hinted.sent_with = hinted.sent_with.min(report);
        (hinted.sent_with, hinted.sent.clone())
    }

    /// The allocator has read the reports up to this one.
    pub(crate) fn read(&self, report: u64) {
        let mut hinted = self.hints.lock();
        if report >= hinted.sent_with {
            hinted.sent.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_repeated_until_a_report_with_it_was_read() {
        let outbox = Outbox::default();
        let overload = Hints {
            overloaded: true,
            ..Hints::default()
        };
        assert_eq!(outbox.hints(4), (4, vec![]));
        outbox.hint("one", &overload);
        let (first, hints) = outbox.hints(5);
        assert_eq!((first, hints.len()), (5, 1));
        outbox.hint("two", &overload);
        assert_eq!(outbox.hints(6), (5, hints.clone()), "the report was lost");
        outbox.read(4);
        assert_eq!(outbox.hints(7), (5, hints));
        outbox.read(6);
        let (first, hints) = outbox.hints(8);
        assert_eq!((first, hints.len()), (8, 1), "now the other one");
        // It joined anew.
        assert_eq!(outbox.hints(1).0, 1);
        outbox.read(1);
        assert_eq!(outbox.hints(2), (2, vec![]));
    }
}
