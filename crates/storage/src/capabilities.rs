//! The capabilities that a backend declares in advance.

use serde::{Deserialize, Serialize};
use std::time::Duration;
use unicode_normalization::UnicodeNormalization;

/// Larger files are sent in parts, so that they can be resumed.
const MAX_BATCH_COPY: u64 = 8 << 20;

/// Returns why a name cannot be represented, if so.
pub type NameRule = fn(&[u8]) -> Option<&'static str>;

/// The capabilities of a backend.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
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
    #[serde(skip)]
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
            workers: (4, 128),
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
            posix: self.posix && probe.permissions && probe.sets_permissions,
            owners: self.owners && probe.owners,
            extended: self.extended && probe.extended && (probe.sets_xattrs || probe.sets_acls),
            symlinks: self.symlinks && probe.symlinks,
            hard_links: self.hard_links && probe.hard_links,
            folds_case: probe.folds_case,
            folds_unicode: probe.folds_unicode,
            longest_name: probe.longest_name.or(self.longest_name),
            ..self
        }
    }

    /// Returns the form in which names that the storage cannot tell apart are equal; `None` if it
    /// tells all names apart. Case is folded fully, as APFS and ext4 do: `straße` is `STRASSE`. On
    /// a filesystem that folds less, this reports a conflict too many; the reverse would merge two
    /// files.
    #[must_use]
    pub fn fold(&self, name: &[u8]) -> Option<Vec<u8>> {
        if !self.folds_case && !self.folds_unicode {
            return None;
        }
        let Ok(text) = std::str::from_utf8(name) else {
            return Some(name.to_ascii_lowercase());
        };
        let mut folded: String = match self.folds_unicode {
            true => text.nfd().collect(),
            false => text.to_owned(),
        };
        if self.folds_case {
            folded = folded.chars().flat_map(fold_case).collect();
        }
        // Folding may have taken a character apart.
        if self.folds_unicode {
            folded = folded.nfc().collect();
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

/// Returns the full case folding of a character. `str::to_lowercase` alone keeps `ß` apart from
/// `ss`, and a final sigma from another one.
fn fold_case(letter: char) -> impl Iterator<Item = char> {
    // The dotless i is no form of `i`, although its upper case is `I`.
    let upper = |c: char| match c {
        'ı' => vec![c],
        c => c.to_uppercase().collect(),
    };
    let lower = letter.to_lowercase();
    lower.flat_map(upper).flat_map(char::to_lowercase)
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
    /// Extended attributes other than access control lists are to be set.
    #[serde(default = "yes")]
    pub sets_xattrs: bool,
    /// The length of the longest name in bytes, if it was tried.
    #[serde(default)]
    pub longest_name: Option<usize>,
    /// Access control lists are to be set.
    #[serde(default = "yes")]
    pub sets_acls: bool,
    /// Permissions are to be set, where they are kept.
    #[serde(default = "yes")]
    pub sets_permissions: bool,
}

fn yes() -> bool {
    true
}

/// The free space of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes.
    pub bytes: u64,
    /// Free entries (inodes), if there is a limit.
    pub entries: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folded(name: &str, folds_case: bool, folds_unicode: bool) -> Vec<u8> {
        let capabilities = Capabilities {
            folds_case,
            folds_unicode,
            ..Capabilities::read_only()
        };
        capabilities.fold(name.as_bytes()).expect("it folds")
    }

    #[test]
    fn case_is_folded_fully() {
        for (one, other) in [
            ("stra\u{df}e", "STRASSE"),
            ("STRA\u{1e9e}E", "strasse"),
            (
                "\u{3a3}\u{3af}\u{3c3}\u{3c5}\u{3c6}\u{3bf}\u{3c2}",
                "\u{3a3}\u{38a}\u{3a3}\u{3a5}\u{3a6}\u{39f}\u{3a3}",
            ),
            ("\u{fb01}le", "FILE"),
            ("\u{212a}elvin", "kelvin"),
        ] {
            assert_eq!(
                folded(one, true, false),
                folded(other, true, false),
                "{one}"
            );
        }
        for (one, other) in [("s\u{131}ra", "sira"), ("e\u{301}", "\u{e9}"), ("a", "b")] {
            assert_ne!(
                folded(one, true, false),
                folded(other, true, false),
                "{one}"
            );
        }
    }

    #[test]
    fn normalisation_is_folded_before_and_after_case() {
        assert_eq!(folded("E\u{301}", true, true), folded("\u{e9}", true, true));
        assert_eq!(
            folded("e\u{301}", false, true),
            folded("\u{e9}", false, true)
        );
        assert_ne!(
            folded("E\u{301}", false, true),
            folded("\u{e9}", false, true)
        );
        assert_eq!(
            folded("\u{390}", true, true),
            folded("\u{399}\u{308}\u{301}", true, true)
        );
    }
}
