//! Counts of distinct IP addresses in a swarm, kept up to date as peers come and go.

use foldhash::quality::RandomState;
use hashbrown::HashMap;

/// The total that a peer counts towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Seeder,
    Leecher,
}

impl Role {
    pub(super) fn of(seeder: bool) -> Role {
        if seeder { Role::Seeder } else { Role::Leecher }
    }
}

/// Up to this many addresses a linear scan is used; a hash table would cost more memory.
const SCAN_LIMIT: usize = 16;

/// Distinct IP addresses with their numbers of seeders and leechers. An address with both counts
/// once, as a seeder.
#[derive(Debug, Default)]
pub(super) struct AddressCounts {
    seeders: u32,
    leechers: u32,
    few: Vec<(u128, PeerCounts)>,
    many: Option<Box<HashMap<u128, PeerCounts, RandomState>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct PeerCounts {
    seeders: u32,
    leechers: u32,
}

impl PeerCounts {
    fn count_mut(&mut self, role: Role) -> &mut u32 {
        match role {
            Role::Seeder => &mut self.seeders,
            Role::Leecher => &mut self.leechers,
        }
    }

    /// Returns the contribution of the address to the totals of seeders and leechers.
    fn contribution(self) -> (u32, u32) {
        match (self.seeders, self.leechers) {
            (0, 0) => (0, 0),
            (0, _) => (0, 1),
            _ => (1, 0),
        }
    }
}

impl AddressCounts {
    /// Returns the numbers of addresses that count as seeders and as leechers.
    pub(super) fn totals(&self) -> (usize, usize) {
        (self.seeders as usize, self.leechers as usize)
    }

    /// Returns the number of peers at an address.
    pub(super) fn peers_at(&self, ip: u128) -> usize {
        let few = || self.few.iter().find(|(other, _)| *other == ip);
        let counts = match &self.many {
            Some(many) => many.get(&ip).copied(),
            None => few().map(|(_, counts)| *counts),
        };
        counts.map_or(0, |counts| (counts.seeders + counts.leechers) as usize)
    }

    pub(super) fn add(&mut self, ip: u128, role: Role) {
        self.change(ip, |peers| *peers.count_mut(role) += 1);
    }

    pub(super) fn remove(&mut self, ip: u128, role: Role) {
        self.change(ip, |peers| {
            let count = peers.count_mut(role);
            *count = count.saturating_sub(1);
        });
    }

    fn change(&mut self, ip: u128, change: impl FnOnce(&mut PeerCounts)) {
        let peers = self.entry(ip);
        let before = peers.contribution();
        change(peers);
        let after = peers.contribution();
        self.seeders = self.seeders + after.0 - before.0;
        self.leechers = self.leechers + after.1 - before.1;
        if after == (0, 0) {
            self.remove_address(ip);
        }
    }

    fn entry(&mut self, ip: u128) -> &mut PeerCounts {
        if self.many.is_none() && self.few.len() >= SCAN_LIMIT {
            self.many = Some(Box::new(self.few.drain(..).collect()));
            self.few = Vec::new();
        }
        match &mut self.many {
            Some(many) => many.entry(ip).or_default(),
            None => {
                let index = self.few.iter().position(|(other, _)| *other == ip);
                let index = index.unwrap_or_else(|| {
                    if self.few.is_empty() {
                        self.few.reserve_exact(1);
                    }
                    self.few.push((ip, PeerCounts::default()));
                    self.few.len() - 1
                });
                &mut self.few[index].1
            }
        }
    }

    fn remove_address(&mut self, ip: u128) {
        match &mut self.many {
            Some(many) => {
                many.remove(&ip);
                if many.is_empty() {
                    self.many = None;
                }
            }
            None => self.few.retain(|(other, _)| *other != ip),
        }
    }
}
