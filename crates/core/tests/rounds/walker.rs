//! One side: its queue, a toy store, and a record kept beside them.

use crate::tree::Tree;
use headworks_core::Time;
use headworks_core::rounds::{Discovered, Lease, LeaseId, Rounds, RoundsConfig, State};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// One side: the queue, a toy store, and a record kept beside them.
pub(crate) struct Walker {
    pub(crate) rounds: Rounds<usize>,
    pub(crate) paged: bool,
    pub(crate) window: u64,
    pub(crate) store: BTreeMap<u32, VecDeque<usize>>,
    pub(crate) out: Vec<Lease<usize>>,
    pub(crate) stale: Vec<LeaseId>,
    pub(crate) round: u32,
    pub(crate) declared: BTreeMap<u32, u64>,
    pub(crate) ended: BTreeMap<u32, u64>,
    pub(crate) grants: BTreeMap<usize, u32>,
    pub(crate) again: BTreeMap<usize, u32>,
    pub(crate) done: BTreeSet<usize>,
    pub(crate) failed: BTreeSet<usize>,
}

impl Walker {
    pub(crate) fn new(paged: bool, window: usize) -> Walker {
        let mut config = RoundsConfig::default();
        config.window = window;
        Walker {
            rounds: Rounds::new(config),
            paged,
            window: window as u64,
            store: BTreeMap::new(),
            out: Vec::new(),
            stale: Vec::new(),
            round: 0,
            declared: BTreeMap::new(),
            ended: BTreeMap::new(),
            grants: BTreeMap::new(),
            again: BTreeMap::new(),
            done: BTreeSet::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Records the nodes, and returns their declaration for the queue.
    pub(crate) fn discover(&mut self, round: u32, nodes: Vec<usize>) -> Discovered<usize> {
        *self.declared.entry(round).or_default() += nodes.len() as u64;
        if !self.paged {
            return Discovered::Nodes(nodes);
        }
        let count = nodes.len() as u64;
        self.store.entry(round).or_default().extend(nodes);
        Discovered::Count(count)
    }

    pub(crate) fn start(&mut self, now: Time, tree: &Tree, pending: BTreeSet<usize>) {
        let mut by_depth: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for node in pending {
            by_depth.entry(tree.depth[node]).or_default().push(node);
        }
        self.declared.clear();
        self.ended.clear();
        self.grants.clear();
        self.again.clear();
        let (first, nodes) = by_depth.pop_first().unwrap_or_default();
        self.round = first;
        let nodes = self.discover(first, nodes);
        self.rounds.start_pass(now, first, nodes).unwrap();
        for (depth, nodes) in by_depth {
            let nodes = self.discover(depth, nodes);
            self.rounds.declare(now, depth, nodes).unwrap();
        }
    }

    pub(crate) fn end(&mut self, node: usize, tree: &Tree) {
        assert_eq!(tree.depth[node], self.round);
        *self.ended.entry(self.round).or_default() += 1;
    }

    pub(crate) fn all_ended(&self, round: u32) -> bool {
        self.declared.get(&round).unwrap_or(&0) == self.ended.get(&round).unwrap_or(&0)
    }

    pub(crate) fn check(&self) {
        if !self.rounds.is_seeded() {
            assert_eq!(self.rounds.state(), State::Waiting);
            return;
        }
        let position = self.rounds.position();
        assert_eq!(position.round, self.round);
        assert_eq!(
            position.closed,
            self.all_ended(self.round),
            "closes iff declared = ended"
        );
        let more = self.declared.iter().any(|(&r, &n)| r > self.round && n > 0);
        assert_eq!(self.rounds.is_completed(), position.closed && !more);
        let progress = self.rounds.progress();
        let held = progress.ready + progress.leased + progress.delayed;
        assert!(!self.paged || held <= self.window, "the window is bounded");
        assert_eq!(progress.leased, self.out.len() as u64);
        assert_eq!(
            progress.ended,
            self.ended.get(&self.round).copied().unwrap_or(0)
        );
    }
}
