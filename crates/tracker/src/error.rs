//! The error of starting or reconfiguring a tracker.

use crate::access::AccessError;
use crate::forwarders::ListError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;

/// The reason why a tracker cannot start or a configuration cannot be applied.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A listening address is unavailable.
    #[error("cannot listen on {0}: {1}; choose another with `-l` (HTTP) or `-u` (UDP)")]
    Bind(SocketAddr, io::Error),
    /// The system refuses threads, sockets or random numbers.
    #[error("cannot start the announce threads: {0}")]
    Threads(io::Error),
    /// The configured connections do not fit into the limit of open files.
    #[error(
        "`max_connections` needs {needed} open files, but the limit is {limit}; lower it to at most {fitting}, or raise the limit with `ulimit -n` or `LimitNOFILE=`"
    )]
    Descriptors {
        /// The most connections that fit.
        fitting: u64,
        /// The files needed.
        needed: u64,
        /// The limit.
        limit: u64,
    },
    /// The list of forwarders is invalid.
    #[error(transparent)]
    List(#[from] ListError),
    /// A list of torrents is invalid.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// More forwarders than there are ids, including those of earlier lists.
    #[error(
        "too many forwarders: {0} were listed since the start, the limit is 65535; restart to forget those that are no longer listed"
    )]
    TooManyForwarders(usize),
    /// The snapshot file cannot be used.
    #[error("cannot use the snapshot {}: {cause}; choose another file with `snapshot_file`", path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// The cause.
        cause: String,
    },
    /// The settings of the forward queue are invalid.
    #[error("invalid settings of the forward queue: {0}")]
    Queue(#[from] headworks_core::ConfigError),
    /// The client for forwarders cannot be created.
    #[error(transparent)]
    Outbound(#[from] headworks_service::Error),
}
