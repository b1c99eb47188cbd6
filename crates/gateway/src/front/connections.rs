//! Connections of clients, and which of them is closed for a new one when all are taken.
//!
//! A connection costs a client nothing, and one that sends nothing is kept for a while. So one is
//! protected only after a request with a valid key, and only as long as its tenant has no more than
//! half of all. When all are taken, the oldest of the others is closed for a new one. A part of all
//! connections is never protected, so that one can always be closed: neither clients without a key
//! nor a few tenants can keep others out.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::HeaderMap;
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admit::{RequestHeaders, authenticate};
use crate::shared::Shared;

/// One of this many connections is not protected.
const UNPROTECTED: usize = 16;
/// Most connections among which an idle one is looked for.
const MAX_LOOKED_AT: usize = 64;

/// All connections.
#[derive(Debug)]
pub(super) struct Connections {
    open: Mutex<Open>,
    /// Most protected ones of one tenant, and of all.
    most_of_tenant: usize,
    most_protected: usize,
    /// Connections that lose their protection at once, so that they are seldom looked for.
    batch: usize,
}

#[derive(Debug, Default)]
struct Open {
    /// Connections that may be closed, oldest first.
    others: BTreeMap<u64, Arc<Activity>>,
    protected: HashMap<u64, (Arc<str>, Arc<Activity>)>,
    /// Protected connections of each tenant.
    tenants: HashMap<Arc<str>, usize>,
    next: u64,
}

impl Open {
    fn unprotect(&mut self, number: u64) -> Option<Arc<Activity>> {
        let (tenant, activity) = self.protected.remove(&number)?;
        if let Some(count) = self.tenants.get_mut(&tenant) {
            *count -= 1;
            if *count == 0 {
                self.tenants.remove(&tenant);
            }
        }
        activity.is_protected.store(false, Ordering::Relaxed);
        Some(activity)
    }

    /// Ends the protection of those that have been idle longest.
    fn unprotect_idle(&mut self, batch: usize) {
        let protected = self.protected.iter();
        let mut idle: Vec<(Instant, u64)> = protected
            .filter_map(|(number, (_, activity))| Some((activity.idle_since()?, *number)))
            .collect();
        idle.sort_unstable();
        for (_, number) in idle.into_iter().take(batch) {
            if let Some(activity) = self.unprotect(number) {
                self.others.insert(number, activity);
            }
        }
    }
}

impl Connections {
    /// Connections of which there may be `total`.
    pub(super) fn new(total: usize) -> Arc<Connections> {
        let batch = total.div_ceil(UNPROTECTED);
        Arc::new(Connections {
            open: Mutex::default(),
            most_of_tenant: total.div_ceil(2),
            most_protected: total - batch,
            batch,
        })
    }

    pub(super) fn join(self: &Arc<Self>) -> OpenConnection {
        let activity = Arc::new(Activity {
            closed: CancellationToken::new(),
            is_protected: AtomicBool::new(false),
            running: AtomicUsize::new(0),
            idle_since: Mutex::new(Instant::now()),
        });
        let mut open = self.open.lock();
        let number = open.next;
        open.next += 1;
        open.others.insert(number, activity.clone());
        OpenConnection {
            connections: self.clone(),
            number,
            activity,
        }
    }

    /// Closes a connection to make room, if one may be closed.
    pub(super) fn close_one(&self) {
        let mut open = self.open.lock();
        if open.others.is_empty() {
            open.unprotect_idle(self.batch);
        }
        // An idle one is preferred, if one is found soon.
        let mut oldest = open.others.iter().take(MAX_LOOKED_AT);
        let idle = oldest.find(|(_, activity)| activity.idle_since().is_some());
        let number = idle.or(open.others.first_key_value());
        let number = number.map(|(number, _)| *number);
        let closed = number.and_then(|number| open.others.remove(&number));
        drop(open);
        if let Some(activity) = closed {
            activity.closed.cancel();
        }
    }

    /// Protects a connection of a tenant, if there is room.
    fn protect(&self, number: u64, tenant: &Arc<str>) {
        let mut open = self.open.lock();
        if open.tenants.get(tenant).copied().unwrap_or(0) >= self.most_of_tenant {
            return;
        }
        if open.protected.len() >= self.most_protected {
            open.unprotect_idle(self.batch);
        }
        if open.protected.len() >= self.most_protected {
            return;
        }
        let Some(activity) = open.others.remove(&number) else {
            return;
        };
        activity.is_protected.store(true, Ordering::Relaxed);
        *open.tenants.entry(tenant.clone()).or_default() += 1;
        open.protected.insert(number, (tenant.clone(), activity));
    }

    fn remove(&self, number: u64) {
        let mut open = self.open.lock();
        if open.others.remove(&number).is_none() {
            open.unprotect(number);
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(super) struct OpenConnection {
    connections: Arc<Connections>,
    number: u64,
    activity: Arc<Activity>,
}

impl OpenConnection {
    /// Completes when the connection has to make room for another one.
    pub(super) async fn closed(&self) {
        self.activity.closed.cancelled().await;
    }

    /// Begins a request. One with a valid key protects the connection, and lasts until the guard is
    /// dropped.
    pub(super) fn begin(&self, shared: &Shared, headers: &HeaderMap) -> Option<RunningGuard> {
        let running = self.run();
        if self.activity.is_protected.load(Ordering::Relaxed) {
            return Some(running);
        }
        let active = shared.active.load();
        let principal = authenticate(shared, &active, &RequestHeaders::parse(headers)).ok()?;
        self.connections.protect(self.number, &principal.tenant);
        Some(running)
    }

    fn run(&self) -> RunningGuard {
        self.activity.running.fetch_add(1, Ordering::Relaxed);
        RunningGuard(self.activity.clone())
    }

    /// Completes when no request has been running for that long.
    pub(super) async fn idle_for(&self, time: Duration) {
        while let Some(end) = self.activity.idle_end(time, Instant::now()) {
            tokio::time::sleep_until(end).await;
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.connections.remove(self.number);
    }
}

/// Activity of a connection.
#[derive(Debug)]
struct Activity {
    closed: CancellationToken,
    is_protected: AtomicBool,
    running: AtomicUsize,
    /// End of the last request.
    idle_since: Mutex<Instant>,
}

impl Activity {
    /// Since when no request is running; `None` if one is.
    fn idle_since(&self) -> Option<Instant> {
        (self.running.load(Ordering::Relaxed) == 0).then(|| *self.idle_since.lock())
    }

    /// When no request will have been running for `time`, at the earliest; `None` if that is so.
    fn idle_end(&self, time: Duration, now: Instant) -> Option<Instant> {
        let end = self.idle_since().unwrap_or(now) + time;
        (end > now).then_some(end)
    }
}

/// A request that is running on a connection.
#[derive(Debug)]
pub(super) struct RunningGuard(Arc<Activity>);

impl Drop for RunningGuard {
    fn drop(&mut self) {
        *self.0.idle_since.lock() = Instant::now();
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closed(connection: &OpenConnection) -> bool {
        connection.activity.closed.is_cancelled()
    }

    fn open(connections: &Arc<Connections>, count: usize, tenant: &str) -> Vec<OpenConnection> {
        let open = (0..count).map(|_| {
            let connection = connections.join();
            connections.protect(connection.number, &tenant.into());
            connection
        });
        open.collect()
    }

    #[test]
    fn tenants_never_hold_all_connections() {
        let connections = Connections::new(32);
        let (mut held, mut running) = (Vec::new(), Vec::new());
        for number in 0..32 {
            let connection = connections.join();
            running.push(connection.run());
            let tenant = if number < 16 { "a" } else { "b" };
            connections.protect(connection.number, &tenant.into());
            held.push(connection);
        }
        connections.close_one();
        let closed: Vec<usize> = (0..32).filter(|at| is_closed(&held[*at])).collect();
        assert_eq!(closed, [30], "the oldest beyond 30 protected ones");
        drop(running);
        // A third tenant is protected in the place of those that have been idle longest.
        let newcomer = open(&connections, 1, "c");
        assert!(newcomer[0].activity.is_protected.load(Ordering::Relaxed));
        drop((held, newcomer));
        let open = connections.open.lock();
        assert!(open.others.is_empty() && open.protected.is_empty() && open.tenants.is_empty());
    }

    #[test]
    fn a_tenant_has_at_most_half_of_the_connections_for_sure() {
        let connections = Connections::new(32);
        let hog = open(&connections, 31, "hog");
        let other = open(&connections, 1, "other");
        for _ in 0..15 {
            connections.close_one();
        }
        assert!(hog[..16].iter().all(|one| !is_closed(one)));
        assert!(hog[16..].iter().all(is_closed));
        assert!(!is_closed(&other[0]));
        connections.close_one();
        assert!(is_closed(&hog[0]), "idle longest");
    }

    #[test]
    fn a_connection_is_idle_only_while_no_request_runs() {
        let (connections, time) = (Connections::new(4), Duration::from_secs(60));
        let connection = connections.join();
        let later = Instant::now() + 2 * time;
        let idle_end = |now| connection.activity.idle_end(time, now);
        assert_eq!(idle_end(later), None);
        let requests = (connection.run(), connection.run());
        drop(requests.0);
        assert_eq!(idle_end(later), Some(later + time), "one is still running");
        drop(requests.1);
        assert!(idle_end(Instant::now()).is_some() && idle_end(later).is_none());
    }
}
