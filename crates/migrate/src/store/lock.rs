//! The lock that allows one runner per job.

use crate::error::{Error, Result};
use rustix::fs::FlockOperation;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The lock of a job. The system releases it when the process ends, however it does.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Returns the path of the lock file, beside the real state file.
fn lock_path(state: &Path) -> PathBuf {
    let state = state.canonicalize().unwrap_or_else(|_| state.to_owned());
    let mut name = state.into_os_string();
    name.push("-lock");
    name.into()
}

impl Lock {
    /// Acquires the lock, or returns who holds it.
    pub(crate) fn acquire(state: &Path) -> Result<Lock> {
        // SQLite keeps its write-ahead log beside each name of the file.
        if state.metadata().is_ok_and(|about| about.nlink() > 1) {
            let message = "the state file has a second name (a hard link): remove one of the two";
            return Err(Error::Refused(message.into()));
        }
        let folder = state
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.exists()) {
            let message = format!(
                "the state file's folder {} does not exist: make it, or name another with --state",
                folder.display()
            );
            return Err(Error::Refused(message));
        }
        let path = lock_path(state);
        let unusable = |cause: io::Error| Error::Lock {
            path: path.clone(),
            cause,
        };
        let options = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let mut file = options.map_err(unusable)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder);
                let holder = holder.trim().to_owned();
                return Err(Error::Locked { holder });
            }
            Err(errno) => return Err(unusable(errno.into())),
        }
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let message = format!(
            "process {} on {host}, since {}\n",
            std::process::id(),
            crate::clock(crate::now())
        );
        file.set_len(0).map_err(unusable)?;
        file.write_all(message.as_bytes()).map_err(unusable)?;
        Ok(Lock { _file: file })
    }
}

/// Returns the process that holds the lock of a state file, if any.
#[must_use]
pub fn lock_holder(state: &Path) -> Option<String> {
    let mut file = File::open(lock_path(state)).ok()?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut holder = String::new();
            file.read_to_string(&mut holder).ok()?;
            Some(holder.trim().to_owned())
        }
        _ => None,
    }
}
