//! A forward: one announce to one forwarder, as a job of the pool.

use crate::forwarders::ForwarderId;
use crate::request::AnnounceRequest;
use crate::swarms::{ForwarderSchedule, PackedAddress};
use headworks_core::Class;
use headworks_tracker_wire::{Announce, Event};
use std::net::IpAddr;

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
    /// The address of the peer in its swarm.
    pub(super) address: PackedAddress,
    pub(super) forwarder: ForwarderId,
    /// The forwarder's schedule before this job, restored if the job never runs.
    pub(super) previous: ForwarderSchedule,
    /// Whether the result is already in the swarm's record.
    pub(super) recorded: bool,
}

impl ForwardJob {
    pub(super) fn new(request: &AnnounceRequest<'_>, forwarder: ForwarderId) -> ForwardJob {
        ForwardJob {
            announce: *request.announce,
            client: request.client,
            address: request.peer_address(),
            forwarder,
            previous: ForwarderSchedule::default(),
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

    /// Whether this is an announce, as opposed to `completed` or `stopped`.
    pub(super) fn is_announce(&self) -> bool {
        self.key_event() == Event::None
    }
}
