//! Peers that forwarders reported, of one address family.

use super::address::{network_len, scope};
use super::sample::PeerSample;
use crate::address_scope::ScopeSet;
use crate::clock::Seconds;
use crate::forwarders::ForwarderId;

/// Peers that forwarders reported, sorted by address.
#[derive(Debug)]
pub(crate) struct CachedPeers<const N: usize> {
    addresses: Vec<[u8; N]>,
    origins: Vec<Origin>,
    /// The scopes of all peers so far. Not every client can reach all of them.
    scopes: ScopeSet,
}

/// The forwarder that reported a peer first, and the time of the last report by any of them.
#[derive(Clone, Copy, Debug)]
struct Origin {
    forwarder: ForwarderId,
    last_seen: Seconds,
}

impl<const N: usize> Default for CachedPeers<N> {
    fn default() -> Self {
        CachedPeers {
            addresses: Vec::new(),
            origins: Vec::new(),
            scopes: ScopeSet::default(),
        }
    }
}

impl<const N: usize> CachedPeers<N> {
    pub(crate) fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Returns every peer with the forwarder that reported it first and the time of the last
    /// report.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ([u8; N], ForwarderId, Seconds)> + '_ {
        let all = self.addresses.iter().zip(&self.origins);
        all.map(|(address, origin)| (*address, origin.forwarder, origin.last_seen))
    }

    /// Returns the number of peers in the network of a client.
    pub(super) fn count_network(&self, address: &[u8; N]) -> usize {
        let length = network_len::<N>();
        let network = |other: &[u8; N]| other[..length].cmp(&address[..length]);
        let below = (self.addresses).partition_point(|other| network(other).is_lt());
        let up_to = (self.addresses).partition_point(|other| network(other).is_le());
        up_to - below
    }

    pub(super) fn addresses(&self) -> &[[u8; N]] {
        &self.addresses
    }

    /// Inserts or refreshes a peer. Returns whether it is new. Without `room` only known peers are
    /// refreshed.
    pub(super) fn upsert(
        &mut self,
        now: Seconds,
        address: [u8; N],
        forwarder: ForwarderId,
        room: bool,
    ) -> bool {
        match self.addresses.binary_search(&address) {
            Ok(index) => {
                self.origins[index].last_seen = now;
                false
            }
            Err(index) if room => {
                let last_seen = now;
                self.addresses.insert(index, address);
                self.scopes.insert(scope(&address));
                self.origins.insert(
                    index,
                    Origin {
                        forwarder,
                        last_seen,
                    },
                );
                true
            }
            Err(_) => false,
        }
    }

    /// Returns the forwarder that was the first to report a peer.
    pub(super) fn reporter(&self, address: &[u8; N]) -> Option<ForwarderId> {
        let index = self.addresses.binary_search(address).ok()?;
        Some(self.origins[index].forwarder)
    }

    /// Removes a peer. Returns the forwarder that was the first to report it, if it was there.
    pub(super) fn remove(&mut self, address: &[u8; N]) -> Option<ForwarderId> {
        let index = self.addresses.binary_search(address).ok()?;
        self.addresses.remove(index);
        Some(self.origins.remove(index).forwarder)
    }

    /// Returns the peer of a forwarder whose last report is the oldest, with the time of that
    /// report.
    pub(super) fn oldest_of(&self, forwarder: ForwarderId) -> Option<(Seconds, [u8; N])> {
        let origins = self.origins.iter().enumerate();
        let own = origins.filter(|(_, origin)| origin.forwarder == forwarder);
        let (index, origin) = own.min_by_key(|(_, origin)| origin.last_seen)?;
        Some((origin.last_seen, self.addresses[index]))
    }

    /// Removes peers that were last reported before `before`. `removed` receives each with the
    /// forwarder that was the first to report it.
    pub(super) fn purge(&mut self, before: Seconds, mut removed: impl FnMut([u8; N], ForwarderId)) {
        let mut index = 0;
        while index < self.addresses.len() {
            if self.origins[index].last_seen >= before {
                index += 1;
                continue;
            }
            let by = self.origins.remove(index).forwarder;
            removed(self.addresses.remove(index), by);
        }
    }

    /// Appends at most `want` addresses to `out`.
    pub(super) fn sample_peers(&self, want: usize, sample: &PeerSample, out: &mut Vec<u8>) {
        let all = self.addresses.len();
        if all == 0 || want == 0 {
            return;
        }
        let (wrapped, first) = self.addresses.split_at(sample.start(all, want));
        if !self.scopes.is_reachable_from(sample.scope) {
            let reachable = first.iter().chain(wrapped);
            let reachable = reachable.filter(|address| sample.reaches(address));
            return reachable
                .take(want)
                .for_each(|address| out.extend_from_slice(address));
        }
        let first = &first[..first.len().min(want)];
        out.extend_from_slice(first.as_flattened());
        let rest = &wrapped[..wrapped.len().min(want - first.len())];
        out.extend_from_slice(rest.as_flattened());
    }
}
