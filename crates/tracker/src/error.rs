//! What keeps a tracker from starting.

use crate::forwarders::ListError;
use std::io;
use std::net::SocketAddr;
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
    /// The queue's settings cannot work.
    #[error("the forward queue: {0}")]
    Queue(#[from] headworks_core::ConfigError),
    /// The client for forwarders cannot be made.
    #[error(transparent)]
    Outbound(#[from] headworks_service::Error),
}
