//! The gateway: scarce LLM capacity, shared by rules that hold.
//!
//! It speaks OpenAI's and Anthropic's APIs to clients and to upstreams. Bytes pass through; only
//! what scheduling needs is read. Every request waits for a permit of the [pool](headworks_pool):
//! its class comes from its API key, its flow is its tenant, its cost is its tokens, its targets
//! are the upstreams that serve its model. The permit lives in the answer's body and is given back
//! with its last byte, or when the client goes away.

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
