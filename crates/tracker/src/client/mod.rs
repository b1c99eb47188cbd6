//! A client for other trackers, over HTTP, HTTPS and UDP.

mod error;
mod http;
mod query;
mod reach;
mod udp;

pub(crate) use error::ClientError;
pub(crate) use http::{gunzip, redirect_target};
pub(crate) use query::{AnnounceQuery, NUMWANT};
pub(crate) use reach::{HttpReach, Reach, is_from_internet, is_refused, reach_of_redirect};

use crate::error::Error;
use crate::forwarders::ForwarderState;
use headworks_service::outbound::Outbound;
use headworks_tracker_wire::response::{AnnounceResponse, PeerList};
use headworks_tracker_wire::{Announce, Event, InfoHash, PeerId};
use http::HttpClient;
use std::time::Duration;
use tokio::time::Instant;
use udp::UdpClient;

/// The port in the announce of a check. Some trackers refuse those below 1024 and 6881 to 6889.
const CHECK_PORT: u16 = 51_413;

/// Whether a response has any field that only a tracker sends.
fn is_about_a_swarm(list: &PeerList) -> bool {
    let numbers = [
        list.interval,
        list.min_interval,
        list.complete,
        list.incomplete,
    ];
    numbers.iter().any(Option::is_some) || !list.peers.is_empty() || list.warning.is_some()
}

/// A client for other trackers.
pub(crate) struct TrackerClient {
    http: HttpClient,
    udp: UdpClient,
    /// Responds instead of the network, so that tests can run in virtual time.
    #[cfg(test)]
    pub(crate) fake: Option<FakeNetwork>,
}

/// Returns the time that a forwarder takes and its response, to an announce or to a probe.
#[cfg(test)]
pub(crate) type FakeNetwork = Box<
    dyn Fn(
            &ForwarderState,
            Option<&headworks_tracker_wire::Announce>,
        ) -> (Duration, Result<AnnounceResponse, ClientError>)
        + Send
        + Sync,
>;

impl TrackerClient {
    /// Opens the UDP sockets. Both transports share one DNS cache. Call it inside a tokio runtime.
    pub(crate) fn new(outbound: Outbound) -> Result<TrackerClient, Error> {
        let udp = UdpClient::new(outbound.dns_cache().clone()).map_err(Error::Threads)?;
        Ok(TrackerClient {
            http: HttpClient::new(outbound),
            udp,
            #[cfg(test)]
            fake: None,
        })
    }

    /// Sends an announce and waits for its response: a few times as long as the forwarder usually
    /// takes, and at most `limit`.
    pub(crate) async fn announce(
        &self,
        query: &AnnounceQuery<'_>,
        limit: Duration,
    ) -> Result<AnnounceResponse, ClientError> {
        let forwarder = query.forwarder;
        let began = Instant::now();
        let response = async {
            #[cfg(test)]
            if let Some(fake) = &self.fake {
                let (took, response) = fake(forwarder, Some(&query.announce));
                tokio::time::sleep(took).await;
                return response;
            }
            match forwarder.is_udp() {
                true => self.udp.announce(query).await,
                false => self.http.announce(query).await,
            }
        };
        let timeout = forwarder.latency.timeout(limit);
        let response = tokio::time::timeout(timeout, response).await;
        let response = response.unwrap_or(Err(ClientError::Timeout));
        match &response {
            Ok(_) => forwarder.latency.record_response(began.elapsed()),
            Err(error @ (ClientError::Timeout | ClientError::Unreachable)) => {
                if *error == ClientError::Timeout {
                    forwarder.latency.record_timeout();
                }
                // Another address may respond.
                *forwarder.responding_address.lock() = None;
            }
            Err(_) => {}
        }
        response
    }

    /// Checks that a forwarder responds as a tracker does. Over HTTP that takes an announce: the
    /// `stopped` of a peer that does not exist, in a torrent that does not exist.
    pub(crate) async fn check(
        &self,
        forwarder: &ForwarderState,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        if forwarder.is_udp() {
            return self.probe(forwarder, timeout).await;
        }
        let (mut info_hash, mut peer_id) = (InfoHash([0; 20]), PeerId([0; 20]));
        fastrand::fill(&mut info_hash.0);
        fastrand::fill(&mut peer_id.0);
        let announce = Announce {
            info_hash,
            peer_id,
            port: CHECK_PORT,
            left: Some(0),
            event: Event::Stopped,
            ..Announce::default()
        };
        let query = AnnounceQuery::new(forwarder, &announce);
        let response = tokio::time::timeout(timeout, self.http.announce(&query)).await;
        match response.unwrap_or(Err(ClientError::Timeout))? {
            AnnounceResponse::Peers(list) if !is_about_a_swarm(&list) => Err(
                ClientError::Malformed("a dictionary without any field of an announce".into()),
            ),
            _ => Ok(()),
        }
    }

    /// Checks that a forwarder is reachable, without announcing a peer.
    pub(crate) async fn probe(
        &self,
        forwarder: &ForwarderState,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let response = async {
            #[cfg(test)]
            if let Some(fake) = &self.fake {
                let (took, response) = fake(forwarder, None);
                tokio::time::sleep(took).await;
                return response.map(drop);
            }
            match forwarder.is_udp() {
                true => self.udp.probe(forwarder).await,
                false => self.http.probe(forwarder).await,
            }
        };
        let response = tokio::time::timeout(timeout, response).await;
        response.unwrap_or(Err(ClientError::Timeout))
    }
}
