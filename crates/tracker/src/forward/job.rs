//! A forward: one announce to one forwarder, as a job of the pool.

use crate::forwarders::ForwarderId;
use crate::request::AnnounceRequest;
use crate::swarms::{AnnouncedPeer, Schedule, StayId};
use headworks_core::{Class, Job, Key, KeySeed};
use headworks_tracker_wire::{Announce, Event};
use std::net::IpAddr;
use std::time::Duration;

/// The time after which a forward is given up. A `retry in` costs no attempt, so without it a
/// forwarder that always asks for more time would be asked for ever. By then the client has
/// announced again, and the forwarder has dropped a peer whose `stopped` it did not take.
const LIFETIME: Duration = Duration::from_secs(30 * 60);

/// The pool's class of events: they go first, and displace regular announces from a full queue.
pub(super) const EVENTS: Class = Class(0);
/// The class of a torrent's first announce: its clients wait for peers.
pub(super) const FIRST_ANNOUNCES: Class = Class(1);
/// The class of all other announces.
pub(super) const ANNOUNCES: Class = Class(2);

/// An announce to be forwarded to one forwarder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForwardJob {
    pub(super) announce: Announce,
    pub(super) client: IpAddr,
    pub(super) forwarder: ForwarderId,
    /// The stay of the peer that is announced. Events have none.
    pub(super) stay: StayId,
    /// The peer's schedule at the forwarder before this job, restored if the job never runs.
    pub(super) previous: Schedule,
    /// Whether this is the only announce that the forwarder gets until it responds.
    pub(super) probe: bool,
    /// Whether the result is already in the swarm's record.
    pub(super) recorded: bool,
}

impl ForwardJob {
    /// Creates the job of an event.
    pub(super) fn event(request: &AnnounceRequest<'_>, forwarder: ForwarderId) -> ForwardJob {
        ForwardJob {
            announce: *request.announce,
            client: request.client,
            forwarder,
            stay: StayId::default(),
            previous: Schedule::default(),
            probe: false,
            recorded: false,
        }
    }

    /// Creates the job of an announce.
    pub(super) fn announce(peer: &AnnouncedPeer, forwarder: ForwarderId) -> ForwardJob {
        ForwardJob {
            announce: peer.announce_to(forwarder),
            client: peer.client,
            forwarder,
            stay: peer.stay,
            previous: peer.schedule(forwarder),
            probe: false,
            recorded: false,
        }
    }

    /// Returns the event that is part of the job's key. `started` and regular announces of a peer
    /// share one key, because one replaces the other.
    pub(super) fn key_event(&self) -> Event {
        match self.announce.event {
            Event::Started => Event::None,
            event => event,
        }
    }

    /// Returns the job of the pool. Every forward is made here, so that none lives for ever.
    pub(super) fn into_job(self, class: Class, seed: &KeySeed) -> Job<ForwardJob> {
        Job::new(self)
            .class(class)
            .flow(seed.flow(&self.client))
            .targets(self.forwarder.target())
            .key(key(&self.announce, self.forwarder, self.key_event(), seed))
            .expire_in(LIFETIME)
    }

    /// Whether this is an announce, as opposed to `completed` or `stopped`.
    pub(super) fn is_announce(&self) -> bool {
        self.key_event() == Event::None
    }
}

/// Returns the key of a forward. Of the forwards with one key only one is alive.
pub(super) fn key(
    announce: &Announce,
    forwarder: ForwarderId,
    event: Event,
    seed: &KeySeed,
) -> Key {
    let name = (announce.info_hash, forwarder, announce.peer_id, event as u8);
    seed.key(&name)
}
