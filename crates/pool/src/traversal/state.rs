//! Both sides' rounds behind one lock.
//!
//! No code of the user's runs here: nodes are behind an [`Arc`] whose last owner is never this
//! part while a worker settles them, and adapters are called by the workers without the lock.

use super::{FailedNode, ListError, Traversed};
use headworks_core::rounds::{Discovered, Lease, Progress, RoundsConfig, RoundsError, Settled};
use headworks_core::{Coordinator, Rounds, Side, Time};
use std::sync::Arc;
use std::time::Duration;

pub(super) struct Sides<N> {
    coordinator: Coordinator,
    leader: Rounds<Arc<N>>,
    follower: Rounds<Arc<N>>,
    /// The follower's first round, until the leader has closed its own.
    follower_roots: Vec<Arc<N>>,
    listed: (u64, u64),
    failed: Vec<FailedNode<N>>,
}

/// The next step of a worker.
pub(super) enum Step<N> {
    /// List this.
    List(Lease<Arc<N>>),
    /// Wait for a change, or until that time.
    Wait(Option<Time>),
    /// Nothing more will come.
    Leave,
}

impl<N> Sides<N> {
    pub(super) fn new(
        coordinator: Coordinator,
        retry_budget: Duration,
        (leader_roots, follower_roots): (Vec<N>, Vec<N>),
        now: Time,
    ) -> Result<Self, RoundsError> {
        let shared = |nodes: Vec<N>| nodes.into_iter().map(Arc::new).collect::<Vec<_>>();
        let mut config = RoundsConfig::default();
        config.retry_budget = retry_budget;
        let mut leader = Rounds::new(config);
        leader.seed(now, Discovered::Nodes(shared(leader_roots)))?;
        let mut sides = Sides {
            coordinator,
            leader,
            follower: Rounds::new(config),
            follower_roots: shared(follower_roots),
            listed: (0, 0),
            failed: Vec::new(),
        };
        sides.go_on(now);
        Ok(sides)
    }

    fn rounds(&mut self, side: Side) -> &mut Rounds<Arc<N>> {
        match side {
            Side::Leader => &mut self.leader,
            Side::Follower => &mut self.follower,
        }
    }

    /// Lets both sides enter the rounds that they have leave for. Says whether any did.
    fn go_on(&mut self, now: Time) -> bool {
        let mut entered = false;
        loop {
            (self.coordinator).report(Side::Leader, self.leader.position());
            (self.coordinator).report(Side::Follower, self.follower.position());
            let mut moved = false;
            if !self.follower.is_seeded() && self.coordinator.may_start(0) {
                let roots = Discovered::Nodes(std::mem::take(&mut self.follower_roots));
                moved = self.follower.seed(now, roots).is_ok();
            }
            for side in [Side::Leader, Side::Follower] {
                if let Some(leave) = self.coordinator.leave(side) {
                    let before = self.rounds(side).position();
                    self.rounds(side).advance(now, leave);
                    moved |= self.rounds(side).position() != before;
                }
            }
            // Entering a round can give the other side leave, so both are asked until neither
            // moves.
            entered |= moved;
            if !moved {
                return entered;
            }
        }
    }

    /// A worker's next step, and whether other workers have to look again.
    pub(super) fn step(&mut self, side: Side, now: Time) -> (Step<N>, bool) {
        let entered = self.go_on(now);
        let rounds = self.rounds(side);
        let step = match rounds.next(now) {
            Some(lease) => Step::List(lease),
            None if rounds.position().is_done() => Step::Leave,
            None => Step::Wait(rounds.wake_at()),
        };
        (step, entered)
    }

    /// A node was listed, or not; `retry_at` says when it may be tried again. Says whether a round
    /// closed, and hands an error that nobody keeps back: its `drop` is the user's.
    pub(super) fn settle(
        &mut self,
        side: Side,
        now: Time,
        lease: &Lease<Arc<N>>,
        listed: Result<Vec<Arc<N>>, ListError>,
        retry_at: Time,
    ) -> (bool, Option<ListError>) {
        let rounds = self.rounds(side);
        let (settled, error) = match listed {
            Ok(children) => {
                let settled = rounds.finish(now, lease.id, Discovered::Nodes(children));
                (settled, None)
            }
            // Tried again it would fail again, and hold its round for the whole retry budget.
            Err(error) if error.permanent => (rounds.fail(now, lease.id), Some(error)),
            Err(error) => (rounds.retry(now, lease.id, retry_at), Some(error)),
        };
        match (settled, error) {
            (Settled::Done { closed }, _) => {
                match side {
                    Side::Leader => self.listed.0 += 1,
                    Side::Follower => self.listed.1 += 1,
                }
                (closed, None)
            }
            (Settled::Failed { closed }, Some(error)) => {
                self.failed.push(FailedNode {
                    side,
                    round: lease.round,
                    node: lease.node.clone(),
                    error,
                });
                (closed, None)
            }
            (Settled::Failed { closed }, None) => (closed, None),
            (Settled::Delayed(_) | Settled::Stale, error) => (false, error),
        }
    }

    pub(super) fn progress(&self, side: Side) -> Vec<Progress> {
        match side {
            Side::Leader => self.leader.all_progress().collect(),
            Side::Follower => self.follower.all_progress().collect(),
        }
    }

    pub(super) fn pause(&mut self, now: Time) {
        self.leader.pause(now);
        self.follower.pause(now);
    }

    pub(super) fn resume(&mut self, now: Time) {
        self.leader.resume(now);
        self.follower.resume(now);
    }

    pub(super) fn stop(&mut self, now: Time) {
        self.leader.stop(now);
        self.follower.stop(now);
    }

    pub(super) fn take_result(&mut self) -> Traversed<N> {
        Traversed {
            completed: self.leader.is_completed() && self.follower.is_completed(),
            listed: self.listed,
            failed: std::mem::take(&mut self.failed),
        }
    }
}
