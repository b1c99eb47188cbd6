//! The table of all swarms, in shards.

use super::swarm::Swarm;
use crate::clock::Seconds;
use crate::config::CountBy;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use headworks_tracker_wire::InfoHash;
use parking_lot::Mutex;
use std::hash::BuildHasher;

/// Many more shards than threads, so that two threads rarely wait for one lock.
const SHARDS: usize = 256;

/// All swarms.
pub(crate) struct Swarms {
    shards: Box<[Shard]>,
    seed: RandomState,
}

type Shard = Mutex<HashTable<(InfoHash, Swarm)>>;

impl Swarms {
    pub(crate) fn new() -> Swarms {
        Swarms {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            seed: RandomState::default(),
        }
    }

    fn shard(&self, hash: &InfoHash) -> (u64, &Shard) {
        let number = self.seed.hash_one(hash);
        // The table inside a shard uses the lowest and the highest bits of the hash; the shard
        // comes from the middle, so that the two are independent.
        (number, &self.shards[(number >> 32) as usize % SHARDS])
    }

    /// Calls `work` with a swarm, which is created if it does not exist. The shard is locked
    /// meanwhile.
    pub(crate) fn with_or_insert<R>(
        &self,
        hash: &InfoHash,
        work: impl FnOnce(&mut Swarm) -> R,
    ) -> R {
        let (number, shard) = self.shard(hash);
        let mut table = shard.lock();
        let rehash = |(hash, _): &(InfoHash, Swarm)| self.seed.hash_one(hash);
        match table.entry(number, |(other, _)| other == hash, rehash) {
            Entry::Occupied(mut entry) => work(&mut entry.get_mut().1),
            Entry::Vacant(entry) => {
                let mut entry = entry.insert((*hash, Swarm::default()));
                work(&mut entry.get_mut().1)
            }
        }
    }

    /// Calls `work` with a swarm if it exists, and removes it if it is empty afterwards. The shard
    /// is locked meanwhile.
    pub(crate) fn with_existing<R>(
        &self,
        hash: &InfoHash,
        work: impl FnOnce(&mut Swarm) -> R,
    ) -> Option<R> {
        let (number, shard) = self.shard(hash);
        let mut table = shard.lock();
        let mut entry = table.find_entry(number, |(other, _)| other == hash).ok()?;
        let result = work(&mut entry.get_mut().1);
        if entry.get().1.is_empty() {
            entry.remove();
        }
        Some(result)
    }

    /// Removes peers that last announced before `before`, and empty swarms. At most `announced` of
    /// the others take the places of removed peers that were announced to forwarders. Returns the
    /// remaining numbers of swarms and local peers.
    pub(crate) fn purge(&self, before: Seconds, by: CountBy, announced: usize) -> (usize, usize) {
        let (mut swarms, mut peers) = (0, 0);
        for shard in &self.shards {
            let mut table = shard.lock();
            table.retain(|(hash, swarm)| {
                if swarm.purge(before, by) > 0 {
                    swarm.refill_announced(hash, announced, |_| false);
                }
                if swarm.local_peers() == 0 {
                    swarm.drop_record(by);
                }
                peers += swarm.local_peers();
                !swarm.is_empty()
            });
            swarms += table.len();
        }
        (swarms, peers)
    }

    /// Makes every swarm select forwarders at its next announce, because the list of forwarders has
    /// changed.
    pub(crate) fn mark_all_due(&self) {
        for shard in &self.shards {
            for (_, swarm) in shard.lock().iter_mut() {
                swarm.due = 0;
            }
        }
    }

    /// Calls `work` with every swarm, locking one shard at a time.
    pub(crate) fn for_each_mut(&self, mut work: impl FnMut(&InfoHash, &mut Swarm)) {
        for shard in &self.shards {
            for (hash, swarm) in shard.lock().iter_mut() {
                work(hash, swarm);
            }
        }
    }

    /// Calls `read` with a swarm if it exists.
    pub(crate) fn read<R>(&self, hash: &InfoHash, read: impl FnOnce(&Swarm) -> R) -> Option<R> {
        let (number, shard) = self.shard(hash);
        let table = shard.lock();
        let (_, swarm) = table.find(number, |(other, _)| other == hash)?;
        Some(read(swarm))
    }

    /// Calls `read` with every swarm, locking one shard at a time.
    pub(crate) fn for_each(&self, mut read: impl FnMut(&InfoHash, &Swarm)) {
        for shard in &self.shards {
            for (hash, swarm) in shard.lock().iter() {
                read(hash, swarm);
            }
        }
    }
}
