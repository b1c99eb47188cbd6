//! Which files at the destination a copy may replace.

use super::CopyRun;
use crate::error::Result;
use crate::status::Status;
use crate::store::{CommitMode, Failure, FolderId, Pair, put_failure};
use headworks_storage::Kind;
use rusqlite::Transaction;

/// The policy for files that exist at the destination and differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Existing {
    /// Replaces them.
    #[default]
    Replace,
    /// Keeps those that are newer than the source.
    KeepNewer,
    /// Keeps all of them.
    Keep,
    /// Keeps all of them, and reports each as a failure.
    Immutable,
}

/// The failure kind of an entry that was kept on purpose.
pub(crate) const KEPT: &str = "Kept";

/// The recorded reason why an entry is not copied.
pub(super) struct KeptEntry {
    parent: FolderId,
    name: Vec<u8>,
    kind: &'static str,
    cause: &'static str,
}

impl KeptEntry {
    fn new(pair: &Pair, (kind, cause): (&'static str, &'static str)) -> KeptEntry {
        KeptEntry {
            parent: pair.parent,
            name: pair.entry.name.clone(),
            kind,
            cause,
        }
    }
}

impl Existing {
    /// Returns why an entry that differs is kept, or `None` if it is replaced.
    fn reason(self, pair: &Pair, status: Status) -> Option<(&'static str, &'static str)> {
        if pair.entry.kind == Kind::Folder || !matches!(status, Status::Different(_)) {
            return None;
        }
        self.reason_to_keep(pair)
    }

    /// Returns why the entry of the destination is kept, of whatever type it is.
    fn reason_to_keep(self, pair: &Pair) -> Option<(&'static str, &'static str)> {
        let existing = pair.existing.as_ref()?;
        match self {
            Existing::Replace => None,
            // Where listings have no times, that of a file of another size is not known. A guess
            // would lose the newer one.
            Existing::KeepNewer => match (existing.modified, pair.entry.modified) {
                (Some(there), Some(here)) if there > here => {
                    Some((KEPT, "the destination's is newer (--update)"))
                }
                (Some(_), Some(_)) => None,
                _ => Some((
                    "UnknownTime",
                    "which of the two is newer is not known, so --update keeps the destination's",
                )),
            },
            Existing::Keep => Some((KEPT, "the destination has it (--ignore-existing)")),
            Existing::Immutable => Some((
                "Immutable",
                "the destination has another version, which --immutable forbids to change",
            )),
        }
    }

    pub(super) fn keeps(self, pair: &Pair, status: Status) -> bool {
        self.reason(pair, status).is_some()
    }

    pub(super) fn kept(self, pair: &Pair, status: Status) -> Option<KeptEntry> {
        self.reason(pair, status)
            .map(|reason| KeptEntry::new(pair, reason))
    }

    /// Whether an entry of another type is kept, which `--delete` would remove otherwise.
    pub(super) fn keeps_conflicting(self, pair: &Pair) -> bool {
        self.reason_to_keep(pair).is_some()
    }

    pub(super) fn kept_conflicting(self, pair: &Pair) -> Option<KeptEntry> {
        self.reason_to_keep(pair)
            .map(|reason| KeptEntry::new(pair, reason))
    }
}

impl CopyRun<'_> {
    /// Records entries that are kept, so that every entry has a result.
    pub(super) fn record_kept(&self, kept: Vec<KeptEntry>) -> Result<()> {
        if kept.is_empty() {
            return Ok(());
        }
        self.job.progress.add_done(kept.len() as u64, 0);
        let write = move |transaction: &Transaction<'_>| {
            for KeptEntry {
                parent,
                name,
                kind,
                cause,
            } in &kept
            {
                let failure = Failure {
                    phase: "copy",
                    kind,
                    cause,
                    attempts: 0,
                };
                put_failure(transaction, *parent, name, &failure)?;
            }
            Ok(())
        };
        self.job.writer.post(CommitMode::Deferred, write, || {});
        Ok(())
    }
}
