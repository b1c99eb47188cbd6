//! HTTP/1 as pure functions over bytes: requests from clients, responses from upstreams.
//!
//! Parsing of requests is stricter than RFC 9112 requires. Request smuggling works where a proxy
//! and its upstream read the same bytes differently, so there is one way to end a line and one way
//! to state the length of a body, without lists and without folded lines.

mod chunks;
mod request_head;
mod response_head;
mod response_writer;

pub use chunks::{BadChunk, Chunks};
pub use request_head::{Length, MAX_HEAD, RequestHead, head_end, read_request_head};
pub(crate) use request_head::{bare_line_feed, has_bare_line_end, head_too_large};
pub use response_head::{ResponseFraming, ResponseHead, take_response_head};
pub use response_writer::{Framing, write_response_head};
