//! A UDP socket for requests to many trackers at once.

use crate::client::error::ClientError;
use headworks_tracker_wire::udp::TransactionId;
use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, setsockopt, sockopt,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::oneshot;

/// The largest packet received.
const MAX_PACKET: usize = 64 * 1024;
/// The number of times that a packet is handed to the socket. A socket reports a refusal of an
/// earlier packet at the next call, whatever its destination, and forgets it then.
const SEND_ATTEMPTS: usize = 4;
/// The place of the transaction id in a request (BEP 15).
const TRANSACTION: std::ops::Range<usize> = 12..16;

/// The socket of one address family and the requests that wait for a response on it.
pub(super) struct ClientSocket {
    socket: Arc<UdpSocket>,
    waiting: Arc<Waiting>,
    reader: tokio::task::JoinHandle<()>,
}

/// The end of a request: the packet that answers it, or an error.
type Delivery = Result<Vec<u8>, ClientError>;

/// Requests that wait for a response: where they were sent, and who receives the packet.
type Waiting = Mutex<HashMap<TransactionId, (SocketAddr, oneshot::Sender<Delivery>)>>;

impl Drop for ClientSocket {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl ClientSocket {
    pub(super) fn open(at: SocketAddr) -> io::Result<ClientSocket> {
        let socket = std::net::UdpSocket::bind(at)?;
        socket.set_nonblocking(true)?;
        // Without this option the kernel keeps to itself that a port is closed.
        match at.is_ipv4() {
            true => setsockopt(&socket, sockopt::Ipv4RecvErr, &true)?,
            false => setsockopt(&socket, sockopt::Ipv6RecvErr, &true)?,
        }
        let socket = Arc::new(UdpSocket::from_std(socket)?);
        let waiting = Arc::<Waiting>::default();
        let reader = tokio::spawn(receive(socket.clone(), waiting.clone()));
        Ok(ClientSocket {
            socket,
            waiting,
            reader,
        })
    }

    /// Sends a packet and waits for its response. It is retransmitted after `pause`, and then after
    /// twice the last pause each time (BEP 15). The caller bounds the time.
    pub(super) async fn exchange(
        &self,
        to: SocketAddr,
        mut pause: Duration,
        write: impl FnOnce(TransactionId, &mut Vec<u8>),
    ) -> Delivery {
        let (transaction, mut response) = self.register(to);
        let _registration = Registration {
            waiting: &self.waiting,
            transaction,
        };
        let mut packet = Vec::with_capacity(256);
        write(transaction, &mut packet);
        loop {
            self.send(&packet, to).await?;
            match tokio::time::timeout(pause, &mut response).await {
                Ok(Ok(delivery)) => return delivery,
                Ok(Err(_)) => return Err(ClientError::Transient("the socket was closed".into())),
                Err(_) => pause *= 2,
            }
        }
    }

    async fn send(&self, packet: &[u8], to: SocketAddr) -> Result<(), ClientError> {
        let mut last = io::ErrorKind::Other.into();
        for _ in 0..SEND_ATTEMPTS {
            match self.socket.send_to(packet, to).await {
                Ok(_) => return Ok(()),
                Err(error) => last = error,
            }
        }
        match last.kind() {
            // Always about an earlier packet, and anybody can send us many. If this packet is lost
            // for that, it is sent again like any other lost one.
            io::ErrorKind::ConnectionRefused => Ok(()),
            io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
                Err(ClientError::Unreachable)
            }
            _ => Err(ClientError::Transient(last.to_string())),
        }
    }

    /// Registers a request under a random transaction id, so that a spoofed response would have to
    /// guess it.
    fn register(&self, from: SocketAddr) -> (TransactionId, oneshot::Receiver<Delivery>) {
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

/// Delivers responses and refusals.
async fn receive(socket: Arc<UdpSocket>, waiting: Arc<Waiting>) {
    let mut buffer = vec![0; MAX_PACKET];
    loop {
        let ready = socket.ready(Interest::READABLE | Interest::ERROR).await;
        if ready.is_err() {
            // The runtime is shutting down.
            return;
        }
        while let Ok(failed) = socket.try_io(Interest::ERROR, || next_error(&socket, &mut buffer)) {
            refuse(&waiting, failed);
        }
        loop {
            match socket.try_recv_from(&mut buffer) {
                Ok((length, from)) => deliver(&waiting, &buffer[..length], from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                // The error of an earlier packet, which is in the error queue, too.
                Err(_) => break,
            }
        }
        tokio::task::consume_budget().await;
    }
}

/// Delivers a response by its transaction id, and only from the address that the request was sent
/// to.
fn deliver(waiting: &Waiting, packet: &[u8], from: SocketAddr) {
    let Some(transaction) = packet.get(4..8).and_then(|bytes| bytes.try_into().ok()) else {
        return;
    };
    let transaction = TransactionId::from_be_bytes(transaction);
    let mut waiting = waiting.lock();
    if waiting.get(&transaction).is_some_and(|(to, _)| *to == from)
        && let Some((_, response)) = waiting.remove(&transaction)
    {
        let _ = response.send(Ok(packet.to_vec()));
    }
}

/// A request that an error of the network is about.
struct FailedRequest {
    to: SocketAddr,
    transaction: TransactionId,
    error: ClientError,
}

/// Ends the request that an error is about. Anybody can send us an ICMP message that names a
/// tracker's address, but only routers on the way and the tracker itself see the transaction id.
fn refuse(waiting: &Waiting, failed: FailedRequest) {
    let mut waiting = waiting.lock();
    let sent_to = waiting.get(&failed.transaction).map(|(to, _)| *to);
    if sent_to == Some(failed.to)
        && let Some((_, response)) = waiting.remove(&failed.transaction)
    {
        let _ = response.send(Err(failed.error));
    }
}

/// Takes the next error from the socket's error queue that is about a request. The queue returns
/// the payload of the packet as far as the ICMP message quotes it. Errors that quote less than the
/// transaction id, which some old routers send, are ignored: the request times out.
fn next_error(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<FailedRequest> {
    let mut control = nix::cmsg_space!(nix::libc::sock_extended_err, nix::libc::sockaddr_in6);
    loop {
        let mut slices = [IoSliceMut::new(buffer)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        let message =
            recvmsg::<SockaddrStorage>(socket.as_raw_fd(), &mut slices, Some(&mut control), flags)?;
        let number = message.cmsgs()?.find_map(|control| match control {
            ControlMessageOwned::Ipv4RecvErr(error, _)
            | ControlMessageOwned::Ipv6RecvErr(error, _) => Some(error.ee_errno),
            _ => None,
        });
        let error = match number.map(|number| Errno::from_raw(number as i32)) {
            Some(Errno::ECONNREFUSED) => ClientError::Refused,
            Some(Errno::EHOSTUNREACH | Errno::ENETUNREACH) => ClientError::Unreachable,
            // Such as a packet that is too large for a link: the kernel adapts by itself.
            _ => continue,
        };
        let to = message.address.as_ref().and_then(address);
        let quoted = message.iovs().next().and_then(transaction);
        if let (Some(to), Some(transaction)) = (to, quoted) {
            return Ok(FailedRequest {
                to,
                transaction,
                error,
            });
        }
    }
}

/// Returns the transaction id of a request, which may be cut off behind it.
fn transaction(request: &[u8]) -> Option<TransactionId> {
    let bytes = request.get(TRANSACTION)?.try_into().ok()?;
    Some(TransactionId::from_be_bytes(bytes))
}

fn address(storage: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = storage.as_sockaddr_in();
    let v4 = v4.map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    let v6 = storage.as_sockaddr_in6();
    v4.or_else(|| v6.map(|v6| SocketAddr::from((v6.ip(), v6.port()))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use headworks_tracker_wire::udp;
    use std::net::Ipv4Addr;

    fn connect_request(transaction: TransactionId) -> Vec<u8> {
        let mut packet = Vec::new();
        udp::write_connect(transaction, &mut packet);
        packet
    }

    #[tokio::test]
    async fn an_error_ends_only_the_request_that_it_quotes() {
        for localhost in [
            SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, 0)),
        ] {
            // A machine may have no IPv6.
            let Ok(port) = std::net::UdpSocket::bind(localhost) else {
                continue;
            };
            let closed = port.local_addr().unwrap();
            drop(port);
            let socket = ClientSocket::open(localhost).unwrap();
            let (other, mut undisturbed) = socket.register(closed);
            let (quoted, refused) = socket.register(closed);
            // Anybody can send us an error that quotes a packet to that port, but nobody else
            // knows the transaction id.
            socket
                .send(&connect_request(other)[..12], closed)
                .await
                .unwrap();
            socket
                .send(&connect_request(!quoted), closed)
                .await
                .unwrap();
            socket.send(&connect_request(quoted), closed).await.unwrap();
            assert_eq!(refused.await.unwrap(), Err(ClientError::Refused));
            let early = undisturbed.try_recv();
            assert!(early.is_err(), "ended by an error about another: {early:?}");
        }
    }
}
