//! What a backend can do, said beforehand.

use std::time::Duration;

/// Larger files are sent in parts, so that they can be gone on with.
const MAX_BATCH_COPY: u64 = 8 << 20;

/// Why a name cannot be expressed, if so.
pub type NameRule = fn(&[u8]) -> Option<&'static str>;

/// What a backend can do.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Capabilities {
    /// Files can be written.
    pub write: bool,
    /// A listing can be taken up again in another process at its last cursor.
    pub resumable_listing: bool,
    /// An upload can be taken up again in another process.
    pub resumable_upload: bool,
    /// The far side keeps parts of an upload that arrived, also when nobody noted them.
    pub keeps_parts: bool,
    /// How exactly a modification time is kept; `None` if it cannot be set.
    pub modified: Option<Duration>,
    /// Listings say when files were modified; otherwise only [`stat`](crate::Backend::stat) does.
    pub listed_times: bool,
    /// Content types and metadata of users are kept, as [`Extended`](crate::Extended).
    pub metadata: bool,
    /// Files up to this size are copied whole by [`copy_batch`](crate::Backend::copy_batch).
    pub max_batch_copy: u64,
    /// Owner and permissions are kept.
    pub posix: bool,
    /// We may give files to other owners.
    pub owners: bool,
    /// Extended attributes are kept.
    pub extended: bool,
    /// Symlinks can be made.
    pub symlinks: bool,
    /// Hard links can be made.
    pub hard_links: bool,
    /// Devices, pipes and sockets can be made.
    pub specials: bool,
    /// Folders exist by themselves, also when empty.
    pub folders: bool,
    /// The longest name in bytes.
    pub longest_name: Option<usize>,
    /// Names are those of a POSIX directory: not empty, not `.` or `..`, without NUL.
    pub posix_names: bool,
    /// Names are UTF-8.
    pub unicode_names: bool,
    /// Says why a name cannot be had, where that follows from other rules than these.
    pub name_rule: Option<NameRule>,
    /// How many calls at once are a good start, and how many the most.
    pub workers: (usize, usize),
}

impl Capabilities {
    /// Lists and reads, and nothing else.
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

    /// Why a name cannot be expressed here, if so.
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
            b"." | b".." => Some("the name means a folder itself"),
            _ if name.contains(&0) => Some("the name has a NUL byte"),
            _ if name.contains(&b'/') => Some("the name has a slash"),
            _ => None,
        }
    }
}

/// What is left of a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Free bytes.
    pub bytes: u64,
    /// Free entries, if there is a limit.
    pub entries: Option<u64>,
}
