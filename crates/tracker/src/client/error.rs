//! The error of a request to a forwarder.

use thiserror::Error;

/// The reason why a forwarder gave no usable response. It never contains the forwarder's URI.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum ClientError {
    /// No response within the timeout.
    #[error("no response in time")]
    Timeout,
    /// The host name does not resolve.
    #[error("the host does not exist")]
    NoSuchHost,
    /// A public list names the forwarder, and its host has an address that is not public.
    #[error("the host is in a private network, but its list is public")]
    PrivateHost,
    /// The resolver gives no answer, so nothing is known about the host.
    #[error("cannot look up the host: {0}")]
    Lookup(String),
    /// Nothing listens on the port.
    #[error("connection refused")]
    Refused,
    /// There is no route to the host.
    #[error("unreachable")]
    Unreachable,
    /// A network error that may go away.
    #[error("{0}")]
    Transient(String),
    /// This process, or the system, has no descriptor left for a connection.
    #[error("no connection possible: too many open files")]
    NoDescriptor,
    /// An HTTP status other than 200.
    #[error("status {0}")]
    Status(u16),
    /// The response exceeds the size limit.
    #[error("the response is too large")]
    TooLarge,
    /// A redirect to an unusable address, or one too many.
    #[error("too many redirects")]
    Redirects,
    /// A redirect that must not be followed.
    #[error("redirected {0}: not followed")]
    UnsafeRedirect(&'static str),
    /// The response is malformed.
    #[error("not a tracker's response: {0}")]
    Malformed(String),
}
