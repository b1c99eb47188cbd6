//! HTTP/1 as pure functions over bytes: requests from clients, responses from upstreams.
//!
//! Parsing of requests is stricter than RFC 9112 requires. Request smuggling works where a proxy
//! and its upstream read the same bytes differently, so there is one way to end a line and one way
//! to state the length of a body, without lists and without folded lines.

mod answer;
mod chunks;
mod head;
mod reply;

pub use answer::{Framing, write_head};
pub use chunks::{BadChunk, Chunks};
pub use head::{Head, Length, MAX_HEAD, head_end, read_head};
pub(crate) use head::{bare_line, ends_bare, too_long};
pub use reply::{Reply, ReplyEnd, take_reply};
