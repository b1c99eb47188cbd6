//! The announce threads: one per core for HTTP and one per core for UDP. Each has its own sockets
//! and handles every request that arrives on them to its end.

mod connection_id;
mod cpu_slice;
pub(crate) mod http;
mod sockets;
mod udp;

use crate::announce::AnnounceHandler;
use crate::error::Error;
use connection_id::ConnectionIds;
use fastrand::Rng;
use http::{HttpWorker, Pages};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{SockaddrIn, SockaddrIn6};
use socket2::SockRef;
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use udp::UdpWorker;

/// The running announce threads.
pub(crate) struct Server {
    threads: Vec<JoinHandle<()>>,
    pages: Arc<Pages>,
    /// The sockets of the UDP threads, to wake them from receiving.
    udp_sockets: Vec<UdpSocket>,
    stop: Arc<AtomicBool>,
    pub(crate) http: Vec<SocketAddr>,
    pub(crate) udp: Vec<SocketAddr>,
}

/// Binds every socket, starts the threads and, on the current runtime, the task that builds pages.
pub(crate) fn start(announces: &Arc<AnnounceHandler>) -> Result<Server, Error> {
    let config = &announces.state.active().config;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let count = match config.workers {
        0 => cores(),
        count => count.min(256),
    };
    let tcp = sockets::tcp(config.listen.addresses(), count)?;
    let udp = sockets::udp(config.udp_listen.addresses(), count)?;
    let mut server = Server {
        threads: Vec::new(),
        pages: Arc::default(),
        udp_sockets: Vec::new(),
        stop: Arc::default(),
        http: tcp[0].iter().filter_map(|s| s.local_addr().ok()).collect(),
        udp: udp[0].iter().filter_map(|s| s.local_addr().ok()).collect(),
    };
    let max_connections = config.max_connections.div_ceil(count).max(1);
    if !server.http.is_empty() {
        for listeners in tcp {
            server.spawn_http(announces, listeners, max_connections)?;
        }
        server.pages.clone().spawn_builder(announces.clone());
    }
    let ids = ConnectionIds::new((random_seed()?, random_seed()?));
    for socket in udp.into_iter().flatten() {
        server.spawn_udp(announces, socket, ids.clone())?;
    }
    Ok(server)
}

impl Server {
    /// Starts an HTTP thread.
    fn spawn_http(
        &mut self,
        announces: &Arc<AnnounceHandler>,
        listeners: Vec<TcpListener>,
        max_connections: usize,
    ) -> Result<(), Error> {
        let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let wake = Arc::new(wake.map_err(|error| Error::Threads(error.into()))?);
        self.pages.register(wake.clone());
        let (pages, stop) = (self.pages.clone(), self.stop.clone());
        let (announces, random) = (announces.clone(), Rng::with_seed(random_seed()?));
        // The worker is created in its own thread, so that its buffers are allocated there.
        self.spawn(move || {
            let worker = HttpWorker::new(announces, pages, (wake, stop), max_connections, random);
            worker.listen(listeners).map(HttpWorker::run)
        })
    }

    /// Starts a UDP thread.
    fn spawn_udp(
        &mut self,
        announces: &Arc<AnnounceHandler>,
        socket: UdpSocket,
        ids: ConnectionIds,
    ) -> Result<(), Error> {
        let (announces, stop) = (announces.clone(), self.stop.clone());
        let random = Rng::with_seed(random_seed()?);
        self.udp_sockets
            .push(socket.try_clone().map_err(Error::Threads)?);
        self.spawn(move || {
            if socket.local_addr()?.is_ipv4() {
                UdpWorker::<SockaddrIn>::new(socket).run(&announces, &ids, random, &stop);
            } else {
                UdpWorker::<SockaddrIn6>::new(socket).run(&announces, &ids, random, &stop);
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
            if let Err(error) = cpu_slice::request_short_slice() {
                tracing::debug!(%error, "no short time slice: clients may wait longer when the machine is busy");
            }
            if let Err(error) = work() {
                tracing::error!(%error, "an announce thread cannot start");
            }
        };
        let thread = std::thread::Builder::new().name(name).spawn(work);
        self.threads.push(thread.map_err(Error::Threads)?);
        Ok(())
    }

    /// Stops the threads, each after its current request.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.pages.wake_threads();
        for socket in &self.udp_sockets {
            // The call fails, because a UDP socket has no connection, but it wakes the receiving
            // thread.
            let _ = SockRef::from(socket).shutdown(Shutdown::Both);
        }
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("an announce thread panicked");
            }
        }
    }
}

fn random_seed() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| Error::Threads(io::Error::other(error.to_string())))
}
