//! The record of a torrent's forwarded announces: cached peers, the local peers that are announced
//! to forwarders, and their due times.

use super::address::{PackedAddress, ip_number};
use super::by_forwarder::ByForwarder;
use super::cached_peers::CachedPeers;
use crate::client_counts::network;
use crate::clock::Seconds;
use crate::forwarders::ForwarderId;
use headworks_tracker_wire::{Announce, Event, PeerId};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The record of a torrent's forwarded announces.
#[derive(Debug, Default)]
pub(crate) struct AnnounceRecord {
    pub(crate) v4: CachedPeers<6>,
    pub(crate) v6: CachedPeers<18>,
    /// Local peers that are announced to forwarders, in the order in which they came.
    peers: Vec<AnnouncedPeer>,
    /// Cached peers that each forwarder was the first to report.
    contributed: ByForwarder<u32>,
    /// The same, only those that are still cached.
    held: HeldPeers,
    /// The times at which delayed forwards are tried again.
    retries: Vec<(StayId, ForwarderId, Seconds)>,
    /// Forwards that are queued or in flight, and selections that are still to be made.
    pending: u32,
    /// Whether any forward was answered.
    answered: bool,
}

/// The id of one stay of a peer among the announced ones. A client that stops and starts again has
/// the same peer id but another stay, and must not get the results of its earlier forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StayId(u64);

impl StayId {
    /// Returns an id that no other stay has, also in other swarms: a swarm may end and begin again
    /// while a forward is in flight.
    fn next() -> StayId {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        StayId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A local peer that is announced to forwarders.
#[derive(Debug)]
pub(crate) struct AnnouncedPeer {
    /// Its last announce. The event is `started` if it ever sent that.
    pub(crate) announce: Announce,
    /// The address that the announce came from.
    pub(crate) client: IpAddr,
    /// Its address in the swarm.
    pub(crate) address: PackedAddress,
    pub(crate) stay: StayId,
    schedules: ByForwarder<Schedule>,
    /// The time before which it is not announced for the first time.
    not_before: Seconds,
    /// The time of its last `completed` that was forwarded; 0 for never.
    completed: Seconds,
    /// The forwarders that the peer was announced to. They must receive its `stopped`.
    announced: ForwarderSet,
}

/// The schedule of one peer at one forwarder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedule {
    /// The time of the next announce.
    pub(crate) due: Seconds,
    /// The time of the last announce; 0 for never.
    pub(crate) last: Seconds,
}

impl Schedule {
    /// Whether an announce is queued or in flight.
    fn is_pending(self) -> bool {
        self.last != 0 && self.due == self.last.saturating_add(LOST_AFTER)
    }
}

/// The state of one forwarder for one torrent, over all announced peers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForwarderSchedule {
    /// The earliest time of a next announce.
    pub(crate) due: Seconds,
    /// The time of the last announce; 0 for never.
    pub(crate) last: Seconds,
    /// Peers that the forwarder was the first to report.
    pub(crate) contributed: u32,
}

/// The time after which a forward counts as lost. It exceeds the time of all attempts of a forward,
/// so a lost one delays its torrent but never blocks it.
const LOST_AFTER: Seconds = 3600;

/// The shortest time between two events of the same kind from one client to one forwarder.
pub(crate) const MIN_REPEAT: Seconds = 60;

/// The result of adding or refreshing an announced peer.
#[derive(Debug, Default)]
pub(crate) struct Upserted {
    /// Whether the peer is new among the announced ones.
    pub(crate) new: bool,
    /// The peer that had to leave for it. Forwarders that know it must receive its `stopped`.
    pub(crate) replaced: Option<AnnouncedPeer>,
}

impl AnnouncedPeer {
    /// Returns the schedules, the time before which it is not announced, and the time of the last
    /// `completed` for the peer that takes this one's place at the same address. A client that
    /// changes its id all the time must not have forwarders asked each time.
    fn times_of_successor(&self) -> (ByForwarder<Schedule>, Seconds, Seconds) {
        let mut schedules = self.schedules.clone();
        for schedule in schedules.values_mut().filter(|schedule| schedule.last != 0) {
            let due = schedule.last.saturating_add(MIN_REPEAT);
            *schedule = Schedule { due, last: 0 };
        }
        (schedules, self.not_before, self.completed)
    }

    fn new(announce: &Announce, client: IpAddr, address: PackedAddress) -> AnnouncedPeer {
        AnnouncedPeer {
            announce: *announce,
            client,
            address,
            stay: StayId::next(),
            schedules: ByForwarder::default(),
            not_before: 0,
            completed: 0,
            announced: ForwarderSet::default(),
        }
    }

    pub(crate) fn schedule(&self, forwarder: ForwarderId) -> Schedule {
        let mut schedule = self.schedules.get(forwarder);
        if schedule.last == 0 {
            schedule.due = schedule.due.max(self.not_before);
        }
        schedule
    }

    /// Whether any forwarder was asked for the peer, or is about to be.
    pub(crate) fn was_forwarded(&self) -> bool {
        let mut all = self.schedules.iter();
        all.any(|(_, schedule)| schedule.last != 0)
    }

    /// Returns the announce for a forwarder: with `started` only if it is the first one there.
    pub(crate) fn announce_to(&self, forwarder: ForwarderId) -> Announce {
        let mut announce = self.announce;
        if self.schedule(forwarder).last != 0 {
            announce.event = Event::None;
        }
        announce
    }

    /// Whether a client knows the peer's key. Many clients send a zero for none.
    pub(crate) fn has_key(&self, key: Option<u32>) -> bool {
        key.is_some_and(|key| key != 0) && key == self.announce.key
    }

    /// Whether a client may change or stop the peer: it announced the peer, or it has the peer's
    /// key. A peer id is no proof, because other peers know it.
    pub(crate) fn may_be_changed_by(&self, client: IpAddr, key: Option<u32>) -> bool {
        self.client == client || self.has_key(key)
    }

    /// Returns the forwarders that an announce of the peer is queued for or in flight to.
    pub(crate) fn pending(&self) -> impl Iterator<Item = ForwarderId> + '_ {
        let all = self.schedules.iter();
        all.filter(|(_, schedule)| schedule.is_pending())
            .map(|(id, _)| id)
    }

    /// Returns the forwarders that the peer was announced to.
    pub(crate) fn announced_to(&self) -> impl Iterator<Item = ForwarderId> + '_ {
        self.announced.iter()
    }
}

impl AnnounceRecord {
    /// Returns the number of cached peers.
    pub(crate) fn len(&self) -> usize {
        self.v4.len() + self.v6.len()
    }

    /// Whether no forward is pending and no peer is cached.
    pub(super) fn is_idle(&self) -> bool {
        self.pending == 0 && self.len() == 0
    }

    /// Whether any forwarder ever received an announce of this torrent.
    pub(crate) fn was_forwarded(&self) -> bool {
        self.answered || self.peers.iter().any(AnnouncedPeer::was_forwarded)
    }

    /// Whether forwards are pending and none was ever answered.
    pub(crate) fn awaits_first_answer(&self) -> bool {
        self.pending > 0 && !self.answered
    }

    /// Returns the number of forwards that are queued or in flight.
    pub(crate) fn pending(&self) -> u32 {
        self.pending
    }

    /// Returns the local peers that are announced to forwarders.
    pub(crate) fn peers(&self) -> &[AnnouncedPeer] {
        &self.peers
    }

    /// Returns an announced peer.
    pub(crate) fn peer(&self, id: &PeerId) -> Option<&AnnouncedPeer> {
        self.peers.iter().find(|peer| peer.announce.peer_id == *id)
    }

    fn peer_mut(&mut self, id: &PeerId) -> Option<&mut AnnouncedPeer> {
        let mut peers = self.peers.iter_mut();
        peers.find(|peer| peer.announce.peer_id == *id)
    }

    fn peer_in_stay(&mut self, stay: StayId) -> Option<&mut AnnouncedPeer> {
        self.peers.iter_mut().find(|peer| peer.stay == stay)
    }

    /// Whether a `completed` of the peer is to be forwarded: not if one was a moment ago, and not
    /// if the peer is not announced, because forwarders do not know it.
    pub(crate) fn try_complete(&mut self, id: &PeerId, now: Seconds) -> bool {
        let Some(peer) = self.peer_mut(id) else {
            return false;
        };
        let first = peer.completed == 0 || now >= peer.completed.saturating_add(MIN_REPEAT);
        if first {
            peer.completed = now.max(1);
        }
        first
    }

    /// Removes the last peer of the client with the most announced peers, if it has at least two
    /// more than `client`: one client must not take the places of all others.
    fn evict_for(&mut self, client: IpAddr) -> Option<AnnouncedPeer> {
        let count = |client: IpAddr| {
            let all = self.peers.iter();
            let same = all.filter(|peer| network(peer.client) == network(client));
            same.count()
        };
        let all = self.peers.iter().enumerate();
        let (index, peer) = all.max_by_key(|(_, peer)| count(peer.client))?;
        let evicts = count(peer.client) >= count(client) + 2;
        evicts.then(|| self.remove_at(index))
    }

    /// Adds a peer to the announced ones, if there are fewer than `limit` or another client has too
    /// many of them, or refreshes it. A peer that the client may not change stays as it is.
    pub(crate) fn upsert_peer(
        &mut self,
        announce: &Announce,
        client: IpAddr,
        address: PackedAddress,
        limit: usize,
    ) -> Upserted {
        if let Some(peer) = self.peer_mut(&announce.peer_id) {
            if !peer.may_be_changed_by(client, announce.key) {
                return Upserted::default();
            }
            let event = peer.announce.event;
            peer.announce = *announce;
            (peer.client, peer.address) = (client, address);
            if event == Event::Started || announce.event == Event::Completed {
                peer.announce.event = event;
            }
            return Upserted::default();
        }
        // A client that was restarted has a new id. The old one is nobody any more.
        let old = self.peers.iter().position(|peer| peer.address == address);
        let mut replaced = old.map(|old| self.remove_at(old));
        let inherited = replaced.as_ref().map(AnnouncedPeer::times_of_successor);
        if replaced.is_none() && self.peers.len() >= limit {
            replaced = self.evict_for(client);
        }
        let room = self.peers.len() < limit;
        if room {
            // Most torrents have one local peer; a vector would reserve room for four.
            self.peers.reserve_exact(1);
            let mut announce = *announce;
            if announce.event == Event::Completed {
                announce.event = Event::None;
            }
            let mut peer = AnnouncedPeer::new(&announce, client, address);
            (peer.schedules, peer.not_before, peer.completed) = inherited.unwrap_or_default();
            self.peers.push(peer);
        }
        Upserted {
            new: room,
            replaced,
        }
    }

    /// Adds a peer to the announced ones. Returns `false` if it is among them already.
    pub(super) fn insert_peer(
        &mut self,
        announce: &Announce,
        client: IpAddr,
        address: PackedAddress,
    ) -> bool {
        let new = self.peer(&announce.peer_id).is_none();
        if new {
            self.peers
                .push(AnnouncedPeer::new(announce, client, address));
        }
        new
    }

    /// Delays the first announces of a peer until a time.
    pub(super) fn delay_peer(&mut self, id: &PeerId, until: Seconds) {
        if let Some(peer) = self.peer_mut(id) {
            peer.not_before = until;
        }
    }

    /// Removes a peer from the announced ones. Returns it if it was there.
    pub(crate) fn remove_peer(&mut self, id: &PeerId) -> Option<AnnouncedPeer> {
        let index = (self.peers.iter()).position(|peer| peer.announce.peer_id == *id)?;
        Some(self.remove_at(index))
    }

    /// Removes the peer at an index. The results of its forwards no longer matter, so they are not
    /// awaited.
    fn remove_at(&mut self, index: usize) -> AnnouncedPeer {
        let peer = self.peers.remove(index);
        self.retries.retain(|(stay, ..)| *stay != peer.stay);
        self.pending = self.pending.saturating_sub(peer.pending().count() as u32);
        peer
    }

    /// Returns the schedule of a forwarder, over all announced peers.
    pub(crate) fn schedule(&self, forwarder: ForwarderId) -> ForwarderSchedule {
        let schedules = self.peers.iter().map(|peer| peer.schedule(forwarder));
        ForwarderSchedule {
            due: (schedules.clone().map(|schedule| schedule.due).min()).unwrap_or(0),
            last: (schedules.map(|schedule| schedule.last).max()).unwrap_or(0),
            contributed: self.contributed.get(forwarder),
        }
    }

    /// Returns the schedule of every forwarder that received an announce. A forward in flight
    /// counts as due, because its response is lost in a restart.
    pub(crate) fn schedules(&self) -> impl Iterator<Item = (ForwarderId, ForwarderSchedule)> + '_ {
        let all = self.peers.iter().flat_map(|peer| peer.schedules.iter());
        let all: BTreeSet<_> = all.map(|(forwarder, _)| forwarder).collect();
        all.into_iter().filter_map(|forwarder| {
            let mut schedule = self.schedule(forwarder);
            let pending = |peer: &AnnouncedPeer| peer.schedule(forwarder).is_pending();
            if self.peers.iter().any(pending) {
                schedule.due = 0;
            }
            (schedule.last != 0).then_some((forwarder, schedule))
        })
    }

    /// Restores the schedule of a peer from a snapshot.
    pub(crate) fn restore(
        &mut self,
        peer: &PeerId,
        forwarder: ForwarderId,
        schedule: ForwarderSchedule,
    ) {
        self.answered = true;
        if let Some(peer) = self.peer_mut(peer) {
            *peer.schedules.get_mut(forwarder) = Schedule {
                due: schedule.due,
                last: schedule.last,
            };
        }
        *self.contributed.get_mut(forwarder) = schedule.contributed;
    }

    /// Notes that forwarders will be selected soon.
    pub(crate) fn begin_selection(&mut self) {
        self.pending += 1;
    }

    /// Ends the selection that [`begin_selection`](Self::begin_selection) announced.
    pub(crate) fn end_selection(&mut self) {
        self.pending = self.pending.saturating_sub(1);
    }

    /// Reserves room for forwards of the peer at an index.
    pub(crate) fn reserve_forwards(&mut self, peer: usize, forwarders: &[ForwarderId]) {
        let schedules = &mut self.peers[peer].schedules;
        let new = forwarders.iter().filter(|id| !schedules.contains(**id));
        let new = new.count();
        schedules.reserve_exact(new);
    }

    /// Notes a forward of the peer at an index. Returns the time until which the forwarder is not
    /// asked again if the forward is lost.
    pub(crate) fn begin_forward(
        &mut self,
        now: Seconds,
        peer: usize,
        forwarder: ForwarderId,
    ) -> Seconds {
        self.pending += 1;
        let due = now.saturating_add(LOST_AFTER);
        *self.peers[peer].schedules.get_mut(forwarder) = Schedule { due, last: now };
        due
    }

    /// Notes that a forward is delayed until `at`, unless the peer has left.
    pub(crate) fn delay_forward(&mut self, stay: StayId, forwarder: ForwarderId, at: Seconds) {
        if self.peer_in_stay(stay).is_some() {
            self.forget_retry(stay, forwarder);
            self.retries.push((stay, forwarder, at));
        }
    }

    /// Returns the first time at which a delayed forward is tried again.
    pub(crate) fn retry_at(&self, forwarder: ForwarderId) -> Option<Seconds> {
        let retries = self.retries.iter();
        let retries = retries.filter(|(_, other, _)| *other == forwarder);
        retries.map(|(_, _, at)| *at).min()
    }

    fn forget_retry(&mut self, stay: StayId, forwarder: ForwarderId) {
        self.retries
            .retain(|(one, other, _)| (*one, *other) != (stay, forwarder));
    }

    /// Notes the end of a forward. The peer is announced there again at `due`. Returns `false` if
    /// the peer has left, even if it is back.
    pub(crate) fn finish_forward(
        &mut self,
        stay: StayId,
        forwarder: ForwarderId,
        due: Seconds,
        answered: bool,
    ) -> bool {
        let Some(peer) = self.peer_in_stay(stay) else {
            return false;
        };
        peer.schedules.get_mut(forwarder).due = due;
        self.pending = self.pending.saturating_sub(1);
        self.forget_retry(stay, forwarder);
        self.answered |= answered;
        true
    }

    /// Reverts a forward that never ran. Returns `false` if the peer has left, even if it is back.
    pub(crate) fn cancel_forward(
        &mut self,
        stay: StayId,
        forwarder: ForwarderId,
        previous: Schedule,
    ) -> bool {
        let Some(peer) = self.peer_in_stay(stay) else {
            return false;
        };
        *peer.schedules.get_mut(forwarder) = previous;
        self.pending = self.pending.saturating_sub(1);
        self.forget_retry(stay, forwarder);
        true
    }

    /// Notes that a peer is announced to a forwarder. Returns whether that is new; `None` if the
    /// peer is not among the announced ones.
    pub(crate) fn mark_announced(&mut self, peer: &PeerId, forwarder: ForwarderId) -> Option<bool> {
        let peer = self.peer_mut(peer)?;
        Some(peer.announced.insert(forwarder))
    }

    /// Reverts [`mark_announced`](Self::mark_announced). Returns `false` if the mark is gone,
    /// because [`remove_peer`](Self::remove_peer) has handed it out.
    pub(crate) fn unmark_announced(&mut self, peer: &PeerId, forwarder: ForwarderId) -> bool {
        let peer = self.peer_mut(peer);
        peer.is_some_and(|peer| peer.announced.remove(forwarder))
    }

    /// Returns every pair of a peer and a forwarder that it was announced to.
    pub(crate) fn announced(&self) -> impl Iterator<Item = (PeerId, ForwarderId)> + '_ {
        let all = self.peers.iter();
        all.flat_map(|peer| {
            let id = peer.announce.peer_id;
            peer.announced.iter().map(move |forwarder| (id, forwarder))
        })
    }

    /// Removes a cached peer. Returns whether it was there.
    pub(super) fn remove_cached(&mut self, address: PackedAddress) -> bool {
        let by = match address {
            PackedAddress::V4(address) => self.v4.remove(&address),
            PackedAddress::V6(address) => self.v6.remove(&address),
        };
        by.inspect(|by| self.held.remove(*by)).is_some()
    }

    /// Returns the forwarder that was the first to report a cached peer.
    pub(super) fn reporter(&self, address: PackedAddress) -> Option<ForwarderId> {
        match address {
            PackedAddress::V4(address) => self.v4.reporter(&address),
            PackedAddress::V6(address) => self.v6.reporter(&address),
        }
    }

    /// Returns the number of cached peers in the network of a client.
    pub(super) fn cached_at(&self, address: &PackedAddress) -> usize {
        match address {
            PackedAddress::V4(address) => self.v4.count_network(address),
            PackedAddress::V6(address) => self.v6.count_network(address),
        }
    }

    /// Whether a peer is cached.
    pub(super) fn has_cached(&self, address: PackedAddress) -> bool {
        match address {
            PackedAddress::V4(address) => self.v4.addresses().binary_search(&address).is_ok(),
            PackedAddress::V6(address) => self.v6.addresses().binary_search(&address).is_ok(),
        }
    }

    /// Makes room for a new peer that a forwarder reports, and returns the address of the peer that
    /// had to leave: the one with the oldest report among those of the forwarder that holds the
    /// most. So nobody can replace the peers of others by inventing many. If that is the reporting
    /// forwarder itself, peers of the same report do not replace each other.
    pub(super) fn evict_cached_for(
        &mut self,
        now: Seconds,
        reporter: ForwarderId,
    ) -> Option<PackedAddress> {
        let holder = self.held.largest_holder(reporter)?;
        let v4 = self.v4.oldest_of(holder);
        let v4 = v4.map(|(at, peer)| (at, PackedAddress::V4(peer)));
        let v6 = self.v6.oldest_of(holder);
        let v6 = v6.map(|(at, peer)| (at, PackedAddress::V6(peer)));
        let older = [v4, v6].into_iter().flatten().min_by_key(|(at, _)| *at);
        let (_, address) = older.filter(|(at, _)| *at < now || holder != reporter)?;
        self.remove_cached(address);
        Some(address)
    }

    /// Inserts or refreshes a cached peer. Returns whether it is new. At `limit` cached peers no
    /// new one is stored.
    pub(super) fn upsert_cached(
        &mut self,
        now: Seconds,
        address: PackedAddress,
        forwarder: ForwarderId,
        limit: usize,
    ) -> bool {
        let room = self.len() < limit;
        let new = match address {
            PackedAddress::V4(address) => self.v4.upsert(now, address, forwarder, room),
            PackedAddress::V6(address) => self.v6.upsert(now, address, forwarder, room),
        };
        if new {
            self.held.add(forwarder);
            let contributed = self.contributed.get_mut(forwarder);
            *contributed = contributed.saturating_add(1);
        }
        new
    }

    /// Removes cached peers that were last reported before `before`; `removed` receives their IPs.
    pub(super) fn purge(&mut self, before: Seconds, mut removed: impl FnMut(u128)) {
        let held = &mut self.held;
        self.v4.purge(before, |address, by| {
            held.remove(by);
            removed(ip_number(&address));
        });
        self.v6.purge(before, |address, by| {
            held.remove(by);
            removed(ip_number(&address));
        });
    }

    /// Returns the IPs of all cached peers, one per peer.
    pub(super) fn ips(&self) -> impl Iterator<Item = u128> + '_ {
        let v4 = self.v4.addresses().iter().map(ip_number);
        v4.chain(self.v6.addresses().iter().map(ip_number))
    }
}

/// The number of cached peers that each forwarder was the first to report, without zeros.
#[derive(Debug, Default)]
struct HeldPeers(Vec<(ForwarderId, u32)>);

impl HeldPeers {
    fn add(&mut self, forwarder: ForwarderId) {
        match self.0.iter_mut().find(|(by, _)| *by == forwarder) {
            Some((_, count)) => *count += 1,
            None => self.0.push((forwarder, 1)),
        }
    }

    fn remove(&mut self, forwarder: ForwarderId) {
        if let Some(index) = self.0.iter().position(|(by, _)| *by == forwarder) {
            self.0[index].1 -= 1;
            if self.0[index].1 == 0 {
                self.0.swap_remove(index);
            }
        }
    }

    /// Returns the forwarder with the most; the reporting one if no other has more.
    fn largest_holder(&self, reporter: ForwarderId) -> Option<ForwarderId> {
        let most = |(by, count): &&(ForwarderId, u32)| (*count, *by == reporter);
        self.0.iter().max_by_key(most).map(|(by, _)| *by)
    }
}

/// A bit set of forwarders.
#[derive(Debug, Default)]
struct ForwarderSet(Vec<u64>);

impl ForwarderSet {
    /// Adds a forwarder. Returns whether it is new.
    fn insert(&mut self, forwarder: ForwarderId) -> bool {
        let (word, bit) = (forwarder.index() / 64, 1 << (forwarder.index() % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        new
    }

    /// Removes a forwarder. Returns whether it was there.
    fn remove(&mut self, forwarder: ForwarderId) -> bool {
        let was = self.contains(forwarder);
        if was {
            self.0[forwarder.index() / 64] &= !(1 << (forwarder.index() % 64));
        }
        was
    }

    fn contains(&self, forwarder: ForwarderId) -> bool {
        let word = self.0.get(forwarder.index() / 64);
        word.is_some_and(|word| word >> (forwarder.index() % 64) & 1 == 1)
    }

    fn iter(&self) -> impl Iterator<Item = ForwarderId> + '_ {
        let all = 0..self.0.len() * 64;
        all.filter(|index| self.0[index / 64] >> (index % 64) & 1 == 1)
            .map(ForwarderId::from_index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_peer_depends_on_the_forwarders_that_were_asked() {
        let mut record = AnnounceRecord::default();
        let client = IpAddr::from([127, 0, 0, 1]);
        let address = PackedAddress::new(client, 1);
        record.upsert_peer(&Announce::default(), client, address, 10);
        let last = ForwarderId(u16::MAX - 1);
        record.begin_forward(7, 0, last);
        record.upsert_cached(7, address, last, 10);
        assert_eq!(record.schedule(last).last, 7);
        assert_eq!(record.schedule(last).contributed, 1);
        assert_eq!(
            record.schedule(ForwarderId(0)),
            ForwarderSchedule::default()
        );
        let reserved = record.peers[0].schedules.capacity() + record.contributed.capacity();
        assert!(reserved <= 16, "room for {reserved} entries");
    }

    #[test]
    fn a_retry_is_forgotten_with_its_forward() {
        let mut record = AnnounceRecord::default();
        let client = IpAddr::from([127, 0, 0, 1]);
        for id in 1..=2 {
            let announce = Announce {
                peer_id: PeerId([id; 20]),
                ..Announce::default()
            };
            let address = PackedAddress::new(client, id.into());
            record.upsert_peer(&announce, client, address, 10);
        }
        let forwarder = ForwarderId(0);
        let [one, other] = [0, 1].map(|index: usize| record.peers()[index].stay);
        for peer in 0..2 {
            record.begin_forward(1, peer, forwarder);
        }
        record.delay_forward(one, forwarder, 50);
        record.delay_forward(other, forwarder, 70);
        assert_eq!(record.retry_at(forwarder), Some(50));
        record.cancel_forward(one, forwarder, Schedule::default());
        assert_eq!(record.retry_at(forwarder), Some(70), "the other peer's");
        record.remove_peer(&PeerId([2; 20]));
        assert_eq!(record.retry_at(forwarder), None);
        record.delay_forward(other, forwarder, 90);
        assert_eq!(record.retry_at(forwarder), None, "the peer has left");
    }
}
