//! Several machines that act as one.
//!
//! A fleet is a number of nodes (processes) that share a PostgreSQL database. This crate owns the
//! connection to it, the registration of nodes and the limit exchange. No other crate contains
//! connection or node logic.
//!
//! | part | purpose |
//! |---|---|
//! | [`FleetUrl`], [`Secrets`] | addresses without passwords, verified TLS, passwords from the environment |
//! | [`postgres`] | connections that return, transactions with timeouts, a schema with versions |
//! | [`Node`], [`Membership`] | registration under a fencing token, heartbeats, deadlines |
//! | [`LimitExchange`] | reports for allocations; in PostgreSQL, or in Valkey or Redis |
//!
//! There is no cluster protocol of our own, and no call to a server on the path of a request. No
//! decision depends on a wall clock: nodes observe each other's counters, each on its own
//! CLOCK_BOOTTIME.
//!
//! ```no_run
//! use headworks_fleet::postgres::Postgres;
//! use headworks_fleet::{JoinOptions, LimitExchange, Node, PostgresExchange, Report, Secrets};
//!
//! # async fn example() -> headworks_fleet::Result<()> {
//! let url = "postgres://headworks@db.example/fleet".parse()?;
//! let server = Postgres::new(url, Secrets::from_env())?;
//! let node = Node::join(&server, JoinOptions::new("gateway-1")).await?;
//! let mut exchange = PostgresExchange::new(&server, node.membership().token());
//! let reply = exchange.tick(Report::default()).await?;
//! if let Some(view) = reply.view {
//!     println!("this node allocates for {} nodes", view.reports.len());
//! }
//! exchange.leave().await?;
//! node.leave().await?;
//! # Ok(())
//! # }
//! ```

mod backoff;
mod clock;
mod error;
pub mod exchange;
mod net;
mod node;
pub mod postgres;
mod secrets;
mod silence;
pub mod tables;
#[cfg(feature = "testing")]
pub mod testing;
mod url;
mod within;

pub use clock::{BootInstant, suspended};
pub use error::{Error, Result};
pub use exchange::{
    Allocated, Allocation, AllocatorView, ExchangeStatus, Fact, FactChange, Facts, LimitExchange,
    MAX_BODY, NodeReport, PostgresExchange, Publication, RaisedGrant, Report, Stamp, TickReply,
    ValkeyExchange,
};
pub use node::{
    JoinCause, JoinOptions, Liveness, Member, Membership, Node, NodeToken, Registry, Timing,
};
pub use secrets::{Secret, Secrets};
pub use url::{FleetUrl, Host, JobName, PostgresUrl, Tls, ValkeyUrl, redact};
