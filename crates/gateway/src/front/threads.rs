//! Serving threads, each with its own runtime and its own connections to upstreams.
//!
//! A request wakes tasks four times: when it arrives, when it is forwarded, when the response
//! arrives, and when that is relayed. Between threads, each of these is a system call and a context
//! switch, which together cost more than everything that is done with the request. Therefore one
//! thread does everything for the connections that it accepted. See `docs/adr/0014`.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

use super::listen::{Arrival, http2};
use super::route::Desk;
use crate::shared::Shared;
use crate::upstream::Links;

/// Connections that may be queued for a thread.
const WAITING: usize = 256;

/// The serving threads. Dropping this stops them at once.
pub(super) struct Threads {
    threads: Vec<mpsc::Sender<Arrival>>,
    next: usize,
    running: TaskTracker,
    _abandon: DropGuard,
}

impl Threads {
    /// Starts one thread per CPU.
    pub(super) fn start(shared: &Arc<Shared>, stop: &CancellationToken) -> Threads {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let (running, abandon) = (TaskTracker::new(), CancellationToken::new());
        let start = |number| {
            let (sender, arrivals) = mpsc::channel(WAITING);
            let desk = Arc::new(Desk {
                shared: shared.clone(),
                links: Links::new(&shared.outbound),
            });
            let serve = serve(arrivals, desk, stop.clone());
            let (running, abandon) = (running.token(), abandon.clone());
            let thread = std::thread::Builder::new().name(format!("gateway {number}"));
            let started = thread.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                match runtime {
                    Ok(runtime) => drop(runtime.block_on(abandon.run_until_cancelled(serve))),
                    Err(cause) => tracing::error!(%cause, "a thread cannot serve"),
                }
                drop(running);
            });
            match started {
                Ok(_) => Some(sender),
                Err(cause) => {
                    tracing::error!(%cause, "a thread cannot be started");
                    None
                }
            }
        };
        Threads {
            threads: (0..count).filter_map(start).collect(),
            next: 0,
            running,
            _abandon: abandon.drop_guard(),
        }
    }

    /// Hands a connection to the next thread, round-robin, and skips threads that have ended.
    pub(super) async fn serve(&mut self, mut arrival: Arrival) {
        for _ in 0..self.threads.len() {
            self.next = (self.next + 1) % self.threads.len();
            match self.threads[self.next].send(arrival).await {
                Ok(()) => return,
                Err(refused) => arrival = refused.0,
            }
        }
        tracing::error!("no thread is left that could serve a connection");
    }

    /// Waits until the last response has ended.
    pub(super) async fn end(self) {
        drop(self.threads);
        self.running.close();
        self.running.wait().await;
    }
}

async fn serve(mut arrivals: mpsc::Receiver<Arrival>, desk: Arc<Desk>, stop: CancellationToken) {
    let (http2, clients) = (Arc::new(http2()), TaskTracker::new());
    while let Some(arrival) = arrivals.recv().await {
        clients.spawn(arrival.serve(desk.clone(), http2.clone(), stop.clone()));
    }
    clients.close();
    clients.wait().await;
}
