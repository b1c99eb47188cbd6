//! Errors of storages, classified by what the caller can do about them.

use crate::display;
use std::time::Duration;

/// The result of a call to a backend.
pub type Result<T> = std::result::Result<T, Error>;

/// The kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No entry of the name exists.
    NotFound,
    /// An entry of the name exists already.
    Exists,
    /// Access is denied.
    Denied,
    /// A folder where a file was expected, or the reverse.
    WrongKind,
    /// No space is left, in bytes or in entries.
    NoSpace,
    /// The backend cannot represent the name.
    BadName,
    /// The backend does not support the operation.
    Unsupported,
    /// The entry is not, or no longer, what was expected.
    Changed,
    /// The service is overloaded; the value is its `Retry-After`, if any.
    Overload(Option<Duration>),
    /// A retry may succeed.
    Temporary,
    /// The bytes are not those whose checksum the storage states. Another read may be right; what
    /// was made of these bytes must not be kept.
    Corrupt,
    /// The storage no longer accepts writes.
    ReadOnly,
    /// The whole storage is gone.
    Gone,
    /// Another error.
    Other,
}

/// The reaction that an error calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A retry will not help.
    Permanent,
    /// A retry may help.
    Temporary,
    /// A retry after this delay, and fewer calls, will help.
    Overload(Duration),
    /// Nothing at this storage works for now: stop.
    Fatal,
}

/// A failed call: the operation, its object, and the cause.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot {operation} `{path}`: {cause}")]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    path: String,
    cause: String,
}

const BUSY: Duration = Duration::from_secs(1);

impl Error {
    /// Creates an error of this kind.
    #[must_use]
    pub fn new(
        kind: ErrorKind,
        operation: &'static str,
        path: &[u8],
        cause: impl Into<String>,
    ) -> Error {
        let path = display(path).to_string();
        let cause = cause.into();
        Error {
            kind,
            operation,
            path,
            cause,
        }
    }

    /// Creates an error from a system call's.
    pub(crate) fn from_errno(
        operation: &'static str,
        path: &[u8],
        errno: rustix::io::Errno,
    ) -> Error {
        Error::new(
            kind_of_errno(errno),
            operation,
            path,
            std::io::Error::from(errno).to_string(),
        )
    }

    /// Creates the error of an entry that is not overwritten, because another program wrote it
    /// since it was listed.
    pub(crate) fn conflict(operation: &'static str, path: &[u8]) -> Error {
        let message =
            "another program wrote it since it was listed; plan again to see its current state";
        Error::new(ErrorKind::Changed, operation, path, message)
    }

    /// Creates the error of a file that ended before its listed size. The next attempt may get all
    /// of it.
    #[must_use]
    pub fn truncated(path: &[u8], came: u64, size: u64) -> Error {
        let message = format!("it ended after {came} of {size} bytes");
        Error::new(ErrorKind::Temporary, "read", path, message)
    }

    /// Returns the kind of the error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the cause alone, without the operation and its object.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// Returns what to do about the error.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self.kind {
            ErrorKind::Overload(after) => Fault::Overload(after.unwrap_or(BUSY)),
            ErrorKind::Temporary | ErrorKind::Corrupt => Fault::Temporary,
            ErrorKind::NoSpace | ErrorKind::ReadOnly | ErrorKind::Gone => Fault::Fatal,
            _ => Fault::Permanent,
        }
    }
}

fn kind_of_errno(errno: rustix::io::Errno) -> ErrorKind {
    use rustix::io::Errno;
    match errno {
        Errno::NOENT => ErrorKind::NotFound,
        Errno::EXIST | Errno::NOTEMPTY => ErrorKind::Exists,
        Errno::ACCESS | Errno::PERM => ErrorKind::Denied,
        Errno::ROFS => ErrorKind::ReadOnly,
        Errno::NOTDIR | Errno::ISDIR | Errno::LOOP => ErrorKind::WrongKind,
        Errno::NOSPC | Errno::DQUOT => ErrorKind::NoSpace,
        Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ => ErrorKind::BadName,
        Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY => ErrorKind::Unsupported,
        Errno::AGAIN | Errno::INTR | Errno::IO | Errno::MFILE | Errno::NFILE | Errno::NOMEM => {
            ErrorKind::Temporary
        }
        Errno::TIMEDOUT | Errno::STALE | Errno::BUSY => ErrorKind::Temporary,
        Errno::NODEV | Errno::NXIO | Errno::NOTCONN | Errno::SHUTDOWN => ErrorKind::Gone,
        _ => ErrorKind::Other,
    }
}
