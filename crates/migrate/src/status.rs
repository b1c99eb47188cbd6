//! States of folder listings, and statuses of compared entries.

use crate::store::{Pair, Selection};
use headworks_storage::{Capabilities, Entry, Kind};
use std::fmt;
use std::time::Duration;

/// The state of a source folder's listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SrcState {
    Pending = 0,
    Successful = 1,
    Failed = 2,
    Excluded = 3,
}

/// The state of a folder at the destination. The last three need no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DstState {
    Pending = 0,
    Successful = 1,
    Failed = 2,
    Missing = 3,
    Unknown = 4,
    Conflict = 5,
}

impl SrcState {
    pub(crate) fn from_code(number: i64) -> SrcState {
        match number {
            1 => SrcState::Successful,
            2 => SrcState::Failed,
            3 => SrcState::Excluded,
            _ => SrcState::Pending,
        }
    }
}

impl DstState {
    pub(crate) fn from_code(number: i64) -> DstState {
        match number {
            1 => DstState::Successful,
            2 => DstState::Failed,
            3 => DstState::Missing,
            4 => DstState::Unknown,
            5 => DstState::Conflict,
            _ => DstState::Pending,
        }
    }
}

/// How two entries of one name differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Difference {
    /// Their sizes differ.
    Size,
    /// Their modification times differ.
    Modified,
    /// Their symlink targets differ.
    Target,
    /// They are hard links to different files, or those of the destination cannot be told apart
    /// from those of the source.
    Link,
    /// Their permissions or owners differ.
    Metadata,
}

/// How an entry compares with the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Status {
    /// On both sides, and the same as far as was compared.
    Same,
    /// Not at the destination.
    Missing,
    /// On both sides, and different.
    Different(Difference),
    /// At the destination only.
    NotOnSrc,
    /// A folder on one side and another type on the other; or below such a folder.
    TypeConflict,
    /// The destination cannot represent the name.
    NameConflict,
    /// The destination cannot represent the type, or `--specials` is missing.
    Unsupported,
    /// Below a folder that could not be listed: neither present nor missing.
    Unknown,
    /// Left out by a filter or a rule of `review`, or a quarantine folder in the source.
    Excluded,
}

impl Status {
    /// All statuses, in the order of reports.
    pub const ALL: [Status; 13] = [
        Status::Same,
        Status::Missing,
        Status::Different(Difference::Size),
        Status::Different(Difference::Modified),
        Status::Different(Difference::Target),
        Status::Different(Difference::Link),
        Status::Different(Difference::Metadata),
        Status::NotOnSrc,
        Status::TypeConflict,
        Status::NameConflict,
        Status::Unsupported,
        Status::Unknown,
        Status::Excluded,
    ];

    /// Returns the name of the status.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Status::Same => "same",
            Status::Missing => "missing",
            Status::Different(Difference::Size) => "different (size)",
            Status::Different(Difference::Modified) => "different (mtime)",
            Status::Different(Difference::Target) => "different (target)",
            Status::Different(Difference::Link) => "different (link)",
            Status::Different(Difference::Metadata) => "different (metadata)",
            Status::NotOnSrc => "not_on_src",
            Status::TypeConflict => "type_conflict",
            Status::NameConflict => "name_conflict",
            Status::Unsupported => "unsupported",
            Status::Unknown => "unknown",
            Status::Excluded => "excluded",
        }
    }

    /// Returns whether the entry is left out, or its state is unknown, although it should be
    /// copied.
    #[must_use]
    pub const fn is_problem(self) -> bool {
        matches!(
            self,
            Status::TypeConflict | Status::NameConflict | Status::Unsupported | Status::Unknown
        )
    }

    /// Returns whether a copy has to process the entry.
    #[must_use]
    pub const fn needs_copy(self) -> bool {
        matches!(self, Status::Missing | Status::Different(_))
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The comparison of entries, limited to what both sides can represent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Comparison {
    pub(crate) precision: Option<Duration>,
    pub(crate) posix: bool,
    pub(crate) owners: bool,
    pub(crate) specials: bool,
    pub(crate) destination: Capabilities,
    pub(crate) markers: bool,
}

impl Comparison {
    pub(crate) fn new(
        source: Capabilities,
        destination: Capabilities,
        specials: bool,
    ) -> Comparison {
        let precision = match (source.modified, destination.modified) {
            (Some(a), Some(b)) => Some(a.max(b)),
            // A time that one side cannot keep is known from the copy, if at all.
            (Some(a), None) | (None, Some(a)) => Some(a),
            (None, None) => None,
        };
        Comparison {
            precision,
            posix: source.posix && destination.posix,
            owners: source.posix && destination.owners,
            specials: specials && destination.specials,
            destination,
            markers: !source.posix_names && !destination.posix_names,
        }
    }

    /// Whether the destination takes different names for the same.
    pub(crate) fn folds_names(&self) -> bool {
        self.destination.folds_case || self.destination.folds_unicode
    }

    /// Returns the status of a source entry, except for hard links
    /// ([`status`](crate::queries::status)).
    pub(crate) fn status(&self, pair: &Pair) -> Status {
        let entry = &pair.entry;
        match pair.selection {
            Selection::Included => {}
            Selection::Excluded => return Status::Excluded,
            Selection::NameConflict => return Status::NameConflict,
        }
        if pair.child_src == Some(SrcState::Failed) {
            return Status::Unknown;
        }
        match pair.parent_dst {
            DstState::Unknown | DstState::Failed | DstState::Pending => return Status::Unknown,
            DstState::Conflict => return Status::TypeConflict,
            DstState::Missing | DstState::Successful => {}
        }
        if self.destination.name_problem(&entry.name).is_some() {
            return Status::NameConflict;
        }
        if self.is_unsupported(entry.kind) {
            return Status::Unsupported;
        }
        match &pair.existing {
            None => Status::Missing,
            Some(existing) => self.difference(entry, existing),
        }
    }

    fn is_unsupported(&self, kind: Kind) -> bool {
        match kind {
            Kind::Special => !self.specials,
            Kind::Symlink => !self.destination.symlinks,
            Kind::Folder | Kind::File => false,
        }
    }

    pub(crate) fn difference(&self, source: &Entry, destination: &Entry) -> Status {
        if source.kind != destination.kind {
            return Status::TypeConflict;
        }
        if source.size != destination.size {
            return Status::Different(Difference::Size);
        }
        if source.target != destination.target {
            return Status::Different(Difference::Target);
        }
        if self.modified_differs(source, destination) {
            return Status::Different(Difference::Modified);
        }
        if self.metadata_differs(source, destination) {
            return Status::Different(Difference::Metadata);
        }
        Status::Same
    }

    fn modified_differs(&self, source: &Entry, destination: &Entry) -> bool {
        let (Some(precision), Some(a), Some(b)) =
            (self.precision, source.modified, destination.modified)
        else {
            return false;
        };
        u128::from(a.abs_diff(b)) >= precision.as_nanos()
    }

    fn metadata_differs(&self, source: &Entry, destination: &Entry) -> bool {
        let (Some(a), Some(b)) = (source.posix, destination.posix) else {
            return false;
        };
        let permissions = source.kind != Kind::Symlink && a.permissions() != b.permissions();
        let special = source.kind == Kind::Special && (a.mode, a.device) != (b.mode, b.device);
        let owners = self.owners && (a.uid, a.gid) != (b.uid, b.gid);
        self.posix && (permissions || special) || owners
    }
}
