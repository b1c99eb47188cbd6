//! Errors that end a migration. Failures of single entries are recorded in the state file instead.

use headworks_storage::ErrorKind;
use std::path::PathBuf;

/// The result of a step of a migration.
pub type Result<T> = std::result::Result<T, Error>;

/// The reason why a migration cannot continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The state file cannot be read or written.
    #[error("cannot use the state file: {0}{advice}", advice = state_advice(.0))]
    State(#[from] rusqlite::Error),
    /// The state file is damaged.
    #[error("the state file is damaged: {0}; its contents cannot be trusted, start with a new one")]
    Damaged(String),
    /// The state file was written by a newer program.
    #[error(
        "the state file has version {found}, but this program supports up to {known}; use the newer program"
    )]
    NewerState {
        /// The file's version.
        found: usize,
        /// The latest supported version.
        known: usize,
    },
    /// The file is not a state file.
    #[error("`{}` is {what}; name another file for the state", path.display())]
    NotState {
        /// The path of the file.
        path: PathBuf,
        /// A description of the file.
        what: &'static str,
    },
    /// The state file does not exist.
    #[error("state file `{}` does not exist; create it with `headworks migrate plan SRC DST --state {}`", .0.display(), .0.display())]
    NoState(PathBuf),
    /// One tree is inside the other.
    #[error(
        "`{}` is inside `{}`: copying would never end, and deleting would remove the source; choose trees that do not overlap", inner.display(), outer.display()
    )]
    Overlap {
        /// The inner tree.
        inner: PathBuf,
        /// The outer tree.
        outer: PathBuf,
    },
    /// Another process runs the job.
    #[error("the state file is in use by {holder}; wait for it, or stop it")]
    Locked {
        /// The process that holds the lock.
        holder: String,
    },
    /// The state file cannot be locked.
    #[error("cannot lock the state file `{}`: {cause}", path.display())]
    Lock {
        /// The lock file.
        path: PathBuf,
        /// The system's error.
        cause: std::io::Error,
    },
    /// The state file belongs to another job.
    #[error(
        "the state file is for `{was}`, not `{wanted}`; name another state file, or remove this one if it was a mistake"
    )]
    OtherJob {
        /// The job that it belongs to.
        was: String,
        /// The requested job.
        wanted: String,
    },
    /// The request does not fit the current stage of the job.
    #[error("{0}")]
    Refused(String),
    /// A pattern, size or time is invalid.
    #[error("{0}")]
    BadOption(String),
    /// A location is invalid, or something that is needed to use it is missing. It was not accessed
    /// yet.
    #[error("{side}: {error}")]
    BadLocation {
        /// The side with that location.
        side: &'static str,
        /// The reason.
        error: headworks_storage::Error,
    },
    /// A storage is unusable.
    #[error("{side}: {error}{}", advice(error))]
    Storage {
        /// The side with that storage.
        side: &'static str,
        /// The storage's error.
        error: headworks_storage::Error,
    },
    /// The destination has no room for what is to be copied, or the deletions are refused.
    #[error("cannot start the copy: {0}")]
    Preflight(String),
    /// The job was stopped.
    #[error("stopped; run the same command again to continue")]
    Stopped,
    /// The state file could not be written, or the destination not be synced. The first caller was
    /// returned the cause itself, this is its text.
    #[error("{0}")]
    WriterFailed(String),
    /// The writer thread ended: a bug.
    #[error("the state writer ended with work left")]
    WriterGone,
    /// The pool rejected its configuration: a bug.
    #[error("cannot set up the pool: {0}")]
    Pool(#[from] headworks_core::ConfigError),
    /// The rounds rejected a step: a bug.
    #[error("cannot advance the rounds: {0}")]
    Rounds(#[from] headworks_core::rounds::RoundsError),
}

/// SQLite's codes for shared memory that cannot grow, and for failed writes and syncs.
const FAILED_WRITES: [i32; 4] = [4874, 4618, 778, 1034];

/// Returns advice for a state file that does not work.
fn state_advice(error: &rusqlite::Error) -> &'static str {
    let code = error.sqlite_error().map(|error| error.extended_code);
    match code.is_some_and(|code| FAILED_WRITES.contains(&code)) {
        true => "; is its disk full?",
        false => "",
    }
}

/// Returns advice for a storage that does not work.
fn advice(error: &headworks_storage::Error) -> &'static str {
    match error.kind() {
        ErrorKind::Unsupported | ErrorKind::Other => "",
        ErrorKind::NotFound => "; check the location",
        ErrorKind::WrongKind => "; check the location: it has to be a folder",
        _ => "; nothing is lost: run the same command again when the storage works",
    }
}
