//! Where a folder is.

/// A folder below the root of a backend: its names, each followed by a slash; the root is empty.
///
/// With the slash at the end, a folder whose name is empty (object stores have them) is not the
/// root.
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
    /// The folder that holds everything.
    #[must_use]
    pub fn root() -> Folder {
        Folder::default()
    }

    /// From its bytes; a slash that lacks at the end is added.
    #[must_use]
    pub fn from_bytes(mut bytes: Vec<u8>) -> Folder {
        if bytes.last().is_some_and(|&last| last != b'/') {
            bytes.push(b'/');
        }
        Folder(bytes)
    }

    /// The names, each followed by a slash.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The folder of that name in it.
    #[must_use]
    pub fn child(&self, name: &[u8]) -> Folder {
        let mut bytes = self.join(name);
        bytes.push(b'/');
        Folder(bytes)
    }

    /// The path of something in it.
    #[must_use]
    pub fn join(&self, name: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() + name.len() + 1);
        bytes.extend_from_slice(&self.0);
        bytes.extend_from_slice(name);
        bytes
    }

    /// The names from the root down.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        let inner = self.0.strip_suffix(b"/");
        inner
            .into_iter()
            .flat_map(|inner| inner.split(|&b| b == b'/'))
    }

    /// The folder it is in and its name there; `None` for the root.
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
