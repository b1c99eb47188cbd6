//! Waiters: where workers and callers wait for the core's decision.
//!
//! A waiter has at most one message and one waker. It is made under the lock and removed by the
//! task that waits in it; the driver never removes one that may still be polled. A message that
//! nobody took is given back when the waiter is removed.

use crate::notice::{Denied, EndReason};
use headworks_core::{Lease, Ticket};
use std::task::Waker;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// The pool's side of a job of the core.
#[derive(Debug)]
pub(crate) enum Task<P> {
    /// Work for a worker.
    Work(Work<P>),
    /// A caller that waits there and runs the work itself.
    Caller(WaiterId),
}

/// Work for a worker.
#[derive(Debug)]
pub(crate) struct Work<P> {
    pub(crate) payload: P,
    /// The [`JobHandle`](crate::JobHandle) that is told how it ended.
    pub(crate) watcher: Option<oneshot::Sender<EndReason>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaiterId(pub(super) usize);

/// A decision for a waiter.
#[derive(Debug)]
pub(crate) enum Message<P> {
    /// Run this.
    Granted(Lease<Task<P>>),
    /// It will not run.
    Denied(Denied),
    /// Nothing runs, waits or is delayed.
    Drained,
    /// There is no more to do.
    Leave,
}

/// The state of a task that waits: a worker, a caller of `acquire`, or one that waits for the pool
/// to be idle.
#[derive(Debug)]
pub(super) struct Waiter<P> {
    pub(super) message: Option<Message<P>>,
    pub(super) waker: Option<Waker>,
    /// The job that it runs.
    pub(super) running: Option<Ticket>,
    pub(super) cancelled: bool,
    pub(super) token: Option<CancellationToken>,
}

impl<P> Default for Waiter<P> {
    fn default() -> Self {
        Waiter {
            message: None,
            waker: None,
            running: None,
            cancelled: false,
            token: None,
        }
    }
}
