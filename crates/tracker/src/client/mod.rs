//! A client for other trackers, over HTTP, HTTPS and UDP.

mod error;
mod http;
mod query;
mod udp;

pub(crate) use error::ClientError;
pub(crate) use http::gunzip;
pub(crate) use query::AnnounceQuery;

use crate::error::Error;
use crate::forwarders::ForwarderState;
use headworks_service::outbound::Outbound;
use headworks_tracker_wire::response::AnnounceResponse;
use http::HttpClient;
use std::time::Duration;
use udp::UdpClient;

/// A client for other trackers.
pub(crate) struct TrackerClient {
    http: HttpClient,
    udp: UdpClient,
}

impl TrackerClient {
    /// Opens the UDP sockets. Both transports share one DNS cache. Call it inside a tokio runtime.
    pub(crate) fn new(outbound: Outbound) -> Result<TrackerClient, Error> {
        let udp = UdpClient::new(outbound.dns_cache().clone()).map_err(Error::Threads)?;
        Ok(TrackerClient {
            http: HttpClient::new(outbound),
            udp,
        })
    }

    /// Sends an announce and waits for its response for at most `timeout`.
    pub(crate) async fn announce(
        &self,
        query: &AnnounceQuery<'_>,
        timeout: Duration,
    ) -> Result<AnnounceResponse, ClientError> {
        let response = async {
            match query.forwarder.is_udp() {
                true => self.udp.announce(query).await,
                false => self.http.announce(query).await,
            }
        };
        let response = tokio::time::timeout(timeout, response).await;
        response.unwrap_or(Err(ClientError::Timeout))
    }

    /// Checks that a forwarder is reachable, without announcing a peer.
    pub(crate) async fn probe(
        &self,
        forwarder: &ForwarderState,
        timeout: Duration,
    ) -> Result<(), ClientError> {
        let response = async {
            match forwarder.is_udp() {
                true => self.udp.probe(forwarder).await,
                false => self.http.probe(forwarder).await,
            }
        };
        let response = tokio::time::timeout(timeout, response).await;
        response.unwrap_or(Err(ClientError::Timeout))
    }
}
