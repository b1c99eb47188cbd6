//! The crate's error.

use std::time::Duration;

/// An operation on the shared database or the exchange failed. A variant is what the caller can do
/// about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The URL cannot be used: correct it.
    #[error("invalid fleet URL: {0}")]
    Url(String),
    /// The URL contains a password: move it to the environment or to a file.
    #[error("a password in the URL is refused, because others can read it: {0}")]
    PasswordInUrl(&'static str),
    /// A setting or an argument cannot be used: correct it.
    #[error("invalid fleet setting: {0}")]
    Setting(String),
    /// The password cannot be read: correct the file or its permissions.
    #[error("cannot read the password: {0}")]
    Password(String),
    /// The certificates cannot be used: correct `sslrootcert`.
    #[error("cannot use the certificates for the connection")]
    Certificates(#[from] headworks_outbound::Error),
    /// The server cannot be reached or lost the connection: retry.
    #[error("cannot reach {server}: {cause}")]
    Unreachable {
        /// The server, without credentials.
        server: String,
        /// Why not.
        cause: String,
    },
    /// No answer arrived in time: retry. The operation may have happened.
    #[error("{server} did not answer within {after:?}")]
    Timeout {
        /// The server, without credentials.
        server: String,
        /// The time that it had.
        after: Duration,
    },
    /// The server rejects this user, password or database: correct them.
    #[error("{server} rejects the connection: {cause}")]
    Rejected {
        /// The server, without credentials.
        server: String,
        /// Why.
        cause: String,
    },
    /// The database has content that is not ours. Nothing was changed.
    #[error("{server} belongs to something else: {cause}")]
    Foreign {
        /// The server and database, without credentials.
        server: String,
        /// The content that was found, and the way out.
        cause: String,
    },
    /// The schema needs a newer program: upgrade this one.
    #[error(
        "the schema `{schema}` has version {version} and needs a program that knows version \
         {min_compatible}; this one knows version {known}: upgrade Headworks on this machine"
    )]
    SchemaNewer {
        /// The name of the schema.
        schema: String,
        /// Its version.
        version: i32,
        /// The oldest program version that can use it.
        min_compatible: i32,
        /// The version of this program.
        known: i32,
    },
    /// The schema cannot be upgraded while older nodes run: upgrade them, or forget dead ones.
    #[error(
        "the schema `{schema}` cannot be upgraded while older nodes are registered ({nodes}): \
         upgrade one version at a time, and forget nodes that are gone"
    )]
    OlderNodes {
        /// The name of the schema.
        schema: String,
        /// The names of the older nodes.
        nodes: String,
    },
    /// The node is no longer registered under its token: rejoin under a new one.
    #[error("this node is no longer registered under its token; it has to rejoin under a new one")]
    Fenced,
    /// Another node allocates now, or in another epoch: drop the publication.
    #[error("this node no longer holds the allocator lease of epoch {epoch}")]
    LeaseLost {
        /// The epoch of the publication.
        epoch: u64,
    },
    /// The transaction met another one: repeat it.
    #[error("{server} asks to repeat the transaction: {cause}")]
    Conflict {
        /// The server, without credentials.
        server: String,
        /// Why.
        cause: String,
    },
    /// A value is larger than its limit: send less.
    #[error("{what} has {size} bytes; at most {limit} are allowed")]
    TooLarge {
        /// The kind of value.
        what: &'static str,
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// The server answered with an error that retrying does not cure.
    #[error("{server} failed: {cause}")]
    Failed {
        /// The server, without credentials.
        server: String,
        /// Why.
        cause: String,
    },
}

impl Error {
    /// Returns whether the same operation may succeed later without a change by an operator.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(
            self,
            Error::Unreachable { .. } | Error::Timeout { .. } | Error::Conflict { .. }
        )
    }
}

/// The result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;
