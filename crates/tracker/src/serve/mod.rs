//! The threads of the announce plane: one a core for HTTP and one a core for UDP, each with sockets
//! of its own, each request handled where it came in.

mod connection_id;
pub(crate) mod http;
mod pages;
mod prompt;
mod sockets;
mod udp;
mod worker;

use crate::error::Error;
use crate::plane::Plane;
use connection_id::ConnectionIds;
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{SockaddrIn, SockaddrIn6};
use socket2::SockRef;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use udp::UdpPort;
use worker::Worker;

/// The threads at work.
pub(crate) struct Serving {
    threads: Vec<JoinHandle<()>>,
    bells: Vec<Arc<EventFd>>,
    sockets: Vec<UdpSocket>,
    stop: Arc<AtomicBool>,
    pub(crate) http: Vec<SocketAddr>,
    pub(crate) udp: Vec<SocketAddr>,
}

/// Binds every socket and starts the threads.
pub(crate) fn start(plane: &Arc<Plane>) -> Result<Serving, Error> {
    let config = &plane.shared.plan().config;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let count = match config.workers {
        0 => cores(),
        count => count.min(256),
    };
    let tcp = sockets::tcp(config.listen.addresses(), count)?;
    let udp = sockets::udp(config.udp_listen.addresses(), count)?;
    let mut serving = Serving {
        threads: Vec::new(),
        bells: Vec::new(),
        sockets: Vec::new(),
        stop: Arc::default(),
        http: tcp[0].iter().filter_map(|s| s.local_addr().ok()).collect(),
        udp: udp[0].iter().filter_map(|s| s.local_addr().ok()).collect(),
    };
    let most = config.max_connections.div_ceil(count).max(1);
    if !serving.http.is_empty() {
        for listeners in tcp {
            serving.http(plane, listeners, most)?;
        }
    }
    let ids = ConnectionIds::new((random()?, random()?));
    for socket in udp.into_iter().flatten() {
        serving.udp(plane, socket, ids.clone())?;
    }
    Ok(serving)
}

impl Serving {
    /// Starts a thread of HTTP.
    fn http(
        &mut self,
        plane: &Arc<Plane>,
        listeners: Vec<TcpListener>,
        most: usize,
    ) -> Result<(), Error> {
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let bell = Arc::new(bell.map_err(|error| Error::Threads(error.into()))?);
        let (plane, signal, seed) = (plane.clone(), bell.clone(), random()?);
        self.bells.push(bell);
        // Made in its own thread: its buffers are not for handing around.
        self.spawn(move || {
            let worker = Worker::new(plane, signal, most, seed).listen(listeners);
            worker.map(Worker::work)
        })
    }

    /// Starts a thread of UDP.
    fn udp(
        &mut self,
        plane: &Arc<Plane>,
        socket: UdpSocket,
        ids: ConnectionIds,
    ) -> Result<(), Error> {
        let (plane, stop, seed) = (plane.clone(), self.stop.clone(), random()?);
        self.sockets
            .push(socket.try_clone().map_err(Error::Threads)?);
        self.spawn(move || {
            if socket.local_addr()?.is_ipv4() {
                UdpPort::<SockaddrIn>::new(socket).work(&plane, &ids, seed, &stop);
            } else {
                UdpPort::<SockaddrIn6>::new(socket).work(&plane, &ids, seed, &stop);
            }
            Ok(())
        })
    }

    fn spawn(
        &mut self,
        work: impl FnOnce() -> io::Result<()> + Send + 'static,
    ) -> Result<(), Error> {
        let name = format!("announce {}", self.threads.len());
        let work = move || {
            if let Err(error) = prompt::take_short_turns() {
                tracing::debug!(%error, "clients may wait longer when the machine is busy");
            }
            if let Err(error) = work() {
                tracing::error!(%error, "a thread of the announce plane does not start");
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        self.threads.push(thread.map_err(Error::Threads)?);
        Ok(())
    }

    /// Ends the threads, each after the request it is at.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for bell in &self.bells {
            let _ = bell.write(1);
        }
        for socket in &self.sockets {
            // It says that there is no connection to shut, and wakes whoever waits for packets.
            let _ = SockRef::from(socket).shutdown(Shutdown::Both);
        }
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the announce plane panicked");
            }
        }
    }
}

fn random() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| Error::Threads(io::Error::other(error.to_string())))
}
