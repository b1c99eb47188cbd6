//! What can go wrong at a storage, by what the caller can do about it.

use crate::display;
use std::time::Duration;

/// The result of a call to a backend.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// There is nothing of that name.
    NotFound,
    /// There is something of that name already.
    Exists,
    /// We may not.
    Denied,
    /// It is a folder where a file was wanted, or the reverse.
    WrongKind,
    /// No room is left, in bytes or in entries.
    NoSpace,
    /// The backend cannot express the name.
    BadName,
    /// The backend cannot do this at all.
    Unsupported,
    /// It is not, or no longer, what it was expected to be.
    Changed,
    /// It has too much to do.
    Overload(Option<Duration>),
    /// It may work the next time.
    Temporary,
    /// The whole storage went away.
    Gone,
    /// None of these.
    Other,
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Trying again will not help.
    Permanent,
    /// Trying again may help.
    Temporary,
    /// Trying again after a while, and less often, will help.
    Overload(Duration),
    /// Nothing at this storage will work for now: stop.
    Fatal,
}

/// A call that failed: what was tried, on what, and why it did not work.
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
    /// An error of that kind.
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

    /// What the system answered.
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

    /// An entry that is not overwritten, because somebody else did since it was listed.
    pub(crate) fn conflict(operation: &'static str, path: &[u8]) -> Error {
        let message =
            "somebody else wrote it since it was listed; plan again to see what is there now";
        Error::new(ErrorKind::Changed, operation, path, message)
    }

    /// A file that ended before the size that was listed for it. The next attempt may get all of
    /// it.
    #[must_use]
    pub fn truncated(path: &[u8], came: u64, size: u64) -> Error {
        let message = format!("it ended after {came} of {size} bytes");
        Error::new(ErrorKind::Temporary, "read", path, message)
    }

    /// What went wrong.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The cause alone, without what was tried on what.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.cause
    }

    /// What to do about it.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self.kind {
            ErrorKind::Overload(after) => Fault::Overload(after.unwrap_or(BUSY)),
            ErrorKind::Temporary => Fault::Temporary,
            ErrorKind::NoSpace | ErrorKind::Gone => Fault::Fatal,
            _ => Fault::Permanent,
        }
    }
}

fn kind_of_errno(errno: rustix::io::Errno) -> ErrorKind {
    use rustix::io::Errno;
    match errno {
        Errno::NOENT => ErrorKind::NotFound,
        Errno::EXIST | Errno::NOTEMPTY => ErrorKind::Exists,
        Errno::ACCESS | Errno::PERM | Errno::ROFS => ErrorKind::Denied,
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
