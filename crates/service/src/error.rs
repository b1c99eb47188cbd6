//! Errors of the shared service parts. A message names the remedy where there is one.

use std::net::SocketAddr;

use crate::config::Problems;

/// An error of the shared service parts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is invalid; the problems name line, key and remedy.
    #[error("invalid configuration:\n{0}")]
    Config(#[from] Problems),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: the port may be in use, or the address not local")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The admin listener would be reachable from the network without a token.
    #[error("refusing to listen on {0} without a token: set `admin.token`, or listen on 127.0.0.1")]
    TokenRequired(SocketAddr),
    /// A log subscriber is installed already.
    #[error("a log subscriber is already installed")]
    LogsInstalled,
    /// The log filter is invalid.
    #[error("invalid log filter `{filter}`: {cause}; write \"info\" or \"info,headworks=debug\"")]
    LogFilter {
        /// The filter as given.
        filter: String,
        /// The reason.
        cause: String,
    },
    /// The operating system provided no random numbers.
    #[error("cannot generate a token: the system provides no random numbers; set `admin.token`")]
    Random(#[from] getrandom::Error),
    /// Root privileges could not be dropped, although the configuration asks for it.
    #[error("cannot switch to user `{user}`: {cause}; check `process.user`")]
    Privileges {
        /// The configured user.
        user: String,
        /// The reason.
        cause: String,
    },
    /// The signal handlers could not be installed.
    #[error("cannot install signal handlers")]
    Signals(#[source] std::io::Error),
}
