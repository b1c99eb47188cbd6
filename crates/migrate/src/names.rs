//! Names of the job's own files at the destination.

use headworks_storage::Folder;
use sha2::{Digest, Sha256};

/// The folder of `--delete=quarantine`. Plans skip it.
pub(crate) const QUARANTINE: &[u8] = b".headworks-quarantine";

/// The folder in which a destination was tried out, left behind by a process that was killed.
const PROBE: &[u8] = b".headworks-probe-";

const TEMP: &str = ".headworks-";

/// Returns the temporary name of an entry. It is deterministic, so that a run after a crash finds
/// it.
pub(crate) fn temp(job: &str, name: &[u8]) -> Vec<u8> {
    let digest = Sha256::digest(name);
    let short = u64::from_be_bytes(digest[..8].try_into().expect("a digest has 32 bytes"));
    format!("{TEMP}{job}-{short:016x}").into_bytes()
}

/// Returns the temporary name of an entry that will replace one of another type.
pub(crate) fn staged(job: &str, name: &[u8]) -> Vec<u8> {
    // No name contains a slash, so this is the temporary name of no other entry.
    temp(job, &[name, b"/"].concat())
}

/// The location of the state file inside a tree that is migrated.
#[derive(Clone, Debug)]
pub(crate) struct StateFileLocation {
    pub(crate) folder: Folder,
    pub(crate) name: Vec<u8>,
}

impl StateFileLocation {
    /// Returns whether a name is the state file or one of its companion files.
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

/// Returns whether a name is that of the quarantine.
pub(crate) fn is_quarantine(folder: &Folder, name: &[u8]) -> bool {
    folder.is_root() && name == QUARANTINE
}

/// Returns whether a name is one of the job's own, and so not part of either tree.
pub(crate) fn is_ours(job: &str, folder: &Folder, name: &[u8]) -> bool {
    let is_temp = |rest: &[u8]| {
        rest.strip_prefix(job.as_bytes())
            .is_some_and(|rest| rest.len() == 17)
    };
    name.strip_prefix(TEMP.as_bytes()).is_some_and(is_temp)
        || (folder.is_root() && name.starts_with(PROBE))
}
