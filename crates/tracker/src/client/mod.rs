//! A client for other trackers, over HTTP, HTTPS and UDP.

mod error;
mod http;
mod query;
mod udp;

pub(crate) use error::ClientError;
pub(crate) use http::{gunzip, is_public, redirect_target};
pub(crate) use query::AnnounceQuery;

use crate::error::Error;
use crate::forwarders::ForwarderState;
use headworks_service::outbound::Outbound;
use headworks_tracker_wire::response::AnnounceResponse;
use http::HttpClient;
use std::time::Duration;
use tokio::time::Instant;
use udp::UdpClient;

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
            Err(ClientError::Timeout) => {
                forwarder.latency.record_timeout();
                // Another address may respond.
                *forwarder.responding_address.lock() = None;
            }
            Err(_) => {}
        }
        response
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
