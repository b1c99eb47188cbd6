//! Reports, allocations and views: the data of the exchange.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;

use super::facts::Facts;
use crate::clock::BootInstant;
use crate::error::{Error, Result};
use crate::node::NodeToken;

/// The position of an allocation: its epoch, and its number in the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stamp {
    /// The epoch: one per takeover of the allocator lease.
    pub epoch: u64,
    /// The number in the epoch; the allocator counts from 1.
    pub number: u64,
}

impl Stamp {
    /// Larger numbers cannot be represented by a Lua script.
    const MAX: u64 = 1 << 53;

    /// Makes a stamp.
    #[must_use]
    pub const fn new(epoch: u64, number: u64) -> Stamp {
        Stamp { epoch, number }
    }

    pub(super) fn check(self) -> Result<Stamp> {
        let largest = self.epoch.max(self.number);
        if largest < Stamp::MAX {
            return Ok(self);
        }
        Err(Error::Failed {
            server: "the limit exchange".to_owned(),
            cause: format!("the stamp {self} is out of range"),
        })
    }

    pub(super) fn from_columns(epoch: i64, number: i64) -> Stamp {
        Stamp {
            epoch: u64::try_from(epoch).unwrap_or_default(),
            number: u64::try_from(number).unwrap_or_default(),
        }
    }

    /// The two columns of a table. A checked stamp fits.
    pub(super) fn columns(self) -> (i64, i64) {
        let column = |value| i64::try_from(value).unwrap_or(i64::MAX);
        (column(self.epoch), column(self.number))
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.number)
    }
}

/// A node's report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The stamp of the allocation that the node has applied.
    pub echoed: Stamp,
    /// Demand and what is in force, as `Shares` encodes it; at most 256 KiB.
    pub body: Bytes,
}

/// A node's allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Its position.
    pub stamp: Stamp,
    /// Rates, bursts, concurrency and weights, as `Shares` encodes them.
    pub body: Bytes,
}

/// The answer to a tick.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TickReply {
    /// When the tick was sent. A node that must stop without an exchange counts from here.
    pub sent: BootInstant,
    /// The newest allocation, if it is newer than the one that the report echoed.
    pub allocation: Option<Allocation>,
    /// All facts, if they changed since the last answer.
    pub facts: Option<Facts>,
    /// The server has lost the facts that this node has seen, and nobody has told any since. The
    /// node keeps what it knows, and should tell it again.
    pub facts_lost: bool,
    /// The node that held the allocator lease when the tick arrived.
    pub allocator: Option<NodeToken>,
    /// The data to allocate by, while this node holds the lease.
    pub view: Option<AllocatorView>,
}

/// The fleet as the allocator sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AllocatorView {
    /// The allocator's epoch. A new one means that the allocator starts afresh.
    pub epoch: u64,
    /// The number of the last publication in this epoch.
    pub number: u64,
    /// The exchange had lost its content when the epoch began: only decreases are safe until all
    /// nodes have reported.
    pub emptied: bool,
    /// The current report of every node, this one included.
    pub reports: Vec<NodeReport>,
    /// Grants that raised something and may be in force: all since the allocation that a node has
    /// echoed, and the last one before. They come with the first view of an epoch; after that,
    /// the allocator knows what it granted.
    pub grants: Option<Vec<RaisedGrant>>,
}

/// A node's report as the allocator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The node.
    pub node: NodeToken,
    /// Its name, for people.
    pub name: String,
    /// The stamp that it echoed.
    pub echoed: Stamp,
    /// The report.
    pub body: Bytes,
    /// How long the observer has seen no new report, on its own clock.
    pub silent: Duration,
}

/// An allocation that raised something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaisedGrant {
    /// The node. It may have no report, after a crash or while it is cut off.
    pub node: NodeToken,
    /// The position of the allocation.
    pub stamp: Stamp,
    /// The allocation.
    pub body: Bytes,
}

/// Allocations to publish together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// The allocator's epoch, and a number larger than that of its last publication.
    pub stamp: Stamp,
    /// The allocations that change. Nodes that are no longer registered are skipped.
    pub allocations: Vec<Allocated>,
}

/// The allocation of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// The node.
    pub node: NodeToken,
    /// The whole allocation; at most 256 KiB.
    pub body: Bytes,
    /// Something in it is larger than in the node's last allocation. It becomes durable first.
    pub raised: bool,
}

/// The state of the exchange, for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ExchangeStatus {
    /// The current epoch.
    pub epoch: u64,
    /// The number of the last publication.
    pub number: u64,
    /// The holder of the allocator lease.
    pub allocator: Option<NodeToken>,
    /// The reports of all nodes, by name. One look says nothing about silence.
    pub reports: Vec<NodeReport>,
}

/// Largest report or allocation, in bytes.
pub const MAX_BODY: usize = 256 << 10;

/// Refuses a body that would burden every exchange.
pub(super) fn limit_body(what: &'static str, body: &Bytes) -> Result<()> {
    if body.len() <= MAX_BODY {
        return Ok(());
    }
    Err(Error::TooLarge {
        what,
        size: body.len(),
        limit: MAX_BODY,
    })
}

impl Publication {
    pub(super) fn check(&self) -> Result<()> {
        self.stamp.check()?;
        let mut bodies = self.allocations.iter().map(|allocated| &allocated.body);
        bodies.try_for_each(|body| limit_body("an allocation", body))
    }
}
