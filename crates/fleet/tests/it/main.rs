//! The crate against real servers.

mod connection;
mod example;
mod exchange;
mod failover;
mod node;
mod pooler;
mod schema;
mod stage;
mod tls;
