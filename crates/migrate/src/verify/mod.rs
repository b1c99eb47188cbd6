//! Verification: whether the destination has what the source's rows say.

mod check;
pub(crate) mod damaged;
mod listed;

use crate::error::{Error, Result};
use crate::job::{Job, stage};
use crate::progress::Phase;
use crate::queries::{StateReader, first_link, key_before, status};
use crate::status::Status;
use crate::store::{
    CommitMode, EntryKey, FolderId, Pair, PlainFiles, path_of, read_pairs, set_meta, unpack_folder,
};
use check::{CheckResult, EntryCheck};
use futures_util::{StreamExt, TryStreamExt, stream};
use headworks_storage::{Backend, display};
use rusqlite::{OptionalExtension, Transaction, params};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Options of a verification.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct VerifyOptions {
    /// Reads every file at the destination and compares its hash with the recorded one, or with the
    /// source's if none is recorded.
    pub hash: bool,
    /// Checks only the entries that the current pass copied: a plan has just compared the others.
    pub copied_only: bool,
}

/// The result of a verification.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Verification {
    /// Whether only entries that the current pass copied were checked.
    pub copied_only: bool,
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
    /// Folders that could not be listed. Their entries are neither known nor verified.
    pub unlisted: u64,
}

impl Verification {
    /// Returns whether no difference was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.differences.is_empty()
    }

    /// Returns whether everything on the source is at the destination, except what filters and
    /// rules exclude.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.is_clean() && self.unsupported == 0 && self.unlisted == 0
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

    fn join(&mut self, other: Verification) {
        self.entries += other.entries;
        self.hashed += other.hashed;
        self.left_out += other.left_out;
        self.unsupported += other.unsupported;
        for (reason, count) in other.differences {
            *self.differences.entry(reason).or_default() += count;
        }
        self.examples.extend(other.examples);
        self.examples.truncate(MAX_EXAMPLES);
    }

    fn add(&mut self, path: &[u8], reason: String) {
        *self.differences.entry(reason.clone()).or_default() += 1;
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push((display(path).to_string(), reason));
        }
    }
}

const PAGE: usize = 2048;
/// Folders that are checked concurrently, and entries of one of them.
const CONCURRENT_FOLDERS: usize = 8;
const CONCURRENT_CHECKS: usize = 16;
/// Differences that are kept as examples.
const MAX_EXAMPLES: usize = 100;
/// The reason for a file with other bytes.
const DAMAGED: &str = "different (hash)";
/// The reason for a file with other extended attributes.
const OTHER_XATTRS: &str = "different (xattrs)";
/// The reason for an entry that does not exist.
const MISSING: &str = "missing";

impl Job {
    /// Checks entries at the destination, whatever the state file says about them.
    ///
    /// # Errors
    /// When the plan is not finished, the state file cannot be used, or the job is stopped.
    pub async fn verify(&self, options: VerifyOptions) -> Result<Verification> {
        // An entry that an unfinished plan has not listed could be missing without a difference.
        if self.stage()? == stage::PLANNING {
            let message = "the plan is not finished, so what is to be verified is not known: run `headworks migrate run` or `plan` again first";
            return Err(Error::Refused(message.into()));
        }
        let state = self.state()?;
        let scope = Scope::new(&state, options)?;
        self.progress
            .enter(Phase::Verify, scope.entries(&state)?, 0);
        let mut verified = Verification {
            copied_only: options.copied_only,
            unlisted: state.unlisted_folders()?,
            ..Verification::default()
        };
        let mut after: EntryKey = (0, Vec::new());
        let mut one_by_one: Option<FolderId> = None;
        loop {
            let pairs = read_pairs(state.connection(), &after, scope.plain_files(), PAGE)?;
            let Some(last) = pairs.last() else { break };
            after = (last.parent, last.entry.name.clone());
            let last = last.parent;
            let folders = pairs.chunk_by(|a, b| a.parent == b.parent);
            let (state, known) = (&state, one_by_one);
            let check = move |folder| self.verify_folder(state, scope, folder, known);
            let checks = folders.map(check);
            let mut checks = stream::iter(checks).buffer_unordered(CONCURRENT_FOLDERS);
            while let Some((id, is_listed, found)) = checks.try_next().await? {
                verified.join(found);
                if id == last {
                    // Further pages of the last folder are confirmed too, or not worth a listing.
                    one_by_one = (!is_listed).then_some(id);
                    if is_listed {
                        after = key_before(id + 1);
                    }
                }
            }
        }
        let line = verified.log_line(options);
        self.post_write(move |transaction| crate::store::log(transaction, &line))
            .await?;
        Ok(verified)
    }

    /// Checks a page of a folder by the folder's listing, or one by one. Returns the folder and
    /// whether its listing confirmed all of it.
    async fn verify_folder(
        &self,
        state: &StateReader,
        scope: Scope,
        folder: &[Pair],
        one_by_one: Option<FolderId>,
    ) -> Result<(FolderId, bool, Verification)> {
        let id = folder[0].parent;
        let mut verified = Verification::default();
        let listed = match one_by_one == Some(id) {
            true => None,
            false => self.verify_listed(state, scope, folder).await?,
        };
        match listed {
            Some(entries) => {
                verified.entries = entries;
                self.progress.add_done(entries, 0);
            }
            None => {
                self.verify_each(state, scope, folder, &mut verified)
                    .await?;
            }
        }
        Ok((id, listed.is_some(), verified))
    }

    /// Checks the entries of a folder one by one.
    async fn verify_each(
        &self,
        state: &StateReader,
        scope: Scope,
        folder: &[Pair],
        verified: &mut Verification,
    ) -> Result<()> {
        let mut checks = JoinSet::new();
        for pair in folder.iter().filter(|pair| scope.includes(pair)) {
            self.progress
                .wait_while_paused(|| self.stop.is_cancelled())
                .await;
            if self.stop.is_cancelled() {
                return Err(Error::Stopped);
            }
            let status = status(state.connection(), &self.compare, pair)?;
            if let Some(is_excluded) = left_out(status) {
                verified.left_out += 1;
                verified.unsupported += u64::from(!is_excluded);
                continue;
            }
            let check = self.prepare_check(state, pair.clone(), scope)?;
            while checks.len() >= CONCURRENT_CHECKS {
                self.record_check(verified, checks.join_next().await)
                    .await?;
            }
            checks.spawn(check.run());
        }
        while let Some(result) = checks.join_next().await {
            self.record_check(verified, Some(result)).await?;
        }
        Ok(())
    }

    fn prepare_check(&self, state: &StateReader, pair: Pair, scope: Scope) -> Result<EntryCheck> {
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
        let lost: Option<String> = state
            .connection()
            .prepare_cached("SELECT lost FROM loss WHERE parent = ? AND name = ?")?
            .query_row(params![pair.parent, pair.entry.name], |row| row.get(0))
            .optional()?;
        let lost = lost.map(|lost| lost.split(", ").map(str::to_owned).collect());
        // An entry that this pass copied has just got the attributes of its source.
        let preserve = self.filters().preserve;
        let has_xattrs = |backend: &Arc<dyn Backend>| backend.capabilities().extended;
        let compares_xattrs = scope.pass.is_none()
            && (preserve.xattrs || preserve.acls)
            && has_xattrs(&self.source)
            && has_xattrs(&self.destination);
        Ok(EntryCheck {
            pair,
            hash: hash.map(|(hash, ..)| hash),
            read: scope.hash,
            xattrs: compares_xattrs.then_some(preserve),
            lost: lost.unwrap_or_default(),
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
                let damaged = path.clone();
                let write = move |transaction: &Transaction<'_>| {
                    forget_copy(transaction, parent, &name)?;
                    damaged::mark(transaction, &damaged)?;
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

/// The entries that a verification checks.
#[derive(Clone, Copy)]
struct Scope {
    hash: bool,
    /// The pass that must have copied them.
    pass: Option<i64>,
}

impl Scope {
    fn new(state: &StateReader, options: VerifyOptions) -> Result<Scope> {
        let pass = options.copied_only.then(|| state.pass()).transpose()?;
        let hash = options.hash;
        Ok(Scope { hash, pass })
    }

    fn includes(self, pair: &Pair) -> bool {
        self.pass.is_none_or(|pass| pair.copied == pass)
    }

    /// Packed files that are identical at the destination were not copied, and are not even read.
    fn plain_files(self) -> PlainFiles {
        match self.pass {
            Some(_) => PlainFiles::Differing,
            None => PlainFiles::All,
        }
    }

    fn entries(self, state: &StateReader) -> Result<u64> {
        let Some(pass) = self.pass else {
            return Ok(state.summary()?.source.entries);
        };
        let query = "SELECT count(*) FROM destination WHERE copied = ?";
        let copied: i64 = state
            .connection()
            .query_row(query, [pass], |row| row.get(0))?;
        Ok(copied.cast_unsigned())
    }
}

/// Returns whether a filter left the entry out, if the copy knowingly did.
fn left_out(status: Status) -> Option<bool> {
    match status {
        Status::Excluded => Some(true),
        Status::Unsupported | Status::NameConflict => Some(false),
        _ => None,
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
