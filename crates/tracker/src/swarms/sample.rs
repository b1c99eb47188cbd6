//! The selection of peers for a response.

use headworks_tracker_wire::PeerId;

/// The parameters of a selection of peers for one client.
pub(crate) struct PeerSample {
    /// The most peers to return.
    pub(crate) want: usize,
    /// The client, which is never part of its own response.
    pub(crate) id: PeerId,
    /// Whether the client is a seeder and has no use for other seeders.
    pub(crate) seeder: bool,
    /// A random number that decides where the copy begins.
    pub(crate) random: u32,
}

impl PeerSample {
    /// Whether `id` is the client itself. An id of zeros identifies nobody: load testers and simple
    /// clients all send it.
    pub(super) fn is_client(&self, id: &PeerId) -> bool {
        *id == self.id && self.id != PeerId::default()
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
