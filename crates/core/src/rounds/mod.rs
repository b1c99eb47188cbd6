//! Breadth-first work in rounds, and the leave to go from one to the next.
//!
//! A round is all nodes of one depth. [`Rounds`] leases only nodes of the current round; the
//! call that finishes one declares its children, and they are the next round. A round closes
//! when as many nodes have ended as were declared, whether or not they were ever in memory at the
//! same time. To enter the next round takes leave: a side that walks alone gives it to itself, two
//! coordinated sides get it from a [`Coordinator`](crate::Coordinator).
//!
//! `Rounds` owns the counts, the nodes in memory and the fence on leases. It does not store, list
//! or compare anything, starts no worker and reads no clock. A driver
//!
//! * seeds it, or starts a pass at a depth ([`Rounds::seed`], [`Rounds::start_pass`]);
//! * pages nodes in when [`Rounds::wants`] says there is room, unless it hands them over whole;
//! * leases, works and settles ([`Rounds::next`], [`Rounds::finish`], [`Rounds::retry`],
//!   [`Rounds::fail`]);
//! * advances when a round has closed and it has leave ([`Rounds::advance`]);
//! * keeps what failed, and starts a later pass at the shallowest depth where something is pending.
//!
//! # A two-sided walk
//!
//! Every node `n` below 40 has the children `3n+1 … 3n+3`; the other side lacks node 2 and
//! everything below it. The follower is seeded once the leader has closed round 0, and stays the
//! lag behind.
//!
//! ```
//! use headworks_core::rounds::{Discovered, Rounds};
//! use headworks_core::{Coordinator, Side, Time};
//!
//! fn children(node: u64) -> Vec<u64> {
//!     if node < 40 { (3 * node + 1..=3 * node + 3).collect() } else { Vec::new() }
//! }
//!
//! /// Lists everything this side may list now, then enters the next round if it has leave.
//! fn walk(
//!     side: Side,
//!     rounds: &mut Rounds<u64>,
//!     coordinator: &mut Coordinator,
//!     seen: &mut Vec<u64>,
//! ) {
//!     let now = Time::ZERO;
//!     while let Some(lease) = rounds.next(now) {
//!         seen.push(lease.node);
//!         let mut found = children(lease.node);
//!         found.retain(|&node| side == Side::Leader || node != 2);
//!         let _ = rounds.finish(now, lease.id, Discovered::Nodes(found));
//!     }
//!     coordinator.report(side, rounds.position());
//!     if let Some(leave) = coordinator.leave(side) {
//!         rounds.advance(now, leave);
//!         coordinator.report(side, rounds.position());
//!     }
//! }
//!
//! let mut coordinator = Coordinator::default();
//! let (mut leader, mut follower) = (Rounds::default(), Rounds::default());
//! let (mut source, mut destination) = (Vec::new(), Vec::new());
//! leader.seed(Time::ZERO, vec![0].into())?;
//! while !(leader.is_completed() && follower.is_completed()) {
//!     walk(Side::Leader, &mut leader, &mut coordinator, &mut source);
//!     if coordinator.may_start(0) && !follower.is_seeded() {
//!         follower.seed(Time::ZERO, vec![0].into())?;
//!     }
//!     walk(Side::Follower, &mut follower, &mut coordinator, &mut destination);
//! }
//! assert_eq!(source, (0..121).collect::<Vec<u64>>());
//! assert_eq!(destination.len(), 81);
//! # Ok::<(), headworks_core::rounds::RoundsError>(())
//! ```

mod error;
mod lease;
mod leasing;
mod paging;
mod position;
mod progress;
mod window;

pub use error::RoundsError;
pub use lease::{Discovered, Lease, LeaseId, Settled};
pub use paging::{Loaded, Want};
pub use position::{Leave, Position, State};
pub use progress::Progress;

use crate::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use window::{Held, Window};

/// Deeper than any tree, and far enough from the end of the range to count on from.
pub(crate) const MAX_ROUND: u32 = u32::MAX / 2;

/// How many closed rounds are remembered for pictures; a deeper tree forgets its shallowest.
const HISTORY: usize = 256;

/// Settings of [`Rounds`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RoundsConfig {
    /// How many nodes of a paged round are in memory at most; 0 counts as 1. Default 4096.
    pub window: usize,
    /// How long a node is tried again within its round, from its first failure; time spent paused
    /// does not count. Default 60 s.
    pub retry_budget: Duration,
}

impl Default for RoundsConfig {
    fn default() -> Self {
        RoundsConfig {
            window: 4096,
            retry_budget: Duration::from_secs(60),
        }
    }
}

/// The answer to [`Rounds::advance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advanced {
    /// This round is now the current one.
    Entered(u32),
    /// The current round has not closed, or the side is not running: try again when it has and is.
    NotYet,
    /// The leave is for another round; nothing was done.
    Stale,
}

/// Nodes worked off breadth-first, one round after the other. See the [module](self).
///
/// ```
/// use headworks_core::rounds::{Advanced, Leave, Rounds};
/// use headworks_core::Time;
///
/// // One side alone gives itself leave.
/// let mut rounds = Rounds::default();
/// rounds.seed(Time::ZERO, vec!["/"].into())?;
/// let root = rounds.next(Time::ZERO).expect("the root");
/// let _ = rounds.finish(Time::ZERO, root.id, vec!["/a", "/b"].into());
/// assert!(rounds.next(Time::ZERO).is_none(), "they belong to the next round");
/// let leave = Leave::alone(rounds.position());
/// assert_eq!(rounds.advance(Time::ZERO, leave), Advanced::Entered(1));
/// assert_eq!(rounds.next(Time::ZERO).map(|lease| lease.node), Some("/a"));
/// # Ok::<(), headworks_core::rounds::RoundsError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rounds<N> {
    config: RoundsConfig,
    state: State,
    pass: u32,
    now: Time,
    paused_at: Option<Time>,
    paused_for: Duration,
    current: Progress,
    /// Nodes of the current round that are, or were, in memory.
    loaded: u64,
    window: Window<N>,
    later: BTreeMap<u32, PendingRound<N>>,
    history: VecDeque<Progress>,
}

/// A round that is not entered yet.
#[derive(Clone, Debug)]
struct PendingRound<N> {
    declared: u64,
    nodes: VecDeque<Held<N>>,
}

impl<N: Clone> Default for Rounds<N> {
    fn default() -> Self {
        Rounds::new(RoundsConfig::default())
    }
}

impl<N: Clone> Rounds<N> {
    /// Nothing seeded yet.
    #[must_use]
    pub fn new(config: RoundsConfig) -> Self {
        Rounds {
            config,
            state: State::Waiting,
            pass: 0,
            now: Time::ZERO,
            paused_at: None,
            paused_for: Duration::ZERO,
            current: Progress::default(),
            loaded: 0,
            window: Window::new(),
            later: BTreeMap::new(),
            history: VecDeque::new(),
        }
    }

    /// Starts the first pass at round 0 with these nodes. With none it is complete at once:
    /// that is how a driver declares an empty side.
    ///
    /// # Errors
    /// When it was seeded before.
    pub fn seed(&mut self, now: Time, roots: Discovered<N>) -> Result<(), RoundsError> {
        if self.state != State::Waiting {
            return Err(RoundsError::AlreadySeeded);
        }
        self.start_pass(now, 0, roots)
    }

    /// Starts a pass at the shallowest depth where something is pending: after failures, after a
    /// stop, or where an earlier process left off. Nodes that are pending deeper down are declared
    /// next, with [`declare`](Self::declare). Leases of an earlier pass become stale.
    ///
    /// # Errors
    /// When a pass is running or paused, or `depth` is absurd.
    pub fn start_pass(
        &mut self,
        now: Time,
        depth: u32,
        pending: Discovered<N>,
    ) -> Result<(), RoundsError> {
        if matches!(self.state, State::Running | State::Paused) {
            let round = self.current.round;
            return Err(RoundsError::PassRunning { round });
        }
        if depth > MAX_ROUND {
            return Err(RoundsError::TooDeep { depth });
        }
        self.see(now);
        self.window.clear();
        self.later.clear();
        self.history.clear();
        self.pass = self.pass.saturating_add(1);
        self.state = State::Running;
        self.add_later(depth, pending);
        self.open(depth);
        Ok(())
    }

    /// Enters the next round, if the current one has closed and `leave` is for the next.
    /// A round nobody declared nodes in, above deeper ones that have some, closes at once.
    pub fn advance(&mut self, now: Time, leave: Leave) -> Advanced {
        self.see(now);
        if self.state != State::Running || self.current.closed.is_none() {
            return Advanced::NotYet;
        }
        let next = self.current.round + 1;
        if leave.round() != next {
            return Advanced::Stale;
        }
        if self.history.len() == HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(self.current);
        self.open(next);
        Advanced::Entered(next)
    }

    /// Leases nothing more until [`resume`](Self::resume); nodes that are out may settle.
    pub fn pause(&mut self, now: Time) {
        self.see(now);
        if self.state == State::Running {
            self.state = State::Paused;
            self.paused_at = Some(self.now);
        }
    }

    /// Goes on after a [`pause`](Self::pause).
    pub fn resume(&mut self, now: Time) {
        self.see(now);
        if self.state == State::Paused {
            self.state = State::Running;
            self.end_pause();
        }
    }

    /// Ends the pass where it stands, for good. Nodes that are out may settle; the rest stays where
    /// the driver keeps it, for a later pass.
    pub fn stop(&mut self, now: Time) {
        self.see(now);
        if self.state != State::Completed {
            self.state = State::Stopped;
            self.end_pause();
        }
    }

    /// The state of the rounds.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether a pass was ever started.
    #[must_use]
    pub fn is_seeded(&self) -> bool {
        self.state != State::Waiting
    }

    /// Whether the last round closed and the next one is empty.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.state == State::Completed
    }

    /// Where this side stands, for the coordinator.
    #[must_use]
    pub fn position(&self) -> Position {
        Position {
            round: self.current.round,
            closed: self.current.closed.is_some(),
            state: self.state,
        }
    }

    /// The number of the pass, from 1; 0 before the first.
    #[must_use]
    pub fn pass(&self) -> u32 {
        self.pass
    }

    /// The numbers of the current round.
    #[must_use]
    pub fn progress(&self) -> Progress {
        Progress {
            ready: self.window.ready() as u64,
            leased: self.window.leased() as u64,
            delayed: self.window.delayed() as u64,
            ..self.current
        }
    }

    /// The numbers of every round of this pass, shallowest first: the closed ones (the last 256 of
    /// them), the current one, and those in which nodes are declared already.
    pub fn all_progress(&self) -> impl Iterator<Item = Progress> + '_ {
        let current = self.is_seeded().then(|| self.progress());
        let later = self.later.iter().map(|(&round, later)| Progress {
            round,
            declared: later.declared,
            ..Progress::default()
        });
        self.history.iter().copied().chain(current).chain(later)
    }

    fn see(&mut self, now: Time) {
        self.now = self.now.max(now);
        self.window.promote(self.now);
    }

    /// The clock that stands still while paused.
    fn running_time(&self) -> Time {
        self.paused_at.unwrap_or(self.now) - self.paused_for
    }

    fn end_pause(&mut self) {
        if let Some(at) = self.paused_at.take() {
            self.paused_for = self.paused_for.saturating_add(self.now.since(at));
        }
    }

    fn add_later(&mut self, round: u32, found: Discovered<N>) {
        if found.is_empty() {
            return;
        }
        let later = self.later.entry(round).or_insert_with(|| PendingRound {
            declared: 0,
            nodes: VecDeque::new(),
        });
        later.declared = later.declared.saturating_add(found.len());
        if let Discovered::Nodes(nodes) = found {
            later.nodes.extend(nodes.into_iter().map(Held::new));
        }
    }

    fn open(&mut self, round: u32) {
        let later = self.later.remove(&round);
        self.current = Progress {
            round,
            opened: Some(self.now),
            ..Progress::default()
        };
        self.loaded = 0;
        if let Some(later) = later {
            self.current.declared = later.declared;
            self.loaded = later.nodes.len() as u64;
            self.window.replace_ready(later.nodes);
        }
        self.close_if_ended();
    }

    /// Closes the round when all its nodes have ended, and completes when there is no later one.
    /// Answers whether the round is closed.
    fn close_if_ended(&mut self) -> bool {
        if self.current.ended < self.current.declared {
            return false;
        }
        if self.current.closed.is_none() {
            self.current.closed = Some(self.now);
        }
        if self.later.is_empty() && matches!(self.state, State::Running | State::Paused) {
            self.state = State::Completed;
            self.end_pause();
        }
        true
    }
}

#[cfg(test)]
mod tests;
