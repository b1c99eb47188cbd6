//! The threads of the announce plane: one a core, each with sockets of its own, each request handled where it came in.

mod connection_id;
pub(crate) mod http;
mod pages;
mod sockets;
mod udp;
mod worker;

use crate::error::Error;
use crate::plane::Plane;
use connection_id::ConnectionIds;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use worker::Worker;

/// The threads at work.
pub(crate) struct Serving {
    threads: Vec<(Arc<EventFd>, JoinHandle<()>)>,
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
    let http_at = tcp[0].iter().filter_map(|s| s.local_addr().ok()).collect();
    let udp_at = udp[0].iter().filter_map(|s| s.local_addr().ok()).collect();
    let ids = ConnectionIds::new((random()?, random()?));
    let mut threads = Vec::new();
    for (number, (tcp, udp)) in tcp.into_iter().zip(udp).enumerate() {
        let stop = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let stop = Arc::new(stop.map_err(|error| Error::Threads(error.into()))?);
        let most = config.max_connections.div_ceil(count).max(1);
        let seed = random()?;
        let (plane, ids) = (plane.clone(), ids.clone());
        let thread = std::thread::Builder::new().name(format!("announce {number}"));
        let signal = stop.clone();
        // Made in its own thread: its buffers are not for handing around.
        let work = move || {
            let worker = Worker::new(plane, ids, signal, most, seed);
            match worker.listen(tcp, udp) {
                Ok(worker) => worker.work(),
                Err(error) => {
                    tracing::error!(%error, "a thread of the announce plane does not start");
                }
            }
        };
        let thread = thread.spawn(work).map_err(Error::Threads)?;
        threads.push((stop, thread));
    }
    Ok(Serving {
        threads,
        http: http_at,
        udp: udp_at,
    })
}

impl Serving {
    /// Ends the threads, each after the request it is at.
    pub(crate) fn stop(self) {
        for (stop, _) in &self.threads {
            let _ = stop.write(1);
        }
        for (_, thread) in self.threads {
            if thread.join().is_err() {
                tracing::error!("a thread of the announce plane panicked");
            }
        }
    }
}

fn random() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| Error::Threads(std::io::Error::other(error.to_string())))
}
