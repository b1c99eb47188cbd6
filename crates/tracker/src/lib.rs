//! A BitTorrent tracker that answers clients from memory and forwards their announces to other
//! trackers in the background.
//!
//! It has two planes. The announce plane (`serve`, `announce`, `swarms`) has one thread per core
//! for each transport and handles every request to its end on the thread that received it. The
//! forward plane (`forward`) is a pool that sends announces to the forwarders. It stores the peers
//! that they report in the swarm, from where later responses take them. A response never waits for
//! the forward plane.

mod access;
mod active_config;
mod address_scope;
mod announce;
#[cfg(test)]
mod captured_log;
pub mod check;
mod client;
mod client_counts;
mod clock;
pub mod config;
mod counters;
mod descriptors;
mod error;
mod explain;
mod forward;
pub mod forwarders;
#[doc(hidden)]
pub mod fuzzing;
mod listen;
mod log_throttle;
mod metrics;
mod panel;
mod request;
mod serve;
mod snapshot;
mod state;
mod stats;
mod subscriptions;
mod swarms;
mod tracker;

pub use access::AccessError;
pub use config::TrackerConfig;
pub use error::Error;
pub use listen::Listen;
pub use tracker::Tracker;
