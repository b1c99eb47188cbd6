//! The stream below a connection.

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A byte stream over TCP: a [`TcpStream`], or TLS on one.
pub trait Transport: AsyncRead + AsyncWrite + Unpin + Send {
    /// The socket below, for questions that only it can answer: whether the other side has closed
    /// it, and how it is closed.
    fn socket(&self) -> &TcpStream;
}

impl Transport for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}
