//! Workers: handlers, retries, panics, deadlines, cancellation, scaling, shutdown. Under virtual
//! time.

mod support;

use futures_util::FutureExt;
use headworks_core::{Backoff, Bound, Class, Config, Job, Limits, Thresholds};
use headworks_pool::{Cancel, EndReason, Notice, Pool, Report, Run, Workers};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use support::{Closure, until};
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};

fn config() -> Config {
    Config {
        bound: Bound::PerClass(100),
        max_waiting: Some(100),
        ..Config::default()
    }
}

#[tokio::test(start_paused = true)]
async fn every_job_runs_once() {
    let ran = Arc::new(AtomicU64::new(0));
    let counter = ran.clone();
    let handler = Closure::new(move |run| {
        counter.fetch_add(run.payload, Ordering::Relaxed);
        async { Report::done() }.boxed()
    });
    let pool = Pool::new(config(), Workers::new(3, 3), handler).expect("a good configuration");
    for n in 1..=100u64 {
        pool.submit(Job::new(n)).expect("there is room");
    }
    until("all ran", || ran.load(Ordering::Relaxed) == 5050).await;
    let drained = pool.shutdown(Duration::from_secs(1)).await;
    assert_eq!(drained.abandoned, 0);
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_a_failed_job_and_not_a_lost_worker() {
    let handler = Closure::new(|run: &mut headworks_pool::Run<'_, &'static str>| {
        let payload = run.payload;
        async move {
            assert!(payload != "bad", "told to");
            Report::done()
        }
        .boxed()
    });
    let (handler, mut notices) = handler.noticed();
    let pool = Pool::new(config(), Workers::new(1, 1), handler).expect("a good configuration");
    pool.submit(Job::new("bad")).expect("there is room");
    pool.submit(Job::new("good")).expect("there is room");
    let Some(Notice::Ended {
        payload,
        reason: how,
        ..
    }) = notices.recv().await
    else {
        panic!("no notice")
    };
    assert_eq!((payload, how), ("bad", EndReason::Failed));
    until("the other ran", || {
        pool.inspect().classes[0].stats.ended.done == 1
    })
    .await;
    assert_eq!(pool.metrics().panics, 1);
    assert_eq!(pool.inspect().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_its_backoff_and_keeps_what_the_payload_learned() {
    let mut config = config();
    config.backoff = Backoff::default();
    config.attempts = 3;
    let start = Instant::now();
    let handler = Closure::new(move |run: &mut headworks_pool::Run<'_, Vec<Duration>>| {
        run.payload.push(start.elapsed());
        async { Report::retry() }.boxed()
    });
    let (handler, mut notices) = handler.noticed();
    let pool = Pool::new(config, Workers::new(1, 1), handler).expect("a good configuration");
    pool.submit(Job::new(Vec::new())).expect("there is room");
    let Some(Notice::Ended {
        payload,
        reason: how,
        ..
    }) = notices.recv().await
    else {
        panic!("no notice")
    };
    assert_eq!(how, EndReason::Failed);
    let [first, second, third] = payload[..] else {
        panic!("three attempts, not {payload:?}")
    };
    assert_eq!(first, Duration::ZERO);
    assert!(
        (375..=627).contains(&(second - first).as_millis()),
        "{payload:?}"
    );
    assert!(
        (750..=1252).contains(&(third - second).as_millis()),
        "{payload:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadline_stops_the_attempt_and_gives_the_slot_back() {
    let mut config = config();
    config.attempts = 1;
    let dropped = Arc::new(AtomicU32::new(0));
    struct Bell(Arc<AtomicU32>);
    impl Drop for Bell {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let bell = dropped.clone();
    let handler = Closure::new(move |_| {
        let bell = Bell(bell.clone());
        async move {
            std::future::pending::<()>().await;
            drop(bell);
            Report::done()
        }
        .boxed()
    });
    let (handler, mut notices) = handler.deadline(Duration::from_secs(5)).noticed();
    let pool = Pool::new(config, Workers::new(1, 1), handler).expect("a good configuration");
    let start = Instant::now();
    pool.submit(Job::new(())).expect("there is room");
    let Some(Notice::Ended { reason: how, .. }) = notices.recv().await else {
        panic!("no notice")
    };
    assert_eq!(how, EndReason::Failed);
    assert!(
        (5000..5010).contains(&start.elapsed().as_millis()),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "its work has stopped");
    assert_eq!((pool.inspect().running, pool.metrics().overruns), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn cancelling_takes_back_what_waits_and_signals_what_runs() {
    let handler = Closure::new(|run: &mut headworks_pool::Run<'_, u32>| {
        let stop = run.cancellation();
        async move {
            stop.cancelled().await;
            Report::failed()
        }
        .boxed()
    });
    let (handler, mut notices) = handler.noticed();
    let pool = Pool::new(config(), Workers::new(1, 1), handler).expect("a good configuration");
    let running = pool.submit(Job::new(1)).expect("there is room");
    until("it runs", || pool.inspect().running == 1).await;
    let waiting = pool.submit(Job::new(2)).expect("there is room");
    assert_eq!(pool.cancel(waiting), Cancel::Removed);
    let Some(Notice::Ended {
        payload: 2,
        reason: EndReason::Cancelled,
        ..
    }) = notices.recv().await
    else {
        panic!("the second was cancelled")
    };
    assert_eq!(pool.withdraw(running), Cancel::Running, "left alone");
    assert_eq!(pool.cancel(running), Cancel::Running);
    let Some(Notice::Ended {
        payload: 1,
        reason: EndReason::Cancelled,
        ..
    }) = notices.recv().await
    else {
        panic!("the first was cancelled")
    };
    assert_eq!(pool.cancel(running), Cancel::Ended);
    // The next job from the same seat is not cancelled with it.
    pool.submit(Job::new(3)).expect("there is room");
    until("it runs", || pool.inspect().running == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_delayed_job_starts_when_due() {
    let start = Instant::now();
    let (sender, mut times) = tokio::sync::mpsc::unbounded_channel();
    let handler = Closure::new(move |_| {
        sender.send(start.elapsed()).expect("the test listens");
        async { Report::done() }.boxed()
    });
    let pool = Pool::new(config(), Workers::new(1, 1), handler).expect("a good configuration");
    let later = pool.now() + Duration::from_millis(1500);
    pool.submit(Job::new(()).start_at(later))
        .expect("there is room");
    let at = times.recv().await.expect("it runs");
    assert!((1500..=1502).contains(&at.as_millis()), "{at:?}");
}

#[tokio::test(start_paused = true)]
async fn workers_grow_by_one_per_second_and_shrink_again() {
    let gate = Arc::new(Semaphore::new(0));
    let open = gate.clone();
    let handler = Closure::new(move |_| {
        let gate = open.clone();
        async move {
            gate.acquire().await.expect("never closed").forget();
            Report::done()
        }
        .boxed()
    });
    let mut config = config();
    config.bound = Bound::Shared(10);
    let workers = Workers {
        base: 1,
        max: 4,
        thresholds: Thresholds::default(),
    };
    let pool = Pool::new(config, workers, handler).expect("a good configuration");
    for n in 0..11u32 {
        pool.submit(Job::new(n)).ok();
        tokio::task::yield_now().await;
    }
    let mut seen = vec![pool.metrics().workers];
    for _ in 0..5 {
        sleep(Duration::from_secs(1)).await;
        seen.push(pool.metrics().workers);
    }
    assert!(
        seen.windows(2).all(|pair| pair[1] - pair[0] <= 1),
        "one per second: {seen:?}"
    );
    assert_eq!(seen.last(), Some(&4), "{seen:?}");
    gate.add_permits(1000);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(pool.metrics().workers, 1, "back to base");
}

#[tokio::test(start_paused = true)]
async fn an_idle_pool_does_not_wake() {
    let handler = Closure::new(|_| async { Report::done() }.boxed());
    let pool = Pool::new(config(), Workers::new(2, 8), handler).expect("a good configuration");
    pool.submit(Job::new(())).expect("there is room");
    until("it ran", || pool.inspect().classes[0].stats.ended.done == 1).await;
    sleep(Duration::from_secs(5)).await;
    let before = pool.metrics().wakes;
    sleep(Duration::from_secs(86_400)).await;
    assert_eq!(pool.metrics().wakes, before);
}

#[tokio::test(start_paused = true)]
async fn shutdown_hands_back_what_waits_and_drops_what_does_not_end() {
    let handler = Closure::new(|run: &mut headworks_pool::Run<'_, u32>| {
        let stubborn = run.payload == 1;
        async move {
            if stubborn {
                std::future::pending::<()>().await;
            }
            sleep(Duration::from_secs(2)).await;
            Report::done()
        }
        .boxed()
    });
    let (handler, mut notices) = handler.noticed();
    let pool = Pool::new(config(), Workers::new(2, 2), handler).expect("a good configuration");
    for n in 1..=5 {
        pool.submit(Job::new(n)).expect("there is room");
    }
    until("two run", || pool.inspect().running == 2).await;
    let handle = pool.clone();
    let start = Instant::now();
    let drained = pool.shutdown(Duration::from_secs(10)).await;
    assert_eq!(drained.abandoned, 1);
    assert!(
        start.elapsed() < Duration::from_secs(12),
        "{:?}",
        start.elapsed()
    );
    let mut returned = Vec::new();
    while let Ok(Notice::Ended {
        payload,
        reason: how,
        ..
    }) = notices.try_recv()
    {
        assert_eq!(how, EndReason::Returned);
        returned.push(payload);
    }
    assert_eq!(returned, [3, 4, 5]);
    let refused = handle.submit(Job::new(6)).expect_err("it drains");
    assert_eq!(refused.reason, headworks_core::Reason::Draining);
    assert_eq!(handle.inspect().running, 0, "no slot is lost");
}

#[tokio::test(start_paused = true)]
async fn a_reload_takes_effect_at_once() {
    let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
    let handler = Closure::new(move |run: &mut headworks_pool::Run<'_, u32>| {
        sender.send(run.payload).expect("the test listens");
        async { Report::done() }.boxed()
    });
    let pool = Pool::new(config(), Workers::new(1, 1), handler).expect("a good configuration");
    pool.pause();
    for n in 0..3 {
        pool.submit(Job::new(n).class(Class(5)))
            .expect("there is room");
    }
    let mut smaller = pool.config();
    smaller.bound = Bound::PerClass(2);
    pool.reconfigure(smaller).expect("it can be changed");
    assert!(
        pool.submit(Job::new(9).class(Class(5))).is_err(),
        "full now"
    );
    let mut fewer = pool.config();
    fewer.classes.truncate(2);
    assert!(pool.reconfigure(fewer).is_err(), "classes in use cannot go");
    pool.resume();
    for n in 0..3 {
        assert_eq!(
            order.recv().await,
            Some(n),
            "nothing admitted is thrown out"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_dropped_hands_back_what_waits() {
    let handler = Closure::new(|_| {
        async {
            sleep(Duration::from_secs(2)).await;
            Report::done()
        }
        .boxed()
    });
    let (handler, mut notices) = handler.noticed();
    let pool = Pool::new(config(), Workers::new(1, 1), handler).expect("a good configuration");
    pool.submit(Job::new(1)).expect("there is room");
    until("it runs", || pool.inspect().running == 1).await;
    pool.submit(Job::new(2)).expect("there is room");
    drop(pool);
    let Some(Notice::Ended {
        payload,
        reason: how,
        ..
    }) = notices.recv().await
    else {
        panic!("no notice")
    };
    assert_eq!((payload, how), (2, EndReason::Returned));
    assert!(
        notices.recv().await.is_none(),
        "the worker ends its job and leaves"
    );
}

/// Waits until all work is held back but one worker more than the base has nothing to do, then
/// counts wake-ups.
async fn wake_ups_with_an_idle_extra_worker(scale: u8, bound: usize, waiting: u64) -> u64 {
    let limits = Limits {
        concurrent: Some(1),
        ..Limits::default()
    };
    let mut workers = Workers::new(1, 3);
    workers.thresholds.scale = scale;
    let config = Config {
        bound: Bound::Shared(bound),
        limits,
        ..Config::default()
    };
    let release = Arc::new(Semaphore::new(0));
    let handler = {
        let release = release.clone();
        Closure::new(move |_run: &mut Run<'_, u64>| {
            let release = release.clone();
            async move {
                release.acquire().await.expect("open").forget();
                Report::done()
            }
            .boxed()
        })
    };
    let pool = Pool::new(config, workers, handler).expect("a good configuration");
    // Full enough for every worker there may be.
    for n in 0..bound as u64 {
        pool.submit(Job::new(n)).expect("there is room");
    }
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(1)).await;
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(pool.metrics().workers, 3);
    // One runs, and the others wait for it.
    let done = bound as u64 - 1 - waiting;
    release.add_permits(done as usize);
    until("the others are done", || pool.inspect().waiting == waiting).await;
    tokio::time::advance(Duration::from_secs(10)).await;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    let before = pool.metrics().wakes;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    pool.metrics().wakes - before
}

#[tokio::test(start_paused = true)]
async fn a_pool_filled_between_the_marks_with_idle_workers_is_idle() {
    assert_eq!(wake_ups_with_an_idle_extra_worker(60, 20, 10).await, 0);
}

#[tokio::test(start_paused = true)]
async fn an_empty_pool_that_scales_early_is_idle() {
    assert_eq!(wake_ups_with_an_idle_extra_worker(20, 20, 0).await, 0);
}
