//! LLM gateway: shares scarce model capacity between tenants by fixed rules.
//!
//! The gateway speaks OpenAI's and Anthropic's APIs to clients and to upstreams. Request and
//! response bodies pass through unchanged; the gateway reads only what scheduling needs. Every
//! request acquires a permit from the [pool](headworks_pool) before it goes to an upstream. Its
//! class comes from its API key, its flow is its tenant, its cost is its tokens, and its targets
//! are the upstreams that serve its model. The permit travels with the response body and is
//! released with the last byte, or as soon as the client disconnects.

mod active_config;
mod bookings;
pub mod config;
mod error;
mod faults;
mod front;
mod gateway;
mod history;
mod keys;
mod learned_limits;
mod learned_outputs;
mod overrides;
mod pattern;
mod pools;
mod replay_scenario;
mod request_log;
mod retry_hints;
mod secret_pattern;
mod shared;
mod time_rules;
mod upstream;
mod usage;
mod views;
pub mod wire;

pub use config::GatewayConfig;
pub use error::Error;
pub use gateway::Gateway;
pub use keys::KeyFile;
pub use usage::{UsageRow, UsageStore};
