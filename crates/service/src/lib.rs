//! What every Headworks application shares.
//!
//! An application is a library with `run(config, shutdown)`. What it needs around that is here,
//! once: [`config`] with origins, [`reload`], [`shutdown`], [`logs`], the admin [`token`],
//! [`proxies`] that may speak for a client, dropping [`privileges`], the [`outbound`] HTTP client,
//! [`metrics`], the [`panel`] it shows of itself, the [`admin`] listener, and [`exit`] codes.
//! Nothing here knows an application.

// The `section!` macro names this crate, also when it is used inside it.
extern crate self as headworks_service;

pub mod admin;
pub mod bounded;
pub mod config;
mod error;
pub mod exit;
pub mod logs;
pub mod metrics;
pub mod outbound;
pub mod panel;
pub mod privileges;
pub mod proxies;
pub mod reload;
pub mod shutdown;
pub mod token;

pub use error::Error;

#[doc(hidden)]
pub use serde;
