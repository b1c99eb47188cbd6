//! What the storages behind a network share: calls that are counted, bounded, slowed down when the
//! far side asks for it, and tried again when one of them fails; and what storages of objects make
//! of keys.
//!
//! A call here is one page, one part, one object: small enough to be tried again by itself, so that
//! a fault in the middle of something large does not begin the large thing anew. Whoever uses a
//! backend still decides about the whole.

mod body;
mod call;
mod endpoint;
pub(crate) mod limiter;
pub(crate) mod media_type;
pub(crate) mod metadata_service;
pub(crate) mod object_headers;
pub(crate) mod object_store;
pub(crate) mod paged_listing;
pub(crate) mod parts;
pub(crate) mod pending_names;
pub(crate) mod percent;
pub(crate) mod ranged_read;
pub(crate) mod read_ahead;
mod retries;
mod status;
mod text;
mod token;
pub(crate) mod url;
pub(crate) mod xml;

pub(crate) use body::{SegmentedBytes, StreamedBody, collect, next_bytes, streamed_body};
pub(crate) use call::Call;
pub(crate) use endpoint::{Endpoint, FullResponse, Protocol, StreamedResponse};
pub(crate) use retries::{RetryPolicy, random};
pub(crate) use status::kind_of_status;
pub(crate) use text::{error_chain, header_text, hex, quoted_etag};
pub(crate) use token::bearer;

use std::sync::Arc;

/// Where variables of the environment come from; tests hand in their own.
pub(crate) type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// The environment of the process. A variable that is set to nothing is not set.
pub(crate) fn environment() -> Environment {
    Arc::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}
