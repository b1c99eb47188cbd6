//! Names that we give to things of our own at the destination.

use headworks_storage::Folder;
use sha2::{Digest, Sha256};

/// Where `--delete=quarantine` puts things. Plans skip it.
pub(crate) const QUARANTINE: &[u8] = b".headworks-quarantine";

const TEMP: &str = ".headworks-";

/// The name that an entry has until it is complete: the same every time, so that who comes after a
/// crash finds it.
pub(crate) fn temp(job: &str, name: &[u8]) -> Vec<u8> {
    let digest = Sha256::digest(name);
    let short = u64::from_be_bytes(digest[..8].try_into().expect("a digest is longer"));
    format!("{TEMP}{job}-{short:016x}").into_bytes()
}

/// The name that an entry has while something of another type stands in its place.
pub(crate) fn staged(job: &str, name: &[u8]) -> Vec<u8> {
    // A slash is in no name, so that this is the temporary name of no other entry.
    temp(job, &[name, b"/"].concat())
}

/// The state file, where it is inside a tree that is migrated.
#[derive(Clone, Debug)]
pub(crate) struct StateFileLocation {
    pub(crate) folder: Folder,
    pub(crate) name: Vec<u8>,
}

impl StateFileLocation {
    /// Whether a name is the state file's, or that of a file beside it that belongs to it.
    pub(crate) fn owns(&self, folder: &Folder, name: &[u8]) -> bool {
        let suffixes: [&[u8]; 5] = [b"", b"-wal", b"-shm", b"-journal", b"-lock"];
        *folder == self.folder
            && name
                .strip_prefix(self.name.as_slice())
                .is_some_and(|rest| suffixes.contains(&rest))
    }

    pub(crate) fn path(&self) -> Vec<u8> {
        self.folder.join(&self.name)
    }
}

/// Whether a name at the destination is one of ours, and so not part of the tree.
pub(crate) fn is_ours(job: &str, folder: &Folder, name: &[u8]) -> bool {
    let is_temp = |rest: &[u8]| {
        rest.strip_prefix(job.as_bytes())
            .is_some_and(|rest| rest.len() == 17)
    };
    name.strip_prefix(TEMP.as_bytes()).is_some_and(is_temp)
        || (folder.is_root() && name == QUARANTINE)
}
