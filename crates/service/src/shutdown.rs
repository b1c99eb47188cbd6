//! Graceful shutdown: tasks are asked to stop, get a grace period, and are named if they exceed it.
//!
//! [`Shutdown`] owns the names of running tasks and the two signals (requested, forced). It does
//! not know what a task does: a task watches [`Shutdown::requested`] and ends by itself.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::error::Error;

crate::section! {
    /// Shutdown.
    pub struct ShutdownConfig = "shutdown";

    /// Grace period for running work after SIGINT or SIGTERM. A second signal ends the program
    /// at once.
    #[serde(with = "crate::config::seconds")]
    grace: Duration = Duration::from_secs(30);
}

/// The shutdown handle that all parts of a program share.
///
/// ```
/// # use headworks_service::shutdown::Shutdown;
/// # use std::time::Duration;
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// let shutdown = Shutdown::new();
/// let watcher = shutdown.clone();
/// shutdown.spawn("pump", async move { watcher.requested().await });
/// shutdown.request();
/// let end = shutdown.drain(Duration::from_secs(1)).await;
/// assert!(end.unfinished.is_empty());
/// # });
/// ```
#[derive(Clone, Debug, Default)]
pub struct Shutdown {
    requested: CancellationToken,
    forced: CancellationToken,
    tracker: TaskTracker,
    running: Arc<Mutex<TaskTable>>,
}

#[derive(Debug, Default)]
struct TaskTable {
    next: u64,
    names: BTreeMap<u64, String>,
}

/// The outcome of a drain.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Drained {
    /// Names of the tasks that did not stop in time and were dropped.
    pub unfinished: Vec<String>,
    /// Whether shutdown was forced, so that work may have been cut short.
    pub forced: bool,
}

impl Shutdown {
    /// A handle without a pending request.
    #[must_use]
    pub fn new() -> Shutdown {
        Shutdown::default()
    }

    /// Requests shutdown. Further calls have no effect.
    pub fn request(&self) {
        self.requested.cancel();
    }

    /// Ends [`drain`](Shutdown::drain) at once and drops the tasks that still run.
    pub fn force(&self) {
        self.requested.cancel();
        self.forced.cancel();
    }

    /// Completes when shutdown is forced.
    pub async fn forced(&self) {
        self.forced.cancelled().await;
    }

    /// Whether shutdown was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.requested.is_cancelled()
    }

    /// Completes when shutdown is requested.
    pub async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// A token that is cancelled on shutdown; cancelling it affects only its holder.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.requested.child_token()
    }

    /// Spawns `task` under `name`. It should end soon after shutdown is requested; it is dropped at
    /// the end of the grace period. A panic is logged with the name and ends only this task.
    pub fn spawn<F>(&self, name: impl Into<String>, task: F) -> JoinHandle<Option<F::Output>>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let entry = TaskGuard::new(&self.running, name.into());
        let forced = self.forced.clone();
        self.tracker.spawn(async move {
            tokio::select! {
                // The task is polled first, so that a result that is ready is not discarded.
                biased;
                end = AssertUnwindSafe(task).catch_unwind() => match end {
                    Ok(output) => Some(output),
                    Err(_) => {
                        tracing::error!(task = entry.name(), "task panicked");
                        None
                    }
                },
                () = forced.cancelled() => None,
            }
        })
    }

    /// Names of the running tasks.
    #[must_use]
    pub fn running(&self) -> Vec<String> {
        self.running.lock().names.values().cloned().collect()
    }

    /// Requests shutdown and waits until all tasks ended, `grace` is over, or shutdown is forced.
    pub async fn drain(&self, grace: Duration) -> Drained {
        self.request();
        self.tracker.close();
        let in_time = tokio::select! {
            () = self.tracker.wait() => true,
            () = tokio::time::sleep(grace) => false,
            () = self.forced.cancelled() => false,
        };
        let unfinished = if in_time { Vec::new() } else { self.running() };
        let forced = self.forced.is_cancelled();
        self.forced.cancel();
        for name in &unfinished {
            tracing::warn!(task = name, "task dropped: did not stop in time");
        }
        Drained { unfinished, forced }
    }

    /// Requests shutdown on the first SIGINT or SIGTERM, and forces it on the second.
    ///
    /// # Errors
    /// When the signal handlers cannot be installed.
    pub fn on_signals(&self) -> Result<(), Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
        let shutdown = self.clone();
        // Not tracked: the task must outlive the drain to see the second signal.
        tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = interrupt.recv() => "SIGINT",
                    _ = terminate.recv() => "SIGTERM",
                };
                if shutdown.is_requested() {
                    tracing::warn!(signal = name, "second signal: stopping immediately");
                    shutdown.force();
                    return;
                }
                tracing::info!(
                    signal = name,
                    "shutting down; a second signal stops immediately"
                );
                shutdown.request();
            }
        });
        Ok(())
    }
}

/// A guard that lists the name of a task while its future exists, whichever way it ends.
struct TaskGuard {
    running: Arc<Mutex<TaskTable>>,
    id: u64,
}

impl TaskGuard {
    fn new(running: &Arc<Mutex<TaskTable>>, name: String) -> TaskGuard {
        let mut table = running.lock();
        let id = table.next;
        table.next += 1;
        table.names.insert(id, name);
        let running = Arc::clone(running);
        TaskGuard { running, id }
    }

    fn name(&self) -> String {
        self.running
            .lock()
            .names
            .get(&self.id)
            .cloned()
            .unwrap_or_default()
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        self.running.lock().names.remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn tasks_that_listen_end_in_time() {
        let shutdown = Shutdown::new();
        let token = shutdown.token();
        let task = shutdown.spawn("listens", async move {
            token.cancelled().await;
            7
        });
        assert_eq!(shutdown.running(), ["listens"]);
        assert_eq!(
            shutdown.drain(GRACE).await,
            Drained {
                unfinished: vec![],
                forced: false
            }
        );
        assert_eq!(task.await.unwrap(), Some(7));
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_do_not_are_named_and_dropped() {
        let shutdown = Shutdown::new();
        let stuck = shutdown.spawn("stuck", std::future::pending::<()>());
        let began = tokio::time::Instant::now();
        let end = shutdown.drain(GRACE).await;
        assert_eq!(end.unfinished, ["stuck"]);
        assert_eq!(began.elapsed(), GRACE);
        assert_eq!(stuck.await.unwrap(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn forcing_does_not_wait() {
        let shutdown = Shutdown::new();
        shutdown.spawn("stuck", std::future::pending::<()>());
        shutdown.force();
        let began = tokio::time::Instant::now();
        let end = shutdown.drain(GRACE).await;
        assert_eq!(
            (end.unfinished, end.forced),
            (vec!["stuck".to_owned()], true)
        );
        assert_eq!(began.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_only_its_task() {
        let shutdown = Shutdown::new();
        let broken = shutdown.spawn("broken", async { panic!("on purpose") });
        assert_eq!(broken.await.unwrap(), None);
        assert!(shutdown.running().is_empty());
        assert!(shutdown.drain(GRACE).await.unfinished.is_empty());
    }
}
