//! The decoder. No length in a file is trusted: memory grows only with bytes that were read.

use super::format::{MAGIC, SavedTorrent, SnapshotError, checksum};
use crate::clock::Seconds;
use crate::forwarders::ForwarderId;
use crate::swarms::{ForwarderSchedule, PackedAddress};
use headworks_tracker_wire::{InfoHash, PeerId};

/// Decodes a snapshot. Forwarders are matched by name; records of those that are no longer listed
/// are dropped.
pub(super) fn decode(bytes: &[u8], names: &[String]) -> Result<Vec<SavedTorrent>, SnapshotError> {
    let (magic, _) = bytes
        .split_first_chunk::<8>()
        .ok_or(SnapshotError::Foreign)?;
    if magic[..7] != MAGIC[..7] {
        return Err(SnapshotError::Foreign);
    }
    if magic[7] != MAGIC[7] {
        return Err(SnapshotError::Version(magic[7]));
    }
    let (body, sum) = bytes
        .split_last_chunk::<8>()
        .ok_or(SnapshotError::Damaged)?;
    if checksum(body) != u64::from_le_bytes(*sum) {
        return Err(SnapshotError::Damaged);
    }
    let mut decoder = Decoder(body.get(8..).ok_or(SnapshotError::Damaged)?);
    decoder.torrents(names).ok_or(SnapshotError::Damaged)
}

struct Decoder<'a>(&'a [u8]);

impl Decoder<'_> {
    fn torrents(&mut self, names: &[String]) -> Option<Vec<SavedTorrent>> {
        let mut forwarders = Vec::new();
        for _ in 0..self.u16()? {
            let length = usize::from(self.u16()?);
            let (name, rest) = self.0.split_at_checked(length)?;
            self.0 = rest;
            let index = names.iter().position(|other| other.as_bytes() == name);
            forwarders.push(index.map(ForwarderId::from_index));
        }
        let mut torrents = Vec::new();
        for _ in 0..self.u32()? {
            torrents.push(self.torrent(&forwarders)?);
        }
        self.0.is_empty().then_some(torrents)
    }

    fn torrent(&mut self, forwarders: &[Option<ForwarderId>]) -> Option<SavedTorrent> {
        let current_id = |number: u16| forwarders.get(usize::from(number)).copied();
        let mut saved = SavedTorrent {
            hash: InfoHash(self.array()?),
            downloaded: self.u32()?,
            ..SavedTorrent::default()
        };
        for _ in 0..self.u32()? {
            let address = PackedAddress::V4(self.array()?);
            saved.peers.push(self.peer(address)?);
        }
        for _ in 0..self.u32()? {
            let address = PackedAddress::V6(self.array()?);
            saved.peers.push(self.peer(address)?);
        }
        for family in [4, 6] {
            for _ in 0..self.u32()? {
                let address = match family {
                    4 => PackedAddress::V4(self.array()?),
                    _ => PackedAddress::V6(self.array()?),
                };
                let (forwarder, last_seen) = (current_id(self.u16()?)?, self.u32()?);
                saved
                    .cached
                    .extend(forwarder.map(|forwarder| (address, forwarder, last_seen)));
            }
        }
        for _ in 0..self.u32()? {
            let forwarder = current_id(self.u16()?)?;
            let schedule = ForwarderSchedule {
                due: self.u32()?,
                last: self.u32()?,
                contributed: self.u32()?,
            };
            saved
                .schedules
                .extend(forwarder.map(|forwarder| (forwarder, schedule)));
        }
        for _ in 0..self.u32()? {
            let (peer, forwarder) = (PeerId(self.array()?), current_id(self.u16()?)?);
            saved
                .announced
                .extend(forwarder.map(|forwarder| (peer, forwarder)));
        }
        Some(saved)
    }

    fn peer(&mut self, address: PackedAddress) -> Option<(PackedAddress, PeerId, bool, Seconds)> {
        let id = PeerId(self.array()?);
        let [seeder] = self.array()?;
        Some((address, id, seeder != 0, self.u32()?))
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
}
