//! A worker of one side: leases a node, lists it, settles it.
//!
//! It holds the lock for a lease or a settlement, never while an adapter lists, so that a slow side
//! does not hold the other. An adapter that panics has failed to list that node; the worker goes
//! on.

use super::state::Step;
use super::{Adapter, ListError, Shared};
use crate::clock::random;
use futures_util::FutureExt;
use headworks_core::Side;
use headworks_core::rounds::Lease;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

pub(super) async fn work<N: Send + Sync + 'static, A: Adapter<N>>(
    side: Side,
    shared: Arc<Shared<N>>,
    adapter: Arc<A>,
) {
    loop {
        // Registered before the step is taken, so that a change in between is not missed.
        let mut changed = pin!(shared.changed.notified());
        changed.as_mut().enable();
        match shared.step(side) {
            Step::List(lease) => list(side, &shared, &*adapter, &lease).await,
            Step::Leave => return,
            Step::Wait(None) => changed.await,
            Step::Wait(Some(at)) => {
                let due = shared.clock.instant(at);
                let _ = tokio::time::timeout_at(due, changed).await;
            }
        }
    }
}

async fn list<N: Send + Sync + 'static, A: Adapter<N>>(
    side: Side,
    shared: &Shared<N>,
    adapter: &A,
    lease: &Lease<Arc<N>>,
) {
    let attempt = AssertUnwindSafe(async { adapter.list(&lease.node).await });
    let listed = match attempt.catch_unwind().await {
        Ok(listed) => listed,
        Err(_) => Err(ListError::permanent("the adapter panicked")),
    };
    // Nodes are wrapped, and so allocated, without the lock.
    let listed = listed.map(|children| children.into_iter().map(Arc::new).collect());
    let now = shared.clock.now();
    let retry_at = now + shared.backoff.delay(lease.attempt, random());
    let settled = (shared.sides.lock()).settle(side, now, lease, listed, retry_at);
    let (closed, _error) = settled;
    if closed {
        shared.changed.notify_waiters();
    }
}
