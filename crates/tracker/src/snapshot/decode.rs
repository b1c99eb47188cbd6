//! The decoder. No length in a file is trusted: memory grows only with bytes that were read.

use super::format::{MAGIC, SavedTorrent, SnapshotError, Version, checksum};
use crate::forwarders::ForwarderId;
use crate::swarms::{ForwarderSchedule, PackedAddress, Peer};
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
    let version = Version::of(magic[7])?;
    let (body, sum) = bytes
        .split_last_chunk::<8>()
        .ok_or(SnapshotError::Damaged)?;
    if checksum(body) != u64::from_le_bytes(*sum) {
        return Err(SnapshotError::Damaged);
    }
    let rest = body.get(8..).ok_or(SnapshotError::Damaged)?;
    let mut decoder = Decoder { rest, version };
    decoder.torrents(names).ok_or(SnapshotError::Damaged)
}

struct Decoder<'a> {
    rest: &'a [u8],
    version: Version,
}

impl Decoder<'_> {
    fn torrents(&mut self, names: &[String]) -> Option<Vec<SavedTorrent>> {
        let mut forwarders = Vec::new();
        for _ in 0..self.u16()? {
            let length = usize::from(self.u16()?);
            let (name, rest) = self.rest.split_at_checked(length)?;
            self.rest = rest;
            let index = names.iter().position(|other| other.as_bytes() == name);
            forwarders.push(index.map(ForwarderId::from_index));
        }
        let mut torrents = Vec::new();
        for _ in 0..self.u32()? {
            torrents.push(self.torrent(&forwarders)?);
        }
        self.rest.is_empty().then_some(torrents)
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
        if self.version >= Version::Two {
            for _ in 0..self.u32()? {
                let (address, client) = (self.address()?, self.address()?);
                saved.claims.push((address, client.ip()));
            }
        }
        for family in [4, 6] {
            for _ in 0..self.u32()? {
                let address = self.address_of(family)?;
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

    fn peer(&mut self, address: PackedAddress) -> Option<(PackedAddress, Peer)> {
        let id = PeerId(self.array()?);
        let [seeder] = self.array()?;
        let peer = Peer {
            id,
            seeder: seeder != 0,
            last_announce: self.u32()?,
            key: match self.version {
                Version::One => 0,
                Version::Two => self.u32()?,
            },
        };
        Some((address, peer))
    }

    /// Reads an address behind the number of its family.
    fn address(&mut self) -> Option<PackedAddress> {
        let [family] = self.array()?;
        self.address_of(family)
    }

    fn address_of(&mut self, family: u8) -> Option<PackedAddress> {
        match family {
            4 => self.array().map(PackedAddress::V4),
            6 => self.array().map(PackedAddress::V6),
            _ => None,
        }
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*array)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
}
