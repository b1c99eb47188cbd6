//! Parts that every Headworks application shares.
//!
//! An application is a library with `run(config, shutdown)`. This crate provides the rest:
//! [`config`] with origins, [`reload`], [`shutdown`], [`logs`], the admin [`authenticator`],
//! trusted [`proxies`], dropping of [`privileges`], the [`outbound`] HTTP client, [`metrics`], the
//! [`panel`] by which an application describes itself, the [`admin`] listener, what the
//! [`service_manager`] is told, and [`exit`] codes. Nothing here depends on a particular
//! application.

// The `section!` macro refers to this crate by name, also when it is used inside it.
extern crate self as headworks_service;

pub mod admin;
pub mod authenticator;
pub mod bounded_file;
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
pub mod service_manager;
pub mod shutdown;

pub use error::Error;

#[doc(hidden)]
pub use serde;
