//! Addresses of the shared servers.
//!
//! The parser is our own: tokio-postgres knows neither `job` nor `sslmode=verify-full`, and would
//! accept a password. A parsed URL never contains one, so it can be shown and logged.

mod authority;
mod parameters;
mod postgres;
mod redact;
#[cfg(test)]
mod tests;
mod valkey;

pub use authority::Host;
pub use postgres::{JobName, PostgresUrl};
pub use redact::redact;
pub use valkey::ValkeyUrl;

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// How a connection is protected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tls {
    /// Not at all. Permitted on the loopback interface only.
    Off,
    /// TLS with the server's name and certificate verified.
    Verified {
        /// A PEM file with the only CA certificates to trust. Without it, the system's are.
        roots: Option<std::path::PathBuf>,
    },
}

/// The address of the server that a fleet shares.
///
/// ```
/// use headworks_fleet::FleetUrl;
/// let url: FleetUrl = "postgres://headworks@db.example/fleet".parse()?;
/// assert_eq!(url.to_string(), "postgres://headworks@db.example:5432/fleet?sslmode=verify-full");
/// assert!("postgres://headworks:secret@db.example/fleet".parse::<FleetUrl>().is_err());
/// # Ok::<(), headworks_fleet::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FleetUrl {
    /// A PostgreSQL database: nodes, limit exchange, stores.
    Postgres(PostgresUrl),
    /// A Valkey or Redis server: the limit exchange alone.
    Valkey(ValkeyUrl),
}

impl FromStr for FleetUrl {
    type Err = Error;

    fn from_str(text: &str) -> Result<FleetUrl> {
        match text.split_once("://").map(|(scheme, _)| scheme) {
            Some("postgres" | "postgresql") => text.parse().map(FleetUrl::Postgres),
            Some("valkey" | "valkeys" | "redis" | "rediss") => text.parse().map(FleetUrl::Valkey),
            _ => Err(Error::Url(
                "expected `postgres://`, `valkey://` or `redis://`, or `valkeys://` or `rediss://` \
                 for TLS"
                    .to_owned(),
            )),
        }
    }
}

impl fmt::Display for FleetUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FleetUrl::Postgres(url) => url.fmt(f),
            FleetUrl::Valkey(url) => url.fmt(f),
        }
    }
}
