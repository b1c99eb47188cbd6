//! Forwarders: the other trackers that announces are forwarded to.

mod latency;
mod list;
mod score;
mod state;

pub use list::{Forwarder, List, ListError, Skipped, parse, read};
pub(crate) use state::{ForwarderId, ForwarderState, Status};
