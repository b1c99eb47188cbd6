//! Both sides and their coordinator, driven by random calls.

use crate::tree::{Dice, Tree};
use crate::walker::Walker;
use headworks_core::rounds::{Advanced, Discovered, Lease, Loaded, Settled, State};
use headworks_core::{Coordinator, Side, Time};
use std::collections::BTreeSet;
use std::time::Duration;

/// Enough for every tree here many times over: running out of it means both sides wait.
const STEPS: usize = 60_000;

/// How often each thing happened that the test is about; a zero means it tests nothing.
#[derive(Default, Debug)]
pub(crate) struct Seen {
    pub(crate) delayed: u32,
    pub(crate) failed: u32,
    pub(crate) out_of_budget: u32,
    pub(crate) reclaimed: u32,
    pub(crate) stale: u32,
    pub(crate) paused: u32,
    pub(crate) paged: u32,
    pub(crate) leader_held: u32,
    pub(crate) follower_held: u32,
    pub(crate) clock_back: u32,
    pub(crate) later_passes: u32,
}

impl Seen {
    pub(crate) fn counts(&self) -> [u32; 11] {
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

pub(crate) struct World {
    pub(crate) seen: Seen,
    pub(crate) dice: Dice,
    pub(crate) tree: Tree,
    pub(crate) lag: u32,
    pub(crate) max_lead: u32,
    pub(crate) coordinator: Coordinator,
    pub(crate) leader: Walker,
    pub(crate) follower: Walker,
    pub(crate) now: Time,
    pub(crate) calm: bool,
    pub(crate) later_pass: bool,
    pub(crate) widest: u32,
}

impl World {
    pub(crate) fn new(
        seed: u64,
        lag: u32,
        max_lead: u32,
        levels: u32,
        empty_destination: bool,
    ) -> World {
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

    pub(crate) fn side(&mut self, side: Side) -> &mut Walker {
        match side {
            Side::Leader => &mut self.leader,
            Side::Follower => &mut self.follower,
        }
    }

    /// One random call on one side.
    pub(crate) fn step(&mut self, side: Side) {
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

    pub(crate) fn lease(&mut self, side: Side) {
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

    pub(crate) fn settle(&mut self, side: Side) {
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

    pub(crate) fn finish(&mut self, side: Side, lease: &Lease<usize>) {
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

    pub(crate) fn retry(&mut self, side: Side, lease: &Lease<usize>) {
        let at = self.now + Duration::from_secs(self.dice.roll(75));
        let now = self.now;
        let settled = self.side(side).rounds.retry(now, lease.id, at);
        self.book_retry(side, lease, settled);
    }

    pub(crate) fn book_retry(&mut self, side: Side, lease: &Lease<usize>, settled: Settled) {
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

    pub(crate) fn book_failure(&mut self, side: Side, lease: &Lease<usize>, settled: Settled) {
        self.seen.failed += 1;
        self.side(side).failed.insert(lease.node);
        self.book_end(side, lease);
        let closed = self.side(side).all_ended(lease.round);
        assert_eq!(settled, Settled::Failed { closed });
    }

    pub(crate) fn book_end(&mut self, side: Side, lease: &Lease<usize>) {
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

    pub(crate) fn page(&mut self, side: Side) {
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

    pub(crate) fn advance(&mut self, side: Side) {
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

    pub(crate) fn turn_clock(&mut self) {
        let step = Duration::from_millis(self.dice.roll(8000));
        self.now = match self.dice.roll(12) {
            0 => {
                self.seen.clock_back += 1;
                self.now - step
            }
            _ => self.now + step,
        };
    }

    pub(crate) fn disturb(&mut self, side: Side) {
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
    pub(crate) fn run(&mut self, pending: &BTreeSet<usize>) {
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

    pub(crate) fn first_pass(&mut self) {
        let root = BTreeSet::from([0]);
        self.leader.start(self.now, &self.tree, root.clone());
        self.coordinator
            .report(Side::Leader, self.leader.rounds.position());
        self.run(&root);
    }

    /// Tries again what failed; the follower also looks again at what the leader could not list.
    pub(crate) fn later_pass(&mut self) {
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
