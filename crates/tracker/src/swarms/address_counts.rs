//! Counts of distinct IP addresses in a swarm, kept up to date as peers come and go.

use super::address::v6_network;
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
    many: Option<Box<Many>>,
}

/// The addresses of a large swarm.
#[derive(Debug, Default)]
struct Many {
    ips: HashMap<u128, PeerCounts, RandomState>,
    /// The numbers of peers of IPv6 networks. One client has as many addresses as it likes in one.
    networks: HashMap<u64, u32, RandomState>,
}

impl Many {
    fn count_network(&mut self, ip: u128, before: u32, after: u32) {
        let Some(network) = v6_network(ip) else {
            return;
        };
        let count = self.networks.entry(network).or_default();
        *count = *count + after - before;
        if *count == 0 {
            self.networks.remove(&network);
        }
    }
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

    fn peers(self) -> u32 {
        self.seeders + self.leechers
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

    /// Returns the number of peers in the network of a client: at its IPv4 address, or in its IPv6
    /// network.
    pub(super) fn peers_in_network_of(&self, ip: u128) -> usize {
        let network = v6_network(ip);
        let is_same = |other: u128| match network {
            Some(network) => v6_network(other) == Some(network),
            None => other == ip,
        };
        let count = match (&self.many, network) {
            (Some(many), Some(network)) => many.networks.get(&network).copied(),
            (Some(many), None) => many.ips.get(&ip).map(|counts| counts.peers()),
            (None, _) => {
                let same = self.few.iter().filter(|(other, _)| is_same(*other));
                Some(same.map(|(_, counts)| counts.peers()).sum())
            }
        };
        count.unwrap_or(0) as usize
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
        let before = *peers;
        change(peers);
        let after = *peers;
        if let Some(many) = &mut self.many {
            many.count_network(ip, before.peers(), after.peers());
        }
        let (before, after) = (before.contribution(), after.contribution());
        self.seeders = self.seeders + after.0 - before.0;
        self.leechers = self.leechers + after.1 - before.1;
        if after == (0, 0) {
            self.remove_address(ip);
        }
    }

    fn entry(&mut self, ip: u128) -> &mut PeerCounts {
        if self.many.is_none() && self.few.len() >= SCAN_LIMIT {
            let mut many = Box::<Many>::default();
            for (ip, counts) in std::mem::take(&mut self.few) {
                many.count_network(ip, 0, counts.peers());
                many.ips.insert(ip, counts);
            }
            self.many = Some(many);
        }
        match &mut self.many {
            Some(many) => many.ips.entry(ip).or_default(),
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
                many.ips.remove(&ip);
                if many.ips.is_empty() {
                    self.many = None;
                }
            }
            None => self.few.retain(|(other, _)| *other != ip),
        }
    }
}
