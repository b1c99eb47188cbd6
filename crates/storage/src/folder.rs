//! Paths of folders.

/// A folder below the root of a backend: its names, each followed by a slash; the root is empty.
///
/// The slash at the end distinguishes a folder with an empty name, which object stores have, from
/// the root.
///
/// ```
/// use headworks_storage::Folder;
///
/// let folder = Folder::root().child(b"a").child(b"").child(b"caf\xe9");
/// assert_eq!(folder.as_bytes(), b"a//caf\xe9/");
/// assert_eq!(folder.names().collect::<Vec<_>>(), [&b"a"[..], b"", b"caf\xe9"]);
/// assert_eq!(folder.join(b"x"), b"a//caf\xe9/x");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Folder(Vec<u8>);

impl Folder {
    /// Returns the root folder.
    #[must_use]
    pub fn root() -> Folder {
        Folder::default()
    }

    /// Creates a folder from bytes, and appends a missing slash.
    #[must_use]
    pub fn from_bytes(mut bytes: Vec<u8>) -> Folder {
        if bytes.last().is_some_and(|&last| last != b'/') {
            bytes.push(b'/');
        }
        Folder(bytes)
    }

    /// Returns the names, each followed by a slash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether this is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a subfolder.
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Folder {
        let mut bytes = self.join(name);
        bytes.push(b'/');
        Folder(bytes)
    }

    /// Returns the path of an entry in the folder.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() + name.len() + 1);
        bytes.extend_from_slice(&self.0);
        bytes.extend_from_slice(name);
        bytes
    }

    /// Returns the names, starting at the root.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let inner = self.0.strip_suffix(b"/");
        inner
            .into_iter()
            .flat_map(|inner| inner.split(|&b| b == b'/'))
    }

    /// Returns the parent and the name in it; `None` for the root.
    #[must_use]
    pub fn split(&self) -> Option<(Folder, &[u8])> {
        let inner = self.0.strip_suffix(b"/")?;
        let cut = inner
            .iter()
            .rposition(|&b| b == b'/')
            .map_or(0, |at| at + 1);
        Some((Folder(inner[..cut].to_vec()), &inner[cut..]))
    }
}
