//! Shared parts of the network backends: calls that are counted, limited, slowed down on overload,
//! and retried; and folders in object stores.
//!
//! A call is one page, one part or one object: small enough to be retried on its own, so a fault in
//! a large operation does not restart it. The user of a backend decides about retrying the whole.

mod body;
mod call;
pub(crate) mod checksum;
pub(crate) mod clock;
pub(crate) mod command;
mod endpoint;
pub(crate) mod limiter;
pub(crate) mod media_type;
pub(crate) mod metadata_service;
pub(crate) mod object_backend;
pub(crate) mod object_headers;
pub(crate) mod object_store;
pub(crate) mod paged_listing;
pub(crate) mod parts;
pub(crate) mod pending_names;
pub(crate) mod percent;
pub(crate) mod ranged_read;
pub(crate) mod read_ahead;
pub(crate) mod renewing;
mod retries;
mod status;
#[cfg(test)]
pub(crate) mod test_server;
mod text;
pub(crate) mod token;
pub(crate) mod url;
pub(crate) mod xml;

pub(crate) use body::{SegmentedBytes, StreamedBody, collect, next_bytes, streamed_body};
pub(crate) use call::Call;
pub(crate) use endpoint::{
    Endpoint, FullResponse, Protocol, Recovery, Rejection, StreamedResponse,
};
pub(crate) use retries::RetryPolicy;
pub(crate) use status::kind_of_status;
pub(crate) use text::{header_text, quoted_etag};
pub(crate) use token::bearer;

use headworks_outbound::{Error as OutboundError, Outbound, Settings};
use std::sync::Arc;

/// Source of environment variables, which tests replace.
pub(crate) type Environment = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// Returns the environment of the process. An empty variable counts as unset.
pub(crate) fn environment() -> Environment {
    Arc::new(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
}

/// The clients of a backend.
#[derive(Clone)]
pub(crate) struct Clients {
    /// Uses the configured proxies. Storages and token services on the Internet are reached so.
    pub(crate) proxied: Outbound,
    /// Uses none. Metadata services are on this machine and its network.
    pub(crate) direct: Outbound,
}

impl Clients {
    pub(crate) fn new(mut settings: Settings) -> Result<Clients, OutboundError> {
        let proxied = Outbound::new(settings.clone())?;
        settings.proxy_from_environment = false;
        Ok(Clients {
            proxied,
            direct: Outbound::new(settings)?,
        })
    }
}
