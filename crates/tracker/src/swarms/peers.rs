//! Local peers of one address family.
//!
//! Addresses are stored contiguously in compact form, so a response is a slice copy. Seeders
//! precede leechers: one number counts both, and a response for a seeder copies leechers only.

use super::address::{network_len, scope};
use super::sample::PeerSample;
use crate::address_scope::ScopeSet;
use crate::clock::Seconds;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use headworks_tracker_wire::PeerId;
use std::hash::BuildHasher;
use std::sync::LazyLock;

/// Up to this many peers a linear scan is faster than a hash table.
const SCAN_LIMIT: usize = 24;

/// An index that no peer has.
const NO_INDEX: u32 = u32::MAX;

/// The seed of the hash tables. Clients can choose their addresses, so the hash must not be
/// predictable.
static SEED: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// Local peers of one address family.
#[derive(Debug)]
pub(crate) struct Peers<const N: usize> {
    addresses: Vec<[u8; N]>,
    records: Vec<Record>,
    seeders: u32,
    /// The scopes of all peers since the list was last empty.
    scopes: ScopeSet,
    /// Maps addresses to indices; absent in small swarms.
    indices: Option<Box<HashTable<u32>>>,
}

/// The rest of a peer, beside its address. Whether it is a seeder follows from its index.
#[derive(Clone, Copy, Debug)]
struct Record {
    id: PeerId,
    last_announce: Seconds,
    key: u32,
}

// With its address, a peer takes 34 bytes over IPv4 and 46 over IPv6 (ADR 36).
const _: () = assert!(size_of::<Record>() == 28);

/// A local peer, beside its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    /// The `key` of its last announce; 0 for none.
    pub(crate) key: u32,
    pub(crate) seeder: bool,
    pub(crate) last_announce: Seconds,
}

/// The effect of an upsert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerChange {
    Unchanged,
    Inserted,
    /// A leecher became a seeder, or the other way round.
    RoleChanged,
}

impl<const N: usize> Default for Peers<N> {
    fn default() -> Self {
        Peers {
            addresses: Vec::new(),
            records: Vec::new(),
            seeders: 0,
            scopes: ScopeSet::default(),
            indices: None,
        }
    }
}

impl<const N: usize> Peers<N> {
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    pub(crate) fn seeders(&self) -> usize {
        self.seeders as usize
    }

    pub(crate) fn contains(&self, at: &[u8; N]) -> bool {
        self.index_of(at).is_some()
    }

    /// Returns the port of every peer, which is the end of its compact address.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> + '_ {
        let all = self.addresses.iter();
        all.map(|address| u16::from_be_bytes([address[N - 2], address[N - 1]]))
    }

    /// Returns the number of peers in the network of a client. The addresses are contiguous, so
    /// that this is quick even in a large swarm.
    pub(super) fn count_network(&self, at: &[u8; N]) -> usize {
        let length = network_len::<N>();
        let same = |other: &&[u8; N]| other[..length] == at[..length];
        self.addresses.iter().filter(same).count()
    }

    /// Returns every peer with its address.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ([u8; N], Peer)> + '_ {
        let all = self.addresses.iter().zip(&self.records).enumerate();
        all.map(|(index, (address, record))| {
            let peer = Peer {
                id: record.id,
                key: record.key,
                seeder: index < self.seeders(),
                last_announce: record.last_announce,
            };
            (*address, peer)
        })
    }

    /// Returns the addresses of the peers with that id and key.
    pub(super) fn with_key(&self, id: &PeerId, key: u32) -> impl Iterator<Item = [u8; N]> + '_ {
        let id = *id;
        let all = self.addresses.iter().zip(&self.records);
        let same = all.filter(move |(_, record)| record.key == key && record.id == id);
        same.map(|(address, _)| *address)
    }

    /// Inserts or refreshes a peer.
    pub(crate) fn upsert(&mut self, at: [u8; N], peer: Peer) -> PeerChange {
        let seeder = peer.seeder;
        let record = Record {
            id: peer.id,
            last_announce: peer.last_announce,
            key: peer.key,
        };
        let Some(index) = self.index_of(&at) else {
            self.push(at, record);
            if seeder {
                self.promote(self.len() - 1);
            }
            return PeerChange::Inserted;
        };
        self.records[index] = record;
        match (index < self.seeders(), seeder) {
            (false, true) => self.promote(index),
            (true, false) => {
                self.demote(index);
            }
            _ => return PeerChange::Unchanged,
        }
        PeerChange::RoleChanged
    }

    /// Removes a peer. Returns whether it was a seeder.
    pub(crate) fn remove(&mut self, at: &[u8; N]) -> Option<bool> {
        let index = self.index_of(at)?;
        let seeder = index < self.seeders();
        self.remove_at(index);
        Some(seeder)
    }

    /// Removes peers that last announced before `before`.
    pub(crate) fn purge(&mut self, before: Seconds, mut removed: impl FnMut([u8; N], bool)) {
        let mut index = 0;
        while index < self.len() {
            if self.records[index].last_announce >= before {
                index += 1;
                continue;
            }
            removed(self.addresses[index], index < self.seeders());
            self.remove_at(index);
        }
        if self.addresses.capacity() > 4 * self.len().max(4) {
            self.addresses.shrink_to_fit();
            self.records.shrink_to_fit();
        }
    }

    /// Appends addresses to `out` and returns their number. `own` is the address of the client.
    pub(crate) fn sample_peers(
        &self,
        sample: &PeerSample,
        own: Option<&[u8; N]>,
        out: &mut Vec<u8>,
    ) -> usize {
        let first = if sample.seeder { self.seeders() } else { 0 };
        let (addresses, records) = (&self.addresses[first..], &self.records[first..]);
        let all = addresses.len();
        if all == 0 || sample.want == 0 {
            return 0;
        }
        let begin = sample.start(all, sample.want);
        let all_reachable = self.scopes.is_reachable_from(sample.scope);
        // The client itself is in the list at most once or twice, and few lists have peers that it
        // cannot reach, so the ranges between those are copied whole.
        let before = out.len();
        let mut left = sample.want;
        for range in [begin..all, 0..begin] {
            let mut from = range.start;
            while left > 0 && from < range.end {
                let most = from + left.min(range.end - from);
                let skipped = (from..most).find(|index| {
                    let address = &addresses[*index];
                    Some(address) == own
                        || sample.is_client(&records[*index].id)
                        || !(all_reachable || sample.reaches(address))
                });
                let end = skipped.unwrap_or(most);
                out.extend_from_slice(addresses[from..end].as_flattened());
                left -= end - from;
                from = end + usize::from(skipped.is_some());
            }
        }
        (out.len() - before) / N
    }

    /// Returns the id of the peer at an address.
    pub(crate) fn id(&self, at: &[u8; N]) -> Option<PeerId> {
        self.index_of(at).map(|index| self.records[index].id)
    }

    /// Returns the key of the peer at an address.
    pub(super) fn key(&self, at: &[u8; N]) -> Option<u32> {
        self.index_of(at).map(|index| self.records[index].key)
    }

    fn index_of(&self, at: &[u8; N]) -> Option<usize> {
        match &self.indices {
            None => self.addresses.iter().position(|other| other == at),
            Some(indices) => indices
                .find(SEED.hash_one(at), |index| {
                    self.addresses[*index as usize] == *at
                })
                .map(|index| *index as usize),
        }
    }

    fn push(&mut self, at: [u8; N], record: Record) {
        if self.addresses.is_empty() {
            // Most swarms have one peer; a vector would reserve room for four.
            self.addresses.reserve_exact(1);
            self.records.reserve_exact(1);
            self.scopes = ScopeSet::default();
        }
        self.scopes.insert(scope(&at));
        self.addresses.push(at);
        self.records.push(record);
        let (len, addresses) = (self.len(), &self.addresses);
        let hash = |index: &u32| SEED.hash_one(addresses[*index as usize]);
        match &mut self.indices {
            Some(indices) => {
                indices.insert_unique(SEED.hash_one(at), (len - 1) as u32, hash);
            }
            None if len > SCAN_LIMIT => {
                let mut indices = HashTable::with_capacity(2 * len);
                for (index, at) in addresses.iter().enumerate() {
                    indices.insert_unique(SEED.hash_one(at), index as u32, hash);
                }
                self.indices = Some(Box::new(indices));
            }
            None => {}
        }
    }

    /// Turns the leecher at `index` into a seeder.
    fn promote(&mut self, index: usize) {
        self.swap(index, self.seeders());
        self.seeders += 1;
    }

    /// Turns the seeder at `index` into a leecher and returns its new index.
    fn demote(&mut self, index: usize) -> usize {
        self.seeders -= 1;
        self.swap(index, self.seeders());
        self.seeders()
    }

    fn remove_at(&mut self, index: usize) {
        let index = if index < self.seeders() {
            self.demote(index)
        } else {
            index
        };
        let last = self.len() - 1;
        self.swap(index, last);
        if let Some(indices) = &mut self.indices {
            let hash = SEED.hash_one(self.addresses[last]);
            if let Ok(entry) = indices.find_entry(hash, |index| *index as usize == last) {
                entry.remove();
            }
            if last < SCAN_LIMIT / 2 {
                self.indices = None;
            }
        }
        self.addresses.pop();
        self.records.pop();
    }

    fn swap(&mut self, one: usize, other: usize) {
        if one == other {
            return;
        }
        if let Some(indices) = &mut self.indices {
            let (first, second) = (one as u32, other as u32);
            let hashes = [one, other].map(|index| SEED.hash_one(self.addresses[index]));
            // By way of an index that no peer has. If both hashes are equal, a direct swap would
            // leave two entries with one index in between.
            let moves = [
                (0, first, NO_INDEX),
                (1, second, first),
                (0, NO_INDEX, second),
            ];
            for (which, from, to) in moves {
                if let Some(index) = indices.find_mut(hashes[which], |index| *index == from) {
                    *index = to;
                }
            }
        }
        self.addresses.swap(one, other);
        self.records.swap(one, other);
    }
}
