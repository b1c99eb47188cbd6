//! The limit exchange: nodes report demand, one of them allocates, all of them receive shares.
//!
//! Reports and allocations are opaque bytes here; `headworks_core::Shares` gives them meaning. This
//! module transports them and guarantees what an allocator needs:
//!
//! - One node at a time holds the **allocator lease**. A counter that stands still for three
//!   seconds on a candidate's own clock permits it to take over. Time alone decides nothing: a
//!   publication counts only if the lease and the epoch still are those of its sender.
//! - Every takeover begins a new **epoch**, which exceeds every epoch that a node has echoed.
//!   Allocations are ordered by [`Stamp`], and a node receives only newer ones.
//! - Allocations that raise something are **durable** before a node can see them, until the node
//!   has echoed a newer one. A new allocator gets them with the reports.
//! - An exchange that lost its content, by a crash, a promotion or an eviction, is recognised
//!   ([`AllocatorView::emptied`]).
//!
//! One call per tick carries everything: report, allocation, lease, and the shared [`Facts`] if
//! they changed. Nothing here is called on the path of a request.

mod facts;
mod lease;
pub mod postgres;
mod types;
pub mod valkey;

pub use facts::{Fact, FactChange, Facts};
pub use postgres::PostgresExchange;
pub use types::{
    Allocated, Allocation, AllocatorView, ExchangeStatus, MAX_BODY, NodeReport, Publication,
    RaisedGrant, Report, Stamp, TickReply,
};
pub use valkey::ValkeyExchange;

use futures_util::future::BoxFuture;

use crate::error::Result;
use crate::node::NodeToken;

/// A place where nodes exchange reports for allocations.
///
/// Call [`tick`](LimitExchange::tick) at most four times per second. All implementations pass one
/// behaviour suite.
pub trait LimitExchange: Send {
    /// The token that this exchange reports under.
    fn node(&self) -> NodeToken;

    /// Reports under a new token from the next tick on. That tick removes what the old token has
    /// in the exchange, because the new report states what is in force.
    fn rejoin(&mut self, node: NodeToken);

    /// Stores a report, and returns the newest allocation and changed facts. If this node holds
    /// the allocator lease, or takes it over now, all reports come with them.
    ///
    /// # Errors
    /// [`Error::Fenced`](crate::Error::Fenced) if the node was forgotten.
    fn tick(&mut self, report: Report) -> BoxFuture<'_, Result<TickReply>>;

    /// Publishes allocations, all or none.
    ///
    /// # Errors
    /// [`Error::LeaseLost`](crate::Error::LeaseLost) if this node does not hold the lease of the
    /// publication's epoch, or the number is not newer than the last one.
    fn publish(&mut self, publication: Publication) -> BoxFuture<'_, Result<()>>;

    /// Changes shared facts, all or none.
    ///
    /// # Errors
    /// When the server does not answer, or a fact is too large.
    fn change_facts(&mut self, changes: Vec<FactChange>) -> BoxFuture<'_, Result<()>>;

    /// Reads the state, for people.
    ///
    /// # Errors
    /// When the server does not answer.
    fn status(&mut self) -> BoxFuture<'_, Result<ExchangeStatus>>;

    /// Removes another node with its report, allocation and grants. If it is alive, its next tick
    /// fails and it has to rejoin under a new token.
    ///
    /// # Errors
    /// When the server does not answer.
    fn forget(&mut self, node: NodeToken) -> BoxFuture<'_, Result<()>>;

    /// Gives back what this node has in the exchange, and its lease.
    ///
    /// # Errors
    /// When the server does not answer.
    fn leave(&mut self) -> BoxFuture<'_, Result<()>>;
}
