//! Verification: whether the destination has what the source's rows say.

use crate::error::{Error, Result};
use crate::job::{Job, stage};
use crate::progress::Phase;
use crate::queries::{StateReader, first_link, status};
use crate::status::Status;
use crate::store::{
    CommitMode, EntryKey, FolderId, Pair, path_of, read_pairs, set_meta, unpack_folder,
};
use futures_util::FutureExt;
use headworks_storage::display;
use headworks_storage::{Backend, Kind};
use rusqlite::{OptionalExtension, Transaction, params};
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// Options of a verification.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Reads every file at the destination and compares its hash with the recorded one, or with the
    /// source's if none is recorded.
    pub hash: bool,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Verification {
    /// Entries that were checked.
    pub entries: u64,
    /// Files whose bytes were compared.
    pub hashed: u64,
    /// Numbers of differences by reason.
    pub differences: BTreeMap<String, u64>,
    /// The first differences, each with its reason.
    pub examples: Vec<(String, String)>,
    /// Entries that the copy knowingly left out, which were not checked.
    pub left_out: u64,
    /// Those of them that no filter and no rule left out: the destination cannot hold them.
    pub unsupported: u64,
}

impl Verification {
    /// Returns whether no difference was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty()
    }

    /// Formats a line for the log.
    fn log_line(&self, options: VerifyOptions) -> String {
        let how = match options.hash {
            true => format!("({} by hash)", self.hashed),
            false => "by attributes".to_owned(),
        };
        let wrong: u64 = self.differences.values().sum();
        let of = self.entries;
        match self.examples.first() {
            None => format!("verified {of} entries {how}: no differences"),
            Some((path, reason)) => {
                format!("verified {of} entries {how}: {wrong} differ, first {path}: {reason}")
            }
        }
    }

    fn add(&mut self, path: &[u8], reason: String) {
        *self.differences.entry(reason.clone()).or_default() += 1;
        if self.examples.len() < 100 {
            self.examples.push((display(path).to_string(), reason));
        }
    }
}

const PAGE: usize = 2048;
/// Concurrent checks.
const CONCURRENT_CHECKS: usize = 16;
/// The reason for a file with other bytes.
const DAMAGED: &str = "different (hash)";
/// The reason for an entry that does not exist.
const MISSING: &str = "missing";

impl Job {
    /// Checks every entry at the destination, whatever the state file says about it.
    ///
    /// # Errors
    /// When the state file cannot be used, or the job is stopped.
    pub async fn verify(&self, options: VerifyOptions) -> Result<Verification> {
        let state = self.state()?;
        let total = state.summary()?.source.entries;
        self.progress.enter(Phase::Verify, total, 0);
        let mut verified = Verification::default();
        let mut after: EntryKey = (0, Vec::new());
        loop {
            let pairs = read_pairs(state.connection(), &after, PAGE)?;
            let Some(last) = pairs.last() else { break };
            after = (last.parent, last.entry.name.clone());
            let mut checks = tokio::task::JoinSet::new();
            for pair in pairs {
                if self.stop.is_cancelled() {
                    return Err(Error::Stopped);
                }
                let status = status(state.connection(), &self.compare, &pair)?;
                let excluded = status == Status::Excluded;
                if excluded || matches!(status, Status::Unsupported | Status::NameConflict) {
                    verified.left_out += 1;
                    verified.unsupported += u64::from(!excluded);
                    continue;
                }
                let check = self.prepare_check(&state, pair, options)?;
                self.progress
                    .wait_while_paused(|| self.stop.is_cancelled())
                    .await;
                while checks.len() >= CONCURRENT_CHECKS {
                    self.record_check(&mut verified, checks.join_next().await)
                        .await?;
                }
                checks.spawn(check.run());
            }
            while let Some(result) = checks.join_next().await {
                self.record_check(&mut verified, Some(result)).await?;
            }
        }
        let line = verified.log_line(options);
        self.post_write(move |transaction| crate::store::log(transaction, &line))
            .await?;
        Ok(verified)
    }

    fn prepare_check(
        &self,
        state: &StateReader,
        pair: Pair,
        options: VerifyOptions,
    ) -> Result<EntryCheck> {
        let query = "SELECT sha256, size, modified FROM hash WHERE path = ?";
        let hash: Option<(Vec<u8>, i64, Option<i64>)> = state
            .connection()
            .query_row(query, params![pair.path()], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .optional()?;
        // A hash of an older version of the file says nothing.
        let hash = hash.filter(|(_, size, modified)| {
            *size == pair.entry.size.cast_signed()
                && (modified.is_none() || *modified == pair.entry.modified)
        });
        let first = match first_link(state.connection(), &pair)? {
            Some((parent, name)) if self.compare.destination.hard_links => {
                Some((path_of(state.connection(), parent)?, name))
            }
            _ => None,
        };
        Ok(EntryCheck {
            pair,
            hash: hash.map(|(hash, ..)| hash),
            read: options.hash,
            first,
            source: self.source.clone(),
            destination: self.destination.clone(),
            compare: self.compare,
        })
    }

    async fn record_check(
        &self,
        verified: &mut Verification,
        result: Option<std::result::Result<CheckResult, tokio::task::JoinError>>,
    ) -> Result<()> {
        let Some(result) = result else {
            return Ok(());
        };
        let result = result.expect("a check catches its panics and is never cancelled");
        verified.entries += 1;
        self.progress.add_done(1, result.bytes);
        verified.hashed += u64::from(result.hash.is_some());
        let path = result.path;
        if let Some(reason) = result.reason {
            let (parent, name) = (result.parent, result.name);
            if reason == DAMAGED {
                let write = move |transaction: &Transaction<'_>| {
                    forget_copy(transaction, parent, &name)?;
                    set_meta(transaction, "stage", stage::PLANNED)
                };
                self.post_write(write).await?;
            } else if reason == MISSING {
                self.post_write(move |transaction| forget_copy(transaction, parent, &name))
                    .await?;
            }
            verified.add(&path, reason);
        } else if let Some((hash, size, modified)) = result.hash {
            let write = move |transaction: &Transaction<'_>| {
                let mut insert =
                    transaction.prepare_cached("INSERT OR REPLACE INTO hash VALUES (?,?,?,?)")?;
                insert
                    .execute(params![path, size, modified, hash])
                    .map(drop)
            };
            self.post_write(write).await?;
        }
        Ok(())
    }

    async fn post_write(
        &self,
        write: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()> + Send + 'static,
    ) -> Result<()> {
        let writer = self.writer.clone();
        let posted =
            tokio::task::spawn_blocking(move || writer.post(CommitMode::Barrier, write, || {}))
                .await;
        posted.map_err(|_| Error::WriterGone)
    }
}

/// Records that the destination does not have an entry.
///
/// No plan would notice wrong bytes, because size and time are right. The caller therefore sets the
/// job back to `planned`, so that the next run copies the file again. A missing entry is found by
/// the next pass.
fn forget_copy(
    transaction: &Transaction<'_>,
    parent: FolderId,
    name: &[u8],
) -> rusqlite::Result<()> {
    unpack_folder(transaction, parent)?;
    let delete = "DELETE FROM destination WHERE parent = ? AND name = ?";
    transaction.execute(delete, params![parent, name]).map(drop)
}

/// An entry to check.
struct EntryCheck {
    pair: Pair,
    hash: Option<Vec<u8>>,
    read: bool,
    /// The location of the first name of its file.
    first: Option<(headworks_storage::Folder, Vec<u8>)>,
    source: Arc<dyn Backend>,
    destination: Arc<dyn Backend>,
    compare: crate::status::Comparison,
}

struct CheckResult {
    parent: FolderId,
    name: Vec<u8>,
    path: Vec<u8>,
    reason: Option<String>,
    hash: Option<(Vec<u8>, i64, Option<i64>)>,
    bytes: u64,
}

impl EntryCheck {
    async fn run(self) -> CheckResult {
        // A check that panics has checked nothing, and its entry must not count as verified.
        let compared = AssertUnwindSafe(self.compare()).catch_unwind().await;
        let (reason, hash) = match compared {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => (Some(format!("cannot read: {}", error.cause())), None),
            Err(_panic) => (
                Some("cannot check: an internal error, see the log".to_owned()),
                None,
            ),
        };
        let hash = hash.map(|hash| {
            (
                hash,
                self.pair.entry.size.cast_signed(),
                self.pair.entry.modified,
            )
        });
        CheckResult {
            parent: self.pair.parent,
            path: self.pair.path(),
            reason,
            bytes: if hash.is_some() {
                self.pair.entry.size
            } else {
                0
            },
            hash,
            name: self.pair.entry.name,
        }
    }

    async fn compare(&self) -> headworks_storage::Result<(Option<String>, Option<Vec<u8>>)> {
        let (folder, entry) = (&*self.pair.folder, &self.pair.entry);
        // Where folders are common prefixes of keys, a lookup of a key of that name would be
        // wasted.
        let derived = entry.kind == Kind::Folder && !self.compare.destination.folders;
        let below = folder.child(&entry.name);
        let stat = match derived {
            true => self.destination.stat(&below, None).await,
            false => self.destination.stat(folder, Some(&entry.name)).await,
        };
        let existing = match stat {
            Ok(existing) => existing,
            Err(error) if error.kind() == headworks_storage::ErrorKind::NotFound => {
                return Ok((Some(MISSING.into()), None));
            }
            Err(error) => return Err(error),
        };
        let mut existing = existing;
        if self.compare.destination.modified.is_none() {
            existing.modified = None;
        }
        let status = self.compare.difference(entry, &existing);
        if status != Status::Same {
            return Ok((Some(status.word().into()), None));
        }
        if let Some((folder, name)) = &self.first {
            let first = self.destination.stat(folder, Some(name)).await?;
            if existing.inode.is_none() || first.inode != existing.inode {
                return Ok((Some("different (link)".into()), None));
            }
        }
        if !self.read || entry.kind != Kind::File {
            return Ok((None, None));
        }
        let found = self.hash_of(&*self.destination).await?;
        let wanted = match &self.hash {
            Some(hash) => hash.clone(),
            None => self.hash_of(&*self.source).await?,
        };
        match found == wanted {
            true => Ok((None, Some(found))),
            false => Ok((Some(DAMAGED.into()), Some(found))),
        }
    }

    async fn hash_of(&self, backend: &dyn Backend) -> headworks_storage::Result<Vec<u8>> {
        let (folder, entry) = (&*self.pair.folder, &self.pair.entry);
        let mut chunks = backend.read(folder, &entry.name, 0, entry.size).await?;
        let mut hasher = Sha256::new();
        let mut received = 0;
        while let Some(chunk) = chunks.next().await? {
            received += chunk.len() as u64;
            hasher.update(&chunk);
        }
        match received == entry.size {
            true => Ok(hasher.finalize().to_vec()),
            // Two sides that end at the same offset would look equal.
            false => Err(headworks_storage::Error::truncated(
                &self.pair.path(),
                received,
                entry.size,
            )),
        }
    }
}
