//! The capabilities that a backend declares in advance.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use unicode_normalization::UnicodeNormalization;

/// Larger files are sent in parts, so that they can be resumed.
const MAX_BATCH_COPY: u64 = 8 << 20;

/// Returns why a name cannot be represented, if so.
pub type NameRule = fn(&[u8]) -> Option<&'static str>;

/// The capabilities of a backend.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Files can be written.
    pub write: bool,
    /// A listing can be resumed by another process at its last cursor.
    pub resumable_listing: bool,
    /// An upload can be resumed by another process.
    pub resumable_upload: bool,
    /// The service keeps uploaded parts, even if no checkpoint was taken.
    pub keeps_parts: bool,
    /// The precision of modification times; `None` if they cannot be set.
    pub modified: Option<Duration>,
    /// Listings contain modification times; otherwise only [`stat`](crate::Backend::stat) returns
    /// them.
    pub listed_times: bool,
    /// Content types and user metadata are kept, as [`Extended`](crate::Extended).
    pub metadata: bool,
    /// Maximum size of files that [`copy_batch`](crate::Backend::copy_batch) copies.
    pub max_batch_copy: u64,
    /// Owner and permissions are kept.
    pub posix: bool,
    /// Files can be given to other owners.
    pub owners: bool,
    /// Extended attributes are kept.
    pub extended: bool,
    /// Symlinks can be made.
    pub symlinks: bool,
    /// Hard links can be made.
    pub hard_links: bool,
    /// Devices, pipes and sockets can be made.
    pub specials: bool,
    /// Folders exist on their own, even if empty.
    pub folders: bool,
    /// Maximum length of a name in bytes.
    pub longest_name: Option<usize>,
    /// Names are those of a POSIX directory: not empty, not `.` or `..`, without NUL.
    pub posix_names: bool,
    /// Names are UTF-8.
    pub unicode_names: bool,
    /// Names that differ in case only are the same.
    pub folds_case: bool,
    /// Names that differ in Unicode normalisation only are the same.
    pub folds_unicode: bool,
    /// Further restrictions of names.
    pub name_rule: Option<NameRule>,
    /// Recommended initial and maximum number of concurrent calls.
    pub workers: (usize, usize),
}

impl Capabilities {
    /// The capabilities of a backend that only lists and reads.
    #[must_use]
    pub const fn read_only() -> Capabilities {
        Capabilities {
            write: false,
            resumable_listing: false,
            resumable_upload: false,
            keeps_parts: false,
            modified: None,
            listed_times: true,
            metadata: false,
            max_batch_copy: MAX_BATCH_COPY,
            posix: false,
            owners: false,
            extended: false,
            symlinks: false,
            hard_links: false,
            specials: false,
            folders: true,
            longest_name: None,
            posix_names: true,
            unicode_names: false,
            folds_case: false,
            folds_unicode: false,
            name_rule: None,
            workers: (4, 16),
        }
    }

    /// Returns the capabilities without those that a storage was found not to have.
    #[must_use]
    pub fn restricted_to(self, probe: &Probe) -> Capabilities {
        let step = Duration::from_nanos(probe.time_step);
        Capabilities {
            modified: self
                .modified
                .map(|at| at.max(step))
                .filter(|_| !step.is_zero()),
            posix: self.posix && probe.permissions,
            owners: self.owners && probe.owners,
            extended: self.extended && probe.extended,
            symlinks: self.symlinks && probe.symlinks,
            hard_links: self.hard_links && probe.hard_links,
            folds_case: probe.folds_case,
            folds_unicode: probe.folds_unicode,
            ..self
        }
    }

    /// Returns the form in which names that the storage cannot tell apart are equal; `None` if it
    /// tells all names apart.
    #[must_use]
    pub fn fold(&self, name: &[u8]) -> Option<Vec<u8>> {
        if !self.folds_case && !self.folds_unicode {
            return None;
        }
        let Ok(text) = std::str::from_utf8(name) else {
            return Some(name.to_ascii_lowercase());
        };
        let mut folded: String = match self.folds_unicode {
            true => text.nfc().collect(),
            false => text.to_owned(),
        };
        if self.folds_case {
            folded = folded.to_lowercase();
        }
        Some(folded.into_bytes())
    }

    /// Returns why a name cannot be represented here, if so.
    #[must_use]
    pub fn name_problem(&self, name: &[u8]) -> Option<&'static str> {
        if self
            .longest_name
            .is_some_and(|longest| name.len() > longest)
        {
            return Some("the name is too long");
        }
        if self.unicode_names && std::str::from_utf8(name).is_err() {
            return Some("the name is not UTF-8");
        }
        if let Some(message) = self.name_rule.and_then(|rule| rule(name)) {
            return Some(message);
        }
        if !self.posix_names {
            return None;
        }
        match name {
            b"" => Some("the name is empty"),
            b"." | b".." => Some("the name is reserved for the folder itself or its parent"),
            _ if name.contains(&0) => Some("the name contains a NUL byte"),
            _ if name.contains(&b'/') => Some("the name contains a slash"),
            _ => None,
        }
    }
}

/// The properties that a storage was found to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The step in which modification times are kept, in nanoseconds; 0 if they cannot be set.
    pub time_step: u64,
    /// Files can be given to other owners.
    pub owners: bool,
    /// Permissions can be set.
    pub permissions: bool,
    /// Extended attributes are kept.
    pub extended: bool,
    /// Symlinks can be made.
    pub symlinks: bool,
    /// Hard links can be made.
    pub hard_links: bool,
    /// Names that differ in case only are the same.
    pub folds_case: bool,
    /// Names that differ in Unicode normalisation only are the same.
    pub folds_unicode: bool,
}

/// The free space of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes.
    pub bytes: u64,
    /// Free entries (inodes), if there is a limit.
    pub entries: Option<u64>,
}
