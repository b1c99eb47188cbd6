//! HTTP/1 for servers and clients, with one parser for all of them.
//!
//! Two layers. The first is pure functions over bytes: [`RequestLines`] and [`RequestHead`] for
//! requests, [`take_response_head`] for responses, [`Chunks`] for chunked bodies. They do no I/O,
//! keep no state beyond one message and never panic on input; the fuzz target `http1` runs them.
//! The second reads and writes connections with them: [`ServerConnection`] serves a client,
//! [`ClientConnection`] calls a server. Both are generic over the stream ([`Transport`]), so that
//! TLS needs no code here.
//!
//! Requests are parsed more strictly than RFC 9112 requires. Request smuggling works where a proxy
//! and its upstream read the same bytes differently, and a client can forge its address where a
//! server reads a header that its proxy did not see. So there is one way to end a line and one way
//! to state the length of a body, without lists and without folded lines. Everything else is an
//! error, after which the connection must be closed. Responses of servers may be sloppier, except
//! about where they end.
//!
//! The gateway uses both layers. The tracker's announce threads use the first: they answer from
//! memory, in their own epoll loop (`docs/adr/0014`).

mod buffered_stream;
mod bytes_acked;
mod chunks;
mod client;
mod head_error;
mod request_head;
mod response_head;
mod response_writer;
mod server;
mod timeout;
mod transport;

pub use buffered_stream::{BodyBudget, BodyError, RequestBody};
pub use chunks::{BadChunk, Chunks};
pub use client::{CallProgress, ClientConnection, OutgoingRequest, SendError};
pub use head_error::HeadError;
pub use request_head::{
    Length, LineBuffer, MAX_HEAD, MAX_LINES, RequestHead, RequestLines, head_end, read_request_head,
};
pub use response_head::{ResponseFraming, ResponseHead, take_response_head};
pub use response_writer::{Framing, write_response_head};
pub use server::{Received, ServeOutcome, ServerConnection, Service};
pub use timeout::timeout;
pub use transport::Transport;

/// An error of a body, of any type.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
