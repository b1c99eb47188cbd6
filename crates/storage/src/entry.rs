//! Entries of folders.

/// The type of an entry.
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

/// POSIX attributes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Posix {
    /// Type and permission bits, as in `st_mode`.
    pub mode: u32,
    /// The owner.
    pub uid: u32,
    /// Numeric id of the owning group, as in `st_gid`.
    pub gid: u32,
    /// The device number of a device file.
    pub device: u64,
}

impl Posix {
    /// Returns the permission bits.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }
}

/// The identity of a file that has several names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// The filesystem.
    pub device: u64,
    /// The inode number.
    pub number: u64,
}

/// An entry of a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the folder.
    pub name: Vec<u8>,
    /// Its type.
    pub kind: Kind,
    /// Its size in bytes; 0 unless it is a file.
    pub size: u64,
    /// The modification time in nanoseconds since 1970, if the backend knows it.
    pub modified: Option<i64>,
    /// When the storage last noted a change of the bytes or attributes, in nanoseconds since 1970
    /// by its own clock, if it says so: the `ctime` of a filesystem, the upload time of an object.
    /// Other than the modification time, no program can set it back.
    pub changed: Option<i64>,
    /// Owner and permissions, if the backend has them.
    pub posix: Option<Posix>,
    /// The target of a symlink.
    pub target: Option<Vec<u8>>,
    /// Set if the file has several names.
    pub inode: Option<Inode>,
    /// A version assigned by the storage, such as an etag, which changes whenever the bytes do.
    pub version: Option<Vec<u8>>,
    /// Of an entry that was just written: the attributes that the storage refused to keep.
    pub lost: Option<Box<str>>,
}

/// Prefix of a version that is made of the upload time, where listings have nothing better.
pub(crate) const WRITTEN_PREFIX: &[u8] = b"written ";

impl Entry {
    /// Returns the version, if the storage itself assigned it and accepts it as a condition.
    #[must_use]
    pub fn etag(&self) -> Option<&Vec<u8>> {
        let version = self.version.as_ref();
        version.filter(|version| !version.starts_with(WRITTEN_PREFIX))
    }

    /// Returns whether the storage noted a change since this entry was `listed`. Of a file with
    /// several names that cannot be told: replacing one of them is a change of the others.
    #[must_use]
    pub fn was_changed_since(&self, listed: &Entry) -> bool {
        let both = self.changed.zip(listed.changed);
        listed.inode.is_none() && both.is_some_and(|(now, then)| now != then)
    }

    /// Creates an entry without attributes.
    #[must_use]
    pub fn new(name: impl Into<Vec<u8>>, kind: Kind) -> Entry {
        Entry {
            name: name.into(),
            kind,
            size: 0,
            modified: None,
            changed: None,
            posix: None,
            target: None,
            inode: None,
            version: None,
            lost: None,
        }
    }
}
