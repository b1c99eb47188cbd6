//! The table of all swarms, in shards.

use super::recent_stops::RecentStops;
use super::swarm::Swarm;
use crate::client_counts::ClientCounts;
use crate::clock::Seconds;
use crate::config::CountBy;
use foldhash::quality::RandomState;
use hashbrown::hash_table::Entry;
use hashbrown::{HashMap, HashTable};
use headworks_tracker_wire::InfoHash;
use parking_lot::{Mutex, MutexGuard};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Many more shards than threads, so that two threads rarely wait for one lock.
const SHARDS: usize = 256;
/// The most torrents without peers whose completed downloads are remembered, per shard.
const MAX_DOWNLOADS: usize = 1024;

/// All swarms.
pub(crate) struct Swarms {
    shards: Box<[Shard]>,
    seed: RandomState,
    /// The stored peers per client.
    pub(crate) clients: ClientCounts,
    /// The clients that stopped a torrent a moment ago.
    pub(crate) stops: RecentStops,
    /// How often the lock of a single swarm's shard was taken.
    #[cfg(test)]
    pub(crate) locks: AtomicUsize,
}

/// A part of the table. The counts change under the lock and are read without it.
#[derive(Default)]
struct Shard {
    swarms: Mutex<ShardTable>,
    torrents: AtomicUsize,
    peers: AtomicUsize,
}

#[derive(Default)]
struct ShardTable {
    swarms: HashTable<(InfoHash, Swarm)>,
    /// The completed downloads of torrents without peers.
    downloads: HashMap<InfoHash, u32, RandomState>,
}

impl ShardTable {
    /// Remembers the completed downloads of a swarm that is dropped. When there are too many, any
    /// other one is forgotten: the hash table's order is as good as random.
    fn keep_downloads(&mut self, hash: &InfoHash, downloaded: u32) {
        if downloaded == 0 {
            return;
        }
        if self.downloads.len() >= MAX_DOWNLOADS
            && let Some(any) = self.downloads.keys().next().copied()
        {
            self.downloads.remove(&any);
        }
        self.downloads.insert(*hash, downloaded);
    }
}

impl Shard {
    fn count(&self, table: &ShardTable, before: usize, after: usize) {
        self.torrents.store(table.swarms.len(), Ordering::Relaxed);
        // Wrapping: the sum is right although a part of it may be negative.
        let change = after.wrapping_sub(before);
        self.peers.fetch_add(change, Ordering::Relaxed);
    }
}

impl Swarms {
    pub(crate) fn new() -> Swarms {
        Swarms {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            seed: RandomState::default(),
            clients: ClientCounts::default(),
            stops: RecentStops::default(),
            #[cfg(test)]
            locks: AtomicUsize::new(0),
        }
    }

    fn lock<'a>(&self, shard: &'a Shard) -> MutexGuard<'a, ShardTable> {
        #[cfg(test)]
        self.locks.fetch_add(1, Ordering::Relaxed);
        shard.swarms.lock()
    }

    fn shard(&self, hash: &InfoHash) -> (u64, &Shard) {
        let number = self.seed.hash_one(hash);
        // The table inside a shard uses the lowest and the highest bits of the hash; the shard
        // comes from the middle, so that the two are independent.
        (number, &self.shards[(number >> 32) as usize % SHARDS])
    }

    /// Returns the numbers of torrents and local peers, without a lock.
    pub(crate) fn totals(&self) -> (usize, usize) {
        self.shards.iter().fold((0, 0), |(torrents, peers), shard| {
            (
                torrents + shard.torrents.load(Ordering::Relaxed),
                usize::wrapping_add(peers, shard.peers.load(Ordering::Relaxed)),
            )
        })
    }

    /// Calls `work` with a swarm, which is created if it does not exist. The shard is locked
    /// meanwhile.
    pub(crate) fn with_or_insert<R>(
        &self,
        hash: &InfoHash,
        work: impl FnOnce(&mut Swarm) -> R,
    ) -> R {
        let inserted = self.with_or_insert_if(hash, || true, work);
        inserted.expect("every swarm may be created")
    }

    /// Calls `work` with a swarm, which is created if it does not exist and `may_insert` allows it.
    /// Returns `None` otherwise. The shard is locked meanwhile.
    pub(crate) fn with_or_insert_if<R>(
        &self,
        hash: &InfoHash,
        may_insert: impl FnOnce() -> bool,
        work: impl FnOnce(&mut Swarm) -> R,
    ) -> Option<R> {
        let (number, shard) = self.shard(hash);
        let mut table = self.lock(shard);
        let ShardTable { swarms, downloads } = &mut *table;
        let rehash = |(hash, _): &(InfoHash, Swarm)| self.seed.hash_one(hash);
        let (before, after, result) = match swarms.entry(number, |(other, _)| other == hash, rehash)
        {
            Entry::Occupied(mut entry) => {
                let swarm = &mut entry.get_mut().1;
                let before = swarm.local_peers();
                let result = work(swarm);
                (before, swarm.local_peers(), result)
            }
            Entry::Vacant(entry) => {
                if !may_insert() {
                    return None;
                }
                let mut swarm = Swarm::default();
                swarm.downloaded = downloads.remove(hash).unwrap_or(0);
                let mut entry = entry.insert((*hash, swarm));
                let swarm = &mut entry.get_mut().1;
                let result = work(swarm);
                (0, swarm.local_peers(), result)
            }
        };
        shard.count(&table, before, after);
        Some(result)
    }

    /// Calls `work` with a swarm if it exists, and removes it if it is empty afterwards. The shard
    /// is locked meanwhile.
    pub(crate) fn with_existing<R>(
        &self,
        hash: &InfoHash,
        work: impl FnOnce(&mut Swarm) -> R,
    ) -> Option<R> {
        let (number, shard) = self.shard(hash);
        let mut table = self.lock(shard);
        let entry = table.swarms.find_entry(number, |(other, _)| other == hash);
        let mut entry = entry.ok()?;
        let swarm = &mut entry.get_mut().1;
        let before = swarm.local_peers();
        let result = work(swarm);
        let (after, downloaded) = (swarm.local_peers(), swarm.downloaded);
        if swarm.is_empty() {
            entry.remove();
            table.keep_downloads(hash, downloaded);
        }
        shard.count(&table, before, after);
        Some(result)
    }

    /// Removes peers that last announced before `before`, and empty swarms. At most `announced` of
    /// the others take the places of removed peers that were announced to forwarders. Returns the
    /// torrents in which that happened: they are due now.
    pub(crate) fn purge(&self, before: Seconds, by: CountBy, announced: usize) -> Vec<InfoHash> {
        let mut refilled = Vec::new();
        for shard in &self.shards {
            let mut table = shard.swarms.lock();
            let (mut peers_before, mut peers_after, mut dropped) = (0, 0, Vec::new());
            table.swarms.retain(|(hash, swarm)| {
                peers_before += swarm.local_peers();
                let removed = swarm.purge(before, by, |ip| self.clients.remove(ip));
                if removed > 0 && swarm.refill_announced(hash, announced, |_| false) {
                    refilled.push(*hash);
                }
                if swarm.local_peers() == 0 {
                    swarm.drop_record(by);
                }
                peers_after += swarm.local_peers();
                if swarm.is_empty() {
                    dropped.push((*hash, swarm.downloaded));
                }
                !swarm.is_empty()
            });
            for (hash, downloaded) in dropped {
                table.keep_downloads(&hash, downloaded);
            }
            shard.count(&table, peers_before, peers_after);
        }
        refilled
    }

    /// Makes every swarm select forwarders at its next announce, because the list of forwarders has
    /// changed.
    pub(crate) fn mark_all_due(&self) {
        self.for_each_mut(|_, swarm| swarm.due = 0);
    }

    /// Calls `work` with every swarm, locking one shard at a time. It must not add or remove peers.
    pub(crate) fn for_each_mut(&self, mut work: impl FnMut(&InfoHash, &mut Swarm)) {
        for shard in &self.shards {
            for (hash, swarm) in &mut shard.swarms.lock().swarms {
                work(hash, swarm);
            }
        }
    }

    /// Returns the completed downloads of a torrent without peers.
    pub(crate) fn downloads(&self, hash: &InfoHash) -> u32 {
        let (_, shard) = self.shard(hash);
        let table = self.lock(shard);
        table.downloads.get(hash).copied().unwrap_or(0)
    }

    /// Remembers the completed downloads of a torrent without peers.
    pub(crate) fn set_downloads(&self, hash: &InfoHash, downloaded: u32) {
        let (_, shard) = self.shard(hash);
        shard.swarms.lock().keep_downloads(hash, downloaded);
    }

    /// Calls `read` with every torrent without peers and its completed downloads.
    pub(crate) fn for_each_downloads(&self, mut read: impl FnMut(&InfoHash, u32)) {
        for shard in &self.shards {
            for (hash, downloaded) in &shard.swarms.lock().downloads {
                read(hash, *downloaded);
            }
        }
    }

    /// Calls `read` with a swarm if it exists.
    pub(crate) fn read<R>(&self, hash: &InfoHash, read: impl FnOnce(&Swarm) -> R) -> Option<R> {
        let (number, shard) = self.shard(hash);
        let table = self.lock(shard);
        let (_, swarm) = table.swarms.find(number, |(other, _)| other == hash)?;
        Some(read(swarm))
    }

    /// Calls `read` with every swarm, locking one shard at a time.
    pub(crate) fn for_each(&self, mut read: impl FnMut(&InfoHash, &Swarm)) {
        self.for_each_while(|hash, swarm| {
            read(hash, swarm);
            true
        });
    }

    /// Calls `read` with every swarm until it returns `false`.
    pub(crate) fn for_each_while(&self, mut read: impl FnMut(&InfoHash, &Swarm) -> bool) {
        for shard in &self.shards {
            for (hash, swarm) in &shard.swarms.lock().swarms {
                if !read(hash, swarm) {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_downloads_are_bounded() {
        let mut table = ShardTable::default();
        for number in 0..3 * MAX_DOWNLOADS as u32 {
            let mut hash = InfoHash::default();
            hash.0[..4].copy_from_slice(&number.to_be_bytes());
            table.keep_downloads(&hash, number);
            assert_eq!(table.downloads.get(&hash).copied().unwrap_or(0), number);
            assert!(table.downloads.len() <= MAX_DOWNLOADS, "after {number}");
        }
    }
}
