//! The selection of peers for a response.

use super::address::scope;
use crate::address_scope::AddressScope;
use headworks_tracker_wire::PeerId;

/// The parameters of a selection of peers for one client.
pub(crate) struct PeerSample {
    /// The most peers to return.
    pub(crate) want: usize,
    /// The client, which is never part of its own response.
    pub(crate) id: PeerId,
    /// Whether the client is a seeder and has no use for other seeders.
    pub(crate) seeder: bool,
    /// The scope of the client's address, which decides whom it can reach.
    pub(crate) scope: AddressScope,
    /// A random number that decides where the copy begins.
    pub(crate) random: u32,
}

impl PeerSample {
    /// Whether `id` is the client itself. An id of zeros identifies nobody: load testers and simple
    /// clients all send it.
    pub(super) fn is_client(&self, id: &PeerId) -> bool {
        *id == self.id && self.id != PeerId::default()
    }

    /// Whether the client may be sent to a peer.
    pub(super) fn reaches<const N: usize>(&self, peer: &[u8; N]) -> bool {
        scope(peer).is_reachable_from(self.scope)
    }

    /// Returns the index at which a copy of `want` out of `available` peers begins.
    pub(super) fn start(&self, available: usize, want: usize) -> usize {
        if available > want {
            self.random as usize % available
        } else {
            0
        }
    }
}
