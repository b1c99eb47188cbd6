//! Announces over UDP. All forwarders share one socket per address family.

use super::error::ClientError;
use super::query::AnnounceQuery;
use crate::forwarders::ForwarderState;
use headworks_service::outbound::{DnsCache, is_host_not_found};
use headworks_tracker_wire::compact;
use headworks_tracker_wire::response::{AnnounceResponse, PeerList};
use headworks_tracker_wire::udp::{self, ConnectionId, Response, TransactionId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

/// The time for which a client may use a connection id (BEP 15).
const CONNECTION_LIFETIME: Duration = Duration::from_secs(60);
/// The wait before the first retransmission; it doubles with each one.
const RETRANSMIT: Duration = Duration::from_secs(2);
/// The largest packet received.
const MAX_PACKET: usize = 64 * 1024;

/// The UDP side of the tracker client.
pub(super) struct UdpClient {
    /// IPv4, then IPv6 if the machine has it.
    sockets: Vec<ClientSocket>,
    names: DnsCache,
    connections: Mutex<HashMap<SocketAddr, (ConnectionId, Instant)>>,
}

/// The socket of one address family and the requests that wait for a response on it.
struct ClientSocket {
    socket: Arc<UdpSocket>,
    waiting: Arc<Waiting>,
    reader: tokio::task::JoinHandle<()>,
}

/// Requests that wait for a response: where they were sent, and who receives the packet.
type Waiting = Mutex<HashMap<TransactionId, (SocketAddr, oneshot::Sender<Vec<u8>>)>>;

impl Drop for ClientSocket {
    fn drop(&mut self) {
        self.reader.abort();
    }
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
        let (socket, to) = self.resolve(query.forwarder).await?;
        let connection = self.connect(socket, to).await?;
        let path = query.forwarder.uri.path_and_query();
        // The root path carries no information, so it needs no option.
        let path = path.map_or("", |path| path.as_str());
        let path = if path == "/" { "" } else { path };
        let packet = socket
            .exchange(to, |transaction, out| {
                let path = path.as_bytes();
                udp::write_announce(connection, transaction, &query.announce, path, out);
            })
            .await?;
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
                Ok(AnnounceResponse::Peers(list))
            }
            Some(Response::Error { text, .. }) => {
                // The connection id may have expired early; the next attempt gets a new one.
                self.connections.lock().remove(&to);
                let reason = String::from_utf8_lossy(&text[..text.len().min(500)]).into_owned();
                let retry_in = None;
                Ok(AnnounceResponse::Failure { reason, retry_in })
            }
            _ => Err(ClientError::Malformed("not an announce response".into())),
        }
    }

    /// Succeeds if the forwarder issues a connection id.
    pub(super) async fn probe(&self, forwarder: &ForwarderState) -> Result<(), ClientError> {
        let (socket, to) = self.resolve(forwarder).await?;
        self.connections.lock().remove(&to);
        self.connect(socket, to).await.map(|_| ())
    }

    /// Returns the first address of a forwarder that this machine has a socket for.
    async fn resolve(
        &self,
        forwarder: &ForwarderState,
    ) -> Result<(&ClientSocket, SocketAddr), ClientError> {
        let host = forwarder.uri.host().unwrap_or_default();
        let port = forwarder.uri.port_u16().unwrap_or_default();
        let addresses = self.names.resolve(host, port).await;
        let addresses = addresses.map_err(|error| match is_host_not_found(&error) {
            true => ClientError::NoSuchHost,
            false => ClientError::Transient(format!("cannot look up the host: {error}")),
        })?;
        let with_socket =
            |to: &SocketAddr| Some((self.sockets.get(usize::from(to.is_ipv6()))?, *to));
        let found = addresses.iter().find_map(with_socket);
        found.ok_or(ClientError::Unreachable)
    }

    /// Returns a valid connection id, from the cache if possible.
    async fn connect(
        &self,
        socket: &ClientSocket,
        to: SocketAddr,
    ) -> Result<ConnectionId, ClientError> {
        let cached = self.connections.lock().get(&to).copied();
        if let Some((id, at)) = cached
            && at.elapsed() < CONNECTION_LIFETIME
        {
            return Ok(id);
        }
        // Counted from the request, so that an id is never used past its lifetime at the forwarder.
        let requested = Instant::now();
        let packet = socket.exchange(to, udp::write_connect).await?;
        match udp::parse_response(&packet) {
            Some(Response::Connect { connection, .. }) => {
                self.connections.lock().insert(to, (connection, requested));
                Ok(connection)
            }
            _ => Err(ClientError::Malformed("not a connect response".into())),
        }
    }
}

impl ClientSocket {
    fn open(at: SocketAddr) -> io::Result<ClientSocket> {
        let socket = std::net::UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let waiting = Arc::<Waiting>::default();
        let reader = tokio::spawn(receive(socket.clone(), waiting.clone()));
        Ok(ClientSocket {
            socket,
            waiting,
            reader,
        })
    }

    /// Sends a packet and retransmits it until its response arrives. The caller bounds the time.
    async fn exchange(
        &self,
        to: SocketAddr,
        write: impl FnOnce(TransactionId, &mut Vec<u8>),
    ) -> Result<Vec<u8>, ClientError> {
        let (transaction, mut response) = self.register(to);
        let _registration = Registration {
            waiting: &self.waiting,
            transaction,
        };
        let mut packet = Vec::with_capacity(256);
        write(transaction, &mut packet);
        let mut pause = RETRANSMIT;
        loop {
            self.socket
                .send_to(&packet, to)
                .await
                .map_err(|error| match error.kind() {
                    io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                        ClientError::Unreachable
                    }
                    io::ErrorKind::ConnectionRefused => ClientError::Refused,
                    _ => ClientError::Transient(error.to_string()),
                })?;
            match tokio::time::timeout(pause, &mut response).await {
                Ok(Ok(packet)) => return Ok(packet),
                Ok(Err(_)) => return Err(ClientError::Transient("the socket was closed".into())),
                Err(_) => pause *= 2,
            }
        }
    }

    /// Registers a request under a random transaction id, so that a spoofed response would have to
    /// guess it.
    fn register(&self, from: SocketAddr) -> (TransactionId, oneshot::Receiver<Vec<u8>>) {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.waiting.lock();
        let transaction = loop {
            let number = getrandom::u32().unwrap_or_default();
            if !waiting.contains_key(&number) {
                break number;
            }
        };
        waiting.insert(transaction, (from, sender));
        (transaction, receiver)
    }
}

/// Removes a request from the waiting ones, also when its future is dropped.
struct Registration<'a> {
    waiting: &'a Waiting,
    transaction: TransactionId,
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.transaction);
    }
}

/// Delivers responses by transaction id, and only from the address that the request was sent to.
async fn receive(socket: Arc<UdpSocket>, waiting: Arc<Waiting>) {
    let mut buffer = vec![0; MAX_PACKET];
    loop {
        // An error concerns a packet sent earlier. Its request runs into the timeout.
        let Ok((length, from)) = socket.recv_from(&mut buffer).await else {
            tokio::task::yield_now().await;
            continue;
        };
        let packet = &buffer[..length];
        let Some(transaction) = packet.get(4..8).and_then(|bytes| bytes.try_into().ok()) else {
            continue;
        };
        let transaction = TransactionId::from_be_bytes(transaction);
        let mut waiting = waiting.lock();
        if waiting.get(&transaction).is_some_and(|(to, _)| *to == from)
            && let Some((_, response)) = waiting.remove(&transaction)
        {
            let _ = response.send(packet.to_vec());
        }
    }
}
