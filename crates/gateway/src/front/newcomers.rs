//! Connections that have not sent a request with a valid key, oldest first.
//!
//! A connection costs a client nothing, and one that sends nothing is kept for a while. When all
//! connections are taken, the oldest of these is closed for a new one, so that clients without a
//! key cannot keep others out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::HeaderMap;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::admit::{RequestHeaders, authenticate};
use crate::shared::Shared;

/// All newcomers.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    oldest_first: BTreeMap<u64, CancellationToken>,
    next: u64,
}

impl Newcomers {
    pub(super) fn join(self: &Arc<Self>) -> Newcomer {
        let closed = CancellationToken::new();
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        open.oldest_first.insert(number, closed.clone());
        Newcomer {
            newcomers: self.clone(),
            number,
            closed,
            is_known: AtomicBool::new(false),
        }
    }

    /// Closes the oldest newcomer, if there is one.
    pub(super) fn close_oldest(&self) {
        let oldest = self.open.lock().oldest_first.pop_first();
        if let Some((_, closed)) = oldest {
            closed.cancel();
        }
    }

    fn remove(&self, number: u64) {
        self.open.lock().oldest_first.remove(&number);
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct Newcomer {
    newcomers: Arc<Newcomers>,
    number: u64,
    closed: CancellationToken,
    /// Whether it has sent a request with a valid key.
    is_known: AtomicBool,
}

impl Newcomer {
    /// Completes when the connection has to make room for another one.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// The connection stays if it has sent a request with a valid key.
    pub(super) fn sent(&self, shared: &Shared, headers: &HeaderMap) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let active = shared.active.load();
        if authenticate(shared, &active, &RequestHeaders::parse(headers)).is_ok() {
            self.is_known.store(true, Ordering::Relaxed);
            self.newcomers.remove(self.number);
        }
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        if !self.is_known.load(Ordering::Relaxed) {
            self.newcomers.remove(self.number);
        }
    }
}
