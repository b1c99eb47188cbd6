//! The workers: the number of announces over HTTP at once.
//!
//! A request that waits for its response occupies no thread, so the pool runs as many forwards as
//! there are connections to wait for. HTTP costs sockets, TLS and parsing, however, and is limited
//! to `forwarder_workers`, or up to `max_forwarder_workers` when the queue fills up or work waits
//! too long. Events and probes are exempt: they must not wait for a forwarder that hangs.
//!
//! Hosts share the workers by the time for which they occupy them (start-time fair queueing, Goyal,
//! Vin and Cheng 1996): a free worker goes to the host that used them least. A host that takes
//! seconds to respond therefore cannot starve one that takes milliseconds, however many of its
//! forwards wait.

use headworks_core::{Class, Scale, Scaler, Thresholds, Time};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// The wait after which another worker is started although the queue is not filling up.
const LONG_WAIT: Duration = Duration::from_secs(1);

/// The workers of the forward plane.
pub(super) struct HttpWorkers {
    state: Mutex<State>,
    /// The number of waiters. Announce threads read it for every forward; under the lock they would
    /// wait for low-priority threads that hold it without a CPU.
    waiting: AtomicUsize,
    start: Instant,
    /// The fill of the queue in percent.
    fill: OnceLock<Box<dyn Fn(usize) -> u32 + Send + Sync>>,
}

struct State {
    scaler: Scaler,
    scale_from: u32,
    limit: usize,
    running: usize,
    waiting: usize,
    hosts: HashMap<Arc<str>, Host>,
    /// The use of the host that got the last worker. A host that was idle begins here, so that it
    /// saves up no claim on all workers.
    virtual_time: Duration,
    arrivals: u64,
}

/// The share of one host.
#[derive(Default)]
struct Host {
    /// By class and order of arrival.
    waiters: BTreeMap<(Class, u64), Waiter>,
    /// The times since the start at which its running workers were granted.
    running: Vec<(u64, Duration)>,
    /// The time for which it occupied workers that are free again.
    used: Duration,
}

impl Host {
    /// Returns the time for which the host occupied workers until `now`.
    fn usage(&self, now: Duration) -> Duration {
        let running = self.running.iter();
        self.used
            + running
                .map(|(_, since)| now.saturating_sub(*since))
                .sum::<Duration>()
    }
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
                waiting: 0,
                hosts: HashMap::new(),
                virtual_time: Duration::ZERO,
                arrivals: 0,
            }),
            waiting: AtomicUsize::new(0),
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
        self.update(|state| {
            state.scaler.reconfigure(base, max, thresholds);
            state.scale_from = u32::from(thresholds.scale);
            state.limit = state.limit.clamp(base.max(1), max.max(base).max(1));
            state.grant(self.start.elapsed());
        });
    }

    /// Changes the state under the lock and publishes the number of waiters.
    fn update<R>(&self, change: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state.lock();
        let result = change(&mut state);
        self.waiting.store(state.waiting, Ordering::Relaxed);
        result
    }

    /// Returns the number of workers.
    pub(super) fn count(&self) -> usize {
        self.update(|state| {
            self.scale(state);
            state.limit
        })
    }

    /// Returns the number of forwards that wait for a worker, without a lock.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits for a worker for a request to `host`. Of its requests, more urgent classes go first.
    pub(super) async fn acquire(self: &Arc<Self>, class: Class, host: &str) -> Worker {
        let (granted, mut grant) = oneshot::channel();
        let host = Arc::<str>::from(host);
        let key = self.update(|state| {
            let now = self.start.elapsed();
            let key = state.push(&host, class, granted, now);
            state.grant(now);
            key
        });
        let mut wait = Wait {
            workers: self,
            host: host.clone(),
            key,
            granted: false,
        };
        loop {
            // A waiter asks for more workers itself, so that nothing ticks when nobody waits.
            match tokio::time::timeout(LONG_WAIT, &mut grant).await {
                Ok(_) => {
                    wait.granted = true;
                    return Worker {
                        workers: self.clone(),
                        host,
                        number: key.1,
                    };
                }
                Err(_) => self.update(|state| self.scale(state)),
            }
        }
    }

    fn scale(&self, state: &mut State) {
        let fill = self.fill.get().map_or(0, |fill| fill(state.waiting));
        let long = state
            .oldest()
            .is_some_and(|since| since.elapsed() >= LONG_WAIT);
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
        state.grant(self.start.elapsed());
    }
}

impl State {
    /// Adds a waiter and returns its key.
    fn push(
        &mut self,
        host: &Arc<str>,
        class: Class,
        granted: oneshot::Sender<()>,
        now: Duration,
    ) -> (Class, u64) {
        self.arrivals += 1;
        self.waiting += 1;
        let (key, since) = ((class, self.arrivals), Instant::now());
        let virtual_time = self.virtual_time;
        let host = self.hosts.entry(host.clone()).or_default();
        // A host that did not wait has no claim on what it left to others, also if it was never
        // quite idle.
        if host.waiters.is_empty() {
            host.used += virtual_time.saturating_sub(host.usage(now));
        }
        host.waiters.insert(key, Waiter { since, granted });
        key
    }

    /// Returns the time since which the oldest waiter waits: the first of one of the classes of a
    /// host. Thousands may wait, and every worker that becomes free asks.
    fn oldest(&self) -> Option<Instant> {
        let mut oldest = None;
        for host in self.hosts.values() {
            let mut class = host.waiters.first_key_value();
            while let Some((&(Class(number), _), waiter)) = class {
                oldest =
                    Some(oldest.map_or(waiter.since, |since: Instant| since.min(waiter.since)));
                let Some(next) = number.checked_add(1) else {
                    break;
                };
                class = host.waiters.range((Class(next), 0)..).next();
            }
        }
        oldest
    }

    /// Gives free workers to those that wait.
    fn grant(&mut self, now: Duration) {
        while self.running < self.limit && self.waiting > 0 {
            let waiting = (self.hosts.values_mut())
                .filter_map(|host| Some((host.usage(now), *host.waiters.keys().next()?, host)));
            let least = waiting.min_by_key(|(usage, key, _)| (*usage, *key));
            let Some((usage, key, host)) = least else {
                return;
            };
            self.waiting -= 1;
            let waiter = host.waiters.remove(&key);
            // A waiter that has just given up leaves the worker to the next one.
            if waiter.is_some_and(|waiter| waiter.granted.send(()).is_ok()) {
                host.running.push((key.1, now));
                self.running += 1;
                self.virtual_time = self.virtual_time.max(usage);
            }
        }
    }

    /// Makes a worker of a host free.
    fn release(&mut self, host: &Arc<str>, number: u64, now: Duration) {
        let Some(share) = self.hosts.get_mut(host) else {
            return;
        };
        let Some(index) = (share.running.iter()).position(|(other, _)| *other == number) else {
            return;
        };
        let (_, since) = share.running.swap_remove(index);
        share.used += now.saturating_sub(since);
        self.running -= 1;
        self.forget_idle();
    }

    /// Drops the shares of hosts that have nothing to do and used no more than others.
    fn forget_idle(&mut self) {
        let virtual_time = self.virtual_time;
        self.hosts.retain(|_, share| {
            let idle = share.waiters.is_empty() && share.running.is_empty();
            !idle || share.used > virtual_time
        });
    }
}

/// A wait for a worker. Dropping it gives up the place, and the worker if it was just granted.
struct Wait<'a> {
    workers: &'a HttpWorkers,
    host: Arc<str>,
    key: (Class, u64),
    granted: bool,
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.granted {
            return;
        }
        let now = self.workers.start.elapsed();
        self.workers.update(|state| {
            let share = state.hosts.get_mut(&self.host);
            if share.is_some_and(|share| share.waiters.remove(&self.key).is_some()) {
                state.waiting -= 1;
                state.forget_idle();
            } else {
                state.release(&self.host, self.key.1, now);
                state.grant(now);
            }
        });
    }
}

/// A worker at work. Dropping it makes the worker free.
pub(super) struct Worker {
    workers: Arc<HttpWorkers>,
    host: Arc<str>,
    /// The number of the arrival that got it.
    number: u64,
}

impl Drop for Worker {
    fn drop(&mut self) {
        let now = self.workers.start.elapsed();
        self.workers.update(|state| {
            state.release(&self.host, self.number, now);
            self.workers.scale(state);
        });
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
    async fn the_number_of_waiters_is_read_without_the_lock() {
        let workers = workers(1, 1);
        let _running = workers.acquire(Class(2), "a").await;
        let mut waiting = Box::pin(workers.acquire(Class(2), "a"));
        assert!((&mut waiting).now_or_never().is_none());
        let state = workers.state.lock();
        let reader = workers.clone();
        let (sender, read) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(reader.waiting()));
        assert_eq!(read.recv_timeout(Duration::from_secs(60)), Ok(1));
        drop(state);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_waiter_is_found_in_any_class() {
        let workers = workers(1, 1);
        let _running = workers.acquire(Class(2), "a").await;
        let began = Instant::now();
        let mut waits = Vec::new();
        for class in [2, 0, 2, 9, 0] {
            let mut wait = Box::pin(workers.acquire(Class(class), "a"));
            assert!((&mut wait).now_or_never().is_none());
            waits.push(wait);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let age = |workers: &HttpWorkers| workers.state.lock().oldest().map(|since| since - began);
        assert_eq!(age(&workers), Some(Duration::ZERO));
        drop(waits.remove(0));
        assert_eq!(age(&workers), Some(Duration::from_millis(1)));
        waits.drain(..2);
        assert_eq!(age(&workers), Some(Duration::from_millis(3)));
        waits.clear();
        assert_eq!(age(&workers), None);
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_work_gets_the_next_worker() {
        let workers = workers(1, 1);
        let first = workers.acquire(Class(2), "a").await;
        let (mut late, mut urgent) = (
            Box::pin(workers.acquire(Class(2), "a")),
            Box::pin(workers.acquire(Class(1), "a")),
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
        let _hung = workers.acquire(Class(2), "a").await;
        let began = Instant::now();
        let _second = workers.acquire(Class(2), "a").await;
        assert_eq!(began.elapsed(), LONG_WAIT);
        assert_eq!(workers.count(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wait_that_is_given_up_loses_no_worker() {
        let workers = workers(1, 1);
        let first = workers.acquire(Class(2), "a").await;
        let mut given_up = Box::pin(workers.acquire(Class(2), "a"));
        assert!((&mut given_up).now_or_never().is_none());
        // Granted, but dropped before it noticed.
        drop(first);
        drop(given_up);
        let _next = workers.acquire(Class(2), "a").await;
    }

    #[tokio::test(start_paused = true)]
    async fn slow_hosts_do_not_delay_a_fast_one() {
        let workers = workers(10, 20);
        for slow in 0..20 {
            for _ in 0..200 {
                let workers = workers.clone();
                tokio::spawn(async move {
                    let _worker = workers.acquire(Class(1), &format!("slow-{slow}")).await;
                    tokio::time::sleep(Duration::from_secs(8)).await;
                });
            }
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let began = Instant::now();
        let fast = (0..200).map(|_| {
            let workers = workers.clone();
            tokio::spawn(async move {
                let _worker = workers.acquire(Class(2), "fast").await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            })
        });
        futures_util::future::join_all(fast.collect::<Vec<_>>()).await;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(12), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_was_idle_does_not_displace_the_others_for_long() {
        let workers = workers(1, 1);
        let use_worker = async |host: &str, millis: u64| {
            let _worker = workers.acquire(Class(2), host).await;
            tokio::time::sleep(Duration::from_millis(millis)).await;
        };
        for _ in 0..100 {
            use_worker("busy", 1000).await;
        }
        let order = Mutex::new(Vec::new());
        let log = async |host: &'static str| {
            use_worker(host, 1000).await;
            order.lock().push(host);
        };
        tokio::join!(
            log("busy"),
            log("busy"),
            log("busy"),
            log("idle"),
            log("idle"),
            log("idle")
        );
        let order = order.into_inner();
        assert!(
            order[..4].contains(&"busy") && order[..2].contains(&"idle"),
            "{order:?}"
        );
    }
}
