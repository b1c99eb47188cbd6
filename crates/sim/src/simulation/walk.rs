//! Two coordinated round queues over a synthetic tree: the leader lists the source, the follower
//! the destination.
//!
//! Owns the rounds of both sides and their failures. It gives jobs to the simulation and receives
//! their results; it never calls the core itself.

use super::{WALK, Work};
use crate::record::Histogram;
use crate::scenario::RoundsSpec;
use headworks_core::rounds::{Discovered, LeaseId, Rounds, RoundsConfig, Settled};
use headworks_core::{Backoff, Coordinator, Cost, Flow, Job, Side, TargetSet, Time};
use headworks_synth::{Kind, Node, Rng, Tree};
use slab::Slab;
use std::collections::BTreeMap;
use std::time::Duration;

const SIDES: [Side; 2] = [Side::Leader, Side::Follower];

/// A closed round of one pass of one side.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundTally {
    pub(crate) pass: u32,
    pub(crate) round: u32,
    pub(crate) declared: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
    pub(crate) opened: Time,
    pub(crate) closed: Time,
}

/// The counters of one side.
#[derive(Debug, Default)]
pub(crate) struct SideTally {
    pub(crate) nodes: u64,
    /// Nodes that remain failed.
    pub(crate) failed: u64,
    pub(crate) passes: u32,
    pub(crate) completed: bool,
    pub(crate) rounds: Vec<RoundTally>,
    /// Times of nodes from lease to end.
    pub(crate) took: Histogram,
}

#[derive(Debug)]
pub(crate) struct WalkTally {
    pub(crate) sides: [SideTally; 2],
    pub(crate) max_lead: u32,
}

#[derive(Debug)]
struct SideRun {
    tree: Tree,
    set: TargetSet,
    flow: u32,
    rounds: Rounds<Node>,
    in_core: u32,
    /// Failed nodes by depth, for the next pass.
    pending: BTreeMap<u32, Vec<Node>>,
    tally: SideTally,
    /// The pass and round that was last recorded as closed.
    noted: Option<(u32, u32)>,
}

/// A node in the core.
#[derive(Debug)]
struct OutstandingNode {
    side: usize,
    id: LeaseId,
    attempt: u32,
    node: Node,
    since: Time,
}

#[derive(Debug)]
pub(super) struct Walk {
    plan: RoundsSpec,
    coordinator: Coordinator,
    sides: [SideRun; 2],
    out: Slab<OutstandingNode>,
    backoff: Backoff,
    rng: Rng,
    max_lead: u32,
    pass: u32,
}

impl Walk {
    pub(super) fn new(plan: &RoundsSpec, sets: [TargetSet; 2], backoff: Backoff, rng: Rng) -> Self {
        let source = Tree::new(plan.tree.clone());
        let mut config = RoundsConfig::default();
        config.retry_budget = plan.retry_budget;
        let side = |tree: Tree, index: usize| SideRun {
            tree,
            set: sets[index],
            flow: plan.sides[index].1,
            rounds: Rounds::new(config),
            in_core: 0,
            pending: BTreeMap::new(),
            tally: SideTally::default(),
            noted: None,
        };
        let destination = source.destination();
        let mut walk = Walk {
            coordinator: Coordinator::new(plan.lag, plan.max_lead).unwrap_or_default(),
            sides: [side(source, 0), side(destination, 1)],
            out: Slab::new(),
            plan: plan.clone(),
            backoff,
            rng,
            max_lead: 0,
            pass: 1,
        };
        for side in &mut walk.sides {
            side.pending.insert(0, vec![side.tree.root()]);
        }
        walk
    }

    /// Starts, advances and completes passes and rounds; then returns the next job to submit.
    pub(super) fn next_job(&mut self, now: Time) -> Option<Job<Work>> {
        self.step(now);
        for (index, side) in self.sides.iter_mut().enumerate() {
            if side.in_core >= self.plan.in_flight {
                continue;
            }
            let Some(lease) = side.rounds.next(now) else {
                continue;
            };
            side.in_core += 1;
            let cost = side.tree.children(&lease.node).count() as u64;
            let slot = self.out.insert(OutstandingNode {
                side: index,
                id: lease.id,
                attempt: lease.attempt,
                node: lease.node,
                since: now,
            });
            let work = Work {
                origin: WALK,
                visits: 1,
                scheduled_visit: false,
                number: slot as u64,
                actual: cost.max(1),
            };
            return Some(
                Job::new(work)
                    .class(self.plan.class)
                    .flow(Flow(u64::from(side.flow)))
                    .cost(Cost(cost.max(1)))
                    .targets(side.set)
                    .attempts(1),
            );
        }
        None
    }

    /// Records that a node was listed.
    pub(super) fn done(&mut self, now: Time, slot: u64) {
        let out = self.out.remove(slot as usize);
        let side = &mut self.sides[out.side];
        side.in_core -= 1;
        side.tally.nodes += 1;
        side.tally.took.record(now.since(out.since));
        let folders = side.tree.children(&out.node);
        let found: Vec<Node> = folders.filter(|node| node.kind() == Kind::Folder).collect();
        let _ = side.rounds.finish(now, out.id, Discovered::Nodes(found));
    }

    /// Records that a node could not be listed or submitted; it is retried within its budget.
    pub(super) fn failed(&mut self, now: Time, slot: u64, after: Option<Duration>) {
        let out = self.out.remove(slot as usize);
        let side = &mut self.sides[out.side];
        side.in_core -= 1;
        let pause = self.backoff.delay(out.attempt, self.rng.next_u64());
        let at = now + pause.max(after.unwrap_or_default());
        if let Settled::Failed { .. } = side.rounds.retry(now, out.id, at) {
            let depth = out.node.depth();
            side.pending.entry(depth).or_default().push(out.node);
        }
    }

    /// When time alone makes more work available.
    pub(super) fn wake_at(&self) -> Option<Time> {
        self.sides
            .iter()
            .filter(|side| side.in_core < self.plan.in_flight)
            .filter_map(|side| side.rounds.wake_at())
            .min()
    }

    pub(super) fn nodes(&self) -> [u64; 2] {
        [self.sides[0].tally.nodes, self.sides[1].tally.nodes]
    }

    /// Whether both sides have finished and no further pass follows.
    pub(super) fn is_over(&self) -> bool {
        self.are_completed() && (!self.has_pending() || self.pass >= self.plan.passes)
    }

    fn are_completed(&self) -> bool {
        self.sides.iter().all(|side| side.rounds.is_completed())
    }

    fn has_pending(&self) -> bool {
        self.sides.iter().any(|side| !side.pending.is_empty())
    }

    fn step(&mut self, now: Time) {
        if self.are_completed() && self.has_pending() && self.pass < self.plan.passes {
            self.pass += 1;
            let depth = self.sides[1].pending.keys().next().copied().unwrap_or(0);
            self.coordinator.begin_pass(depth);
        }
        loop {
            let mut moved = false;
            for index in 0..2 {
                moved |= self.start(now, index) | self.enter(now, index);
            }
            self.watch_lead();
            if !moved {
                return;
            }
        }
    }

    /// Starts the pass of a side, if it has not begun and is permitted to.
    fn start(&mut self, now: Time, index: usize) -> bool {
        let side = &mut self.sides[index];
        let depth = side.pending.keys().next().copied().unwrap_or(0);
        let begun = side.rounds.pass() >= self.pass;
        if begun || (index == 1 && !self.coordinator.may_start(depth)) {
            return false;
        }
        let mut pending = std::mem::take(&mut side.pending).into_iter();
        let (_, first) = pending.next().unwrap_or_default();
        let started = side.rounds.start_pass(now, depth, first.into());
        for (depth, nodes) in pending {
            let _ = side.rounds.declare(now, depth, nodes.into());
        }
        self.coordinator
            .report(SIDES[index], self.sides[index].rounds.position());
        started.is_ok()
    }

    /// Enters the next round, if the side is permitted to.
    fn enter(&mut self, now: Time, index: usize) -> bool {
        let side = &mut self.sides[index];
        if side.rounds.pass() < self.pass {
            return false;
        }
        side.record_round();
        self.coordinator
            .report(SIDES[index], side.rounds.position());
        let Some(leave) = self.coordinator.leave(SIDES[index]) else {
            return false;
        };
        side.rounds.advance(now, leave);
        self.coordinator
            .report(SIDES[index], side.rounds.position());
        true
    }

    fn watch_lead(&mut self) {
        let [leader, follower] = SIDES.map(|side| self.coordinator.position(side));
        if self.sides[1].rounds.is_seeded() && !follower.is_done() {
            self.max_lead = self
                .max_lead
                .max(leader.round.saturating_sub(follower.round));
        }
    }

    pub(super) fn tally(self) -> WalkTally {
        let max_lead = self.max_lead;
        let sides = self.sides.map(|mut side| {
            side.record_round();
            side.tally.failed = side.pending.values().map(|nodes| nodes.len() as u64).sum();
            side.tally.completed = side.rounds.is_completed() && side.pending.is_empty();
            side.tally.passes = side.rounds.pass();
            side.tally
        });
        WalkTally { sides, max_lead }
    }
}

impl SideRun {
    /// Records the current round if it has closed.
    fn record_round(&mut self) {
        let progress = self.rounds.progress();
        let which = (self.rounds.pass(), progress.round);
        let (Some(opened), Some(closed)) = (progress.opened, progress.closed) else {
            return;
        };
        if progress.declared == 0 || self.noted == Some(which) {
            return;
        }
        self.noted = Some(which);
        self.tally.rounds.push(RoundTally {
            pass: which.0,
            round: progress.round,
            declared: progress.declared,
            failed: progress.failed,
            retried: progress.retried,
            opened,
            closed,
        });
    }
}
