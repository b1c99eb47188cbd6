//! One swarm: the local peers of a torrent and the record of its forwarded announces.

use super::address::{PackedAddress, ip_number};
use super::address_counts::{AddressCounts, Role};
use super::announce_record::{AnnounceRecord, AnnouncedPeer};
use super::claims::Claims;
use super::peers::{Peer, PeerChange, Peers};
use super::sample::PeerSample;
use crate::clock::Seconds;
use crate::config::CountBy;
use crate::forwarders::ForwarderId;
use headworks_tracker_wire::compact::{self, Compact4, Compact6};
use headworks_tracker_wire::{Announce, Counts, InfoHash, PeerId};
use std::collections::HashSet;
use std::net::IpAddr;

/// The most peers of a family that are searched for one whose client moved to another address. In a
/// larger swarm the old peer expires.
const MAX_SEARCH: usize = 4096;

/// The swarm of one torrent.
#[derive(Debug, Default)]
pub(crate) struct Swarm {
    pub(crate) v4: Peers<6>,
    pub(crate) v6: Peers<18>,
    addresses: AddressCounts,
    /// Boxed, because `ip=` is not allowed by default.
    claims: Option<Box<Claims>>,
    /// Completed downloads.
    pub(crate) downloaded: u32,
    /// The time before which no forwarder is due.
    pub(crate) due: Seconds,
    /// The time of the swarm's entry in the due timers; 0 for none.
    pub(crate) timer: Seconds,
    /// The record of forwarded announces; boxed, because most swarms of a tracker without
    /// forwarders never have one.
    pub(crate) record: Option<Box<AnnounceRecord>>,
}

impl Swarm {
    /// Returns the number of local peers.
    pub(crate) fn local_peers(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Returns the number of peers that forwarders reported.
    pub(crate) fn cached_peers(&self) -> usize {
        self.record.as_ref().map_or(0, |record| record.len())
    }

    /// Whether the swarm can be dropped.
    pub(crate) fn is_empty(&self) -> bool {
        self.local_peers() == 0 && self.record.as_ref().is_none_or(|record| record.is_idle())
    }

    /// Returns the totals for announce and scrape responses. Cached peers count as seeders.
    pub(crate) fn counts(&self, by: CountBy) -> Counts {
        let (complete, incomplete) = match by {
            CountBy::Ip => self.addresses.totals(),
            CountBy::Peer => {
                let seeders = self.v4.seeders() + self.v6.seeders();
                let complete = seeders + self.cached_peers();
                (complete, self.local_peers() - seeders)
            }
        };
        Counts {
            complete: complete as u32,
            incomplete: incomplete as u32,
            downloaded: self.downloaded,
        }
    }

    /// Inserts or refreshes a local peer, which `client` announced.
    pub(crate) fn upsert_peer(
        &mut self,
        client: IpAddr,
        address: PackedAddress,
        peer: Peer,
        by: CountBy,
    ) -> PeerChange {
        let seeder = peer.seeder;
        let change = match address {
            PackedAddress::V4(address) => self.v4.upsert(address, peer),
            PackedAddress::V6(address) => self.v6.upsert(address, peer),
        };
        self.set_client(address, client);
        let ip = address.ip_number();
        match change {
            PeerChange::Unchanged => {}
            PeerChange::Inserted => {
                // A cached peer that announces itself becomes a local peer.
                let record = self.record.as_mut();
                if record.is_some_and(|record| record.remove_cached(address)) {
                    self.count(by, |counts| counts.remove(ip, Role::Seeder));
                }
                self.count(by, |counts| counts.add(ip, Role::of(seeder)));
            }
            PeerChange::RoleChanged => self.count(by, |counts| {
                counts.remove(ip, Role::of(!seeder));
                counts.add(ip, Role::of(seeder));
            }),
        }
        change
    }

    /// Returns the client that announced the peer at an address.
    pub(crate) fn client(&self, address: &PackedAddress) -> IpAddr {
        let claims = self.claims.as_ref();
        let claimed = claims.and_then(|claims| claims.client(address));
        claimed.unwrap_or_else(|| address.ip())
    }

    fn set_client(&mut self, address: PackedAddress, client: IpAddr) {
        if client != address.ip() {
            let claims = self.claims.get_or_insert_default();
            claims.insert(address, client);
        } else {
            self.remove_claim(&address);
        }
    }

    fn remove_claim(&mut self, address: &PackedAddress) {
        if let Some(claims) = &mut self.claims {
            claims.remove(address);
            if claims.is_empty() {
                self.claims = None;
            }
        }
    }

    /// Whether a client may change or remove the peer at an address: it announced the peer, it has
    /// that address, or it has the peer's key.
    pub(crate) fn may_change(
        &self,
        address: &PackedAddress,
        client: IpAddr,
        key: Option<u32>,
    ) -> bool {
        let by_key = || {
            let known = match address {
                PackedAddress::V4(address) => self.v4.key(address),
                PackedAddress::V6(address) => self.v6.key(address),
            };
            // Many clients send a zero for none.
            key.is_some_and(|key| key != 0) && key == known
        };
        client == address.ip() || client == self.client(address) || by_key()
    }

    /// Returns the addresses that clients claimed, with those clients.
    pub(crate) fn claims(&self) -> Vec<(PackedAddress, IpAddr)> {
        let claims = self.claims.as_ref();
        claims.map_or_else(Vec::new, |claims| claims.iter().collect())
    }

    /// Returns the local peers with that id and key: a client that moved to another address has
    /// left one behind.
    pub(crate) fn peers_with_key(&self, id: &PeerId, key: Option<u32>) -> Vec<PackedAddress> {
        let Some(key) = key.filter(|key| *key != 0) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        if self.v4.len() <= MAX_SEARCH {
            found.extend(self.v4.with_key(id, key).map(PackedAddress::V4));
        }
        if self.v6.len() <= MAX_SEARCH {
            found.extend(self.v6.with_key(id, key).map(PackedAddress::V6));
        }
        found
    }

    /// Whether a local peer has that address.
    pub(crate) fn contains(&self, address: &PackedAddress) -> bool {
        match address {
            PackedAddress::V4(address) => self.v4.contains(address),
            PackedAddress::V6(address) => self.v6.contains(address),
        }
    }

    /// Returns those of `ports` that a local peer has, in one pass over all peers.
    pub(crate) fn local_ports(&self, ports: &HashSet<u16>) -> HashSet<u16> {
        if ports.is_empty() {
            return HashSet::new();
        }
        let all = self.v4.ports().chain(self.v6.ports());
        all.filter(|port| ports.contains(port)).collect()
    }

    /// Removes a cached peer, if any forwarder or that one was the first to report it.
    pub(crate) fn remove_cached(
        &mut self,
        address: PackedAddress,
        reporter: Option<ForwarderId>,
        by: CountBy,
    ) {
        let reported = |record: &&mut Box<AnnounceRecord>| {
            reporter.is_none() || record.reporter(address) == reporter
        };
        let record = self.record.as_mut().filter(reported);
        if record.is_some_and(|record| record.remove_cached(address)) {
            let ip = address.ip_number();
            self.count(by, |counts| counts.remove(ip, Role::Seeder));
        }
    }

    /// Returns the id of the local peer at an address.
    pub(crate) fn peer_id(&self, address: &PackedAddress) -> Option<PeerId> {
        match address {
            PackedAddress::V4(address) => self.v4.id(address),
            PackedAddress::V6(address) => self.v6.id(address),
        }
    }

    /// Adds a local peer to those that are announced to forwarders, if there are fewer than
    /// `limit`, or refreshes it. A new one is due at once. Returns the peer that had to
    /// leave for it.
    pub(crate) fn announce_peer(
        &mut self,
        announce: &Announce,
        client: IpAddr,
        address: PackedAddress,
        limit: usize,
    ) -> Option<AnnouncedPeer> {
        let record = self.record_mut();
        let upserted = record.upsert_peer(announce, client, address, limit);
        if upserted.new {
            self.due = 0;
        }
        upserted.replaced
    }

    /// Delays the first announces of a peer until a time.
    pub(crate) fn delay_peer(&mut self, id: &PeerId, until: Seconds) {
        self.record_mut().delay_peer(id, until);
    }

    /// Drops announced peers that have left, and announces other local peers in their place,
    /// `preferred` ones first. Returns whether there are any.
    pub(crate) fn refill_announced(
        &mut self,
        hash: &InfoHash,
        limit: usize,
        preferred: impl Fn(&PeerId) -> bool,
    ) -> bool {
        let Some(mut record) = self.record.take() else {
            return false;
        };
        let left: Vec<PeerId> = (record.peers().iter())
            .filter(|peer| !self.contains(&peer.address))
            .map(|peer| peer.announce.peer_id)
            .collect();
        for peer in left {
            record.remove_peer(&peer);
        }
        let v4 = self.v4.iter();
        let v4 = v4.map(|(at, peer)| (compact::unpack4(&at), peer));
        let v6 = self.v6.iter();
        let v6 = v6.map(|(at, peer)| (compact::unpack6(&at), peer));
        let mut others: Vec<_> = v4.chain(v6).collect();
        others.sort_by_key(|(_, peer)| !preferred(&peer.id));
        let mut added = false;
        for (address, peer) in others {
            if record.peers().len() >= limit {
                break;
            }
            let announce = Announce {
                info_hash: *hash,
                peer_id: peer.id,
                port: address.port(),
                left: peer.seeder.then_some(0),
                key: Some(peer.key).filter(|key| *key != 0),
                ..Announce::default()
            };
            let packed = PackedAddress::new(address.ip(), address.port());
            added |= record.insert_peer(&announce, self.client(&packed), packed);
        }
        self.record = Some(record);
        if added {
            self.due = 0;
        }
        added
    }

    /// Returns the number of local peers that the network of a client announced.
    pub(crate) fn peers_of(&self, client: IpAddr, by: CountBy) -> usize {
        let address = PackedAddress::new(client, 0);
        let in_network = match (by, &address) {
            (CountBy::Ip, address) => {
                // Cached peers are counted there, too, but a client has no part in those.
                let record = self.record.as_ref();
                let cached = record.map_or(0, |record| record.cached_at(address));
                let all = self.addresses.peers_in_network_of(address.ip_number());
                all.saturating_sub(cached)
            }
            (CountBy::Peer, PackedAddress::V4(address)) => self.v4.count_network(address),
            (CountBy::Peer, PackedAddress::V6(address)) => self.v6.count_network(address),
        };
        match &self.claims {
            Some(claims) => (in_network + claims.by(client)).saturating_sub(claims.at(client)),
            None => in_network,
        }
    }

    /// Removes a local peer. Returns whether it was there.
    pub(crate) fn remove_peer(&mut self, address: PackedAddress, by: CountBy) -> bool {
        let was_seeder = match address {
            PackedAddress::V4(address) => self.v4.remove(&address),
            PackedAddress::V6(address) => self.v6.remove(&address),
        };
        if let Some(seeder) = was_seeder {
            self.remove_claim(&address);
            let ip = address.ip_number();
            self.count(by, |counts| counts.remove(ip, Role::of(seeder)));
        }
        was_seeder.is_some()
    }

    /// Inserts or refreshes a peer that a forwarder reported, unless it is a local peer. Returns
    /// whether it is new. At `limit` cached peers a new one replaces an older one, so that a
    /// torrent does not keep the peers of its first hour for ever.
    pub(crate) fn upsert_cached(
        &mut self,
        now: Seconds,
        address: PackedAddress,
        forwarder: ForwarderId,
        limit: usize,
        by: CountBy,
    ) -> bool {
        if self.contains(&address) {
            return false;
        }
        let record = self.record_mut();
        if record.len() >= limit
            && !record.has_cached(address)
            && let Some(evicted) = record.evict_cached_for(now, forwarder)
        {
            let ip = evicted.ip_number();
            self.count(by, |counts| counts.remove(ip, Role::Seeder));
        }
        let new = self
            .record_mut()
            .upsert_cached(now, address, forwarder, limit);
        if new {
            self.count(by, |counts| counts.add(address.ip_number(), Role::Seeder));
        }
        new
    }

    /// Removes local peers that last announced before `before` and cached peers that were last
    /// reported before it. `removed` receives the clients of the local ones. Returns their number.
    pub(crate) fn purge(
        &mut self,
        before: Seconds,
        by: CountBy,
        mut removed: impl FnMut(IpAddr),
    ) -> usize {
        let (mut ips, mut expired) = (Vec::new(), Vec::new());
        self.v4.purge(before, |address, seeder| {
            expired.push(PackedAddress::V4(address));
            ips.push((ip_number(&address), Role::of(seeder)));
        });
        self.v6.purge(before, |address, seeder| {
            expired.push(PackedAddress::V6(address));
            ips.push((ip_number(&address), Role::of(seeder)));
        });
        let count = ips.len();
        for address in expired {
            removed(self.client(&address));
            self.remove_claim(&address);
        }
        if let Some(record) = &mut self.record {
            record.purge(before, |ip| ips.push((ip, Role::Seeder)));
        }
        for (ip, role) in ips {
            self.count(by, |counts| counts.remove(ip, role));
        }
        count
    }

    /// Drops the record of forwarded announces.
    pub(crate) fn drop_record(&mut self, by: CountBy) {
        if let Some(record) = self.record.take() {
            for ip in record.ips() {
                self.count(by, |counts| counts.remove(ip, Role::Seeder));
            }
        }
        self.due = 0;
    }

    /// Returns the record of forwarded announces, creating it if necessary.
    pub(crate) fn record_mut(&mut self) -> &mut AnnounceRecord {
        self.record.get_or_insert_default()
    }

    fn count(&mut self, by: CountBy, change: impl FnOnce(&mut AddressCounts)) {
        if by == CountBy::Ip {
            change(&mut self.addresses);
        }
    }

    /// Appends IPv4 addresses for a response: local peers first, then cached ones. `own` is the
    /// address of the client.
    pub(crate) fn sample_peers_v4(
        &self,
        sample: &PeerSample,
        own: Option<&Compact4>,
        out: &mut Vec<u8>,
    ) {
        let local = self.v4.sample_peers(sample, own, out);
        if let Some(record) = &self.record {
            let want = sample.want.saturating_sub(local);
            record.v4.sample_peers(want, sample, out);
        }
    }

    /// Appends IPv6 addresses for a response, like [`sample_peers_v4`](Self::sample_peers_v4).
    pub(crate) fn sample_peers_v6(
        &self,
        sample: &PeerSample,
        own: Option<&Compact6>,
        out: &mut Vec<u8>,
    ) {
        let local = self.v6.sample_peers(sample, own, out);
        if let Some(record) = &self.record {
            let want = sample.want.saturating_sub(local);
            record.v6.sample_peers(want, sample, out);
        }
    }
}
