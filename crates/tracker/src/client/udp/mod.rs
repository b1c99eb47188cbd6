//! Announces over UDP. All forwarders share one socket per address family, and a request that waits
//! occupies nothing but its entry in the socket's table.

mod socket;

use super::error::ClientError;
use super::query::AnnounceQuery;
use super::reach::is_public;
use crate::forwarders::ForwarderState;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use headworks_service::outbound::{DnsCache, is_address_not_allowed, is_host_not_found};
use headworks_tracker_wire::compact;
use headworks_tracker_wire::response::{AnnounceResponse, PeerList};
use headworks_tracker_wire::udp::{self, ConnectionId, Response};
use parking_lot::Mutex;
use socket::ClientSocket;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// The time for which a client may use a connection id (BEP 15).
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);
/// The most addresses of a forwarder that are tried at once.
const MAX_ADDRESSES: usize = 4;

/// The UDP side of the tracker client.
pub(super) struct UdpClient {
    /// IPv4, then IPv6 if the machine has it.
    sockets: Vec<ClientSocket>,
    names: DnsCache,
    connections: Mutex<HashMap<SocketAddr, (ConnectionId, Instant)>>,
}

impl UdpClient {
    /// Opens the sockets. On a machine without IPv6 there is only the one for IPv4.
    pub(super) fn new(names: DnsCache) -> io::Result<UdpClient> {
        let mut sockets = vec![ClientSocket::open((Ipv4Addr::UNSPECIFIED, 0).into())?];
        sockets.extend(ClientSocket::open((Ipv6Addr::UNSPECIFIED, 0).into()).ok());
        Ok(UdpClient {
            sockets,
            names,
            connections: Mutex::default(),
        })
    }

    pub(super) async fn announce(
        &self,
        query: &AnnounceQuery<'_>,
    ) -> Result<AnnounceResponse, ClientError> {
        let began = Instant::now();
        let response = self.announce_once(query, began).await?;
        match response {
            Some(response) => Ok(response),
            // The id was from the cache, and is not there any more.
            None => {
                let again = self.announce_once(query, Instant::now()).await?;
                again.ok_or(ClientError::Malformed("no valid connection id".into()))
            }
        }
    }

    /// Returns `None` if the forwarder does not know a connection id that it issued before `began`:
    /// it may have been restarted.
    async fn announce_once(
        &self,
        query: &AnnounceQuery<'_>,
        began: Instant,
    ) -> Result<Option<AnnounceResponse>, ClientError> {
        let (to, connection) = self.connect_any(query.forwarder).await?;
        let path = query.forwarder.uri.path_and_query();
        // The root path carries no information, so it needs no option.
        let path = path.map_or("", |path| path.as_str());
        let path = if path == "/" { "" } else { path };
        let pause = query.forwarder.latency.retransmit();
        let mut in_use = ConnectionInUse {
            client: self,
            to,
            connection,
            responded: false,
        };
        let packet = self
            .socket(to)?
            .exchange(to, pause, |transaction, out| {
                let path = path.as_bytes();
                udp::write_announce(connection, transaction, &query.announce, path, out);
            })
            .await?;
        in_use.responded = true;
        *query.forwarder.last_address.lock() = Some(to.ip());
        match udp::parse_response(&packet) {
            Some(Response::Announce {
                interval,
                counts,
                peers,
                ..
            }) => {
                let mut list = PeerList::default();
                list.interval = Some(interval);
                list.complete = Some(counts.complete);
                list.incomplete = Some(counts.incomplete);
                let peers: Vec<SocketAddr> = match to.is_ipv4() {
                    true => compact::unpack_all4(peers).collect(),
                    false => compact::unpack_all6(peers).collect(),
                };
                let peers = peers.into_iter().filter(|peer| peer.port() != 0);
                list.peers = peers.map(|peer| (peer, None)).collect();
                Ok(Some(AnnounceResponse::Peers(list)))
            }
            Some(Response::Error { text, .. }) => {
                // The connection id may have expired early; the next attempt gets a new one.
                let used = self.connections.lock().remove(&to);
                let reason = String::from_utf8_lossy(&text[..text.len().min(500)]).into_owned();
                let is_cached = used.is_some_and(|(_, requested)| requested < began);
                // Trackers word it differently, but all of them name the connection.
                if is_cached && reason.to_ascii_lowercase().contains("connection") {
                    return Ok(None);
                }
                let retry_in = None;
                Ok(Some(AnnounceResponse::Failure { reason, retry_in }))
            }
            _ => Err(ClientError::Malformed("not an announce response".into())),
        }
    }

    /// Succeeds if the forwarder issues a connection id.
    pub(super) async fn probe(&self, forwarder: &ForwarderState) -> Result<(), ClientError> {
        let addresses = self.resolve(forwarder).await?;
        for address in &addresses {
            self.connections.lock().remove(address);
        }
        self.connect_first(forwarder, &addresses).await.map(drop)
    }

    /// Returns an address of the forwarder that responds, and a connection id for it: the address
    /// that responded last, or else the first one of either family to respond.
    async fn connect_any(
        &self,
        forwarder: &ForwarderState,
    ) -> Result<(SocketAddr, ConnectionId), ClientError> {
        let mut addresses = self.resolve(forwarder).await?;
        let known = *forwarder.responding_address.lock();
        if let Some(known) = known.filter(|known| addresses.contains(known)) {
            match self.connect(forwarder, known).await {
                Ok(connected) => return Ok(connected),
                Err(error) => {
                    *forwarder.responding_address.lock() = None;
                    addresses.retain(|address| *address != known);
                    if addresses.is_empty() {
                        return Err(error);
                    }
                }
            }
        }
        self.connect_first(forwarder, &addresses).await
    }

    /// Connects to all addresses at once and returns the first to respond.
    async fn connect_first(
        &self,
        forwarder: &ForwarderState,
        addresses: &[SocketAddr],
    ) -> Result<(SocketAddr, ConnectionId), ClientError> {
        let attempts = addresses.iter().map(|to| self.connect(forwarder, *to));
        let mut attempts: FuturesUnordered<_> = attempts.collect();
        let mut error = ClientError::Unreachable;
        while let Some(result) = attempts.next().await {
            match result {
                Ok((to, connection)) => {
                    *forwarder.responding_address.lock() = Some(to);
                    return Ok((to, connection));
                }
                // A machine without a route for one family says nothing about the forwarder.
                Err(ClientError::Unreachable) => {}
                Err(other) => error = other,
            }
        }
        Err(error)
    }

    /// Returns the addresses of a forwarder that this machine has a socket for, with the two
    /// families alternating.
    async fn resolve(&self, forwarder: &ForwarderState) -> Result<Vec<SocketAddr>, ClientError> {
        let host = forwarder.uri.host().unwrap_or_default();
        let port = forwarder.uri.port_u16().unwrap_or_default();
        let addresses = match forwarder.published {
            true => self.names.resolve_allowed(host, port, is_public).await,
            false => self.names.resolve(host, port).await,
        };
        let addresses = addresses.map_err(|error| match error {
            error if is_address_not_allowed(&error) => ClientError::PrivateHost,
            error if is_host_not_found(&error) => ClientError::NoSuchHost,
            error => ClientError::Lookup(error.to_string()),
        })?;
        match alternate(&addresses, self.sockets.len() > 1) {
            usable if usable.is_empty() => Err(ClientError::Unreachable),
            usable => Ok(usable),
        }
    }

    /// Remembers the connection id of an address, which was requested at `requested`. Expired ids
    /// are dropped whenever the table would grow, so that each insertion takes constant time.
    fn remember(&self, to: SocketAddr, connection: ConnectionId, requested: Instant) {
        let mut connections = self.connections.lock();
        if connections.len() == connections.capacity() {
            connections.retain(|_, (_, at)| at.elapsed() < CONNECTION_LIFETIME);
        }
        connections.insert(to, (connection, requested));
    }

    fn socket(&self, to: SocketAddr) -> Result<&ClientSocket, ClientError> {
        let socket = self.sockets.get(usize::from(to.is_ipv6()));
        socket.ok_or(ClientError::Unreachable)
    }

    /// Returns a valid connection id, from the cache if possible.
    async fn connect(
        &self,
        forwarder: &ForwarderState,
        to: SocketAddr,
    ) -> Result<(SocketAddr, ConnectionId), ClientError> {
        let cached = self.connections.lock().get(&to).copied();
        if let Some((id, at)) = cached
            && at.elapsed() < CONNECTION_LIFETIME
        {
            return Ok((to, id));
        }
        // Counted from the request, so that an id is never used past its lifetime at the forwarder.
        let requested = Instant::now();
        let pause = forwarder.latency.retransmit();
        let socket = self.socket(to)?;
        let packet = socket.exchange(to, pause, udp::write_connect).await?;
        match udp::parse_response(&packet) {
            Some(Response::Connect { connection, .. }) => {
                self.remember(to, connection, requested);
                Ok((to, connection))
            }
            _ => Err(ClientError::Malformed("not a connect response".into())),
        }
    }
}

/// A connection id in use. It is forgotten if nothing responds to it, also when the request is
/// dropped at its timeout: otherwise a dead address would seem to connect at once, before another
/// one can.
struct ConnectionInUse<'a> {
    client: &'a UdpClient,
    to: SocketAddr,
    connection: ConnectionId,
    responded: bool,
}

impl Drop for ConnectionInUse<'_> {
    fn drop(&mut self) {
        if self.responded {
            return;
        }
        let mut connections = self.client.connections.lock();
        let known = connections.get(&self.to);
        if known.is_some_and(|(connection, _)| *connection == self.connection) {
            connections.remove(&self.to);
        }
    }
}

/// Returns the first addresses with the families alternating, IPv4 first; without IPv6 only those
/// of IPv4.
fn alternate(addresses: &[SocketAddr], with_v6: bool) -> Vec<SocketAddr> {
    let (v6, v4): (Vec<_>, Vec<_>) = addresses.iter().copied().partition(SocketAddr::is_ipv6);
    let v6 = if with_v6 { v6 } else { Vec::new() };
    let longest = v4.len().max(v6.len());
    let pairs = (0..longest).flat_map(|index| [v4.get(index), v6.get(index)]);
    pairs.flatten().copied().take(MAX_ADDRESSES).collect()
}

#[cfg(test)]
mod tests;
