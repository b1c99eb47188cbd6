//! The sockets of the announce plane: one a thread for each address, on one port.

use crate::error::Error;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};

/// What waits while a thread is busy. A burst must find room.
const RECEIVE_BUFFER: usize = 8 << 20;
const BACKLOG: i32 = 4096;

/// Sockets for `threads` threads: for each thread one an address. All are bound before anybody
/// serves.
pub(super) fn tcp(
    addresses: &[SocketAddr],
    threads: usize,
) -> Result<Vec<Vec<TcpListener>>, Error> {
    every(addresses, threads, Type::STREAM, |address| {
        let socket = open(address, Type::STREAM, true)?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from(socket))
    })
}

/// The same for UDP.
pub(super) fn udp(addresses: &[SocketAddr], threads: usize) -> Result<Vec<Vec<UdpSocket>>, Error> {
    every(addresses, threads, Type::DGRAM, |address| {
        let socket = open(address, Type::DGRAM, true)?;
        // Beyond the system's limit only root may go; what it does not give, we do without.
        if setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        }
        // Its thread has nothing else to wait for.
        socket.set_nonblocking(false)?;
        Ok(UdpSocket::from(socket))
    })
}

fn every<T: Bound>(
    addresses: &[SocketAddr],
    threads: usize,
    kind: Type,
    bind: impl Fn(SocketAddr) -> io::Result<T>,
) -> Result<Vec<Vec<T>>, Error> {
    let mut all: Vec<Vec<T>> = (0..threads).map(|_| Vec::new()).collect();
    // `:0` means one port for both families, which the first socket finds.
    let mut port = None;
    for wanted in addresses {
        let mut address = *wanted;
        if address.port() == 0 {
            address.set_port(port.unwrap_or(0));
        }
        // Sockets that share a port share it with any other tracker of the same user, and each
        // would have half the peers: one that does not share finds out.
        match open(address, kind, false) {
            Err(cause) if cause.kind() == io::ErrorKind::AddrInUse => {
                return Err(Error::Bind(address, cause));
            }
            _ => {}
        }
        for thread in &mut all {
            let socket = match bind(address) {
                Ok(socket) => socket,
                Err(cause) if no_ipv6(address, &cause) => {
                    tracing::warn!(%address, "this machine has no IPv6: not listening there");
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

/// Whether every address was asked for and this machine has none of the sixth version.
fn no_ipv6(address: SocketAddr, cause: &io::Error) -> bool {
    let missing = [
        Some(nix::libc::EAFNOSUPPORT),
        Some(nix::libc::EADDRNOTAVAIL),
    ];
    address.is_ipv6() && address.ip().is_unspecified() && missing.contains(&cause.raw_os_error())
}

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

/// A socket that knows where it is.
pub(super) trait Bound {
    fn address(&self) -> io::Result<SocketAddr>;
}

impl Bound for TcpListener {
    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}

impl Bound for UdpSocket {
    fn address(&self) -> io::Result<SocketAddr> {
        self.local_addr()
    }
}
