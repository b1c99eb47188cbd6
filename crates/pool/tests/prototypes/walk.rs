//! A migration's plan: two trees walked breadth-first in step, and compared folder by folder.
//!
//! One pool with a target a side does the listing. Each side's [`Rounds`] say what may be listed, the [`Coordinator`]
//! how far the sides may be apart, and a toy store keeps every folder, of which only a window is in memory.

use super::truth::{Findings, truth};
use headworks_core::rounds::{
    Advanced, Discovered, Lease, LeaseId, Loaded, Rounds, RoundsConfig, Settled,
};
use headworks_core::{Config, Coordinator, Job, Limits, Side, TargetConfig, TargetId, Time};
use headworks_pool::{Handler, Health, Notice, Pool, Report, Run, Workers};
use headworks_synth::{Kind, Node, Tree};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

/// One folder to list, and what was found in it.
#[derive(Clone, Debug)]
struct Listing {
    side: Side,
    lease: LeaseId,
    folder: Node,
    attempt: u32,
    found: Option<Vec<Node>>,
}

struct Lister {
    trees: Arc<[Tree; 2]>,
    start: Instant,
    listed: mpsc::UnboundedSender<Listing>,
}

impl Handler<Listing> for Lister {
    async fn run(&self, run: &mut Run<'_, Listing>) -> Report {
        sleep(Duration::from_millis(5 + run.payload.folder.key() % 20)).await;
        let Listing {
            side,
            folder,
            attempt,
            ..
        } = &run.payload;
        let down = folder.depth() > 0 && self.start.elapsed() < Duration::from_secs(100);
        let fails = match folder.key() % 16 {
            0 => *side == Side::Leader && down, // longer than a round waits for it
            1 => *side == Side::Follower && down,
            2..5 => *attempt < 3,
            _ => false,
        };
        if fails {
            // Rounds retry, with a budget of their own: to the pool the attempt is all there is.
            return Report::failed().target(Health::Fault);
        }
        let found = self.trees[*side as usize].children(folder).collect();
        run.payload.found = Some(found);
        let _ = self.listed.send(run.payload.clone());
        Report::done()
    }

    fn notice(&self, notice: Notice<Listing>) {
        if let Notice::Ended { payload, .. } = notice {
            let _ = self.listed.send(payload);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Row {
    Pending,
    Listed,
    Failed,
}

/// A side: its rounds, and its rows in the store, by depth and key.
struct Walked {
    rounds: Rounds<Node>,
    rows: BTreeMap<(u32, u64), (Node, Row)>,
    /// The last row of this round that was paged in.
    cursor: (u32, u64),
    most_in_memory: u64,
}

impl Walked {
    fn new() -> Walked {
        let mut config = RoundsConfig::default();
        config.window = 8;
        Walked {
            rounds: Rounds::new(config),
            rows: BTreeMap::new(),
            cursor: (0, 0),
            most_in_memory: 0,
        }
    }

    fn add(&mut self, folders: &[Node]) -> Discovered<Node> {
        for folder in folders {
            let key = (folder.depth(), folder.key());
            self.rows.insert(key, (*folder, Row::Pending));
        }
        Discovered::Count(folders.len() as u64)
    }

    fn mark(&mut self, folder: &Node, row: Row) {
        let key = (folder.depth(), folder.key());
        self.rows.get_mut(&key).expect("it was stored").1 = row;
    }

    /// Fills the window, and hands out what may be listed.
    fn lease(&mut self, now: Time) -> Vec<Lease<Node>> {
        while let Some(want) = self.rounds.wants() {
            let from = self.cursor.max((want.round, 0));
            let rows = self
                .rows
                .range((std::ops::Bound::Excluded(from), std::ops::Bound::Unbounded));
            let pending = rows.filter(|(_, (_, row))| *row == Row::Pending);
            let page: Vec<Node> = pending
                .take(want.room)
                .map(|(_, (node, _))| *node)
                .collect();
            let last = page.last().expect("the store has what was declared");
            self.cursor = (last.depth(), last.key());
            assert_eq!(
                self.rounds.load(want.round, page.iter().copied()),
                Loaded::Taken(page.len())
            );
        }
        let leases = std::iter::from_fn(|| self.rounds.next(now)).collect();
        let progress = self.rounds.progress();
        let in_memory = progress.ready + progress.leased + progress.delayed;
        self.most_in_memory = self.most_in_memory.max(in_memory);
        leases
    }

    /// Starts a pass over what failed; the shallowest depth where that is.
    fn retry_failed(&mut self) -> Option<BTreeMap<u32, u64>> {
        let mut depths = BTreeMap::new();
        for ((depth, _), (_, row)) in &mut self.rows {
            if *row == Row::Failed {
                *row = Row::Pending;
                *depths.entry(*depth).or_insert(0) += 1;
            }
        }
        self.cursor = (0, 0);
        (!depths.is_empty()).then_some(depths)
    }

    fn start_pass(&mut self, now: Time, mut depths: BTreeMap<u32, u64>) {
        let (depth, count) = depths.pop_first().expect("there is something to do");
        let started = self.rounds.start_pass(now, depth, Discovered::Count(count));
        started.expect("no pass is running");
        for (depth, count) in depths {
            let declared = self.rounds.declare(now, depth, Discovered::Count(count));
            declared.expect("it is deeper");
        }
    }
}

struct Plan {
    pool: Pool<Listing>,
    listed: mpsc::UnboundedReceiver<Listing>,
    coordinator: Coordinator,
    sides: [Walked; 2],
    /// What the source has in a folder.
    contents: HashMap<u64, Vec<Node>>,
    findings: Findings,
    calls: u64,
    retried: u64,
}

const SIDES: [Side; 2] = [Side::Leader, Side::Follower];

impl Plan {
    /// Walks until both sides are complete.
    async fn walk(&mut self, mut follower: BTreeMap<u32, u64>) {
        loop {
            let now = self.pool.now();
            let depth = follower.keys().next().copied();
            if depth.is_some_and(|depth| self.coordinator.may_start(depth)) {
                self.sides[1].start_pass(now, std::mem::take(&mut follower));
            }
            for side in SIDES {
                self.step(side, now);
            }
            let [leader, other] = &self.sides;
            let idle = follower.is_empty()
                && other.rounds.state() != headworks_core::rounds::State::Running;
            if leader.rounds.is_completed() && idle {
                return;
            }
            let wake = self
                .sides
                .iter()
                .filter_map(|side| side.rounds.wake_at())
                .min();
            let pause = wake.map_or(Duration::MAX, |at| at.since(self.pool.now()));
            tokio::select! {
                Some(listing) = self.listed.recv() => self.settle(listing),
                () = sleep(pause) => {}
            }
        }
    }

    fn step(&mut self, side: Side, now: Time) {
        let walked = &mut self.sides[side as usize];
        self.coordinator.report(side, walked.rounds.position());
        while let Some(leave) = self.coordinator.leave(side) {
            assert!(matches!(
                walked.rounds.advance(now, leave),
                Advanced::Entered(_)
            ));
            self.coordinator.report(side, walked.rounds.position());
        }
        for Lease {
            id, node, attempt, ..
        } in walked.lease(now)
        {
            self.calls += 1;
            let listing = Listing {
                side,
                lease: id,
                folder: node,
                attempt,
                found: None,
            };
            let job = Job::new(listing).targets(TargetId::new(side as u32));
            self.pool
                .submit(job)
                .expect("the window is smaller than the queue");
        }
        let [leader, follower] = SIDES.map(|side| self.coordinator.position(side));
        assert!(
            leader.round <= follower.round + 4
                || follower.is_done()
                || self.sides[1].rounds.pass() > 1
        );
    }

    fn settle(&mut self, listing: Listing) {
        let now = self.pool.now();
        let folder = listing.folder;
        let compared = match (&listing.found, listing.side) {
            (None, _) => None,
            (Some(found), Side::Leader) => Some(folders(found)),
            (Some(found), Side::Follower) => self.compare(&folder, found),
        };
        let walked = &mut self.sides[listing.side as usize];
        let Some(below) = compared else {
            let pause = Duration::from_secs(1) * listing.attempt;
            match walked.rounds.retry(now, listing.lease, now + pause) {
                Settled::Delayed(_) => self.retried += 1,
                Settled::Failed { .. } => walked.mark(&folder, Row::Failed),
                other => panic!("a lease that is out settles: {other:?}"),
            }
            return;
        };
        walked.mark(&folder, Row::Listed);
        let discovered = walked.add(&below);
        let settled = walked.rounds.finish(now, listing.lease, discovered);
        assert!(matches!(settled, Settled::Done { .. }));
        if listing.side == Side::Leader {
            let found = listing.found.unwrap_or_default();
            self.contents.insert(folder.key(), found);
        }
    }

    /// Compares a folder that is on both sides; says which folders below it are on both sides. `None` while the source's
    /// side of it is not known.
    fn compare(&mut self, folder: &Node, found: &[Node]) -> Option<Vec<Node>> {
        let source = self.contents.get(&folder.key())?;
        let there: HashMap<u64, &Node> = found.iter().map(|node| (node.key(), node)).collect();
        let mut below = Vec::new();
        for node in source {
            match there.get(&node.key()) {
                None => self.findings.missing += 1,
                Some(other)
                    if other.size() != node.size() || other.modified() != node.modified() =>
                {
                    self.findings.different += 1;
                }
                Some(other) => {
                    self.findings.same += 1;
                    below.extend((other.kind() == Kind::Folder).then_some(**other));
                }
            }
        }
        let known = source.iter().filter(|node| there.contains_key(&node.key()));
        self.findings.extra += (found.len() - known.count()) as u64;
        Some(below)
    }

    /// Below a folder that is missing everything is, without a call to the destination.
    fn derive_missing(&mut self) {
        let both = &self.sides[1].rows;
        let lacks = |(key, _): &(&(u32, u64), &(Node, Row))| !both.contains_key(key);
        let missing = self.sides[0].rows.iter().filter(lacks);
        let below = missing.map(|(key, _)| self.contents[&key.1].len() as u64);
        self.findings.missing += below.sum::<u64>();
    }
}

fn folders(found: &[Node]) -> Vec<Node> {
    let folders = found.iter().filter(|node| node.kind() == Kind::Folder);
    folders.copied().collect()
}

#[tokio::test(start_paused = true)]
async fn two_trees_are_compared_in_rounds_and_failures_in_a_second_pass() {
    let spec = "seed=11&depth=6&dirs=1-4&files=0-6&missing=8&different=10&extra=6";
    let source = Tree::new(spec.parse().expect("a good description"));
    let destination = source.destination();
    let truth = truth(&source, &destination);
    let limits = Limits {
        concurrent: Some(4),
        ..Limits::default()
    };
    let backend = TargetConfig {
        limits,
        fault_threshold: 0, // a folder that fails tells nothing of the others
        ..TargetConfig::default()
    };
    let config = Config {
        targets: vec![backend; 2],
        ..Config::default()
    };
    let (sender, listed) = mpsc::unbounded_channel();
    let lister = Lister {
        trees: Arc::new([source.clone(), destination]),
        start: Instant::now(),
        listed: sender,
    };
    let mut plan = Plan {
        pool: Pool::new(config, Workers::new(8, 8), lister).expect("a good configuration"),
        listed,
        coordinator: Coordinator::default(),
        sides: [Walked::new(), Walked::new()],
        contents: HashMap::new(),
        findings: Findings::default(),
        calls: 0,
        retried: 0,
    };
    for side in &mut plan.sides {
        let _ = side.add(&[source.root()]);
    }
    let root = BTreeMap::from([(0, 1)]);
    plan.sides[0].start_pass(plan.pool.now(), root.clone());
    plan.walk(root).await;
    let failed = |plan: &Plan| {
        plan.sides.each_ref().map(|side| {
            side.rows
                .values()
                .filter(|(_, row)| *row == Row::Failed)
                .count()
        })
    };
    let after_one = failed(&plan);
    assert!(after_one.iter().all(|count| *count > 0), "{after_one:?}");
    assert!(plan.findings != truth);

    let [leader, follower] = plan.sides.each_mut().map(Walked::retry_failed);
    let follower = follower.expect("it has failures");
    sleep(Duration::from_secs(100)).await;
    plan.coordinator
        .begin_pass(*follower.keys().next().expect("not empty"));
    plan.sides[0].start_pass(plan.pool.now(), leader.expect("it has failures"));
    plan.walk(follower).await;
    plan.derive_missing();
    assert_eq!(failed(&plan), [0, 0]);
    assert_eq!(plan.findings, truth);
    let in_memory = plan.sides.each_ref().map(|side| side.most_in_memory);
    assert!(in_memory.iter().all(|most| *most <= 8), "{in_memory:?}");
    let rows: usize = plan.sides.iter().map(|side| side.rows.len()).sum();
    assert!(
        rows > 300 && plan.retried > 0,
        "{rows} folders, {} retried",
        plan.retried
    );
    let done = plan.pool.inspect().classes[0].stats.ended.done;
    assert_eq!(
        done + plan.pool.inspect().classes[0].stats.ended.failed,
        plan.calls
    );
}
