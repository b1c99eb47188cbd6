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
mod fleet;
mod front;
mod gates;
mod gateway;
mod history;
mod key_file_watch;
mod key_store;
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
pub use fleet::{
    FleetAdmin, FleetConfig, FleetStatus, LimitShare, NodeStatus, OnLossName, Secrets,
    open_key_store, open_usage_store,
};
pub use gateway::Gateway;
pub use key_store::{
    AuditEntry, Changed, FileKeyStore, KeyChange, KeyStore, KeyTable, NewKey, PostgresKeyStore,
    parse_moment,
};
pub use keys::KeyFile;
pub use usage::{
    Booked, PostgresUsageStore, SqliteUsageStore, TenantTotal, UsageBatch, UsageRow, UsageStore,
};
