//! What is read from a state file: counts, classes, failures.

use crate::status::Status;
use headworks_storage::Kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// So many entries, with so many bytes in their files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Entries of any kind.
    pub entries: u64,
    /// Bytes in files.
    pub bytes: u64,
}

impl Count {
    pub(super) fn add(&mut self, bytes: u64) {
        self.entries += 1;
        self.bytes += bytes;
    }

    pub(super) fn join(&mut self, other: Count) {
        self.entries += other.entries;
        self.bytes += other.bytes;
    }
}

/// What a plan found, by status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// By the word of the status.
    pub statuses: BTreeMap<String, Count>,
    /// Everything on the source.
    pub source: Count,
    /// Folders that could not be listed.
    pub failed_folders: u64,
    /// Of the entries that are the same: those that were copied while the plan was made.
    #[serde(default)]
    pub copied: Count,
}

impl Summary {
    /// Adds what was found elsewhere.
    pub(super) fn add(&mut self, other: &Summary) {
        for (word, count) in &other.statuses {
            self.statuses.entry(word.clone()).or_default().join(*count);
        }
        self.source.join(other.source);
        self.copied.join(other.copied);
    }

    /// The count of a status.
    #[must_use]
    pub fn of(&self, status: Status) -> Count {
        self.statuses
            .get(status.word())
            .copied()
            .unwrap_or_default()
    }

    /// What a copy has to do.
    #[must_use]
    pub fn work(&self) -> Count {
        let mut work = Count::default();
        for status in Status::ALL.into_iter().filter(|status| status.needs_copy()) {
            let count = self.of(status);
            work.entries += count.entries;
            work.bytes += count.bytes;
        }
        work
    }
}

/// How a source entry ended. Every entry is in exactly one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    /// It was there already.
    Same,
    /// We brought it there.
    CopyOutcome,
    /// A filter left it out.
    Excluded,
    /// Not done yet.
    Left,
    /// The source changed while it was copied: the next pass takes it.
    Changed,
    /// It could not be copied.
    Failed,
    /// A folder stands where a file should, or the reverse.
    TypeConflict,
    /// The destination cannot have the name.
    NameConflict,
    /// The destination cannot have such a thing, or was not asked to.
    Unsupported,
    /// Below a folder that could not be listed.
    Unknown,
}

impl Class {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Class::Same => "same",
            Class::CopyOutcome => "copied",
            Class::Excluded => "excluded",
            Class::Left => "left",
            Class::Changed => "changed",
            Class::Failed => "failed",
            Class::TypeConflict => "type_conflict",
            Class::NameConflict => "name_conflict",
            Class::Unsupported => "unsupported",
            Class::Unknown => "unknown",
        }
    }
}

/// What became of everything.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// By class.
    pub classes: BTreeMap<Class, Count>,
    /// Everything on the source, counted by itself.
    pub source: Count,
    /// What is at the destination only.
    pub not_on_src: u64,
    /// What was moved from the destination to quarantine in this pass.
    #[serde(default)]
    pub quarantined: u64,
    /// What was deleted at the destination in this pass.
    #[serde(default)]
    pub deleted: u64,
    /// What should have gone from the destination and could not.
    #[serde(default)]
    pub not_deleted: u64,
    /// Folders that could not be listed.
    pub failed_folders: u64,
}

impl Outcome {
    /// Whether every source entry is in exactly one class.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let entries: u64 = self.classes.values().map(|count| count.entries).sum();
        entries == self.source.entries
    }

    fn any(&self, classes: &[Class]) -> bool {
        classes.iter().any(|class| self.classes.contains_key(class))
    }

    /// Whether something that should be there could not be brought there.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.failed_folders > 0
            || self.not_deleted > 0
            || !self.adds_up()
            || self.any(&[Class::Changed, Class::Failed, Class::Unknown, Class::Left])
    }

    /// Whether something was knowingly not brought there.
    #[must_use]
    pub fn has_differences(&self) -> bool {
        self.any(&[Class::TypeConflict, Class::NameConflict, Class::Unsupported])
    }
}

/// An entry and its status.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EntryReport {
    /// Where it is.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Its bytes.
    pub size: u64,
    /// How it stands.
    pub status: Status,
    /// How it ended, so far.
    pub class: Class,
}

/// Something that did not work.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FailedEntry {
    /// Where.
    pub path: String,
    /// While doing what.
    pub phase: String,
    /// Which kind of error.
    pub kind: String,
    /// In words.
    pub cause: String,
    /// How often it was tried.
    pub attempts: u32,
}

impl FailedEntry {
    /// What to do about it.
    #[must_use]
    pub fn next_step(&self) -> &'static str {
        match self.kind.as_str() {
            "Changed" => "run it again: the next pass copies it as it is then",
            "NotFound" => "it went away while the job ran; the next pass knows",
            "Denied" => "give this user the permission, then `headworks migrate retry`",
            "NoSpace" => "make room at the destination, then run it again",
            _ => "`headworks migrate retry`, then run it again",
        }
    }
}

/// Everything known about one path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Whether the job has heard of the path.
    pub known: bool,
    /// The lines to show.
    pub lines: Vec<String>,
}
