//! All swarms, in many small tables.

use super::{Seconds, Swarm};
use crate::config::CountBy;
use foldhash::quality::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use headworks_tracker_wire::InfoHash;
use parking_lot::Mutex;
use std::hash::BuildHasher;

/// Many more than there are threads, so that two seldom meet.
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
        // The table takes its bits from both ends: these are from the middle.
        (number, &self.shards[(number >> 32) as usize % SHARDS])
    }

    /// Works on a swarm, which is made if it is not there.
    pub(crate) fn with<R>(&self, hash: &InfoHash, work: impl FnOnce(&mut Swarm) -> R) -> R {
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

    /// Works on a swarm that is there; one that is empty after it is dropped.
    pub(crate) fn with_known<R>(
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

    /// Forgets peers that were not heard of since `before`, and swarms that nobody is in. Returns
    /// what is left: swarms and local peers.
    pub(crate) fn purge(&self, before: Seconds, by: CountBy) -> (usize, usize) {
        let (mut swarms, mut peers) = (0, 0);
        for shard in &self.shards {
            let mut table = shard.lock();
            table.retain(|(_, swarm)| {
                for peer in swarm.purge(before, by) {
                    if let Some(known) = &mut swarm.known {
                        known.untell(peer);
                    }
                }
                if swarm.local_peers() == 0 {
                    swarm.drop_known(by);
                }
                peers += swarm.local_peers();
                !swarm.is_empty()
            });
            swarms += table.len();
        }
        (swarms, peers)
    }

    /// Has every swarm looked into with its next announce: whoever may be asked has changed.
    pub(crate) fn all_due(&self) {
        for shard in &self.shards {
            for (_, swarm) in shard.lock().iter_mut() {
                swarm.due = 0;
            }
        }
    }

    /// Looks at one swarm.
    pub(crate) fn look<R>(&self, hash: &InfoHash, look: impl FnOnce(&Swarm) -> R) -> Option<R> {
        let (number, shard) = self.shard(hash);
        let table = shard.lock();
        let (_, swarm) = table.find(number, |(other, _)| other == hash)?;
        Some(look(swarm))
    }

    /// Looks at every swarm, a table at a time.
    pub(crate) fn each(&self, mut look: impl FnMut(&InfoHash, &Swarm)) {
        for shard in &self.shards {
            for (hash, swarm) in shard.lock().iter() {
                look(hash, swarm);
            }
        }
    }
}
