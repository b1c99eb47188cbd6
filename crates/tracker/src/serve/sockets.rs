//! The sockets of the announce threads: each thread has its own socket per address, all on one port
//! (`SO_REUSEPORT`).

use crate::error::Error;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

/// The receive buffer of a UDP socket in bytes, large enough for a burst while its thread is busy.
const RECEIVE_BUFFER: usize = 8 << 20;
const BACKLOG: i32 = 4096;

/// Opens a TCP listener per thread and address. All are bound before any thread starts.
pub(super) fn tcp(
    addresses: &[SocketAddr],
    threads: usize,
) -> Result<Vec<Vec<TcpListener>>, Error> {
    open_all(addresses, threads, Type::STREAM, |address| {
        let socket = open(address, Type::STREAM, true)?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from(socket))
    })
}

/// Opens a UDP socket per thread and address.
pub(super) fn udp(addresses: &[SocketAddr], threads: usize) -> Result<Vec<Vec<UdpSocket>>, Error> {
    open_all(addresses, threads, Type::DGRAM, |address| {
        let socket = open(address, Type::DGRAM, true)?;
        // Only root may exceed the system's limit; otherwise the limit applies.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        }
        // A UDP thread waits for this socket alone, so it blocks in the receive call.
        socket.set_nonblocking(false)?;
        Ok(UdpSocket::from(socket))
    })
}

fn open_all<T: LocalAddress>(
    addresses: &[SocketAddr],
    threads: usize,
    kind: Type,
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<Vec<Vec<T>>, Error> {
    let mut all: Vec<Vec<T>> = (0..threads).map(|_| Vec::new()).collect();
    // With port 0 both families share the port that the first socket gets.
    let mut port = None;
    for wanted in addresses {
        let mut address = *wanted;
        if address.port() == 0 {
            address.set_port(port.unwrap_or(0));
        }
        // Sockets that share a port also share it with another tracker of the same user, and each
        // would see half of the peers. A socket that does not share detects this.
        match open(address, kind, false) {
            Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => {
                return Err(Error::Bind(address, cause));
            }
            _ => {}
        }
        for thread in &mut all {
            let socket = match bind(address) {
                Ok(socket) => socket,
                Err(cause) if lacks_ipv6(address, &cause) => {
                    tracing::warn!(%address, "not listening on IPv6: this machine has none");
                    break;
                }
                Err(cause) => return Err(Error::Bind(address, cause)),
            };
            address = socket
                .address()
                .map_err(|cause| Error::Bind(address, cause))?;
            port = Some(address.port());
            thread.push(socket);
        }
    }
    Ok(all)
}

/// Whether binding the IPv6 wildcard failed because this machine has no IPv6.
fn lacks_ipv6(address: SocketAddr, cause: &io::Error) -> bool {
    let missing = [
        Some(nix::libc::EAFNOSUPPORT),
        Some(nix::libc::EADDRNOTAVAIL),
    ];
    address.is_ipv6() && address.ip().is_unspecified() && missing.contains(&cause.raw_os_error())
}

/// Opens and binds a socket. `shared` lets other sockets bind to the same port.
fn open(address: SocketAddr, kind: Type, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, None)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    socket.set_reuse_port(shared)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

/// A socket with a local address.
trait LocalAddress {
    fn address(&self) -> io::Result<SocketAddr>;
}

impl LocalAddress for TcpListener {
    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

impl LocalAddress for UdpSocket {
    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}
