//! What can go wrong at start, by what the operator can do about it.

use std::net::SocketAddr;
use std::path::PathBuf;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: is the port taken, or the address not this machine's? Set `gateway.listen`"
    )]
    Listen {
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// Anybody on the network could use the upstreams.
    #[error(
        "`gateway.open` is for loopback only, and the gateway listens on {0}: make a key with \
         `headworks gateway key add --tenant NAME`, or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// The file with the keys is missing.
    #[error(
        "the file with the keys `{}` does not exist: make a key with \
         `headworks gateway key add --tenant NAME`, or set `gateway.keys_file`", .0.display()
    )]
    KeyFileMissing(PathBuf),
    /// The file with the keys cannot be used.
    #[error("cannot use `{}` as the file with the keys: {cause}", path.display())]
    KeyFile {
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
    /// Two keys of one name.
    #[error("a key called `{0}` exists: choose another --id, or revoke it first")]
    KeyTaken(String),
    /// No key of that name.
    #[error("no key is called `{0}`: `headworks gateway key list` shows them")]
    KeyUnknown(String),
    /// The settings cannot be scheduled by.
    #[error("the scheduler cannot use these settings: {0}")]
    Scheduler(#[from] headworks_core::ConfigError),
    /// The usage cannot be kept.
    #[error("cannot keep usage in `{path}`: {cause}")]
    Usage {
        /// The file.
        path: String,
        /// Why not.
        cause: String,
    },
    /// The request log cannot be written.
    #[error("cannot write the request log `{}`", path.display())]
    RequestLog {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The system gave no random numbers.
    #[error("the system gives no random numbers")]
    Random(#[from] getrandom::Error),
    /// A part of the service failed.
    #[error(transparent)]
    Service(#[from] headworks_service::Error),
}
