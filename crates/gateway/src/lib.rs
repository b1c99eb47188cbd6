//! LLM gateway: shares scarce model capacity between tenants by fixed rules.
//!
//! The gateway speaks OpenAI's and Anthropic's APIs to clients and to upstreams. Request and
//! response bodies pass through unchanged; the gateway reads only what scheduling needs. Every
//! request acquires a permit from the [pool](headworks_pool) before it goes to an upstream. Its
//! class comes from its API key, its flow is its tenant, its cost is its tokens, and its targets
//! are the upstreams that serve its model. The permit travels with the response body and is
//! released with the last byte, or as soon as the client disconnects.

mod books;
pub mod config;
mod error;
mod faults;
mod front;
mod gateway;
mod keys;
mod learn;
mod overlay;
mod pattern;
mod plan;
mod seeing;
mod shared;
mod times;
mod upstream;
pub mod wire;

pub use books::{UsageRow, UsageStore};
pub use config::GatewayConfig;
pub use error::Error;
pub use gateway::Gateway;
pub use keys::KeyFile;
