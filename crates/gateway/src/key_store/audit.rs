//! The audit log: who changed which key or tenant, and when.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::change::KeyChange;
use crate::error::Error;

/// One change of a key or tenant. It never has a key or a hash.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct AuditEntry {
    /// When it was made, by the clock of the store. For display only.
    pub at: Timestamp,
    /// The user, such as `cli:alice` or `admin:127.0.0.1`.
    pub actor: String,
    /// The change, such as `revoke key`.
    pub action: String,
    /// Id of the key, or name of the tenant.
    pub subject: String,
    /// The values that the change set, without secrets; null if it set none.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

impl AuditEntry {
    /// Describes a change at `at`.
    pub(super) fn new(change: &KeyChange, actor: &str, at: Timestamp) -> AuditEntry {
        AuditEntry {
            at,
            actor: printable(actor),
            action: change.action().to_owned(),
            subject: change.subject(),
            detail: change.detail(),
        }
    }
}

/// Control characters could forge lines on a terminal, and PostgreSQL stores no NUL.
fn printable(text: &str) -> String {
    let shown = text.chars().take(200);
    shown
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}

/// The audit log of a key file: a file beside it with one JSON object per line.
pub(super) struct AuditFile(PathBuf);

impl AuditFile {
    pub(super) fn beside(keys: &Path) -> AuditFile {
        let mut name = keys.as_os_str().to_owned();
        name.push(".audit");
        AuditFile(name.into())
    }

    /// Appends an entry, and returns the length of the file before it.
    pub(super) fn append(&self, entry: &AuditEntry) -> Result<u64, Error> {
        let mut line = serde_json::to_string(entry).map_err(|cause| self.unusable(&cause))?;
        line.push('\n');
        append_private(&self.0, &line).map_err(|cause| self.unusable(&cause))
    }

    /// Removes what was appended after `length`.
    pub(super) fn truncate(&self, length: u64) {
        let file = std::fs::OpenOptions::new().write(true).open(&self.0);
        if let Err(cause) = file.and_then(|file| file.set_len(length)) {
            tracing::warn!(path = %self.0.display(), %cause, "the audit log has a change that failed");
        }
    }

    /// Calls `each` for every entry, oldest first.
    pub(super) fn read(&self, mut each: impl FnMut(AuditEntry)) -> Result<(), Error> {
        let file = match std::fs::File::open(&self.0) {
            Ok(file) => file,
            Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(cause) => return Err(self.unusable(&cause)),
        };
        for line in BufReader::new(file).lines() {
            let line = line.map_err(|cause| self.unusable(&cause))?;
            // A crash can leave an incomplete line.
            if let Ok(entry) = serde_json::from_str(&line) {
                each(entry);
            }
        }
        Ok(())
    }

    fn unusable(&self, cause: &dyn std::fmt::Display) -> Error {
        Error::KeyFile {
            path: self.0.clone(),
            cause: cause.to_string(),
        }
    }
}

/// Appends to a file that only its owner can read, and returns its length before.
fn append_private(path: &Path, text: &str) -> std::io::Result<u64> {
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    let mut options = std::fs::OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let mut file = options.open(path)?;
    let before = file.metadata()?.len();
    // A crash can have left an incomplete line. It must not take this one with it.
    let mut last = [b'\n'];
    if before > 0 {
        file.read_exact_at(&mut last, before - 1)?;
    }
    let start = if last == [b'\n'] { "" } else { "\n" };
    let written = file
        .write_all(format!("{start}{text}").as_bytes())
        .and_then(|()| file.sync_all());
    if written.is_err() {
        file.set_len(before)?;
    }
    written.map(|()| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_line_takes_no_other_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let log = AuditFile::beside(&folder.path().join("keys.toml"));
        let entry = |id: &str| {
            let revoke = KeyChange::Revoke { id: id.into() };
            AuditEntry::new(&revoke, "test", Timestamp::UNIX_EPOCH)
        };
        log.append(&entry("first")).unwrap();
        let complete = std::fs::metadata(&log.0).unwrap().len();
        log.append(&entry("torn")).unwrap();
        log.truncate(complete + 10);
        log.append(&entry("second")).unwrap();
        let mut read = Vec::new();
        log.read(|entry| read.push(entry.subject)).unwrap();
        assert_eq!(read, ["first", "second"]);
    }
}
