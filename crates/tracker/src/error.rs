//! What keeps a tracker from starting.

use crate::access::AccessError;
use crate::forwarders::ListError;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use thiserror::Error;

/// What keeps a tracker from starting.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// An address cannot be had.
    #[error("cannot listen on {0}: {1}; choose another with `-l` (HTTP) or `-u` (UDP)")]
    Bind(SocketAddr, io::Error),
    /// The system refuses what threads need.
    #[error("cannot start the threads that answer: {0}")]
    Threads(io::Error),
    /// The list of forwarders is wrong.
    #[error(transparent)]
    List(#[from] ListError),
    /// A list of torrents is wrong.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// More forwarders than there are numbers for, with those that earlier lists had.
    #[error(
        "{0} forwarders since the start are too many: restart to forget those that are no longer listed"
    )]
    TooManyForwarders(usize),
    /// What is named as the snapshot cannot be one.
    #[error("the snapshot {}: {cause}; name another with `snapshot_file`", path.display())]
    Snapshot {
        /// What is named.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
    /// The queue's settings cannot work.
    #[error("the forward queue: {0}")]
    Queue(#[from] headworks_core::ConfigError),
    /// The client for forwarders cannot be made.
    #[error(transparent)]
    Outbound(#[from] headworks_service::Error),
}
