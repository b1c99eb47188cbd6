//! One node handed out to be worked on, and how that ends.
//!
//! The [`LeaseId`] is a fence: it is never used again, so a worker whose node was given to another
//! settles nothing. A driver must settle each lease once, or [reclaim](super::Rounds::reclaim) it
//! when its worker is lost; until then its round cannot close.

use crate::Time;

/// Names one grant of one node. Never used again, so that a worker whose node was given to
/// another settles nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub(super) u64);

/// A node to work on now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease<N> {
    /// The id to settle it with.
    pub id: LeaseId,
    /// The round it belongs to, which is its depth.
    pub round: u32,
    /// The how-manieth attempt in this pass this is, from 1.
    pub attempt: u32,
    /// The node itself.
    pub node: N,
}

/// The children a node turned out to have: the nodes of the next round.
///
/// ```
/// use headworks_core::rounds::Discovered;
///
/// let folders = Discovered::from(vec!["/a", "/b"]);
/// assert_eq!(folders.len(), 2);
/// // Kept in the driver's store, and loaded when their round comes.
/// let stored: Discovered<&str> = Discovered::Count(1_000_000);
/// assert!(!stored.is_empty() && Discovered::<&str>::none().is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Discovered<N> {
    /// The nodes themselves, kept in memory until their round.
    Nodes(Vec<N>),
    /// How many there are; the driver's store keeps them and they are paged in.
    Count(u64),
}

impl<N> Discovered<N> {
    /// No children.
    #[must_use]
    pub const fn none() -> Self {
        Discovered::Count(0)
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        match self {
            Discovered::Nodes(nodes) => nodes.len() as u64,
            Discovered::Count(count) => *count,
        }
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<N> From<Vec<N>> for Discovered<N> {
    fn from(nodes: Vec<N>) -> Self {
        Discovered::Nodes(nodes)
    }
}

/// The result of settling a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Settled {
    /// The node ended well, and its children are declared.
    Done {
        /// Whether it was the last of its round.
        closed: bool,
    },
    /// The node is tried again in the same round, not before this time.
    Delayed(Time),
    /// The node ended without success. The driver keeps it visible for a later pass.
    Failed {
        /// Whether it was the last of its round.
        closed: bool,
    },
    /// The lease is not out (any more): nothing was settled, and the children were not declared.
    Stale,
}
