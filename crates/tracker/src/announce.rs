//! The announce handler: what a request does to its swarm, and the response to it.
//!
//! A request is handled to its end on the thread that received it. Work for the forward plane is
//! handed over and never waited for.

use crate::active_config::ActiveConfig;
use crate::address_scope::AddressScope;
use crate::clock::Seconds;
use crate::config::Overload;
use crate::counters::Counters;
use crate::forward::{Admission, Forwarded, Forwarding, PendingSubmissions};
use crate::forwarders::ForwarderId;
use crate::request::{AddressFamilies, AnnounceRequest};
use crate::state::TrackerState;
use crate::swarms::{
    AnnouncedPeer, MIN_REPEAT, PackedAddress, Peer, PeerChange, PeerSample, Swarm,
};
use headworks_tracker_wire::{Counts, Event, InfoHash, PeerId, compact};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

/// Handles announces and scrapes.
pub(crate) struct AnnounceHandler {
    pub(crate) state: Arc<TrackerState>,
    pub(crate) forwarding: Forwarding,
}

/// The buffers of one announce thread, reused for every response.
#[derive(Default)]
pub(crate) struct ResponseBuffers {
    /// Compact IPv4 addresses.
    pub(crate) v4: Vec<u8>,
    /// Compact IPv6 addresses.
    pub(crate) v6: Vec<u8>,
    /// Every peer with its id, for a response with dictionaries.
    pub(crate) with_ids: Vec<(Option<PeerId>, SocketAddr)>,
    /// Forwards to submit once the responses are sent.
    pending: PendingSubmissions,
}

impl ResponseBuffers {
    fn clear_peers(&mut self) {
        self.v4.clear();
        self.v6.clear();
        self.with_ids.clear();
    }
}

/// The outcome of an announce, from which the servers write their response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AnnounceOutcome {
    /// The announce succeeded; its peers are in the buffers.
    Peers { interval: Seconds, counts: Counts },
    /// The tracker is overloaded; the client may retry.
    Rejected {
        reason: RejectReason,
        retry: Seconds,
    },
    /// A list forbids it; the message is for the client.
    Denied(&'static str),
}

/// The reason why an announce is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RejectReason {
    /// First announces exceed their rate.
    RateLimited,
    /// No forward found room in the queue.
    QueueFull,
}

impl RejectReason {
    /// Returns the message for the client. Its time is the one in the response's interval.
    pub(crate) fn message(self, retry: Seconds) -> String {
        match self {
            RejectReason::RateLimited => format!("tracker busy, retry in {retry} seconds"),
            RejectReason::QueueFull if retry.is_multiple_of(60) => {
                format!("tracker queue full, retry in {} minutes", retry / 60)
            }
            RejectReason::QueueFull => format!("tracker queue full, retry in {retry} seconds"),
        }
    }
}

/// The result of the work under the lock of the swarm's shard.
#[derive(Default)]
struct SwarmUpdate {
    counts: Counts,
    /// Whether no forwarder was ever asked for the torrent.
    first: bool,
    /// Whether the first forwards are still pending.
    awaits_first_answer: bool,
    /// Present if the announce is a `completed` to be forwarded: the forwarders that know of the
    /// peer.
    completed: Option<Vec<ForwarderId>>,
    /// The announced peer that had to leave for this one.
    replaced: Option<AnnouncedPeer>,
    /// Present if the announce is to be forwarded.
    admission: Option<Admission>,
}

impl AnnounceHandler {
    /// Handles an announce and leaves its peers in `buffers`.
    pub(crate) fn announce(
        &self,
        request: &AnnounceRequest<'_>,
        buffers: &mut ResponseBuffers,
    ) -> AnnounceOutcome {
        buffers.clear_peers();
        let AnnounceRequest {
            active, announce, ..
        } = request;
        let address = request.peer_address();
        let denied = active.access.denies(&announce.info_hash, request.client);
        // A client that a reload denies must be able to leave what it announced before.
        let stopped = (announce.event == Event::Stopped).then(|| self.stop(request, address));
        if let Some(outcome) = denied.map(AnnounceOutcome::Denied).or(stopped) {
            return outcome;
        }
        let swarms = &self.state.swarms;
        let may_insert = || {
            let config = &active.config;
            swarms.totals().0 < config.max_torrents
                && swarms.clients.estimate(request.client) < config.max_torrents_per_client
        };
        let update = swarms.with_or_insert_if(&announce.info_hash, may_insert, |swarm| {
            self.update_swarm(request, address, swarm, buffers)
        });
        let Some(update) = update else {
            request.counters.not_stored.add(1);
            return AnnounceOutcome::Peers {
                interval: active.config.announce_interval.as_secs() as Seconds,
                counts: Counts::default(),
            };
        };
        if let Some(peer) = update.replaced {
            self.forwarding.stop_replaced(request, &peer);
        }
        if let Some(announced) = update.completed {
            let pending = &mut buffers.pending;
            self.forwarding.completed(request, &announced, pending);
        }
        let forwarded = update.admission.map_or(Forwarded::NotNeeded, |admission| {
            let pending = &mut buffers.pending;
            self.forwarding.forward(request, admission, pending)
        });
        let config = &active.config;
        let interval = config.announce_interval.as_secs() as Seconds;
        let short_interval = interval.min(config.first_interval.as_secs() as Seconds);
        let counts = update.counts;
        let rejected = match forwarded {
            Forwarded::Queued | Forwarded::NotNeeded => None,
            Forwarded::RateLimited => Some((RejectReason::RateLimited, config.retry_period)),
            Forwarded::QueueFull => Some((RejectReason::QueueFull, config.announce_interval)),
        };
        if let Some((reason, retry)) = rejected
            && config.overload == Overload::Refuse
        {
            let retry = retry.as_secs() as Seconds;
            return AnnounceOutcome::Rejected { reason, retry };
        }
        // Forwarders are being asked, or should be: the client is to come back soon for their
        // peers.
        let soon = rejected.is_some()
            || update.awaits_first_answer
            || (update.first && forwarded == Forwarded::Queued);
        AnnounceOutcome::Peers {
            interval: if soon { short_interval } else { interval },
            counts,
        }
    }

    /// Submits the forwards in `buffers`. Call it when the responses are sent.
    pub(crate) fn submit_pending(&self, buffers: &mut ResponseBuffers, counters: &Counters) {
        self.forwarding
            .submit_pending(&mut buffers.pending, counters);
    }

    /// Does everything that needs the swarm, so that an announce takes its shard's lock once.
    fn update_swarm(
        &self,
        request: &AnnounceRequest<'_>,
        address: PackedAddress,
        swarm: &mut Swarm,
        buffers: &mut ResponseBuffers,
    ) -> SwarmUpdate {
        let AnnounceRequest { now, announce, .. } = request;
        let by = self.state.count_by;
        let owner = swarm.contains(&address).then(|| swarm.client(&address));
        if !self.may_store(request, address, owner, swarm) {
            request.counters.not_stored.add(1);
            sample_peers(request, address, swarm, buffers);
            return SwarmUpdate {
                counts: swarm.counts(by),
                ..SwarmUpdate::default()
            };
        }
        let peer = Peer {
            id: announce.peer_id,
            key: announce.key.unwrap_or(0),
            seeder: announce.is_seeder(),
            last_announce: *now,
        };
        let change = swarm.upsert_peer(request.client, address, peer, by);
        if owner != Some(request.client) {
            let clients = &self.state.swarms.clients;
            owner.inspect(|client| clients.remove(*client));
            clients.add(request.client);
        }
        if announce.event == Event::Completed && change != PeerChange::Unchanged {
            swarm.downloaded = swarm.downloaded.saturating_add(1);
        }
        sample_peers(request, address, swarm, buffers);
        let forwards = request.active.may_forward(&announce.info_hash);
        let mut replaced = None;
        if forwards {
            let limit = request.active.announced_peers();
            let record = swarm.record.as_ref();
            let new = record.is_none_or(|record| record.peer(&announce.peer_id).is_none());
            replaced = swarm.announce_peer(announce, request.client, address, limit);
            let stops = &self.state.swarms.stops;
            if new {
                let earliest = stops.earliest(&announce.info_hash, request.client);
                if earliest > *now {
                    swarm.delay_peer(&announce.peer_id, earliest);
                }
            }
        }
        let record = swarm.record.as_ref();
        let completed = announce.event == Event::Completed;
        let due = !completed && forwards && swarm.due <= *now;
        let peer = record.and_then(|record| record.peer(&announce.peer_id));
        // Another client may have the same peer id, and must not speak for this one.
        let completed = completed
            && request.active.reveals_peer(announce)
            && peer.is_some_and(|peer| request.may_change(peer));
        let announced = || peer.map_or_else(Vec::new, |peer| peer.announced_to().collect());
        let announced = completed.then(announced);
        let record = swarm.record.as_mut();
        let repeated =
            completed && record.is_some_and(|record| !record.try_complete(&announce.peer_id, *now));
        let record = swarm.record.as_ref();
        let first = due && record.is_none_or(|record| !record.was_forwarded());
        SwarmUpdate {
            counts: swarm.counts(by),
            first,
            awaits_first_answer: record.is_some_and(|record| record.awaits_first_answer()),
            completed: announced.filter(|_| !repeated),
            replaced,
            admission: due.then(|| self.forwarding.admit(request, first, swarm)),
        }
    }

    /// Whether the client may change the peer at an address, which `owner` announced, or has room
    /// for a new one.
    fn may_store(
        &self,
        request: &AnnounceRequest<'_>,
        address: PackedAddress,
        owner: Option<IpAddr>,
        swarm: &Swarm,
    ) -> bool {
        let client = request.client;
        match owner {
            Some(owner) => {
                owner == client || swarm.may_change(&address, client, request.announce.key)
            }
            None => (self.state).has_room(&request.active.config, client, swarm),
        }
    }

    /// Removes a local peer.
    fn remove_peer(&self, swarm: &mut Swarm, address: PackedAddress) {
        let client = swarm.client(&address);
        if swarm.remove_peer(address, self.state.count_by) {
            self.state.swarms.clients.remove(client);
        }
    }

    /// Removes a peer that leaves. Only its own address, or its key, may do that.
    fn stop(&self, request: &AnnounceRequest<'_>, address: PackedAddress) -> AnnounceOutcome {
        // Queued announces are cancelled before the marks are taken; the forward handler relies on
        // this order.
        if !request.active.forwarders.is_empty() {
            self.forwarding.cancel_announces(request);
        }
        let by = self.state.count_by;
        let (hash, id) = (&request.announce.info_hash, request.announce.peer_id);
        let removed = self.state.swarms.with_existing(hash, |swarm| {
            if swarm.peer_id(&address) == Some(id)
                && swarm.may_change(&address, request.client, request.announce.key)
            {
                self.remove_peer(swarm, address);
            }
            for address in swarm.peers_with_key(&id, request.announce.key) {
                self.remove_peer(swarm, address);
            }
            let record = swarm.record.as_mut();
            let peer = record.and_then(|record| {
                let authorized = request.may_change(record.peer(&id)?);
                authorized.then(|| record.remove_peer(&id)).flatten()
            });
            if let Some(peer) = &peer {
                self.remove_peer(swarm, peer.address);
                if peer.was_forwarded() {
                    let until = request.now.saturating_add(MIN_REPEAT);
                    self.state.swarms.stops.insert(hash, peer.client, until);
                }
            }
            let mut refilled = false;
            if swarm.local_peers() == 0 {
                swarm.drop_record(by);
                self.forwarding.disarm(hash, swarm);
            } else if peer.is_some() && request.active.may_forward(hash) {
                let limit = request.active.announced_peers();
                refilled = swarm.refill_announced(hash, limit, |_| false);
            }
            let announced = peer.map(|peer| peer.announced_to().collect::<Vec<_>>());
            (swarm.counts(by), announced.unwrap_or_default(), refilled)
        });
        let (counts, announced, refilled) = removed.unwrap_or_default();
        self.forwarding.stopped(request, &announced);
        if refilled {
            self.forwarding.announce_now(hash);
        }
        AnnounceOutcome::Peers {
            interval: request.active.config.announce_interval.as_secs() as Seconds,
            counts,
        }
    }

    /// Removes peers that have not announced within the configured age.
    pub(crate) fn purge(&self) {
        for refilled in self.state.purge() {
            self.forwarding.announce_now(&refilled);
        }
    }

    /// Returns the totals of a swarm; zeros if it does not exist or is not served.
    pub(crate) fn scrape(&self, active: &ActiveConfig, hash: &InfoHash) -> Counts {
        if active.access.denies_torrent(hash) {
            return Counts::default();
        }
        let by = self.state.count_by;
        let counts = self
            .state
            .swarms
            .with_existing(hash, |swarm| swarm.counts(by));
        counts.unwrap_or_else(|| Counts {
            downloaded: self.state.swarms.downloads(hash),
            ..Counts::default()
        })
    }
}

/// Fills the buffers with peers for the client.
fn sample_peers(
    request: &AnnounceRequest<'_>,
    address: PackedAddress,
    swarm: &Swarm,
    buffers: &mut ResponseBuffers,
) {
    let limit = request.active.config.max_peers;
    let want = request
        .announce
        .numwant
        .map_or(limit, |want| want.min(limit));
    let sample = PeerSample {
        want: want as usize,
        id: request.announce.peer_id,
        seeder: request.announce.is_seeder(),
        scope: AddressScope::of(request.client),
        random: request.random,
    };
    let (own4, own6) = match &address {
        PackedAddress::V4(address) => (Some(address), None),
        PackedAddress::V6(address) => (None, Some(address)),
    };
    if request.families != AddressFamilies::V6 {
        swarm.sample_peers_v4(&sample, own4, &mut buffers.v4);
    }
    if request.families != AddressFamilies::V4 {
        swarm.sample_peers_v6(&sample, own6, &mut buffers.v6);
    }
    if request.as_dicts {
        let v4 = buffers.v4.as_chunks::<6>().0.iter();
        let v4 = v4.map(|address| (swarm.v4.id(address), compact::unpack4(address)));
        let v6 = buffers.v6.as_chunks::<18>().0.iter();
        let v6 = v6.map(|address| (swarm.v6.id(address), compact::unpack6(address)));
        buffers.with_ids.extend(v4.chain(v6));
    }
}
