//! What a listing says of a file or folder.

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Has entries.
    Folder,
    /// Has bytes.
    File,
    /// Has a target.
    Symlink,
    /// A device, pipe or socket.
    Special,
}

/// What POSIX says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Posix {
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Which device it stands for, if it is one.
    pub device: u64,
}

impl Posix {
    /// The permission bits.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }
}

/// The file behind a name that has other names as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// The filesystem.
    pub device: u64,
    /// The file.
    pub number: u64,
}

/// One entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in its folder.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Its bytes; 0 for anything but a file.
    pub size: u64,
    /// When it was last modified, in nanoseconds since 1970, if the backend knows.
    pub modified: Option<i64>,
    /// Owner and permissions, if the backend has them.
    pub posix: Option<Posix>,
    /// Where a symlink points.
    pub target: Option<Vec<u8>>,
    /// Set when the file has several names.
    pub inode: Option<Inode>,
    /// Changes whenever the bytes do: the storage's own mark, such as an etag.
    pub version: Option<Vec<u8>>,
}

/// What a version begins with that is made of the time of the writing, where listings say nothing
/// better.
pub(crate) const WRITTEN_PREFIX: &[u8] = b"written ";

impl Entry {
    /// The version, if the storage itself knows it by that and takes it for a condition.
    #[must_use]
    pub fn etag(&self) -> Option<&Vec<u8>> {
        let version = self.version.as_ref();
        version.filter(|version| !version.starts_with(WRITTEN_PREFIX))
    }

    /// An entry of which nothing more is known.
    #[must_use]
    pub fn new(name: impl Into<Vec<u8>>, kind: Kind) -> Entry {
        Entry {
            name: name.into(),
            kind,
            size: 0,
            modified: None,
            posix: None,
            target: None,
            inode: None,
            version: None,
        }
    }
}
