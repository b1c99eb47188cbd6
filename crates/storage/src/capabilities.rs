//! The capabilities that a backend declares in advance.

use std::time::Duration;

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
            name_rule: None,
            workers: (4, 16),
        }
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

/// The free space of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes.
    pub bytes: u64,
    /// Free entries (inodes), if there is a limit.
    pub entries: Option<u64>,
}
