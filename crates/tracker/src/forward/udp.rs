//! Asking over UDP: all forwarders share one socket a family.

use super::{Ask, AskError, Station};
use headworks_service::outbound::{Names, is_unknown};
use headworks_tracker_wire::response::{AnnounceResponse, PeerList};
use headworks_tracker_wire::udp::{self, ConnectionId, Response, TransactionId};
use headworks_tracker_wire::{compact, udp::write_announce, udp::write_connect};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

/// How long a connection id is used, as the protocol asks of clients.
const CONNECTION: Duration = Duration::from_secs(60);
/// How long an answer is waited for before the packet is sent again; it doubles.
const RESEND: Duration = Duration::from_secs(2);
/// The largest packet that is read.
const PACKET: usize = 64 * 1024;

/// Asks over UDP.
pub(crate) struct UdpAsker {
    wires: Vec<Wire>,
    names: Names,
    ids: Mutex<HashMap<SocketAddr, (ConnectionId, Instant)>>,
}

/// One family's socket, and who waits for an answer on it.
struct Wire {
    socket: Arc<UdpSocket>,
    waiting: Arc<Waiting>,
    reader: tokio::task::JoinHandle<()>,
}

type Waiting = Mutex<HashMap<TransactionId, (SocketAddr, oneshot::Sender<Vec<u8>>)>>;

impl Drop for Wire {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl UdpAsker {
    /// Opens the sockets. A machine without IPv6 does with one.
    pub(crate) fn new(names: Names) -> io::Result<UdpAsker> {
        let mut wires = vec![Wire::open((Ipv4Addr::UNSPECIFIED, 0).into())?];
        wires.extend(Wire::open((Ipv6Addr::UNSPECIFIED, 0).into()).ok());
        Ok(UdpAsker {
            wires,
            names,
            ids: Mutex::default(),
        })
    }

    pub(super) async fn ask(&self, ask: &Ask<'_>) -> Result<AnnounceResponse, AskError> {
        let (wire, to) = self.way_to(ask.station).await?;
        let connection = self.connect(wire, to).await?;
        let path = ask
            .station
            .uri
            .path_and_query()
            .map_or("", |path| path.as_str());
        // A bare path says nothing that the tracker does not know.
        let path = if path == "/" { "" } else { path };
        let packet = wire
            .exchange(to, |transaction, out| {
                write_announce(connection, transaction, &ask.announce, path.as_bytes(), out);
            })
            .await?;
        match udp::parse_response(&packet) {
            Some(Response::Announce {
                interval,
                counts,
                peers,
                ..
            }) => {
                let mut reply = PeerList::default();
                reply.interval = Some(interval);
                reply.complete = Some(counts.complete);
                reply.incomplete = Some(counts.incomplete);
                let found: Vec<SocketAddr> = match to.is_ipv4() {
                    true => compact::unpack_all4(peers).collect(),
                    false => compact::unpack_all6(peers).collect(),
                };
                let good = found.into_iter().filter(|peer| peer.port() != 0);
                reply.peers = good.map(|peer| (peer, None)).collect();
                Ok(AnnounceResponse::Peers(reply))
            }
            Some(Response::Error { text, .. }) => {
                // It may be the connection id that it does not like: the next attempt gets a new
                // one.
                self.ids.lock().remove(&to);
                let reason = String::from_utf8_lossy(&text[..text.len().min(500)]).into_owned();
                let retry_in = None;
                Ok(AnnounceResponse::Failure { reason, retry_in })
            }
            _ => Err(AskError::Garbage("not an announce answer".into())),
        }
    }

    /// Somebody is there if he gives a connection id.
    pub(super) async fn probe(&self, station: &Station) -> Result<(), AskError> {
        let (wire, to) = self.way_to(station).await?;
        self.ids.lock().remove(&to);
        self.connect(wire, to).await.map(|_| ())
    }

    async fn way_to(&self, station: &Station) -> Result<(&Wire, SocketAddr), AskError> {
        let host = station.uri.host().unwrap_or_default();
        let port = station.uri.port_u16().unwrap_or_default();
        let addresses = self.names.look_up(host, port).await;
        let addresses = addresses.map_err(|error| match is_unknown(&error) {
            true => AskError::NoSuchHost,
            false => AskError::Passing(format!("looking up the host: {error}")),
        })?;
        let way = |to: &SocketAddr| Some((self.wires.get(usize::from(to.is_ipv6()))?, *to));
        let way = addresses.iter().find_map(way);
        way.ok_or(AskError::Unreachable)
    }

    async fn connect(&self, wire: &Wire, to: SocketAddr) -> Result<ConnectionId, AskError> {
        let known = self.ids.lock().get(&to).copied();
        if let Some((id, at)) = known
            && at.elapsed() < CONNECTION
        {
            return Ok(id);
        }
        let asked = Instant::now();
        let packet = wire.exchange(to, write_connect).await?;
        match udp::parse_response(&packet) {
            Some(Response::Connect { connection, .. }) => {
                self.ids.lock().insert(to, (connection, asked));
                Ok(connection)
            }
            _ => Err(AskError::Garbage("not a connect answer".into())),
        }
    }
}

impl Wire {
    fn open(at: SocketAddr) -> io::Result<Wire> {
        let socket = std::net::UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let waiting = Arc::<Waiting>::default();
        let reader = tokio::spawn(read(socket.clone(), waiting.clone()));
        Ok(Wire {
            socket,
            waiting,
            reader,
        })
    }

    /// Sends a packet, again and again, until its answer comes. The caller bounds the time.
    async fn exchange(
        &self,
        to: SocketAddr,
        write: impl FnOnce(TransactionId, &mut Vec<u8>),
    ) -> Result<Vec<u8>, AskError> {
        let (transaction, mut answer) = self.wait_for(to);
        let _place = Place {
            waiting: &self.waiting,
            transaction,
        };
        let mut packet = Vec::with_capacity(256);
        write(transaction, &mut packet);
        let mut pause = RESEND;
        loop {
            self.socket
                .send_to(&packet, to)
                .await
                .map_err(|error| match error.kind() {
                    io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                        AskError::Unreachable
                    }
                    io::ErrorKind::ConnectionRefused => AskError::Refused,
                    _ => AskError::Passing(error.to_string()),
                })?;
            match tokio::time::timeout(pause, &mut answer).await {
                Ok(Ok(packet)) => return Ok(packet),
                Ok(Err(_)) => return Err(AskError::Passing("the socket closed".into())),
                Err(_) => pause *= 2,
            }
        }
    }

    /// A transaction that nobody else uses: a stranger must not guess it.
    fn wait_for(&self, from: SocketAddr) -> (TransactionId, oneshot::Receiver<Vec<u8>>) {
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

/// Whoever waits no longer leaves no trace.
struct Place<'a> {
    waiting: &'a Waiting,
    transaction: TransactionId,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.transaction);
    }
}

/// Hands answers to whoever waits for them: by transaction, and only from the address that was
/// asked.
async fn read(socket: Arc<UdpSocket>, waiting: Arc<Waiting>) {
    let mut buffer = vec![0; PACKET];
    loop {
        // An error is about some packet sent earlier; its sender will see that nothing comes.
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
        if waiting
            .get(&transaction)
            .is_some_and(|(asked, _)| *asked == from)
            && let Some((_, answer)) = waiting.remove(&transaction)
        {
            let _ = answer.send(packet.to_vec());
        }
    }
}
