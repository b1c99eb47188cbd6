//! What can go wrong with a migration as a whole. What goes wrong with single files is recorded,
//! not raised.

use headworks_storage::ErrorKind;
use std::path::PathBuf;

/// The result of a step of a migration.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a migration cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The state file cannot be read or written.
    #[error("the state file cannot be used: {0}")]
    State(#[from] rusqlite::Error),
    /// The state file is damaged.
    #[error(
        "the state file is damaged: {0}; what it says cannot be relied on, begin with a new one"
    )]
    Damaged(String),
    /// The state file was written by a newer program.
    #[error(
        "the state file has version {found}, this program knows {known}; use the newer program"
    )]
    NewerState {
        /// Its version.
        found: usize,
        /// The last one we know.
        known: usize,
    },
    /// Something else than a state file is in its place.
    #[error("`{}` is {what}; name another file for the state", path.display())]
    NotState {
        /// Where.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// There is no state file.
    #[error("there is no state file `{}`; make one with `headworks migrate plan SRC DST --state {}`", .0.display(), .0.display())]
    NoState(PathBuf),
    /// One tree is inside the other.
    #[error(
        "`{}` is inside `{}`: copying would never end, and deleting would take the source; choose trees apart from each other", inner.display(), outer.display()
    )]
    Overlap {
        /// The one that is inside.
        inner: PathBuf,
        /// The other.
        outer: PathBuf,
    },
    /// Another process works on it.
    #[error("the state file is in use: {holder}; wait for it, or stop it")]
    Locked {
        /// Who holds it.
        holder: String,
    },
    /// The state file cannot be locked.
    #[error("the state file cannot be locked: {}: {cause}", path.display())]
    Lock {
        /// The file beside it that is locked.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The state file belongs to another job.
    #[error(
        "the state file is for `{was}`, not `{wanted}`; name another state file, or remove this one if it was a mistake"
    )]
    OtherJob {
        /// What it is for.
        was: String,
        /// What was asked.
        wanted: String,
    },
    /// What was asked does not fit where the job stands.
    #[error("{0}")]
    Refused(String),
    /// A pattern, size or time cannot be read.
    #[error("{0}")]
    BadOption(String),
    /// A location makes no sense, or what is needed to use it is missing. Nothing has been asked of
    /// it yet.
    #[error("{side}: {error}")]
    BadLocation {
        /// Which one.
        side: &'static str,
        /// What is wrong with it.
        error: headworks_storage::Error,
    },
    /// A storage does not work at all.
    #[error("{side}: {error}{}", advice(error))]
    Storage {
        /// Which one.
        side: &'static str,
        /// What it answered.
        error: headworks_storage::Error,
    },
    /// The destination cannot take what is to be copied.
    #[error("the destination cannot take it: {0}")]
    Preflight(String),
    /// Somebody asked to stop.
    #[error("stopped; run the same command again to go on")]
    Stopped,
    /// Part of the program is gone: a bug.
    #[error("the state writer ended before its work did")]
    WriterGone,
    /// The pool refused its settings: a bug.
    #[error("the pool cannot be set up: {0}")]
    Pool(#[from] headworks_core::ConfigError),
    /// The rounds refused a step: a bug.
    #[error("the rounds cannot go on: {0}")]
    Rounds(#[from] headworks_core::rounds::RoundsError),
}

/// What to do about a storage that does not work.
fn advice(error: &headworks_storage::Error) -> &'static str {
    match error.kind() {
        ErrorKind::Unsupported | ErrorKind::Other => "",
        _ => "; nothing is lost: run the same command again when it works",
    }
}
