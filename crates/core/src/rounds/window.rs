//! The nodes of the current round that are in memory: ready, leased or delayed.
//!
//! Owns the nodes and the fence on leases: each node is in exactly one of the three, and a lease id
//! is never issued twice. Knows nothing of counts, rounds or states, and never drops a node that it
//! was not told to.

use super::lease::LeaseId;
use crate::Time;
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};

/// A node in memory and its history in this round.
#[derive(Clone, Debug)]
pub(super) struct Held<N> {
    pub(super) node: N,
    /// Attempts begun.
    pub(super) attempts: u32,
    /// When its first attempt failed, in running time.
    pub(super) failing_since: Option<Time>,
}

impl<N> Held<N> {
    pub(super) fn new(node: N) -> Self {
        Held {
            node,
            attempts: 0,
            failing_since: None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Window<N> {
    /// Retries whose time has come. They go before nodes not tried yet: their budget is running.
    due: VecDeque<Held<N>>,
    ready: VecDeque<Held<N>>,
    /// By due time, then by the order of arrival.
    delayed: BTreeMap<(Time, u64), Held<N>>,
    // Only ever asked by id, so its order decides nothing; ids are ours, so a fixed seed is safe.
    leased: HashMap<LeaseId, Held<N>, foldhash::fast::FixedState>,
    last_id: u64,
    last_delay: u64,
}

impl<N: Clone> Window<N> {
    pub(super) fn new() -> Self {
        Window {
            due: VecDeque::new(),
            ready: VecDeque::new(),
            delayed: BTreeMap::new(),
            leased: HashMap::default(),
            last_id: 0,
            last_delay: 0,
        }
    }

    /// Forgets every node and shuts out every lease that is out.
    pub(super) fn clear(&mut self) {
        self.due.clear();
        self.ready.clear();
        self.delayed.clear();
        self.leased.clear();
    }

    pub(super) fn held(&self) -> usize {
        self.ready() + self.delayed.len() + self.leased.len()
    }

    pub(super) fn ready(&self) -> usize {
        self.due.len() + self.ready.len()
    }

    pub(super) fn delayed(&self) -> usize {
        self.delayed.len()
    }

    pub(super) fn leased(&self) -> usize {
        self.leased.len()
    }

    pub(super) fn next_due(&self) -> Option<Time> {
        self.delayed.keys().next().map(|(at, _)| *at)
    }

    pub(super) fn push(&mut self, node: N) {
        self.ready.push_back(Held::new(node));
    }

    /// Takes over all nodes of a round that were kept in memory, without copying them when empty.
    pub(super) fn replace_ready(&mut self, nodes: VecDeque<Held<N>>) {
        if self.ready.is_empty() {
            self.ready = nodes;
        } else {
            self.ready.extend(nodes);
        }
    }

    /// Makes the retries ready whose time has come.
    pub(super) fn promote(&mut self, now: Time) {
        if self.next_due().is_none_or(|at| at > now) {
            return;
        }
        let later = self.delayed.split_off(&(now, u64::MAX));
        let due = std::mem::replace(&mut self.delayed, later);
        self.due.extend(due.into_values());
    }

    pub(super) fn lease(&mut self) -> Option<(LeaseId, u32, N)> {
        let mut held = self.due.pop_front().or_else(|| self.ready.pop_front())?;
        held.attempts = held.attempts.saturating_add(1);
        self.last_id += 1;
        let id = LeaseId(self.last_id);
        let granted = (id, held.attempts, held.node.clone());
        self.leased.insert(id, held);
        Some(granted)
    }

    pub(super) fn take(&mut self, id: LeaseId) -> Option<Held<N>> {
        self.leased.remove(&id)
    }

    pub(super) fn delay(&mut self, at: Time, held: Held<N>) {
        self.last_delay += 1;
        self.delayed.insert((at, self.last_delay), held);
    }
}
