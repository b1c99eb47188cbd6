//! Two trees listed side by side, breadth-first, by workers of their own.
//!
//! A migration, a mirror or an audit lists two trees and compares them folder by folder.
//! [`CoordinatedTraversal`] owns both round queues, their [`Coordinator`] and the workers; a
//! program brings an [`Adapter`] per side, which lists one node. The leader has listed a folder
//! before the follower comes to it, and is never so far ahead that what it found fills memory.
//!
//! Nodes are kept in memory until their round. A program that must resume after a crash, or whose
//! rounds do not fit, drives [`Rounds`](crate::Rounds) over a store of its own instead.

mod state;
mod worker;

use crate::clock::Clock;
use crate::sync::Mutex;
use headworks_core::rounds::{Progress, RoundsError};
use headworks_core::{Backoff, Coordinator, Side};
use state::{Sides, Step};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Lists the nodes of one side.
pub trait Adapter<N>: Send + Sync + 'static {
    /// Lists a node: the nodes below it, which are listed in the next round.
    ///
    /// A panic is a failed node, not a lost worker.
    ///
    /// # Errors
    /// Any error converts with `?` into one that is tried again; [`ListError::permanent`] makes one
    /// that is not.
    fn list(&self, node: &N) -> impl Future<Output = Result<Vec<N>, ListError>> + Send;
}

/// A node could not be listed.
#[derive(Debug)]
pub struct ListError {
    reason: Box<dyn std::error::Error + Send + Sync>,
    permanent: bool,
}

impl ListError {
    /// An error that another attempt would meet again.
    pub fn permanent(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        ListError {
            reason: reason.into(),
            permanent: true,
        }
    }
}

// Like anyhow's, this type is no `Error` itself: otherwise the conversion would be ambiguous.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for ListError {
    fn from(reason: E) -> Self {
        ListError {
            reason: reason.into(),
            permanent: false,
        }
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

/// Settings of a [`CoordinatedTraversal`].
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct TraversalConfig {
    /// Nodes of one side that are listed at once; 0 counts as 1. Default 4.
    pub workers: usize,
    /// Rounds that the follower stays behind the leader. Default 3.
    pub lag: u32,
    /// Rounds that the leader may be ahead; at least `lag`. Default 4.
    pub max_lead: u32,
    /// The pause before a node is tried again.
    pub backoff: Backoff,
    /// How long a node is tried again, from its first failure. Default 60 s.
    pub retry_budget: Duration,
}

impl Default for TraversalConfig {
    fn default() -> Self {
        TraversalConfig {
            workers: 4,
            lag: 3,
            max_lead: 4,
            backoff: Backoff::default(),
            retry_budget: Duration::from_secs(60),
        }
    }
}

/// A node that was not listed.
#[derive(Debug)]
#[non_exhaustive]
pub struct FailedNode<N> {
    /// The side it belongs to.
    pub side: Side,
    /// Its depth.
    pub round: u32,
    /// The node.
    pub node: Arc<N>,
    /// The error of its last attempt.
    pub error: ListError,
}

/// The end of a traversal.
#[derive(Debug)]
#[non_exhaustive]
pub struct Traversed<N> {
    /// Whether both sides have ended their last round. `false` after a
    /// [`stop`](CoordinatedTraversal::stop).
    pub completed: bool,
    /// Nodes listed on the leader's and on the follower's side.
    pub listed: (u64, u64),
    /// Nodes that could not be listed. Nodes below them were not visited.
    pub failed: Vec<FailedNode<N>>,
}

/// Two trees that are listed in coordinated rounds. See the [module](self).
///
/// ```
/// use headworks_pool::traversal::{Adapter, CoordinatedTraversal, ListError, TraversalConfig};
/// use std::path::PathBuf;
/// use std::sync::{Arc, Mutex};
///
/// struct Disk {
///     root: PathBuf,
///     seen: Arc<Mutex<Vec<PathBuf>>>,
/// }
///
/// impl Adapter<PathBuf> for Disk {
///     async fn list(&self, folder: &PathBuf) -> Result<Vec<PathBuf>, ListError> {
///         let mut folders = Vec::new();
///         for entry in std::fs::read_dir(self.root.join(folder))? {
///             let entry = entry?;
///             self.seen.lock().unwrap().push(folder.join(entry.file_name()));
///             if entry.file_type()?.is_dir() {
///                 folders.push(folder.join(entry.file_name()));
///             }
///         }
///         Ok(folders)
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let [one, two] = ["one", "two"].map(|name| std::env::temp_dir().join(format!("headworks-doc-{}-{name}", std::process::id())));
/// # for tree in [&one, &two] { std::fs::create_dir_all(tree.join("a/b"))?; }
/// # std::fs::write(one.join("a/b/file"), "x")?;
/// let (left, right) = (Arc::default(), Arc::default());
/// let leader = Disk { root: one.clone(), seen: Arc::clone(&left) };
/// let follower = Disk { root: two.clone(), seen: Arc::clone(&right) };
/// let traversal = CoordinatedTraversal::start(
///     TraversalConfig::default(),
///     (leader, vec![PathBuf::new()]),
///     (follower, vec![PathBuf::new()]),
/// )?;
/// let end = traversal.finished().await;
/// assert!(end.completed && end.failed.is_empty());
/// assert_eq!((left.lock().unwrap().len(), right.lock().unwrap().len()), (3, 2));
/// # for tree in [&one, &two] { std::fs::remove_dir_all(tree)?; }
/// # Ok(())
/// # }
/// ```
///
/// Dropping it ends the workers where they next wait.
pub struct CoordinatedTraversal<N> {
    shared: Arc<Shared<N>>,
    workers: JoinSet<()>,
}

impl<N> fmt::Debug for CoordinatedTraversal<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CoordinatedTraversal")
            .field("workers", &self.workers.len())
            .finish_non_exhaustive()
    }
}

/// The part that all workers share.
struct Shared<N> {
    sides: Mutex<Sides<N>>,
    /// Woken when a round was entered, or the traversal was paused, resumed or stopped. A worker
    /// that settles a node without closing a round has nothing to tell the others: the children are
    /// for a later round.
    changed: Notify,
    clock: Clock,
    backoff: Backoff,
}

impl<N: Send + Sync + 'static> CoordinatedTraversal<N> {
    /// Starts the workers on the current tokio runtime. Each side has an adapter and the nodes of
    /// its first round; the follower begins when the leader has listed all of its own.
    ///
    /// # Errors
    /// When `lag` is 0 or more than `max_lead`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(
        config: TraversalConfig,
        (leader, leader_roots): (impl Adapter<N>, Vec<N>),
        (follower, follower_roots): (impl Adapter<N>, Vec<N>),
    ) -> Result<Self, RoundsError> {
        let coordinator = Coordinator::new(config.lag, config.max_lead)?;
        let clock = Clock::new();
        let roots = (leader_roots, follower_roots);
        let sides = Sides::new(coordinator, config.retry_budget, roots, clock.now())?;
        let shared = Arc::new(Shared {
            sides: Mutex::new(sides),
            changed: Notify::new(),
            clock,
            backoff: config.backoff,
        });
        let mut workers = JoinSet::new();
        let (leader, follower) = (Arc::new(leader), Arc::new(follower));
        for _ in 0..config.workers.max(1) {
            workers.spawn(worker::work(Side::Leader, shared.clone(), leader.clone()));
            workers.spawn(worker::work(
                Side::Follower,
                shared.clone(),
                follower.clone(),
            ));
        }
        Ok(CoordinatedTraversal { shared, workers })
    }

    /// The numbers of every round of a side, shallowest first.
    #[must_use]
    pub fn progress(&self, side: Side) -> Vec<Progress> {
        self.shared.sides.lock().progress(side)
    }

    /// Lists nothing more until [`resume`](Self::resume); listings that run may end.
    pub fn pause(&self) {
        self.shared.change(Sides::pause);
    }

    /// Goes on after a [`pause`](Self::pause).
    pub fn resume(&self) {
        self.shared.change(Sides::resume);
    }

    /// Ends both sides where they stand; listings that run may end.
    pub fn stop(&self) {
        self.shared.change(Sides::stop);
    }

    /// Waits until both sides are complete or stopped.
    pub async fn finished(mut self) -> Traversed<N> {
        while self.workers.join_next().await.is_some() {}
        self.shared.sides.lock().take_result()
    }
}

impl<N> Shared<N> {
    fn change(&self, change: impl FnOnce(&mut Sides<N>, headworks_core::Time)) {
        change(&mut self.sides.lock(), self.clock.now());
        self.changed.notify_waiters();
    }

    /// The next step of a worker of that side.
    fn step(&self, side: Side) -> Step<N> {
        let (step, entered) = self.sides.lock().step(side, self.clock.now());
        if entered {
            self.changed.notify_waiters();
        }
        step
    }
}
