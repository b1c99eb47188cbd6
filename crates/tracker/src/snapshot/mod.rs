//! Snapshots: swarms and their records of forwarded announces, saved across a restart.
//!
//! A snapshot is one file, written to a temporary name and renamed. A damaged file is moved aside
//! with a warning, because a tracker without its past is better than no tracker.

mod decode;
mod encode;
mod format;

use crate::active_config::ActiveConfig;
use crate::clock::Seconds;
use crate::state::TrackerState;
use crate::swarms::PeerChange;
use format::{MAGIC, SavedTorrent, SnapshotError, checksum};
use headworks_tracker_wire::PeerId;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Saves all swarms at `path`. `names` are the names of the forwarders, by id.
pub(crate) fn save(state: &TrackerState, names: &[String], path: &Path) -> io::Result<()> {
    let bytes = encode::encode(state, names);
    let temporary = with_suffix(path, "new");
    let saved = write(&temporary, &bytes).and_then(|()| std::fs::rename(&temporary, path));
    if saved.is_err() {
        // An incomplete file would take the room that the next one needs.
        let _ = std::fs::remove_file(&temporary);
    }
    saved
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = std::fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Loads the snapshot at `path`, if there is one, and returns its number of torrents. A damaged
/// file is moved aside.
///
/// # Errors
/// When `path` is another kind of file, which saving would overwrite, or when nothing can be
/// written there.
pub(crate) fn load(state: &TrackerState, names: &[String], path: &Path) -> Result<usize, String> {
    let bytes = match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => return Err("not a regular file".into()),
        Ok(_) => std::fs::read(path),
        Err(error) => Err(error),
    };
    // A folder that cannot be written is reported now, not when the first snapshot is lost.
    let new = with_suffix(path, "new");
    let created = std::fs::File::create(&new);
    created.map_err(|error| format!("cannot be written: {error}"))?;
    let _ = std::fs::remove_file(new);
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(format!("cannot be read: {error}")),
    };
    let decoded = match decode::decode(&bytes, names) {
        // A file that is shorter than the magic bytes but begins like them was truncated.
        Err(error @ SnapshotError::Foreign) if !MAGIC.starts_with(&bytes) => {
            return Err(error.to_string());
        }
        decoded => decoded,
    };
    Ok(match decoded {
        Ok(torrents) => {
            let count = torrents.len();
            for saved in torrents {
                restore(state, names.len(), saved);
            }
            state.purge();
            count
        }
        Err(error) => {
            let aside = with_suffix(path, "damaged");
            let moved = std::fs::rename(path, &aside).is_ok();
            tracing::warn!(path = %path.display(), %error, moved, aside = %aside.display(), "snapshot unusable: starting without it");
            0
        }
    })
}

/// Decodes the bytes as a file, and as the body of a file with a valid checksum. For fuzzers.
pub(crate) fn try_decode(bytes: &[u8]) {
    let names = ["a".to_owned(), "b".to_owned()];
    let _ = decode::decode(bytes, &names);
    for version in [1, 2] {
        let mut whole = [&MAGIC[..7], &[version], bytes].concat();
        let sum = checksum(&whole);
        whole.extend_from_slice(&sum.to_le_bytes());
        let state = TrackerState::new(ActiveConfig::default());
        for saved in decode::decode(&whole, &names).unwrap_or_default() {
            restore(&state, names.len(), saved);
        }
    }
}

fn with_suffix(path: &Path, extension: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(extension);
    name.into()
}

/// The longest time until a saved due time: the longest interval accepted from a forwarder.
const MAX_DUE: Seconds = 24 * 3600;

/// Adds a saved torrent to the swarms, within the limits of the configuration. `forwarders` is the
/// number of known forwarders. Times in the future are those of a clock that was wrong: they are
/// brought back, so that a peer expires and a forwarder is asked again.
fn restore(state: &TrackerState, forwarders: usize, saved: SavedTorrent) {
    let (by, active, now) = (state.count_by, state.active(), state.clock.now());
    let (limit, announced) = (active.config.max_cached_peers, active.announced_peers());
    if saved.peers.is_empty() || state.swarms.totals().0 >= active.config.max_torrents {
        return state.swarms.set_downloads(&saved.hash, saved.downloaded);
    }
    state.swarms.with_or_insert(&saved.hash, |swarm| {
        swarm.downloaded = saved.downloaded;
        let claims: HashMap<_, _> = saved.claims.into_iter().collect();
        for (address, mut peer) in saved.peers {
            let client = (claims.get(&address).copied()).unwrap_or_else(|| address.ip());
            if !state.has_room(&active.config, client, swarm) {
                continue;
            }
            peer.last_announce = peer.last_announce.min(now);
            let change = swarm.upsert_peer(client, address, peer, by);
            if change == PeerChange::Inserted {
                state.swarms.clients.add(client);
            }
        }
        for (address, forwarder, last_seen) in saved.cached {
            swarm.upsert_cached(last_seen.min(now), address, forwarder, limit, by);
        }
        if saved.schedules.is_empty() && saved.announced.is_empty() {
            return;
        }
        swarm.record_mut();
        let marked: HashSet<PeerId> = saved.announced.iter().map(|(peer, _)| *peer).collect();
        swarm.refill_announced(&saved.hash, announced, |peer| marked.contains(peer));
        let record = swarm.record_mut();
        let peers: Vec<PeerId> = (record.peers().iter())
            .map(|peer| peer.announce.peer_id)
            .filter(|peer| marked.is_empty() || marked.contains(peer))
            .collect();
        // A forwarder that was never asked is due now.
        let all_asked = saved.schedules.len() >= forwarders;
        let mut earliest = if all_asked {
            now.saturating_add(MAX_DUE)
        } else {
            0
        };
        for (forwarder, mut schedule) in saved.schedules {
            schedule.due = schedule.due.min(now.saturating_add(MAX_DUE));
            schedule.last = schedule.last.min(now);
            earliest = earliest.min(schedule.due);
            for peer in &peers {
                record.restore(peer, forwarder, schedule);
            }
        }
        for (peer, forwarder) in saved.announced {
            record.mark_announced(&peer, forwarder);
        }
        swarm.due = earliest;
    });
}

#[cfg(test)]
mod tests;
