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
    hints: Mutex<BTreeMap<Arc<str>, PoolHint>>,
    forget: Mutex<Vec<NodeToken>>,
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
        let mut waiting = self.hints.lock();
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

    pub(crate) fn take_hints(&self) -> Vec<PoolHint> {
        std::mem::take(&mut *self.hints.lock())
            .into_values()
            .collect()
    }
}
