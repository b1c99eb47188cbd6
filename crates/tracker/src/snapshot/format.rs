//! The format of a snapshot file: a version in front, a checksum at the end, little-endian numbers.

use crate::clock::Seconds;
use crate::forwarders::ForwarderId;
use crate::swarms::{ForwarderSchedule, PackedAddress, Peer};
use headworks_tracker_wire::{InfoHash, PeerId};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::net::IpAddr;
use thiserror::Error;

/// The first bytes of a file. The last of them is the version.
pub(super) const MAGIC: &[u8; 8] = b"HWTRACK\x02";

/// The version of a file that a decoder reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    /// Without keys and claims.
    One = 1,
    Two = 2,
}

impl Version {
    pub(super) fn of(number: u8) -> Result<Version, SnapshotError> {
        match number {
            1 => Ok(Version::One),
            2 => Ok(Version::Two),
            _ => Err(SnapshotError::Version(number)),
        }
    }
}

/// The reason why a file is not a valid snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub(super) enum SnapshotError {
    #[error("not a snapshot of a tracker")]
    Foreign,
    #[error("the file has version {0}, but this program reads versions 1 and 2")]
    Version(u8),
    #[error("the file is damaged")]
    Damaged,
}

/// One torrent in a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SavedTorrent {
    pub(super) hash: InfoHash,
    pub(super) downloaded: u32,
    /// Local peers with their addresses.
    pub(super) peers: Vec<(PackedAddress, Peer)>,
    /// Addresses that were claimed with `ip=`, and the clients that announced them.
    pub(super) claims: Vec<(PackedAddress, IpAddr)>,
    /// Cached peers: address, forwarder, and the time of the last report.
    pub(super) cached: Vec<(PackedAddress, ForwarderId, Seconds)>,
    pub(super) schedules: Vec<(ForwarderId, ForwarderSchedule)>,
    /// Peers and the forwarders that they were announced to.
    pub(super) announced: Vec<(PeerId, ForwarderId)>,
}

pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x6865_6164, 0x776f_726b);
    hasher.write(bytes);
    hasher.finish()
}
