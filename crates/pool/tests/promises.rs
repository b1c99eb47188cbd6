//! Promises that were broken once, one test each.

mod support;

use futures_util::FutureExt;
use headworks_pool::{
    Bound, Config, Denied, EndReason, Flow, Handler, Job, Limits, Notice, Permits, Pool, Report,
    Run, TargetConfig, TargetId, Workers,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;
use support::{Closure, until};
use tokio::sync::mpsc;

fn one_at_a_time() -> Config {
    let limits = Limits {
        concurrent: Some(1),
        ..Limits::default()
    };
    Config {
        limits,
        ..Config::default()
    }
}

/// Calls the pool that it was submitted to when it is dropped.
struct CallsBack(Arc<Mutex<Option<Pool<CallsBack>>>>, Arc<AtomicUsize>);

impl Drop for CallsBack {
    fn drop(&mut self) {
        if let Some(pool) = &*self.0.lock().expect("not poisoned") {
            let _ = pool.inspect();
        }
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

struct Succeeds;

impl<P: Send + 'static> Handler<P> for Succeeds {
    async fn run(&self, _run: &mut Run<'_, P>) -> Report {
        Report::done()
    }
}

#[tokio::test]
async fn a_payload_may_call_the_pool_as_it_is_dropped() {
    let pool = Pool::new(one_at_a_time(), Workers::new(1, 1), Succeeds).expect("good settings");
    let (shared, dropped) = (Arc::new(Mutex::new(None)), Arc::new(AtomicUsize::new(0)));
    *shared.lock().expect("not poisoned") = Some(pool.clone());
    for _ in 0..10 {
        pool.submit(Job::new(CallsBack(shared.clone(), dropped.clone())))
            .expect("there is room");
    }
    until("all are dropped", || dropped.load(Ordering::SeqCst) == 10).await;
    shared.lock().expect("not poisoned").take();
}

/// Owns the last handle on its pool.
struct Owner(Option<Pool<Owner>>, mpsc::UnboundedSender<()>);

impl Drop for Owner {
    fn drop(&mut self) {
        drop(self.0.take());
        let _ = self.1.send(());
    }
}

#[tokio::test]
async fn a_payload_may_own_the_last_handle_on_its_pool() {
    let pool = Pool::new(one_at_a_time(), Workers::new(1, 1), Succeeds).expect("good settings");
    let (sender, mut dropped) = mpsc::unbounded_channel();
    let owner = Owner(Some(pool.clone()), sender);
    pool.submit(Job::new(owner)).expect("there is room");
    drop(pool);
    assert_eq!(dropped.recv().await, Some(()));
}

#[tokio::test]
async fn a_caller_that_does_not_wait_takes_nobodys_place() {
    let limits = Limits {
        concurrent: Some(1),
        ..Limits::default()
    };
    let target = TargetConfig {
        limits,
        ..TargetConfig::default()
    };
    let config = Config {
        bound: Bound::Shared(100),
        targets: vec![target; 2],
        max_waiting: Some(4),
        ..Config::default()
    };
    let permits = Permits::new(config).expect("good settings");
    let job = |flow| Job::new(()).flow(Flow(flow)).targets(TargetId::new(1));
    let _running = permits.acquire(job(1)).await.expect("granted");
    let mut waiting: Vec<_> = (0..4).map(|_| Box::pin(permits.acquire(job(1)))).collect();
    for wait in &mut waiting {
        assert!(wait.now_or_never().is_none());
    }
    // It holds less than its share of the places at the target, and would shed one if it waited.
    let denied = permits.try_acquire(job(2)).expect_err("nothing is free");
    assert_eq!(denied, Denied::WouldWait);
    assert_eq!(permits.inspect().waiting, 4);
}

/// Panics where a handler is asked before its future exists.
struct Careless;

impl Handler<u32> for Careless {
    fn run(&self, run: &mut Run<'_, u32>) -> impl Future<Output = Report> + Send {
        assert_ne!(run.payload, 1, "in the synchronous part");
        async { Report::done() }
    }

    fn deadline(&self, run: &Run<'_, u32>) -> Option<Duration> {
        assert_ne!(run.payload, 2, "in `deadline`");
        None
    }
}

#[tokio::test]
async fn a_panic_anywhere_in_a_handler_is_a_failed_job() {
    let pool = Pool::new(one_at_a_time(), Workers::new(1, 1), Careless).expect("good settings");
    for (payload, expected) in [
        (1, EndReason::Failed),
        (2, EndReason::Failed),
        (3, EndReason::Done),
    ] {
        let job = pool.spawn(Job::new(payload)).expect("there is room");
        assert_eq!(job.await, expected, "{payload}");
    }
    assert_eq!(pool.metrics().panics, 2);
    assert_eq!(pool.metrics().workers, 1);
}

#[tokio::test]
async fn a_failed_job_of_a_careless_handler_is_noticed() {
    let (handler, mut notices) =
        Closure::new(|_run: &mut Run<'_, u32>| panic!("at once")).noticed();
    let pool = Pool::new(one_at_a_time(), Workers::new(1, 1), handler).expect("good settings");
    pool.submit(Job::new(7)).expect("there is room");
    let notice = notices.recv().await;
    let Some(Notice::Ended {
        payload: 7,
        reason: EndReason::Failed,
        ..
    }) = notice
    else {
        panic!("the payload is handed back, not {notice:?}")
    };
}

#[tokio::test]
async fn waiting_for_a_pool_to_be_idle_keeps_one_waiter() {
    let permits = Permits::new(one_at_a_time()).expect("good settings");
    let running = permits.acquire(Job::new(())).await.expect("granted");
    let mut idle = Box::pin(permits.idle());
    let polls = Arc::new(());
    for _ in 0..1000 {
        // A waker of its own for each poll, as `select!` and `timeout` may bring.
        let waker = Waker::from(Arc::new(Counted(polls.clone())));
        let mut context = std::task::Context::from_waker(&waker);
        assert!(idle.poll_unpin(&mut context).is_pending());
    }
    assert!(
        Arc::strong_count(&polls) <= 3,
        "{} are kept",
        Arc::strong_count(&polls)
    );
    running.finish(Report::done());
    idle.await;
}

struct Counted(#[expect(dead_code, reason = "it is counted")] Arc<()>);

impl std::task::Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

/// Waits on a runtime of its own while the pool's runtime ends.
#[test]
fn a_caller_is_denied_when_the_pools_runtime_ends() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime")
    };
    let (pools, callers) = (runtime(), runtime());
    let permits = {
        let _inside = pools.enter();
        Permits::new(one_at_a_time()).expect("good settings")
    };
    let running = callers
        .block_on(permits.acquire(Job::new(())))
        .expect("granted");
    let waits = callers.spawn(permits.acquire(Job::new(())));
    while permits.inspect().waiting == 0 {
        std::thread::yield_now();
    }
    drop(pools);
    let denied = callers
        .block_on(waits)
        .expect("it does not panic")
        .expect_err("nobody keeps time");
    assert_eq!(denied, Denied::Ended(EndReason::Returned));
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_paused_clock_needs_no_feature() {
    let permits = Permits::new(one_at_a_time()).expect("good settings");
    let before = permits.now();
    tokio::time::advance(Duration::from_secs(3600)).await;
    assert_eq!(permits.now().since(before), Duration::from_secs(3600));
    let _running = permits.acquire(Job::new(())).await.expect("granted");
    let wait = permits.acquire(Job::new(()).expire_in(Duration::from_secs(60)));
    assert_eq!(
        wait.await.expect_err("it expires"),
        Denied::Ended(EndReason::Expired)
    );
}

#[tokio::test]
async fn a_handler_that_never_waits_leaves_the_thread_to_others() {
    let config = Config {
        bound: Bound::Shared(100_000),
        max_waiting: Some(100_000),
        ..Config::default()
    };
    let done = Arc::new(AtomicUsize::new(0));
    let counter = done.clone();
    let handler = Closure::new(move |_run: &mut Run<'_, usize>| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Report::done() }.boxed()
    });
    let pool = Pool::new(config, Workers::new(1, 1), handler).expect("good settings");
    for n in 0..100_000 {
        pool.submit(Job::new(n)).expect("there is room");
    }
    let seen = done.clone();
    let other = tokio::spawn(async move {
        tokio::task::yield_now().await;
        seen.load(Ordering::SeqCst)
    });
    assert!(
        other.await.expect("it does not panic") < 100_000,
        "it had to wait for all"
    );
    pool.idle().await;
}

/// Panics when it is dropped.
struct Touchy(bool);

impl Drop for Touchy {
    fn drop(&mut self) {
        assert!(!self.0, "as it is dropped");
    }
}

#[tokio::test]
async fn a_payload_that_panics_as_it_is_dropped_takes_no_other_job_along() {
    let pool = Pool::new(one_at_a_time(), Workers::new(1, 1), Succeeds).expect("good settings");
    let first = pool.spawn(Job::new(Touchy(true))).expect("there is room");
    let second = pool.spawn(Job::new(Touchy(false))).expect("there is room");
    assert_eq!(
        (first.await, second.await),
        (EndReason::Done, EndReason::Done)
    );
    assert_eq!(pool.metrics().workers, 1);
}

/// The only job expires in the call of a caller that does not wait: a task that waits for the pool
/// to be idle is told.
#[tokio::test]
async fn an_expiry_that_an_impatient_caller_brings_about_ends_the_wait_for_idleness() {
    let permits = Permits::new(one_at_a_time()).expect("good settings");
    permits.pause();
    let expire_at = permits.now() + Duration::from_millis(1);
    let mut waits = Box::pin(permits.acquire(Job::new(()).expire_at(expire_at)));
    assert!((&mut waits).now_or_never().is_none());
    let mut idle = Box::pin(permits.idle());
    assert!((&mut idle).now_or_never().is_none());
    // The timer task cannot run in between: this is the only thread.
    while permits.now() <= expire_at {
        std::hint::spin_loop();
    }
    assert_eq!(
        permits.try_acquire(Job::new(())).expect_err("paused"),
        Denied::WouldWait
    );
    assert!((&mut idle).now_or_never().is_some(), "the pool is empty");
}
