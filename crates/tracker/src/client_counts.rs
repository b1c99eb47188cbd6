//! The numbers of something per client, to bound what one client can take.

use foldhash::quality::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};

/// Counters per row, a power of two. A client's count is too high by about one part in this many of
/// the count of all clients, which is far below any useful limit.
const WIDTH: usize = 1 << 16;
const ROWS: usize = 4;

/// A count-min sketch (Cormode, Muthukrishnan 2005) of something per client: stored peers, or
/// connections. Unlike a table it takes the same memory for a million clients, and a count is never
/// too low.
pub(crate) struct ClientCounts {
    counters: Box<[AtomicU32]>,
    seed: RandomState,
}

impl Default for ClientCounts {
    fn default() -> Self {
        ClientCounts {
            counters: (0..ROWS * WIDTH).map(|_| AtomicU32::new(0)).collect(),
            seed: RandomState::default(),
        }
    }
}

impl ClientCounts {
    pub(crate) fn add(&self, client: IpAddr) {
        for counter in self.counters(client) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn remove(&self, client: IpAddr) {
        for counter in self.counters(client) {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the count of a client, or slightly more.
    pub(crate) fn estimate(&self, client: IpAddr) -> usize {
        let counts = self.counters(client);
        let counts = counts.map(|counter| counter.load(Ordering::Relaxed));
        counts.min().unwrap_or(0) as usize
    }

    fn counters(&self, client: IpAddr) -> impl Iterator<Item = &AtomicU32> {
        let hash = self.seed.hash_one(network(client));
        (0..ROWS).map(move |row| {
            let index = (hash >> (16 * row)) as usize % WIDTH;
            &self.counters[row * WIDTH + index]
        })
    }
}

/// Returns the network that counts as one client: an IPv4 address, or the 64 bits of an IPv6
/// address that a provider assigns.
pub(crate) fn network(client: IpAddr) -> u64 {
    match client.to_canonical() {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64 | 1 << 63,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_one_client() {
        let counts = ClientCounts::default();
        let at = |text: &str| -> IpAddr { text.parse().unwrap() };
        for peer in ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "192.0.2.1"] {
            counts.add(at(peer));
        }
        assert_eq!(counts.estimate(at("2001:db8::9")), 2);
        assert_eq!(counts.estimate(at("::ffff:192.0.2.1")), 1);
        assert_eq!(counts.estimate(at("192.0.2.2")), 0);
        counts.remove(at("2001:db8::1"));
        assert_eq!(counts.estimate(at("2001:db8::9")), 1);
    }
}
