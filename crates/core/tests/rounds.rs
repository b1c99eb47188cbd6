//! Two coordinated sides over random trees, in memory and paged from a toy store, with retries,
//! failures, pauses, lost leases and a clock that sometimes goes back.
//!
//! The checker keeps its own books from the calls and answers.

use headworks_core::rounds::{
    Advanced, Discovered, Lease, LeaseId, Loaded, Rounds, RoundsConfig, Settled, State,
};
use headworks_core::{Coordinator, Side, Time};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Enough for every tree here many times over: running out of it means both sides wait.
const STEPS: usize = 60_000;

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % sides
    }
}

struct Tree {
    children: Vec<Vec<usize>>,
    depth: Vec<u32>,
    on_both: Vec<bool>,
}

impl Tree {
    fn grow(dice: &mut Dice, levels: u32, empty_destination: bool) -> Tree {
        let (mut children, mut depth, mut on_both) = (vec![vec![]], vec![0], vec![true]);
        let mut level = vec![0];
        for d in 1..=levels {
            let mut next = Vec::new();
            for &parent in &level {
                for _ in 0..dice.roll(4) {
                    let node: usize = children.len();
                    children.push(vec![]);
                    depth.push(d);
                    on_both.push(on_both[parent] && !empty_destination && dice.roll(5) > 0);
                    children[parent].push(node);
                    next.push(node);
                }
            }
            next.truncate(12);
            level = next;
        }
        Tree {
            children,
            depth,
            on_both,
        }
    }

    fn children(&self, node: usize, side: Side) -> Vec<usize> {
        let found = self.children[node].iter().copied();
        found
            .filter(|&n| side == Side::Leader || self.on_both[n])
            .collect()
    }
}

/// One side: the queue, a toy store, and the books kept beside them.
struct Walker {
    rounds: Rounds<usize>,
    paged: bool,
    window: u64,
    store: BTreeMap<u32, VecDeque<usize>>,
    out: Vec<Lease<usize>>,
    stale: Vec<LeaseId>,
    round: u32,
    declared: BTreeMap<u32, u64>,
    ended: BTreeMap<u32, u64>,
    grants: BTreeMap<usize, u32>,
    again: BTreeMap<usize, u32>,
    done: BTreeSet<usize>,
    failed: BTreeSet<usize>,
}

impl Walker {
    fn new(paged: bool, window: usize) -> Walker {
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

    /// Books the nodes, and answers with what the queue is told of them.
    fn discover(&mut self, round: u32, nodes: Vec<usize>) -> Discovered<usize> {
        *self.declared.entry(round).or_default() += nodes.len() as u64;
        if !self.paged {
            return Discovered::Nodes(nodes);
        }
        let count = nodes.len() as u64;
        self.store.entry(round).or_default().extend(nodes);
        Discovered::Count(count)
    }

    fn start(&mut self, now: Time, tree: &Tree, pending: BTreeSet<usize>) {
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

    fn end(&mut self, node: usize, tree: &Tree) {
        assert_eq!(tree.depth[node], self.round);
        *self.ended.entry(self.round).or_default() += 1;
    }

    fn all_ended(&self, round: u32) -> bool {
        self.declared.get(&round).unwrap_or(&0) == self.ended.get(&round).unwrap_or(&0)
    }

    fn check(&self) {
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

/// How often each thing happened that the test is about; a zero means it tests nothing.
#[derive(Default, Debug)]
struct Seen {
    delayed: u32,
    failed: u32,
    out_of_budget: u32,
    reclaimed: u32,
    stale: u32,
    paused: u32,
    paged: u32,
    leader_held: u32,
    follower_held: u32,
    clock_back: u32,
    later_passes: u32,
}

impl Seen {
    fn counts(&self) -> [u32; 11] {
        let Seen {
            delayed,
            failed,
            out_of_budget,
            reclaimed,
            stale,
            paused,
            paged,
            ..
        } = *self;
        let Seen {
            leader_held,
            follower_held,
            clock_back,
            later_passes,
            ..
        } = *self;
        [
            delayed,
            failed,
            out_of_budget,
            reclaimed,
            stale,
            paused,
            paged,
            leader_held,
            follower_held,
            clock_back,
            later_passes,
        ]
    }
}

struct World {
    seen: Seen,
    dice: Dice,
    tree: Tree,
    lag: u32,
    max_lead: u32,
    coordinator: Coordinator,
    leader: Walker,
    follower: Walker,
    now: Time,
    calm: bool,
    later_pass: bool,
    widest: u32,
}

impl World {
    fn new(seed: u64, lag: u32, max_lead: u32, levels: u32, empty_destination: bool) -> World {
        let mut dice = Dice(seed);
        let tree = Tree::grow(&mut dice, levels, empty_destination);
        let mut walker = || {
            let (paged, window) = (dice.roll(2) == 0, 1 + dice.roll(6) as usize);
            Walker::new(paged, window)
        };
        let (leader, follower) = (walker(), walker());
        World {
            seen: Seen::default(),
            dice,
            tree,
            lag,
            max_lead,
            coordinator: Coordinator::new(lag, max_lead).unwrap(),
            leader,
            follower,
            now: Time::ZERO,
            calm: false,
            later_pass: false,
            widest: 0,
        }
    }

    fn side(&mut self, side: Side) -> &mut Walker {
        match side {
            Side::Leader => &mut self.leader,
            Side::Follower => &mut self.follower,
        }
    }

    /// One random call on one side.
    fn step(&mut self, side: Side) {
        match self.dice.roll(10) {
            0 | 1 => self.lease(side),
            2..=4 => self.settle(side),
            5 | 6 => self.page(side),
            7 => self.advance(side),
            8 => self.turn_clock(),
            _ => self.disturb(side),
        }
        let walker = self.side(side);
        walker.check();
        let position = walker.rounds.position();
        self.coordinator.report(side, position);
    }

    fn lease(&mut self, side: Side) {
        let now = self.now;
        let walker = self.side(side);
        if walker.out.len() >= 4 {
            return;
        }
        let Some(lease) = walker.rounds.next(now) else {
            let wake = walker.rounds.wake_at();
            let later = walker.rounds.clone().next(wake.unwrap_or(Time::MAX));
            assert_eq!(
                later.is_some(),
                wake.is_some(),
                "time alone changes it at wake_at"
            );
            return;
        };
        assert_eq!(
            lease.round, walker.round,
            "only the current round is leased"
        );
        let grants = walker.grants.entry(lease.node).or_default();
        *grants += 1;
        let again = walker.again.get(&lease.node).copied().unwrap_or(0);
        assert_eq!(
            *grants,
            1 + again,
            "leased once, and once more for each retry"
        );
        assert_eq!(lease.attempt, *grants);
        assert!(!walker.out.iter().any(|l| l.node == lease.node));
        walker.out.push(lease.clone());
        if side == Side::Follower && self.lag >= 2 && !self.later_pass {
            let ended =
                self.leader.done.contains(&lease.node) || self.leader.failed.contains(&lease.node);
            assert!(ended, "the leader has listed what the follower compares");
        }
    }

    fn settle(&mut self, side: Side) {
        let out = self.side(side).out.len() as u64;
        if out == 0 {
            return;
        }
        let lease = {
            let pick = self.dice.roll(out) as usize;
            self.side(side).out.swap_remove(pick)
        };
        let trouble = if self.calm { 0 } else { self.dice.roll(100) };
        let now = self.now;
        match trouble {
            90.. => self.retry(side, &lease),
            84..90 => {
                self.seen.reclaimed += 1;
                let settled = self.side(side).rounds.reclaim(now, lease.id);
                self.side(side).stale.push(lease.id);
                self.book_retry(side, &lease, settled);
            }
            78..84 => {
                let settled = self.side(side).rounds.fail(now, lease.id);
                self.book_failure(side, &lease, settled);
            }
            _ => self.finish(side, &lease),
        }
    }

    fn finish(&mut self, side: Side, lease: &Lease<usize>) {
        let now = self.now;
        let mut found = self.tree.children(lease.node, side);
        // Unknown below, until the leader could list it. With a lag of 1 the follower cannot know.
        let unlisted = self.lag >= 2 && self.leader.failed.contains(&lease.node);
        if side == Side::Follower && unlisted {
            found.clear();
        }
        let round = lease.round + 1;
        let walker = self.side(side);
        let found = walker.discover(round, found);
        let settled = walker.rounds.finish(now, lease.id, found);
        walker.done.insert(lease.node);
        walker.failed.remove(&lease.node);
        self.book_end(side, lease);
        let closed = self.side(side).all_ended(lease.round);
        assert_eq!(settled, Settled::Done { closed });
    }

    fn retry(&mut self, side: Side, lease: &Lease<usize>) {
        let at = self.now + Duration::from_secs(self.dice.roll(75));
        let now = self.now;
        let settled = self.side(side).rounds.retry(now, lease.id, at);
        self.book_retry(side, lease, settled);
    }

    fn book_retry(&mut self, side: Side, lease: &Lease<usize>, settled: Settled) {
        match settled {
            Settled::Delayed(_) => {
                self.seen.delayed += 1;
                *self.side(side).again.entry(lease.node).or_default() += 1;
            }
            _ => {
                self.seen.out_of_budget += 1;
                self.book_failure(side, lease, settled);
            }
        }
    }

    fn book_failure(&mut self, side: Side, lease: &Lease<usize>, settled: Settled) {
        self.seen.failed += 1;
        self.side(side).failed.insert(lease.node);
        self.book_end(side, lease);
        let closed = self.side(side).all_ended(lease.round);
        assert_eq!(settled, Settled::Failed { closed });
    }

    fn book_end(&mut self, side: Side, lease: &Lease<usize>) {
        let World {
            tree,
            leader,
            follower,
            ..
        } = self;
        match side {
            Side::Leader => leader.end(lease.node, tree),
            Side::Follower => follower.end(lease.node, tree),
        }
    }

    fn page(&mut self, side: Side) {
        let fewer = self.dice.roll(3) as usize;
        let walker = self.side(side);
        let Some(want) = walker.rounds.wants() else {
            return;
        };
        assert!(walker.paged && want.round == walker.round);
        let page = walker.store.get_mut(&want.round).unwrap();
        assert!(want.room <= page.len(), "wants no more than the store has");
        let size = want.room.saturating_sub(fewer).max(1);
        let nodes: Vec<usize> = page.drain(..size).collect();
        let loaded = walker.rounds.load(want.round, nodes);
        assert_eq!(loaded, Loaded::Taken(size));
        self.seen.paged += 1;
    }

    fn advance(&mut self, side: Side) {
        let Some(leave) = self.coordinator.leave(side) else {
            let position = self.side(side).rounds.position();
            let held = u32::from(position.closed && position.state == State::Running);
            match side {
                Side::Leader => self.seen.leader_held += held,
                Side::Follower => self.seen.follower_held += held,
            }
            return;
        };
        let now = self.now;
        let entered = self.side(side).rounds.advance(now, leave);
        assert_eq!(entered, Advanced::Entered(leave.round()));
        self.side(side).round += 1;
        let (leader, follower) = (self.leader.round, self.follower.round);
        match side {
            Side::Follower => assert!(
                self.leader.rounds.is_completed() || leader >= follower - 1 + self.lag,
                "the follower keeps the lag"
            ),
            Side::Leader if !self.follower.rounds.is_completed() && !self.later_pass => {
                assert!(
                    leader <= follower + self.max_lead,
                    "the leader keeps the lead"
                );
                self.widest = self.widest.max(leader - follower);
            }
            Side::Leader => {}
        }
    }

    fn turn_clock(&mut self) {
        let step = Duration::from_millis(self.dice.roll(8000));
        self.now = match self.dice.roll(12) {
            0 => {
                self.seen.clock_back += 1;
                self.now - step
            }
            _ => self.now + step,
        };
    }

    fn disturb(&mut self, side: Side) {
        let (kind, now) = (self.dice.roll(3), self.now);
        let walker = self.side(side);
        match kind {
            0 => walker.rounds.pause(now),
            1 => walker.rounds.resume(now),
            _ => {
                let Some(&id) = walker.stale.last() else {
                    return;
                };
                let settled = walker.rounds.finish(now, id, Discovered::Nodes(vec![0, 0]));
                assert_eq!(settled, Settled::Stale);
                self.seen.stale += 1;
            }
        }
        self.seen.paused += u32::from(self.side(side).rounds.state() == State::Paused);
    }

    /// Runs both sides to their end; `pending` is what the follower starts with, and when.
    fn run(&mut self, pending: &BTreeSet<usize>) {
        let first = pending.iter().map(|&n| self.tree.depth[n]).min();
        let mut waiting = true;
        for _ in 0..STEPS {
            if waiting && first.is_none_or(|depth| self.coordinator.may_start(depth)) {
                waiting = false;
                self.follower.start(self.now, &self.tree, pending.clone());
                self.coordinator
                    .report(Side::Follower, self.follower.rounds.position());
            }
            let leads = self.dice.roll(2) == 0;
            self.step(if leads { Side::Leader } else { Side::Follower });
            if self.leader.rounds.is_completed() && self.follower.rounds.is_completed() && !waiting
            {
                return;
            }
        }
        panic!(
            "both sides wait: {:?} {:?}",
            self.leader.rounds.position(),
            self.follower.rounds.position()
        );
    }

    fn first_pass(&mut self) {
        let root = BTreeSet::from([0]);
        self.leader.start(self.now, &self.tree, root.clone());
        self.coordinator
            .report(Side::Leader, self.leader.rounds.position());
        self.run(&root);
    }

    /// Tries again what failed; the follower also looks again at what the leader could not list.
    fn later_pass(&mut self) {
        self.calm = true;
        self.later_pass = true;
        let unlisted = self.follower.done.intersection(&self.leader.failed);
        let mut pending = self.follower.failed.clone();
        pending.extend(unlisted.filter(|_| self.lag >= 2));
        let depth = pending.iter().map(|&n| self.tree.depth[n]).min();
        self.coordinator.begin_pass(depth.unwrap_or(0));
        let failed = self.leader.failed.clone();
        self.seen.later_passes += u32::from(!failed.is_empty() && !pending.is_empty());
        self.leader.start(self.now, &self.tree, failed);
        self.coordinator
            .report(Side::Leader, self.leader.rounds.position());
        self.run(&pending);
    }
}

fn drive(seed: u64, lag: u32, max_lead: u32, levels: u32, empty_destination: bool) -> World {
    let mut world = World::new(seed, lag, max_lead, levels, empty_destination);
    world.first_pass();
    world.later_pass();
    let all: BTreeSet<usize> = (0..world.tree.children.len()).collect();
    assert_eq!(world.leader.done, all);
    assert!(world.leader.failed.is_empty() && world.follower.failed.is_empty());
    let both = all.into_iter().filter(|&n| world.tree.on_both[n]);
    assert!(both.eq(world.follower.done.iter().copied()));
    world
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn two_sides_walk_every_tree_to_its_end(
        seed in any::<u64>(), lag in 1..=8u32, more in 0..8u32, levels in 0..12u32, empty in prop::bool::weighted(0.2),
    ) {
        drive(seed, lag, (lag + more).min(8), levels, empty);
    }
}

#[test]
fn no_lag_and_lead_up_to_eight_deadlocks() {
    let mut seen = [0; 11];
    for lag in 1..=8 {
        for max_lead in lag..=8 {
            for levels in 0..=12 {
                let seed = u64::from(lag * 1000 + max_lead * 100 + levels);
                let world = drive(seed, lag, max_lead, levels, false);
                for (sum, count) in seen.iter_mut().zip(world.seen.counts()) {
                    *sum += count;
                }
            }
        }
    }
    assert!(seen.iter().all(|&count| count >= 20), "{seen:?}");
}

#[test]
fn the_leader_does_use_its_lead() {
    let widest = (0..40).map(|seed| drive(seed, 3, 4, 10, false).widest);
    assert_eq!(widest.max(), Some(4));
}

/// A leader that waited for an empty destination would never end.
#[test]
fn an_empty_destination_never_blocks_the_source() {
    let mut coordinator = Coordinator::new(1, 1).unwrap();
    let (mut leader, mut follower) = (Rounds::default(), Rounds::<u32>::default());
    leader.seed(Time::ZERO, vec![0u32].into()).unwrap();
    follower.seed(Time::ZERO, Discovered::none()).unwrap();
    coordinator.report(Side::Follower, follower.position());
    for depth in 0..50 {
        let lease = leader.next(Time::ZERO).unwrap();
        let found = if depth < 49 { vec![depth + 1] } else { vec![] };
        let _ = leader.finish(Time::ZERO, lease.id, found.into());
        coordinator.report(Side::Leader, leader.position());
        if let Some(leave) = coordinator.leave(Side::Leader) {
            leader.advance(Time::ZERO, leave);
        }
    }
    assert!(leader.is_completed());
}
