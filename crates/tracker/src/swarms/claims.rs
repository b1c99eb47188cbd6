//! Peers at an address that their client claimed with `ip=`.

use super::address::PackedAddress;
use crate::client_counts::network;
use foldhash::quality::RandomState;
use hashbrown::HashMap;
use std::net::IpAddr;

/// The claimed addresses of a swarm, with the clients that claimed them. Anybody can claim any
/// address, so limits and permissions follow the client instead.
#[derive(Debug, Default)]
pub(super) struct Claims(HashMap<PackedAddress, IpAddr, RandomState>);

impl Claims {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns every claimed address with its client.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (PackedAddress, IpAddr)> + '_ {
        self.0.iter().map(|(address, client)| (*address, *client))
    }

    /// Returns the client that claimed an address.
    pub(super) fn client(&self, address: &PackedAddress) -> Option<IpAddr> {
        self.0.get(address).copied()
    }

    pub(super) fn insert(&mut self, address: PackedAddress, client: IpAddr) {
        self.0.insert(address, client);
    }

    pub(super) fn remove(&mut self, address: &PackedAddress) {
        self.0.remove(address);
    }

    /// Returns the number of addresses that the network of a client claimed.
    pub(super) fn by(&self, client: IpAddr) -> usize {
        let same = |other: &&IpAddr| network(**other) == network(client);
        self.0.values().filter(same).count()
    }

    /// Returns the number of claimed addresses in the network of a client.
    pub(super) fn at(&self, client: IpAddr) -> usize {
        let same = |address: &&PackedAddress| network(address.ip()) == network(client);
        self.0.keys().filter(same).count()
    }
}
