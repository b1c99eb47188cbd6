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

use super::listen::{AcceptedConnection, http2};
use super::route::ServeContext;
use crate::shared::Shared;
use crate::upstream::ClientPool;

/// Connections that may be queued for a thread.
const HANDOFF_CAPACITY: usize = 256;

/// The serving threads. Dropping this stops them at once.
pub(crate) struct ServeThreads {
    threads: Vec<mpsc::Sender<AcceptedConnection>>,
    next: usize,
    running: TaskTracker,
    _abort_guard: DropGuard,
}

impl ServeThreads {
    /// Starts one thread per CPU.
    pub(crate) fn start(shared: &Arc<Shared>, stop: &CancellationToken) -> ServeThreads {
        let count = std::thread::available_parallelism().map_or(1, usize::from);
        let (running, abort) = (TaskTracker::new(), CancellationToken::new());
        let idle_timeout = shared.active.load().config.upstream_idle_timeout;
        let start = |number| {
            let (sender, accepted_connections) = mpsc::channel(HANDOFF_CAPACITY);
            let context = Arc::new(ServeContext {
                shared: shared.clone(),
                client_pool: ClientPool::new(&shared.outbound, idle_timeout),
            });
            let serve = serve(accepted_connections, context, stop.clone());
            let (running, abort) = (running.token(), abort.clone());
            let thread = std::thread::Builder::new().name(format!("gateway {number}"));
            let started = thread.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build();
                match runtime {
                    Ok(runtime) => drop(runtime.block_on(abort.run_until_cancelled(serve))),
                    Err(cause) => {
                        tracing::error!(%cause, "cannot start the runtime of a serving thread");
                    }
                }
                drop(running);
            });
            match started {
                Ok(_) => Some(sender),
                Err(cause) => {
                    tracing::error!(%cause, "cannot start a serving thread");
                    None
                }
            }
        };
        ServeThreads {
            threads: (0..count).filter_map(start).collect(),
            next: 0,
            running,
            _abort_guard: abort.drop_guard(),
        }
    }

    /// Hands a connection to the next thread, round-robin, and skips threads that have ended.
    pub(crate) async fn serve(&mut self, mut accepted: AcceptedConnection) {
        for _ in 0..self.threads.len() {
            self.next = (self.next + 1) % self.threads.len();
            match self.threads[self.next].send(accepted).await {
                Ok(()) => return,
                Err(refused) => accepted = refused.0,
            }
        }
        tracing::error!("no serving thread is left: connection dropped");
    }

    /// Waits until the last response has ended.
    pub(crate) async fn join(self) {
        drop(self.threads);
        self.running.close();
        self.running.wait().await;
    }
}

async fn serve(
    mut accepted_connections: mpsc::Receiver<AcceptedConnection>,
    context: Arc<ServeContext>,
    stop: CancellationToken,
) {
    let (http2, clients) = (Arc::new(http2()), TaskTracker::new());
    while let Some(accepted) = accepted_connections.recv().await {
        clients.spawn(accepted.serve(context.clone(), http2.clone(), stop.clone()));
    }
    clients.close();
    clients.wait().await;
    // Of all threads: closed by each, and empty when the last one has ended.
    context.shared.abandoned.close();
    context.shared.abandoned.wait().await;
}
