//! Seats: where workers and callers wait for word from the core.

use crate::notice::Denied;
use headworks_core::{Lease, Ticket};
use std::task::Waker;
use tokio_util::sync::CancellationToken;

/// What a job of the core is to the pool.
#[derive(Debug)]
pub(crate) enum Task<P> {
    /// Work for a worker.
    Work(P),
    /// Somebody who waits in that seat and runs the work himself.
    Caller(SeatId),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SeatId(pub(super) usize);

/// Word from the core.
#[derive(Debug)]
pub(crate) enum Word<P> {
    /// Run this.
    Granted(Lease<Task<P>>),
    /// It will not run.
    Denied(Denied),
    /// There is no more to do.
    Leave,
}

#[derive(Debug)]
pub(super) struct Seat<P> {
    pub(super) word: Option<Word<P>>,
    pub(super) waker: Option<Waker>,
    /// The job that is run from this seat.
    pub(super) running: Option<Ticket>,
    pub(super) cancelled: bool,
    pub(super) token: Option<CancellationToken>,
}

impl<P> Default for Seat<P> {
    fn default() -> Self {
        Seat {
            word: None,
            waker: None,
            running: None,
            cancelled: false,
            token: None,
        }
    }
}

impl<P> Seat<P> {
    pub(super) fn stop(&mut self) {
        self.cancelled = true;
        if let Some(token) = &self.token {
            token.cancel();
        }
    }
}
