//! Errors at start and reload. There is one variant for each action that the operator can take.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Error at start, at reload, or in a key or usage file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The listen address cannot be bound.
    #[error(
        "cannot listen on {address}: the port may be in use, or the address may not belong to this machine; set `gateway.listen`"
    )]
    Listen {
        /// The configured address.
        address: SocketAddr,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The gateway would serve other machines without a key.
    #[error(
        "`gateway.open` works on loopback only, but the gateway listens on {0}: create a key with \
         `headworks gateway key add --tenant NAME`, or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// The key file does not exist.
    #[error(
        "key file `{}` does not exist: create a key with \
         `headworks gateway key add --tenant NAME`, or set `gateway.keys_file`", .0.display()
    )]
    KeyFileMissing(PathBuf),
    /// The key file has no content, not even an empty list of keys.
    #[error(
        "key file `{}` is empty: create a key with `headworks gateway key add --tenant NAME`, \
         or write `key = []` to admit nobody", .0.display()
    )]
    KeyFileEmpty(PathBuf),
    /// The key file cannot be read, parsed or written.
    #[error("cannot use key file `{}`: {cause}", path.display())]
    KeyFile {
        /// Path of the key file.
        path: PathBuf,
        /// Reason in words.
        cause: String,
    },
    /// The id of the new key is already in use.
    #[error("key `{0}` exists: choose another --id, or revoke it first")]
    KeyTaken(String),
    /// No key has this id.
    #[error("unknown key `{0}`: `headworks gateway key list` lists the keys")]
    KeyUnknown(String),
    /// No settings are stored for this tenant.
    #[error(
        "tenant `{0}` has no stored settings: `headworks gateway tenant list` lists those that have"
    )]
    TenantUnknown(String),
    /// A key or tenant cannot be stored like this.
    #[error("{0}")]
    KeyInvalid(String),
    /// Keys are not stored anywhere.
    #[error(
        "this gateway has no key store: set `gateway.keys_file`, or `fleet.url` for several gateways"
    )]
    NoKeyStore,
    /// The scheduler rejects the settings.
    #[error("invalid scheduler settings: {0}")]
    Scheduler(#[from] headworks_core::ConfigError),
    /// The usage file cannot be opened, read or written.
    #[error("cannot use usage file `{path}`: {cause}")]
    Usage {
        /// Path of the usage file, or `memory`.
        path: String,
        /// Reason in words.
        cause: String,
    },
    /// The request log cannot be created.
    #[error("cannot write the request log `{}`", path.display())]
    RequestLog {
        /// Path of the request log.
        path: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The system's random number generator failed.
    #[error("the random number generator of the system failed")]
    Random(#[from] getrandom::Error),
    /// The fleet cannot be joined.
    #[error("cannot join the fleet: {0}")]
    Fleet(#[from] headworks_fleet::Error),
    /// Error of a shared service component.
    #[error(transparent)]
    Service(#[from] headworks_service::Error),
}
