//! An announce as it is sent to a forwarder.

use crate::forwarders::ForwarderState;
use headworks_tracker_wire::{Announce, Event, PeerId};

/// The number of peers requested from a forwarder. All clients of the torrent share them.
pub(crate) const NUMWANT: u32 = 200;

/// An announce to one forwarder.
pub(crate) struct AnnounceQuery<'a> {
    pub(crate) forwarder: &'a ForwarderState,
    pub(crate) announce: Announce,
}

impl<'a> AnnounceQuery<'a> {
    /// Creates a query with everything in the client's announce except its address, which the
    /// operator chooses per forwarder.
    pub(crate) fn new(forwarder: &'a ForwarderState, announce: &Announce) -> AnnounceQuery<'a> {
        let announce = Announce {
            numwant: Some(NUMWANT),
            ip: forwarder.ip,
            ..*announce
        };
        AnnounceQuery {
            forwarder,
            announce,
        }
    }

    /// Creates a query that only asks for peers: without event, totals and key, and with `own_id`
    /// instead of the client's peer id. The client's port stays, because an announce needs one and
    /// a made-up port would send other peers to a closed one.
    pub(crate) fn anonymous(
        forwarder: &'a ForwarderState,
        announce: &Announce,
        own_id: PeerId,
    ) -> AnnounceQuery<'a> {
        let announce = Announce {
            peer_id: own_id,
            event: Event::None,
            uploaded: 0,
            downloaded: 0,
            left: None,
            key: None,
            ..*announce
        };
        AnnounceQuery::new(forwarder, &announce)
    }
}
