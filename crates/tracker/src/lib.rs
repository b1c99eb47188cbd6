//! A BitTorrent tracker that answers from memory like the fastest, and asks every other tracker for
//! its clients.
//!
//! Two planes. The announce plane (`serve`, `plane`, `swarm`) is a thread a core that handles each
//! request to its end on the thread that received it. The forward plane (`forward`) is a pool that
//! passes announces on to other trackers; a client's answer never waits for it. What the forwarders
//! find goes into the swarm's record, and so into later answers.

mod access;
pub mod check;
mod clock;
pub mod config;
mod counters;
mod error;
mod explain;
mod forward;
pub mod forwarders;
mod listen;
mod metrics;
mod panel;
mod plan;
mod plane;
#[doc(hidden)]
pub mod reading;
mod serve;
mod snapshot;
mod stats;
mod swarm;
mod tracker;

pub use access::AccessError;
pub use config::TrackerConfig;
pub use error::Error;
pub use listen::Listen;
pub use tracker::Tracker;
