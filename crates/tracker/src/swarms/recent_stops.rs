//! Clients that stopped a torrent a moment ago.
//!
//! A client that stops and starts again all the time would have every forwarder asked each time.
//! The torrent's record ends with its last peer, so the times are kept apart from it.

use crate::client_counts::network;
use crate::clock::Seconds;
use foldhash::quality::RandomState;
use headworks_tracker_wire::InfoHash;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The number of times kept, a power of two.
const SLOTS: usize = 1 << 16;

/// The times before which torrents of clients are not announced to forwarders again: a hash table
/// of fixed size without locks, in which a new time replaces any other one at its place. The
/// upper half of a slot tells torrent and client, the lower half is the time.
pub(crate) struct RecentStops {
    slots: Box<[AtomicU64]>,
    seed: RandomState,
}

impl Default for RecentStops {
    fn default() -> Self {
        RecentStops {
            slots: (0..SLOTS).map(|_| AtomicU64::new(0)).collect(),
            seed: RandomState::default(),
        }
    }
}

impl RecentStops {
    /// Notes that a client stopped a torrent, which is not to be announced for it before `until`.
    pub(crate) fn insert(&self, torrent: &InfoHash, client: IpAddr, until: Seconds) {
        let (slot, key) = self.slot(torrent, client);
        slot.store(key | u64::from(until), Ordering::Relaxed);
    }

    /// Returns the time before which the torrent is not announced for the client; 0 for none.
    pub(crate) fn earliest(&self, torrent: &InfoHash, client: IpAddr) -> Seconds {
        let (slot, key) = self.slot(torrent, client);
        let value = slot.load(Ordering::Relaxed);
        match value >> 32 == key >> 32 {
            true => value as Seconds,
            false => 0,
        }
    }

    /// Returns the slot of a torrent and a client, and its value without the time.
    fn slot(&self, torrent: &InfoHash, client: IpAddr) -> (&AtomicU64, u64) {
        // The port is the client's choice.
        let hash = self.seed.hash_one((torrent, network(client)));
        (&self.slots[hash as usize % SLOTS], hash >> 32 << 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_that_of_one_torrent_and_client() {
        let (stops, one) = (RecentStops::default(), InfoHash([1; 20]));
        let (me, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        assert_eq!(stops.earliest(&one, me), 0);
        stops.insert(&one, me, 77);
        assert_eq!(stops.earliest(&one, me), 77);
        assert_eq!(stops.earliest(&one, other), 0);
        assert_eq!(stops.earliest(&InfoHash([2; 20]), me), 0);
    }
}
