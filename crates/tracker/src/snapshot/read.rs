//! Bytes to swarms. What a file claims is believed only as far as its bytes go.

use super::{MAGIC, Saved, SnapshotError, checksum};
use crate::swarm::{Asked, Packed, Seconds};
use headworks_tracker_wire::{InfoHash, PeerId};

/// Reads a snapshot. Forwarders are known by name: those that are no longer listed are forgotten.
pub(super) fn decode(bytes: &[u8], names: &[String]) -> Result<Vec<Saved>, SnapshotError> {
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
    let mut reader = Reader(body.get(8..).ok_or(SnapshotError::Damaged)?);
    reader.torrents(names).ok_or(SnapshotError::Damaged)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn torrents(&mut self, names: &[String]) -> Option<Vec<Saved>> {
        let mut forwarders = Vec::new();
        for _ in 0..self.u16()? {
            let length = usize::from(self.u16()?);
            let (name, rest) = self.0.split_at_checked(length)?;
            self.0 = rest;
            let number = names.iter().position(|other| other.as_bytes() == name);
            forwarders.push(number.map(|number| number as u16));
        }
        let mut torrents = Vec::new();
        for _ in 0..self.u32()? {
            torrents.push(self.torrent(&forwarders)?);
        }
        self.0.is_empty().then_some(torrents)
    }

    fn torrent(&mut self, forwarders: &[Option<u16>]) -> Option<Saved> {
        let now_called = |number: u16| forwarders.get(usize::from(number)).copied();
        let mut saved = Saved {
            hash: InfoHash(self.array()?),
            downloaded: self.u32()?,
            ..Saved::default()
        };
        for _ in 0..self.u32()? {
            let at = Packed::V4(self.array()?);
            saved.peers.push(self.peer(at)?);
        }
        for _ in 0..self.u32()? {
            let at = Packed::V6(self.array()?);
            saved.peers.push(self.peer(at)?);
        }
        for family in [4, 6] {
            for _ in 0..self.u32()? {
                let at = match family {
                    4 => Packed::V4(self.array()?),
                    _ => Packed::V6(self.array()?),
                };
                let (forwarder, seen) = (now_called(self.u16()?)?, self.u32()?);
                saved
                    .found
                    .extend(forwarder.map(|forwarder| (at, forwarder, seen)));
            }
        }
        for _ in 0..self.u32()? {
            let forwarder = now_called(self.u16()?)?;
            let asked = Asked {
                due: self.u32()?,
                last: self.u32()?,
                contributed: self.u32()?,
            };
            saved
                .asked
                .extend(forwarder.map(|forwarder| (forwarder, asked)));
        }
        for _ in 0..self.u32()? {
            let (peer, forwarder) = (PeerId(self.array()?), now_called(self.u16()?)?);
            saved
                .told
                .extend(forwarder.map(|forwarder| (peer, forwarder)));
        }
        Some(saved)
    }

    fn peer(&mut self, at: Packed) -> Option<(Packed, PeerId, bool, Seconds)> {
        let id = PeerId(self.array()?);
        let [seeder] = self.array()?;
        Some((at, id, seeder != 0, self.u32()?))
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
