//! Errors, one variant per remedy.

use std::net::SocketAddr;

use crate::config::Problems;

/// An error of the shared service parts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is invalid; the problems name line, key and remedy.
    #[error("the configuration is wrong:\n{0}")]
    Config(#[from] Problems),
    /// The address cannot be bound.
    #[error("cannot listen on {address}: is the port taken, or the address not this machine's?")]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The admin listener would be reachable from the network without a token.
    #[error("refusing to listen on {0} without a token: set `admin.token`, or listen on 127.0.0.1")]
    Exposed(SocketAddr),
    /// A log subscriber is installed already.
    #[error("logs are set up already: install them once, at the start of the program")]
    LogsInstalled,
    /// The log filter is invalid.
    #[error("`{filter}` is not a log filter such as \"info\" or \"info,headworks=debug\": {cause}")]
    LogFilter {
        /// The filter as given.
        filter: String,
        /// The reason.
        cause: String,
    },
    /// The operating system provided no random numbers.
    #[error("the system gives no random numbers to make a token of: set `admin.token`")]
    Random(#[from] getrandom::Error),
    /// Root privileges could not be dropped, although the configuration asks for it.
    #[error("cannot become `{user}`: {cause}; check `process.user`")]
    Privileges {
        /// The configured user.
        user: String,
        /// The reason.
        cause: String,
    },
    /// The signal handlers could not be installed.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}
