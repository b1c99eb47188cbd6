//! Asking a forwarder, over whichever transport.

use super::http::HttpAsker;
use super::station::Station;
use super::udp::UdpAsker;
use crate::error::Error;
use headworks_service::outbound::Outbound;
use headworks_tracker_wire::response::AnnounceResponse;
use headworks_tracker_wire::{Announce, Event, PeerId};
use std::time::Duration;
use thiserror::Error;

/// Peers that a forwarder is asked for: what it names is for all clients.
const NUMWANT: u32 = 200;

/// Why a forwarder gave no answer. Never shows its address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum AskError {
    /// Nothing came in time.
    #[error("no answer in time")]
    Timeout,
    /// Its host does not exist.
    #[error("the host does not exist")]
    NoSuchHost,
    /// Nobody listens there.
    #[error("connection refused")]
    Refused,
    /// There is no way to it.
    #[error("unreachable")]
    Unreachable,
    /// The network failed in some way that may pass.
    #[error("{0}")]
    Passing(String),
    /// It answered with a status that is no answer.
    #[error("status {0}")]
    Status(u16),
    /// It answered more than anybody needs.
    #[error("the answer is too large")]
    TooLarge,
    /// It sent us from one address to the next.
    #[error("too many redirects")]
    Redirects,
    /// Its answer makes no sense.
    #[error("not a tracker's answer: {0}")]
    Garbage(String),
}

/// What a forwarder is asked.
pub(crate) struct Ask<'a> {
    pub(crate) station: &'a Station,
    pub(crate) announce: Announce,
}

impl<'a> Ask<'a> {
    /// What the forwarder is told of a client's announce: everything but the address, which is the
    /// operator's to choose.
    pub(crate) fn new(station: &'a Station, announce: &Announce) -> Ask<'a> {
        let announce = Announce {
            numwant: Some(NUMWANT),
            ip: station.ip,
            ..*announce
        };
        Ask { station, announce }
    }

    /// The least that the protocol needs to ask for peers: no event, no totals, and our name
    /// instead of the client's. Its port stays, for an announce must have one and a wrong one would
    /// send others to nowhere.
    pub(crate) fn only(station: &'a Station, announce: &Announce, own: PeerId) -> Ask<'a> {
        let announce = Announce {
            peer_id: own,
            event: Event::None,
            uploaded: 0,
            downloaded: 0,
            left: None,
            key: None,
            ..*announce
        };
        Ask::new(station, &announce)
    }
}

/// Asks forwarders.
pub(crate) struct Asker {
    http: HttpAsker,
    udp: UdpAsker,
}

impl Asker {
    /// Opens what it asks with. Both transports share the names that were looked up.
    pub(crate) fn new(outbound: Outbound) -> Result<Asker, Error> {
        let udp = UdpAsker::new(outbound.names().clone()).map_err(Error::Threads)?;
        Ok(Asker {
            http: HttpAsker { outbound },
            udp,
        })
    }

    /// Asks, for `most` at the longest.
    pub(crate) async fn ask(
        &self,
        ask: &Ask<'_>,
        most: Duration,
    ) -> Result<AnnounceResponse, AskError> {
        let answer = async {
            match ask.station.is_udp() {
                true => self.udp.ask(ask).await,
                false => self.http.ask(ask).await,
            }
        };
        let answer = tokio::time::timeout(most, answer).await;
        answer.unwrap_or(Err(AskError::Timeout))
    }

    /// Finds out whether somebody is there who could be asked, without telling of any peer.
    pub(crate) async fn probe(&self, station: &Station, most: Duration) -> Result<(), AskError> {
        let answer = async {
            match station.is_udp() {
                true => self.udp.probe(station).await,
                false => self.http.probe(station).await,
            }
        };
        let answer = tokio::time::timeout(most, answer).await;
        answer.unwrap_or(Err(AskError::Timeout))
    }
}
