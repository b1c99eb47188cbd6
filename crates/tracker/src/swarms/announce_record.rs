//! The record of a torrent's forwarded announces: cached peers, due times, and the peers that each
//! forwarder knows of.

use super::address::{PackedAddress, ip_number};
use super::cached_peers::CachedPeers;
use crate::clock::Seconds;
use crate::forwarders::ForwarderId;
use foldhash::quality::RandomState;
use hashbrown::HashMap;
use headworks_tracker_wire::PeerId;

/// The record of a torrent's forwarded announces.
#[derive(Debug, Default)]
pub(crate) struct AnnounceRecord {
    pub(crate) v4: CachedPeers<6>,
    pub(crate) v6: CachedPeers<18>,
    /// Indexed by forwarder.
    schedules: Vec<ForwarderSchedule>,
    /// The forwarders that each peer was announced to. They must receive its `stopped`.
    announced: HashMap<PeerId, ForwarderSet, RandomState>,
    /// Forwards that are queued or in flight, and selections that are still to be made.
    pending: u32,
    /// Whether any forward was answered.
    answered: bool,
}

/// The schedule of one forwarder for one torrent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForwarderSchedule {
    /// The time of the next announce.
    pub(crate) due: Seconds,
    /// The time of the last announce; 0 for never.
    pub(crate) last: Seconds,
    /// Peers that the forwarder was the first to report.
    pub(crate) contributed: u32,
}

/// The time after which a forward counts as lost. It exceeds the time of all attempts of a forward,
/// so a lost one delays its torrent but never blocks it.
const LOST_AFTER: Seconds = 3600;

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
        self.schedules.iter().any(|schedule| schedule.last != 0)
    }

    /// Whether forwards are pending and none was ever answered.
    pub(crate) fn awaits_first_answer(&self) -> bool {
        self.pending > 0 && !self.answered
    }

    /// Returns the number of forwards that are queued or in flight.
    pub(crate) fn pending(&self) -> u32 {
        self.pending
    }

    pub(crate) fn schedule(&self, forwarder: ForwarderId) -> ForwarderSchedule {
        let schedule = self.schedules.get(forwarder.index());
        schedule.copied().unwrap_or_default()
    }

    fn schedule_mut(&mut self, forwarder: ForwarderId) -> &mut ForwarderSchedule {
        let index = forwarder.index();
        if self.schedules.len() <= index {
            self.schedules
                .resize(index + 1, ForwarderSchedule::default());
        }
        &mut self.schedules[index]
    }

    /// Reserves exactly the memory for `forwarders` schedules; growing by doubling would waste half
    /// of it in every swarm.
    pub(crate) fn reserve(&mut self, forwarders: usize) {
        let more = forwarders.saturating_sub(self.schedules.len());
        self.schedules.reserve_exact(more);
    }

    /// Returns the schedule of every forwarder that received an announce. A forward in flight
    /// counts as due, because its response is lost in a restart.
    pub(crate) fn schedules(&self) -> impl Iterator<Item = (ForwarderId, ForwarderSchedule)> + '_ {
        let all = self.schedules.iter().enumerate();
        all.filter(|(_, schedule)| schedule.last != 0)
            .map(|(index, schedule)| {
                let in_flight = schedule.due == schedule.last + LOST_AFTER;
                let due = if in_flight { 0 } else { schedule.due };
                (
                    ForwarderId::from_index(index),
                    ForwarderSchedule { due, ..*schedule },
                )
            })
    }

    /// Restores a schedule from a snapshot.
    pub(crate) fn restore(&mut self, forwarder: ForwarderId, schedule: ForwarderSchedule) {
        self.answered = true;
        *self.schedule_mut(forwarder) = schedule;
    }

    /// Notes that forwarders will be selected soon.
    pub(crate) fn begin_selection(&mut self) {
        self.pending += 1;
    }

    /// Ends the selection that [`begin_selection`](Self::begin_selection) announced.
    pub(crate) fn end_selection(&mut self) {
        self.pending = self.pending.saturating_sub(1);
    }

    /// Notes a forward. Returns the time until which the forwarder is not asked again if the
    /// forward is lost.
    pub(crate) fn begin_forward(&mut self, now: Seconds, forwarder: ForwarderId) -> Seconds {
        self.pending += 1;
        let schedule = self.schedule_mut(forwarder);
        (schedule.last, schedule.due) = (now, now + LOST_AFTER);
        schedule.due
    }

    /// Notes the end of a forward. The forwarder is asked again at `due`.
    pub(crate) fn finish_forward(&mut self, forwarder: ForwarderId, due: Seconds, answered: bool) {
        self.pending = self.pending.saturating_sub(1);
        self.answered |= answered;
        self.schedule_mut(forwarder).due = due;
    }

    /// Reverts a forward that never ran.
    pub(crate) fn cancel_forward(&mut self, forwarder: ForwarderId, previous: ForwarderSchedule) {
        self.pending = self.pending.saturating_sub(1);
        *self.schedule_mut(forwarder) = previous;
    }

    /// Returns the earliest due time of the first `forwarders` forwarders.
    pub(crate) fn earliest_due(&self, forwarders: usize) -> Seconds {
        if self.schedules.len() < forwarders {
            return 0;
        }
        let due = self.schedules.iter().map(|schedule| schedule.due);
        due.min().unwrap_or(0)
    }

    /// Notes that a peer is announced to a forwarder. Returns whether that is new.
    pub(crate) fn mark_announced(&mut self, peer: PeerId, forwarder: ForwarderId) -> bool {
        self.announced.entry(peer).or_default().insert(forwarder)
    }

    /// Reverts [`mark_announced`](Self::mark_announced). Returns `false` if the mark is gone,
    /// because [`take_announced`](Self::take_announced) has handed it out.
    pub(crate) fn unmark_announced(&mut self, peer: PeerId, forwarder: ForwarderId) -> bool {
        let forwarders = self.announced.get_mut(&peer);
        forwarders.is_some_and(|forwarders| forwarders.remove(forwarder))
    }

    /// Removes and returns the forwarders that must receive `stopped` for a peer.
    pub(crate) fn take_announced(&mut self, peer: PeerId) -> Vec<ForwarderId> {
        let forwarders = self.announced.remove(&peer).unwrap_or_default();
        forwarders.iter().collect()
    }

    /// Returns the forwarders that a peer was announced to.
    pub(crate) fn announced_to(&self, peer: &PeerId) -> Vec<ForwarderId> {
        let forwarders = self.announced.get(peer).into_iter();
        forwarders.flat_map(ForwarderSet::iter).collect()
    }

    /// Returns every pair of a peer and a forwarder that it was announced to.
    pub(crate) fn announced(&self) -> impl Iterator<Item = (PeerId, ForwarderId)> + '_ {
        let all = self.announced.iter();
        all.flat_map(|(peer, forwarders)| forwarders.iter().map(|forwarder| (*peer, forwarder)))
    }

    /// Removes a cached peer. Returns whether it was there.
    pub(super) fn remove_cached(&mut self, address: PackedAddress) -> bool {
        match address {
            PackedAddress::V4(address) => self.v4.remove(&address),
            PackedAddress::V6(address) => self.v6.remove(&address),
        }
    }

    /// Whether a peer is cached.
    pub(super) fn has_cached(&self, address: PackedAddress) -> bool {
        match address {
            PackedAddress::V4(address) => self.v4.addresses().binary_search(&address).is_ok(),
            PackedAddress::V6(address) => self.v6.addresses().binary_search(&address).is_ok(),
        }
    }

    /// Removes the cached peer whose last report is the oldest, unless that is as new as `now`.
    /// Returns its address.
    pub(super) fn evict_oldest(&mut self, now: Seconds) -> Option<PackedAddress> {
        let v4 = self
            .v4
            .oldest()
            .map(|(at, peer)| (at, PackedAddress::V4(peer)));
        let v6 = self
            .v6
            .oldest()
            .map(|(at, peer)| (at, PackedAddress::V6(peer)));
        let older = [v4, v6].into_iter().flatten().min_by_key(|(at, _)| *at);
        let (_, address) = older.filter(|(at, _)| *at < now)?;
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
            self.schedule_mut(forwarder).contributed += 1;
        }
        new
    }

    /// Removes cached peers that were last reported before `before`; `removed` receives their IPs.
    pub(super) fn purge(&mut self, before: Seconds, mut removed: impl FnMut(u128)) {
        self.v4
            .purge(before, |address| removed(ip_number(&address)));
        self.v6
            .purge(before, |address| removed(ip_number(&address)));
    }

    /// Returns the IPs of all cached peers, one per peer.
    pub(super) fn ips(&self) -> impl Iterator<Item = u128> + '_ {
        let v4 = self.v4.addresses().iter().map(ip_number);
        v4.chain(self.v6.addresses().iter().map(ip_number))
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
        let bit = 1 << (forwarder.index() % 64);
        let Some(word) = self.0.get_mut(forwarder.index() / 64) else {
            return false;
        };
        let was = *word & bit != 0;
        *word &= !bit;
        was
    }

    fn iter(&self) -> impl Iterator<Item = ForwarderId> + '_ {
        let all = 0..self.0.len() * 64;
        all.filter(|index| self.0[index / 64] >> (index % 64) & 1 == 1)
            .map(ForwarderId::from_index)
    }
}
