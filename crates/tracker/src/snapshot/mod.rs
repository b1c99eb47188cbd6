//! What survives a restart: swarms, what forwarders found, when each is due and whom it was told
//! of.
//!
//! One file, written beside itself and renamed, with a version in front and a checksum behind. A
//! damaged file is set aside with a warning: a tracker without memory is better than none.

mod read;
mod write;

use crate::plan::Plan;
use crate::plane::Shared;
use headworks_tracker_wire::{InfoHash, PeerId};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use thiserror::Error;

use crate::swarm::{Asked, Packed, Seconds};

/// The last byte is the version.
const MAGIC: &[u8; 8] = b"HWTRACK\x01";

/// Why a file is not what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(crate) enum SnapshotError {
    #[error("it is no snapshot of a tracker")]
    Foreign,
    #[error("it has version {0}, and this program reads version 1")]
    Version(u8),
    #[error("it is damaged")]
    Damaged,
}

/// One torrent as it is saved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Saved {
    pub(crate) hash: InfoHash,
    pub(crate) downloaded: u32,
    /// Local peers: address, name, whether it has everything, when it was heard of.
    pub(crate) peers: Vec<(Packed, PeerId, bool, Seconds)>,
    /// Found peers: address, forwarder, when it was seen.
    pub(crate) found: Vec<(Packed, u16, Seconds)>,
    pub(crate) asked: Vec<(u16, Asked)>,
    pub(crate) told: Vec<(PeerId, u16)>,
}

fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x6865_6164, 0x776f_726b);
    hasher.write(bytes);
    hasher.finish()
}

/// Saves everything at `path`. `names` are the forwarders', in order.
pub(crate) fn save(shared: &Shared, names: &[String], path: &Path) -> io::Result<()> {
    let bytes = write::encode(shared, names);
    let beside = beside(path, "new");
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}

/// Loads what was saved at `path`, and says how many torrents that were. A damaged one is set
/// aside.
///
/// # Errors
/// When there is something else, which would be overwritten, or nothing can be written there.
pub(crate) fn load(shared: &Shared, names: &[String], path: &Path) -> Result<usize, String> {
    let bytes = match std::fs::metadata(path) {
        Ok(about) if !about.is_file() => return Err("it is not a regular file".into()),
        Ok(_) => std::fs::read(path),
        Err(error) => Err(error),
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Better now than when everything is to be saved.
            let new = beside(path, "new");
            let made = std::fs::File::create(&new);
            made.map_err(|error| format!("cannot be written: {error}"))?;
            let _ = std::fs::remove_file(new);
            return Ok(0);
        }
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let decoded = match read::decode(&bytes, names) {
        // One that was cut short is damaged.
        Err(error @ SnapshotError::Foreign) if !MAGIC.starts_with(&bytes) => {
            return Err(error.to_string());
        }
        decoded => decoded,
    };
    Ok(match decoded {
        Ok(torrents) => {
            let count = torrents.len();
            for saved in torrents {
                restore(shared, names.len(), saved);
            }
            shared.purge();
            count
        }
        Err(error) => {
            let aside = beside(path, "damaged");
            let moved = std::fs::rename(path, &aside).is_ok();
            tracing::warn!(path = %path.display(), %error, moved, aside = %aside.display(), "the snapshot cannot be used: starting without it");
            0
        }
    })
}

/// Reads the bytes as a file, and as the body of a whole one; for fuzzers.
pub(crate) fn try_to_read(bytes: &[u8]) {
    let names = ["a".to_owned(), "b".to_owned()];
    let _ = read::decode(bytes, &names);
    let mut whole = [&MAGIC[..], bytes].concat();
    let sum = checksum(&whole);
    whole.extend_from_slice(&sum.to_le_bytes());
    let shared = Shared::new(Plan::default());
    for saved in read::decode(&whole, &names).unwrap_or_default() {
        restore(&shared, names.len(), saved);
    }
}

fn beside(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

fn restore(shared: &Shared, forwarders: usize, saved: Saved) {
    let (by, most) = (shared.count_by, shared.plan().config.max_cached_peers);
    shared.swarms.with(&saved.hash, |swarm| {
        swarm.downloaded = saved.downloaded;
        for (at, id, seeder, heard) in saved.peers {
            swarm.hear(heard, at, id, seeder, by);
        }
        for (at, forwarder, seen) in saved.found {
            swarm.find(seen, at, forwarder, most, by);
        }
        if saved.asked.is_empty() && saved.told.is_empty() {
            return;
        }
        let known = swarm.known_mut();
        for (forwarder, asked) in saved.asked {
            known.remember(forwarder, asked);
        }
        for (peer, forwarder) in saved.told {
            known.tell(peer, forwarder);
        }
        swarm.due = known.earliest(forwarders);
    });
}

#[cfg(test)]
mod tests;
