//! What can go wrong, by what the caller can do about it.

use std::net::SocketAddr;

use crate::config::Problems;

/// What can go wrong in a service's own parts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is wrong; the problems name line, key and the way out.
    #[error("the configuration is wrong:\n{0}")]
    Config(#[from] Problems),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: is the port taken, or the address not this machine's?")]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Control would be handed to the network.
    #[error("refusing to listen on {0} without a token: set `admin.token`, or listen on 127.0.0.1")]
    Exposed(SocketAddr),
    /// Logs go somewhere already.
    #[error("logs are set up already: install them once, at the start of the program")]
    LogsInstalled,
    /// The log filter is not one.
    #[error("`{filter}` is not a log filter such as \"info\" or \"info,headworks=debug\": {cause}")]
    LogFilter {
        /// What was given.
        filter: String,
        /// Why it is none.
        cause: String,
    },
    /// The system gave no random numbers.
    #[error("the system gives no random numbers to make a token of: set `admin.token`")]
    Random(#[from] getrandom::Error),
    /// Root's rights cannot be given up, and keeping them is not what was asked for.
    #[error("cannot become `{user}`: {cause}; check `process.user`")]
    Privileges {
        /// Whom to become.
        user: String,
        /// Why not.
        cause: String,
    },
    /// The system refused to tell us of signals.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}
