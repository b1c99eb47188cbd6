//! Swarms: who is in them, and what forwarders said of them, packed so that an answer is a copy.
//!
//! A [`Swarms`] is many small tables, each behind a lock of its own that is held for the length of
//! one request's work and never across I/O. What forwarders found and when they may be asked again
//! is in the swarm's own record, so that a torrent that is warm and not due costs one look-up.

mod found;
mod peers;
mod store;
mod tally;

pub(crate) use found::{Asked, Known};
pub(crate) use peers::{Change, Draw};
pub(crate) use store::Swarms;

use crate::config::CountBy;
use headworks_tracker_wire::compact::{Compact4, Compact6};
use headworks_tracker_wire::{Counts, PeerId};
use peers::Peers;
use std::net::IpAddr;
use tally::{Side, Tally};

/// Seconds since 1970. Ends in 2106.
pub(crate) type Seconds = u32;

/// A peer's address, packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packed {
    V4(Compact4),
    V6(Compact6),
}

impl Packed {
    pub(crate) fn new(ip: IpAddr, port: u16) -> Packed {
        use headworks_tracker_wire::compact::{pack4, pack6};
        match ip.to_canonical() {
            IpAddr::V4(ip) => Packed::V4(pack4(ip, port)),
            IpAddr::V6(ip) => Packed::V6(pack6(ip, port)),
        }
    }

    fn ip(self) -> u128 {
        match self {
            Packed::V4(packed) => ip_number(&packed),
            Packed::V6(packed) => ip_number(&packed),
        }
    }
}

/// The address without its port, as a number; families do not meet, for IPv4 is mapped as IPv6 has
/// it.
fn ip_number<const N: usize>(packed: &[u8; N]) -> u128 {
    let mut bytes = [0; 16];
    if N == 6 {
        bytes[10..12].fill(0xff);
        bytes[12..].copy_from_slice(&packed[..4]);
    } else {
        bytes.copy_from_slice(&packed[..16]);
    }
    u128::from_be_bytes(bytes)
}

/// One torrent.
#[derive(Debug, Default)]
pub(crate) struct Swarm {
    pub(crate) v4: Peers<6>,
    pub(crate) v6: Peers<18>,
    tally: Tally,
    /// How often somebody finished.
    pub(crate) downloaded: u32,
    /// Before this no forwarder needs to be asked.
    pub(crate) due: Seconds,
    /// What forwarders said; nothing until one is asked.
    pub(crate) known: Option<Box<Known>>,
}

impl Swarm {
    /// How many local peers there are.
    pub(crate) fn local_peers(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether nothing here is worth keeping.
    pub(crate) fn is_empty(&self) -> bool {
        self.local_peers() == 0 && self.known.as_ref().is_none_or(|known| known.is_idle())
    }

    /// The totals that clients are told.
    pub(crate) fn counts(&self, by: CountBy) -> Counts {
        let found = self.known.as_ref().map_or(0, |known| known.len());
        let (complete, incomplete) = match by {
            CountBy::Ip => self.tally.totals(),
            CountBy::Peer => {
                let seeders = self.v4.seeders() + self.v6.seeders();
                (seeders + found, self.local_peers() - seeders)
            }
        };
        Counts {
            complete: complete as u32,
            incomplete: incomplete as u32,
            downloaded: self.downloaded,
        }
    }

    /// Stores a peer that was heard of.
    pub(crate) fn hear(
        &mut self,
        now: Seconds,
        at: Packed,
        id: PeerId,
        seeder: bool,
        by: CountBy,
    ) -> Change {
        let change = match at {
            Packed::V4(at) => self.v4.hear(at, id, seeder, now),
            Packed::V6(at) => self.v6.hear(at, id, seeder, now),
        };
        match change {
            Change::Same => {}
            Change::New => {
                // It speaks for itself now.
                let known = self.known.as_mut();
                if known.is_some_and(|known| known.forget(at)) {
                    self.count(by, |tally| tally.remove(at.ip(), Side::Complete));
                }
                self.count(by, |tally| tally.add(at.ip(), Side::of(seeder)));
            }
            Change::Side => self.count(by, |tally| {
                tally.remove(at.ip(), Side::of(!seeder));
                tally.add(at.ip(), Side::of(seeder));
            }),
        }
        change
    }

    /// Whether a peer is one of ours.
    pub(crate) fn has(&self, at: &Packed) -> bool {
        match at {
            Packed::V4(at) => self.v4.has(at),
            Packed::V6(at) => self.v6.has(at),
        }
    }

    /// Forgets a peer that left.
    pub(crate) fn leave(&mut self, at: Packed, by: CountBy) {
        let was = match at {
            Packed::V4(at) => self.v4.leave(&at),
            Packed::V6(at) => self.v6.leave(&at),
        };
        if let Some(seeder) = was {
            self.count(by, |tally| tally.remove(at.ip(), Side::of(seeder)));
        }
    }

    /// Takes in a peer that a forwarder found. Returns whether it is new.
    pub(crate) fn find(
        &mut self,
        now: Seconds,
        at: Packed,
        forwarder: u16,
        most: usize,
        by: CountBy,
    ) -> bool {
        let local = match at {
            Packed::V4(at) => self.v4.has(&at),
            Packed::V6(at) => self.v6.has(&at),
        };
        let new = !local && self.known_mut().find(now, at, forwarder, most);
        if new {
            self.count(by, |tally| tally.add(at.ip(), Side::Complete));
        }
        new
    }

    /// Forgets whoever was not heard of since `before`.
    pub(crate) fn purge(&mut self, before: Seconds, by: CountBy) -> Vec<PeerId> {
        let mut gone = Vec::new();
        let mut ips = Vec::new();
        self.v4.purge(before, |at, id, seeder| {
            gone.push(id);
            ips.push((ip_number(&at), Side::of(seeder)));
        });
        self.v6.purge(before, |at, id, seeder| {
            gone.push(id);
            ips.push((ip_number(&at), Side::of(seeder)));
        });
        if let Some(known) = &mut self.known {
            known.purge(before, |ip| ips.push((ip, Side::Complete)));
        }
        for (ip, side) in ips {
            self.count(by, |tally| tally.remove(ip, side));
        }
        gone
    }

    /// Drops what forwarders said.
    pub(crate) fn drop_known(&mut self, by: CountBy) {
        if let Some(known) = self.known.take() {
            for ip in known.ips() {
                self.count(by, |tally| tally.remove(ip, Side::Complete));
            }
        }
        self.due = 0;
    }

    pub(crate) fn known_mut(&mut self) -> &mut Known {
        self.known.get_or_insert_default()
    }

    fn count(&mut self, by: CountBy, change: impl FnOnce(&mut Tally)) {
        if by == CountBy::Ip {
            change(&mut self.tally);
        }
    }

    /// Appends addresses for an answer: local peers first, then what forwarders found.
    pub(crate) fn draw4(&self, draw: &Draw, me: Option<&Compact4>, out: &mut Vec<u8>) {
        let drawn = self.v4.draw(draw, me, out);
        if let Some(known) = &self.known {
            known.v4.draw(draw.want.saturating_sub(drawn), draw, out);
        }
    }

    /// The same for IPv6.
    pub(crate) fn draw6(&self, draw: &Draw, me: Option<&Compact6>, out: &mut Vec<u8>) {
        let drawn = self.v6.draw(draw, me, out);
        if let Some(known) = &self.known {
            known.v6.draw(draw.want.saturating_sub(drawn), draw, out);
        }
    }
}

#[cfg(test)]
mod tests;
