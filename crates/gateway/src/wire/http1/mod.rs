//! HTTP/1 from the server's side, as pure functions over bytes.
//!
//! Stricter than most, because a front and an upstream that read the same bytes differently are how requests are
//! smuggled: one way to end a line, one way to say how long a body is, no lists, no folding.

mod answer;
mod chunks;
mod head;

pub use answer::{Framing, write_head};
pub use chunks::{BadChunk, Chunks};
pub(crate) use head::too_long;
pub use head::{Head, Length, MAX_HEAD, head_end, read_head};
