//! Many threads on few cores: how long a permit takes, how evenly threads are served, and what the
//! lock does to that.
//!
//! Threads pinned to one or two cores acquire and release permits as fast as they can, from the
//! pool and from a tokio `Semaphore` with as many permits. With plenty of permits only the lock
//! decides how threads take turns; with scarce ones nearly every grant is a hand-off to a thread
//! that waits. Beside them a bare core is driven behind parking_lot's and the standard library's
//! mutex, one job per acquisition: the pool with either lock, and nothing else.

use super::ours;
use crate::report::Report;
use futures_util::task::noop_waker_ref;
use headworks_core::{Config, Core, Job, Limits, Outcome, Time, Verdict};
use headworks_pool::Permits;
use rustix::thread::{CpuSet, sched_setaffinity};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Permits that may be out at once: more than threads, or so few that most grants are a hand-off.
const PLENTY: u32 = 1000;
const SCARCE: u32 = 8;
/// A run lasts at least `RUN`, and `RUN_PER_THREAD` for each thread: of 64 threads on a core each
/// gets a slice of some milliseconds in turn, and all must get some.
const RUN: Duration = Duration::from_millis(400);
const RUN_PER_THREAD: Duration = Duration::from_millis(40);
const THREADS: [usize; 5] = [1, 2, 4, 16, 64];

/// The figures of one number of threads on one number of cores.
struct Figures {
    per_second: f64,
    /// Calls of the thread that made fewest, as a part of the mean.
    slowest: f64,
    /// Waits, sorted, in nanoseconds.
    waits: Vec<u64>,
}

impl Figures {
    fn quantile(&self, q: f64) -> f64 {
        let at = ((self.waits.len() - 1) as f64 * q) as usize;
        self.waits[at] as f64 / 1000.0
    }
}

type Call = Box<dyn Fn() + Send + Sync>;

/// Measures every contender at every number of threads, on one core and on two.
pub(crate) fn measure(report: &mut Report, rounds: usize) {
    let rounds = rounds.min(3);
    for cores in [1usize, 2] {
        for threads in THREADS {
            for (name, permits, make) in contenders() {
                let once = |_| run(make(permits), threads, cores);
                let mut found: Vec<Figures> = (0..rounds).map(once).collect();
                // The middle one by its throughput.
                found.sort_by(|a, b| a.per_second.total_cmp(&b.per_second));
                let found = &found[rounds / 2];
                let shape = format!("{name}, {threads} threads on {cores} cores");
                report.row(
                    &format!("{shape}: per second"),
                    "k",
                    found.per_second / 1000.0,
                    None,
                );
                for (label, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)] {
                    report.row(&format!("{shape}: {label}"), "µs", found.quantile(q), None);
                }
                report.row(
                    &format!("{shape}: slowest thread ÷ mean"),
                    "×",
                    found.slowest,
                    None,
                );
            }
        }
    }
    bounds(report);
}

fn bounds(report: &mut Report) {
    let value = |what: &str| report.value(&format!("{PLENTY_POOL}, {what}"));
    let many = value("64 threads on 1 cores: per second");
    let few = value("2 threads on 1 cores: per second");
    let slowest = value("64 threads on 1 cores: slowest thread ÷ mean");
    if let (Some(many), Some(few), Some(slowest)) = (many, few, slowest) {
        report.bound(
            "2 threads ÷ 64 threads on one core, per second".into(),
            few / many,
            2.0,
        );
        report.bound(
            "64 threads on one core: mean ÷ slowest thread".into(),
            1.0 / slowest,
            10.0,
        );
    }
    let tail = "16 threads on 2 cores: p99.9";
    report.ratio(
        &format!("{SCARCE_POOL}, {tail}"),
        &format!("{SCARCE_SEMAPHORE}, {tail}"),
        2.0,
    );
}

const PLENTY_POOL: &str = "permits";
const SCARCE_POOL: &str = "8 permits";
const SCARCE_SEMAPHORE: &str = "tokio Semaphore of 8";

type Contender = (&'static str, u32, fn(u32) -> Call);

fn contenders() -> Vec<Contender> {
    vec![
        (PLENTY_POOL, PLENTY, permits),
        (SCARCE_POOL, SCARCE, permits),
        ("tokio Semaphore", PLENTY, semaphore),
        (SCARCE_SEMAPHORE, SCARCE, semaphore),
        ("core behind parking_lot", PLENTY, behind_parking_lot),
        ("core behind std", PLENTY, behind_std),
    ]
}

fn limited(permits: u32) -> Config {
    let limits = Limits {
        concurrent: Some(permits),
        ..Limits::default()
    };
    Config {
        limits,
        ..ours::config(1, 1000)
    }
}

fn permits(permits: u32) -> Call {
    // The pool's timer needs a runtime, which has a thread of its own and nothing to do.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .expect("a runtime can be built");
    let permits = {
        let _inside = runtime.enter();
        Permits::new(limited(permits)).expect("a good configuration")
    };
    Box::new(move || {
        let _keep = &runtime;
        drop(block_on(permits.acquire(Job::new(()))).expect("granted"));
    })
}

fn semaphore(permits: u32) -> Call {
    let semaphore = Arc::new(Semaphore::new(permits as usize));
    Box::new(move || drop(block_on(semaphore.acquire()).expect("open")))
}

fn drive(core: &mut Core<u64>, now: Time) {
    core.submit(now, Job::new(0)).expect("there is room");
    let lease = core.next(now).expect("nothing else runs");
    core.finish(now, lease, Outcome::DONE, Verdict::Fine);
}

fn behind_parking_lot(permits: u32) -> Call {
    let core = Core::new(limited(permits), Time::ZERO).expect("good settings");
    let core = parking_lot::Mutex::new(core);
    let start = Instant::now();
    Box::new(move || drive(&mut core.lock(), Time::ZERO + start.elapsed()))
}

fn behind_std(permits: u32) -> Call {
    let core = Core::new(limited(permits), Time::ZERO).expect("good settings");
    let core = std::sync::Mutex::new(core);
    let start = Instant::now();
    Box::new(move || {
        drive(
            &mut core.lock().expect("not poisoned"),
            Time::ZERO + start.elapsed(),
        );
    })
}

fn run(call: Call, threads: usize, cores: usize) -> Figures {
    let (stop, barrier) = (AtomicBool::new(false), Barrier::new(threads + 1));
    let calls = AtomicU64::new(0);
    let length = RUN.max(RUN_PER_THREAD * threads as u32);
    let (mut waits, mut slowest) = (Vec::new(), u64::MAX);
    let begun = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    pin_to(cores);
                    let mut waits = Vec::with_capacity(1 << 16);
                    barrier.wait();
                    while !stop.load(Ordering::Relaxed) {
                        let begun = Instant::now();
                        call();
                        waits.push(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX));
                    }
                    waits
                })
            })
            .collect();
        barrier.wait();
        let begun = Instant::now();
        std::thread::sleep(length);
        stop.store(true, Ordering::Relaxed);
        let took = begun.elapsed();
        for thread in threads {
            let own = thread.join().expect("no thread panics");
            slowest = slowest.min(own.len() as u64);
            calls.fetch_add(own.len() as u64, Ordering::Relaxed);
            waits.extend(own);
        }
        took
    });
    waits.sort_unstable();
    let calls = calls.into_inner() as f64;
    Figures {
        per_second: calls / begun.as_secs_f64(),
        slowest: slowest as f64 * threads as f64 / calls.max(1.0),
        waits,
    }
}

/// Pins the calling thread to the first `cores` cores; cores that the machine lacks are ignored.
fn pin_to(cores: usize) {
    let mut set = CpuSet::new();
    for core in 0..cores {
        set.set(core);
    }
    let _ = sched_setaffinity(None, &set);
}

/// Unparks the thread that waits.
struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Unpark(std::thread::current())));
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    // Most calls are granted at once, and need no waker of their own.
    if let Poll::Ready(output) = future
        .as_mut()
        .poll(&mut Context::from_waker(noop_waker_ref()))
    {
        return output;
    }
    WAKER.with(|waker| {
        let mut context = Context::from_waker(waker);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                Poll::Pending => std::thread::park(),
            }
        }
    })
}
