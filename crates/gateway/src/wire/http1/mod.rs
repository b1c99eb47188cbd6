//! HTTP/1 as pure functions over bytes: requests from clients, answers from upstreams.
//!
//! Of clients it is stricter than most, because a front and an upstream that read the same bytes
//! differently are how requests are smuggled: one way to end a line, one way to say how long a body
//! is, no lists, no folding.

mod answer;
mod chunks;
mod head;
mod reply;

pub use answer::{Framing, write_head};
pub use chunks::{BadChunk, Chunks};
pub use head::{Head, Length, MAX_HEAD, head_end, read_head};
pub(crate) use head::{bare_line, ends_bare, too_long};
pub use reply::{Reply, ReplyEnd, take_reply};
