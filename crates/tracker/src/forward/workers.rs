//! The workers: the number of announces over HTTP at once.
//!
//! A request that waits for its response occupies no thread, so the pool runs as many forwards as
//! there are connections to wait for. HTTP costs sockets, TLS and parsing, however, and is limited
//! to `forwarder_workers`, or up to `max_forwarder_workers` when the queue fills up or work waits
//! too long. Events and probes are exempt: they must not wait for a forwarder that hangs.

use headworks_core::{Class, Scale, Scaler, Thresholds, Time};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The wait after which another worker is started although the queue is not filling up.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// The workers of the forward plane.
pub(super) struct HttpWorkers {
    state: Mutex<State>,
    start: Instant,
    /// The fill of the queue in percent.
    fill: OnceLock<Box<dyn Fn(usize) -> u32 + Send + Sync>>,
}

struct State {
    scaler: Scaler,
    scale_from: u32,
    limit: usize,
    running: usize,
    /// By class and order of arrival.
    waiters: BTreeMap<(Class, u64), Waiter>,
    arrivals: u64,
}

struct Waiter {
    since: Instant,
    granted: oneshot::Sender<()>,
}

impl HttpWorkers {
    pub(super) fn new(base: usize, max: usize, thresholds: Thresholds) -> HttpWorkers {
        let mut scaler = Scaler::new(base, max);
        scaler.reconfigure(base, max, thresholds);
        HttpWorkers {
            state: Mutex::new(State {
                scaler,
                scale_from: u32::from(thresholds.scale),
                limit: base.max(1),
                running: 0,
                waiters: BTreeMap::new(),
                arrivals: 0,
            }),
            start: Instant::now(),
            fill: OnceLock::new(),
        }
    }

    /// Sets the function that returns the fill of the queue in percent, given the number of
    /// forwards that wait for a worker.
    pub(super) fn set_fill(&self, fill: impl Fn(usize) -> u32 + Send + Sync + 'static) {
        let _ = self.fill.set(Box::new(fill));
    }

    pub(super) fn reconfigure(&self, base: usize, max: usize, thresholds: Thresholds) {
        let mut state = self.state.lock();
        state.scaler.reconfigure(base, max, thresholds);
        state.scale_from = u32::from(thresholds.scale);
        state.limit = state.limit.clamp(base.max(1), max.max(base).max(1));
        state.grant();
    }

    /// Returns the number of workers.
    pub(super) fn count(&self) -> usize {
        let mut state = self.state.lock();
        self.scale(&mut state);
        state.limit
    }

    /// Returns the number of forwards that wait for a worker.
    pub(super) fn waiting(&self) -> usize {
        self.state.lock().waiters.len()
    }

    /// Waits for a worker. More urgent classes go first.
    pub(super) async fn acquire(self: &Arc<Self>, class: Class) -> Worker {
        let (granted, mut grant) = oneshot::channel();
        let key = {
            let mut state = self.state.lock();
            state.arrivals += 1;
            let key = (class, state.arrivals);
            let since = Instant::now();
            state.waiters.insert(key, Waiter { since, granted });
            state.grant();
            key
        };
        let mut wait = Wait {
            workers: self,
            key,
            granted: false,
        };
        loop {
            // A waiter asks for more workers itself, so that nothing ticks when nobody waits.
            match tokio::time::timeout(LONG_WAIT, &mut grant).await {
                Ok(_) => {
                    wait.granted = true;
                    return Worker(self.clone());
                }
                Err(_) => self.scale(&mut self.state.lock()),
            }
        }
    }

    fn scale(&self, state: &mut State) {
        let waiting = state.waiters.len();
        let fill = self.fill.get().map_or(0, |fill| fill(waiting));
        let longest = state.waiters.values().map(|waiter| waiter.since).min();
        let long = longest.is_some_and(|since| since.elapsed() >= LONG_WAIT);
        let fill = if long {
            fill.max(state.scale_from)
        } else {
            fill
        };
        let now = Time::from_nanos(self.start.elapsed().as_nanos() as u64);
        let idle = state.limit.saturating_sub(state.running);
        match state.scaler.decide(now, fill, state.limit, idle) {
            Scale::Up => state.limit += 1,
            Scale::Down => state.limit -= 1,
            Scale::Hold => {}
        }
        state.grant();
    }
}

impl State {
    /// Gives free workers to those that wait.
    fn grant(&mut self) {
        while self.running < self.limit
            && let Some((_, waiter)) = self.waiters.pop_first()
        {
            // A waiter that has just given up leaves the worker to the next one.
            self.running += usize::from(waiter.granted.send(()).is_ok());
        }
    }
}

/// A wait for a worker. Dropping it gives up the place, and the worker if it was just granted.
struct Wait<'a> {
    workers: &'a HttpWorkers,
    key: (Class, u64),
    granted: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.granted {
            return;
        }
        let mut state = self.workers.state.lock();
        if state.waiters.remove(&self.key).is_none() {
            state.running -= 1;
            state.grant();
        }
    }
}

/// A worker at work. Dropping it makes the worker free.
pub(super) struct Worker(Arc<HttpWorkers>);

impl Drop for Worker {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.running -= 1;
        self.0.scale(&mut state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn workers(base: usize, max: usize) -> Arc<HttpWorkers> {
        Arc::new(HttpWorkers::new(base, max, Thresholds::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_work_gets_the_next_worker() {
        let workers = workers(1, 1);
        let first = workers.acquire(Class(2)).await;
        let (mut late, mut urgent) = (
            Box::pin(workers.acquire(Class(2))),
            Box::pin(workers.acquire(Class(1))),
        );
        assert!((&mut late).now_or_never().is_none() && (&mut urgent).now_or_never().is_none());
        assert_eq!(workers.waiting(), 2);
        drop(first);
        assert!((&mut late).now_or_never().is_none());
        let second = urgent.await;
        drop(second);
        let _third = late.await;
        assert_eq!(workers.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_waits_long_gets_more_workers() {
        let workers = workers(1, 3);
        let _hung = workers.acquire(Class(2)).await;
        let began = Instant::now();
        let _second = workers.acquire(Class(2)).await;
        assert_eq!(began.elapsed(), LONG_WAIT);
        assert_eq!(workers.count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_loses_no_worker() {
        let workers = workers(1, 1);
        let first = workers.acquire(Class(2)).await;
        let mut given_up = Box::pin(workers.acquire(Class(2)));
        assert!((&mut given_up).now_or_never().is_none());
        // Granted, but dropped before it noticed.
        drop(first);
        drop(given_up);
        let _next = workers.acquire(Class(2)).await;
    }
}
