//! An announce request as the HTTP and UDP servers hand it to the announce handler.

use crate::active_config::ActiveConfig;
use crate::clock::Seconds;
use crate::counters::Counters;
use crate::swarms::{AnnouncedPeer, PackedAddress};
use headworks_tracker_wire::Announce;
use std::net::IpAddr;

/// The address families that a response can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressFamilies {
    V4,
    V6,
    Both,
}

/// A received announce.
pub(crate) struct AnnounceRequest<'a> {
    pub(crate) active: &'a ActiveConfig,
    pub(crate) now: Seconds,
    /// The address of the client's connection, or the one that a trusted proxy reported for it.
    /// Limits and permissions go by it, never by an address that the client claims with `ip=`.
    pub(crate) client: IpAddr,
    pub(crate) announce: &'a Announce,
    pub(crate) families: AddressFamilies,
    /// Whether the response has peers as dictionaries, with their ids.
    pub(crate) as_dicts: bool,
    pub(crate) random: u32,
    pub(crate) counters: &'a Counters,
}

impl AnnounceRequest<'_> {
    /// Returns the address at which other peers reach the client.
    pub(crate) fn peer_address(&self) -> PackedAddress {
        let ip = match self.announce.ip {
            // A client that may choose any address could point a whole swarm at a victim.
            Some(ip) if self.active.config.allow_ip_parameter => ip,
            _ => self.client,
        };
        PackedAddress::new(ip, self.announce.port)
    }

    /// Whether this client may change or stop an announced peer.
    pub(crate) fn may_change(&self, peer: &AnnouncedPeer) -> bool {
        peer.may_be_changed_by(self.client, self.announce.key)
    }
}
