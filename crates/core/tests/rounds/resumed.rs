//! A walk that another process began: any part of both trees is durable, and each side starts at
//! its shallowest pending depth with round queues that know nothing yet.
//!
//! The driver here does what `headworks migrate` does: it reports both sides at every step, also a
//! follower that is not seeded yet. A step in which neither side can move is a deadlock.

use crate::tree::{Dice, Tree};
use headworks_core::rounds::{Advanced, Discovered, Lease, Rounds};
use headworks_core::{Coordinator, Side, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const SIDES: [Side; 2] = [Side::Leader, Side::Follower];

/// The state that an earlier process left in the store.
struct Durable {
    tree: Tree,
    /// Folders that each side has finished.
    done: [BTreeSet<usize>; 2],
}

impl Durable {
    /// A random tree, `thin` of ten times one level deeper, and a random part of it. The leader has
    /// listed a part that hangs together, since it knows only children of listed folders. The
    /// follower has finished any of those: `retry` makes single folders pending again.
    fn random(seed: u64, nodes: u64, thin: u64, listed: u64, compared: u64) -> Durable {
        let mut dice = Dice(seed);
        let tree = Tree::deep(&mut dice, nodes, thin);
        let mut done = [BTreeSet::new(), BTreeSet::new()];
        for node in 0..tree.children.len() {
            let is_known = node == 0 || done[0].contains(&tree.parent[node]);
            if is_known && dice.roll(100) < listed {
                done[0].insert(node);
                if dice.roll(100) < compared {
                    done[1].insert(node);
                }
            }
        }
        Durable { tree, done }
    }

    /// A chain of which the leader has listed `leader` levels and the follower finished `follower`.
    fn chain(levels: u64, leader: usize, follower: usize) -> Durable {
        let tree = Tree::deep(&mut Dice(0), levels, 10);
        let done = [(0..leader).collect(), (0..follower).collect()];
        Durable { tree, done }
    }

    /// Folders a side has to start with, by depth. A follower's folder below a pending one is
    /// declared when that one ends.
    fn pending(&self, side: Side) -> BTreeMap<u32, Vec<usize>> {
        let [listed, compared] = &self.done;
        let mut pending: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for node in 0..self.tree.children.len() {
            let parent = self.tree.parent[node];
            let starts = match side {
                Side::Leader => !listed.contains(&node) && (node == 0 || listed.contains(&parent)),
                Side::Follower => {
                    let is_known = node == 0 || listed.contains(&parent);
                    is_known
                        && !compared.contains(&node)
                        && (node == 0 || compared.contains(&parent))
                }
            };
            if starts {
                pending.entry(self.tree.depth[node]).or_default().push(node);
            }
        }
        pending
    }
}

struct Resumed {
    durable: Durable,
    lag: u32,
    coordinator: Coordinator,
    rounds: [Rounds<usize>; 2],
    leases: Vec<(Side, Lease<usize>)>,
}

impl Resumed {
    fn new(durable: Durable, lag: u32, max_lead: u32) -> Resumed {
        let mut coordinator = Coordinator::new(lag, max_lead).unwrap();
        let follower = durable.pending(Side::Follower);
        coordinator.begin_pass(follower.keys().next().copied().unwrap_or(0));
        Resumed {
            durable,
            lag,
            coordinator,
            rounds: [Rounds::default(), Rounds::default()],
            leases: Vec::new(),
        }
    }

    fn start(&mut self, side: Side) {
        let mut pending = self.durable.pending(side);
        let (depth, nodes) = pending.pop_first().unwrap_or_default();
        let rounds = &mut self.rounds[side as usize];
        rounds.start_pass(Time::ZERO, depth, nodes.into()).unwrap();
        for (depth, nodes) in pending {
            rounds.declare(Time::ZERO, depth, nodes.into()).unwrap();
        }
    }

    /// Reports, enters what may be entered, and leases all of it.
    fn step(&mut self, side: Side) {
        let rounds = &mut self.rounds[side as usize];
        self.coordinator.report(side, rounds.position());
        while let Some(leave) = self.coordinator.leave(side) {
            if !matches!(rounds.advance(Time::ZERO, leave), Advanced::Entered(_)) {
                break;
            }
            self.coordinator.report(side, rounds.position());
        }
        while let Some(lease) = rounds.next(Time::ZERO) {
            self.leases.push((side, lease));
        }
    }

    fn finish(&mut self, side: Side, lease: &Lease<usize>) {
        let Durable { tree, done } = &mut self.durable;
        if side == Side::Follower && self.lag >= 2 {
            let is_listed = done[0].contains(&lease.node);
            assert!(is_listed, "compared {} before it was listed", lease.node);
        }
        done[side as usize].insert(lease.node);
        let found = tree.children[lease.node].iter().copied();
        let found: Vec<usize> = found
            .filter(|node| !done[side as usize].contains(node))
            .collect();
        let rounds = &mut self.rounds[side as usize];
        let _ = rounds.finish(Time::ZERO, lease.id, Discovered::Nodes(found));
    }

    /// Walks both sides to their end. Leases end in the order of the dice.
    fn run(mut self, dice: &mut Dice) {
        let follower = self.durable.pending(Side::Follower);
        let depth = follower.keys().next().copied().unwrap_or(0);
        self.start(Side::Leader);
        loop {
            self.step(Side::Leader);
            if !self.rounds[1].is_seeded() && self.coordinator.may_start(depth) {
                self.start(Side::Follower);
            }
            self.step(Side::Follower);
            if self.rounds.iter().all(Rounds::is_completed) {
                break;
            }
            let before = self.rounds.each_ref().map(Rounds::position);
            if self.leases.is_empty() {
                // The follower's step may have opened the way for the leader.
                self.step(Side::Leader);
                let now = self.rounds.each_ref().map(Rounds::position);
                let moved = now != before || !self.leases.is_empty();
                assert!(moved, "both sides wait for each other: {now:?}");
                continue;
            }
            let at = dice.roll(self.leases.len() as u64) as usize;
            let (side, lease) = self.leases.swap_remove(at);
            self.finish(side, &lease);
        }
        let all: BTreeSet<usize> = (0..self.durable.tree.children.len()).collect();
        for side in SIDES {
            assert_eq!(self.durable.done[side as usize], all, "{side:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn a_resumed_walk_ends_whatever_is_durable(
        seed in any::<u64>(), lag in 1..=8u32, more in 0..8u32, nodes in 1..120u64,
        thin in 0..=10u64, listed in 0..=100u64, compared in 0..=100u64,
    ) {
        let durable = Durable::random(seed, nodes, thin, listed, compared);
        Resumed::new(durable, lag, lag + more).run(&mut Dice(seed));
    }
}

/// The follower may have finished any level that the leader listed. Interrupted while a listing is
/// in flight, it usually stands one or two levels above.
#[test]
fn a_resumed_chain_ends_wherever_both_sides_stood() {
    for (lag, max_lead) in [(1, 1), (1, 4), (2, 2), (3, 3), (3, 4), (3, 8), (8, 8)] {
        for levels in [1, 12, 40] {
            for leader in 0..=levels {
                for follower in 0..=leader {
                    let (leader, follower) = (leader as usize, follower as usize);
                    let durable = Durable::chain(levels, leader, follower);
                    Resumed::new(durable, lag, max_lead).run(&mut Dice(0));
                }
            }
        }
    }
}
