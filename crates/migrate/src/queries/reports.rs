//! The results of queries: counts, classes, failures.

use crate::status::Status;
use headworks_storage::Kind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A number of entries, and the bytes in their files.
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

/// The result of a plan, by status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Summary {
    /// Counts by the name of the status.
    pub statuses: BTreeMap<String, Count>,
    /// Everything on the source.
    pub source: Count,
    /// Folders that could not be listed.
    pub failed_folders: u64,
    /// Entries that were copied during the plan; they are counted as the same, too.
    #[serde(default)]
    pub copied: Count,
}

impl Summary {
    /// Adds another summary.
    pub(super) fn add(&mut self, other: &Summary) {
        for (word, count) in &other.statuses {
            self.statuses.entry(word.clone()).or_default().join(*count);
        }
        self.source.join(other.source);
        self.copied.join(other.copied);
    }

    /// Returns the count of a status.
    #[must_use]
    pub fn of(&self, status: Status) -> Count {
        self.statuses
            .get(status.word())
            .copied()
            .unwrap_or_default()
    }

    /// Returns what a copy has to do.
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

/// The result for a source entry. Every entry is in exactly one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    /// It was there already.
    Same,
    /// It was copied.
    #[serde(alias = "copy_outcome")]
    Copied,
    /// A filter excluded it.
    Excluded,
    /// Not done yet.
    Left,
    /// The source changed during the copy. The next pass copies it.
    Changed,
    /// The destination's was kept, as `--update` or `--ignore-existing` asks.
    Kept,
    /// It could not be copied.
    Failed,
    /// A folder is in place of a file, or the reverse.
    TypeConflict,
    /// The destination cannot represent the name.
    NameConflict,
    /// The destination cannot represent the type, or `--specials` is missing.
    Unsupported,
    /// Below a folder that could not be listed.
    Unknown,
}

impl Class {
    /// Returns the name of the class.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Class::Same => "same",
            Class::Copied => "copied",
            Class::Excluded => "excluded",
            Class::Left => "left",
            Class::Changed => "changed",
            Class::Kept => "kept",
            Class::Failed => "failed",
            Class::TypeConflict => "type_conflict",
            Class::NameConflict => "name_conflict",
            Class::Unsupported => "unsupported",
            Class::Unknown => "unknown",
        }
    }
}

/// The result of a copy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outcome {
    /// Counts by class.
    pub classes: BTreeMap<Class, Count>,
    /// Everything on the source, counted independently.
    pub source: Count,
    /// Entries that only the destination has.
    pub not_on_src: u64,
    /// Entries of the destination that were quarantined in this pass.
    #[serde(default)]
    pub quarantined: u64,
    /// Entries of the destination that were deleted in this pass.
    #[serde(default)]
    pub deleted: u64,
    /// Entries of the destination that could not be deleted.
    #[serde(default)]
    pub not_deleted: u64,
    /// Folders that could not be listed.
    pub failed_folders: u64,
    /// Entries that were copied without some of their attributes.
    #[serde(default)]
    pub incomplete: u64,
}

impl Outcome {
    /// Returns whether every source entry is in exactly one class.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        let entries: u64 = self.classes.values().map(|count| count.entries).sum();
        entries == self.source.entries
    }

    fn any(&self, classes: &[Class]) -> bool {
        classes.iter().any(|class| self.classes.contains_key(class))
    }

    /// Returns whether some entry could not be copied or deleted.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        self.failed_folders > 0
            || self.not_deleted > 0
            || !self.adds_up()
            || self.any(&[Class::Changed, Class::Failed, Class::Unknown, Class::Left])
    }

    /// Returns whether some entry was knowingly left out.
    #[must_use]
    pub fn has_differences(&self) -> bool {
        self.any(&[Class::TypeConflict, Class::NameConflict, Class::Unsupported])
    }
}

/// An entry with its status and class.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct EntryReport {
    /// Its path.
    pub path: Vec<u8>,
    /// Its type.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// How it compares with the other side.
    pub status: Status,
    /// The result so far.
    pub class: Class,
}

/// A failure.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct FailedEntry {
    /// The path of the entry.
    pub path: String,
    /// The operation that failed.
    pub phase: String,
    /// The kind of the error.
    pub kind: String,
    /// The error message.
    pub cause: String,
    /// The number of attempts.
    pub attempts: u32,
}

impl FailedEntry {
    /// Returns the cause with the path, which not every cause names.
    #[must_use]
    pub fn message(&self) -> String {
        match self.cause.contains(&format!("`{}`", self.path)) {
            true => self.cause.clone(),
            false => format!("`{}`: {}", self.path, self.cause),
        }
    }

    /// Returns what to do about it. A retry repeats what was planned, so it is no advice where the
    /// plan itself is out of date, or the storage will say the same again.
    #[must_use]
    pub fn next_step(&self) -> &'static str {
        match self.kind.as_str() {
            "Changed" if self.phase == "delete" => {
                "look at it; the next `headworks migrate run SRC DST` lists it again"
            }
            "Changed" | "WrongKind" | "Exists" => {
                "run `headworks migrate run SRC DST` again: the next pass takes it as it is then"
            }
            "NotFound" => "it was removed while the job ran; the next pass notices",
            "BadName" => "rename it at the source or exclude it, then plan again",
            "Unsupported" => "the storage cannot do this: exclude it, or choose another storage",
            "Denied" => "grant this user permission, then run `headworks migrate retry`",
            "UnknownTime" => "compare the two; without `--update` the destination's is replaced",
            "Immutable" => "compare the two; without `--immutable` the destination's is replaced",
            "NoSpace" => "free space at the destination, then run it again",
            _ => "run `headworks migrate retry`, then run it again",
        }
    }
}

/// An entry that was copied without some of its attributes.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct LostAttributes {
    /// The path of the entry.
    pub path: String,
    /// The attributes that the destination refused to keep.
    pub lost: String,
}

/// The explanation of a path.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Explanation {
    /// Whether the job knows the path.
    pub known: bool,
    /// The lines to print.
    pub lines: Vec<String>,
}
