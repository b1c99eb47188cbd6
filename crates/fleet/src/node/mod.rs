//! Nodes: processes that share a database, and how they learn that one of them is gone.
//!
//! A node registers under a random [`NodeToken`] and sends a heartbeat every few seconds, which
//! increments a counter. Others consider it lost when the counter has not moved for a while *on
//! their own clock*. The node itself counts from the *sending* of its last successful heartbeat
//! and stops earlier than anybody may take over its work. No clock is compared with another one.
//!
//! A node that finds itself removed, or the database replaced by one with another history, joins
//! again under a new token. [`Membership`] is the right to act under one token.

mod heartbeat;
mod membership;
mod registry;
mod timing;
mod token;

pub use heartbeat::{JoinOptions, Node};
pub use membership::{JoinCause, Liveness, Membership};
pub(crate) use registry::remove;
pub use registry::{Member, Registry};
pub use timing::Timing;
pub use token::NodeToken;
