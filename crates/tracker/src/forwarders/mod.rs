//! Forwarders: the other trackers that announces are forwarded to.

mod host;
mod latency;
mod list;
mod rejections;
mod score;
mod secrets;
mod skipped;
mod state;

pub(crate) use host::Host;
pub use list::{Forwarder, List, ListError, Skipped, parse, read};
pub(crate) use list::{ListOrigin, MAX_FORWARDERS, dedup, parse_from, port, take_duplicates};
pub(crate) use secrets::shown_url;
pub(crate) use skipped::{SkipReason, SkippedEntries};
pub(crate) use state::{
    ForwarderAddress, ForwarderId, ForwarderState, Status, authorization, without_user,
};
