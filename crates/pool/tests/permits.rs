//! Permits: order, limits, leaving while waiting, going elsewhere.

mod support;

use headworks_core::{
    Bound, Class, Config, Cost, Flow, Job, Limits, OnSuspend, Rate, Reason, TargetConfig, TargetId,
    TargetState,
};
use headworks_pool::{Denied, EndReason, Health, Permit, Permits, Report};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use support::until;
use tokio::time::{Instant, timeout};

fn slots(concurrent: u32) -> Config {
    let limits = Limits {
        concurrent: Some(concurrent),
        ..Limits::default()
    };
    Config {
        limits,
        max_waiting: Some(1000),
        ..Config::default()
    }
}

#[tokio::test(start_paused = true)]
async fn never_more_than_allowed_and_all_free_afterwards() {
    let pool = Permits::new(slots(5)).expect("a good configuration");
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let callers = (0..200).map(|n| {
        let (pool, now, most) = (pool.clone(), now.clone(), most.clone());
        tokio::spawn(async move {
            let permit = pool
                .acquire(Job::new(()).class(Class(n % 10)))
                .await
                .expect("granted");
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(3)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            permit.finish(Report::done());
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.expect("no caller panics");
    }
    assert_eq!(most.load(Ordering::SeqCst), 5);
    let view = pool.inspect();
    assert_eq!((view.running, view.waiting), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_permit_or_a_wait_that_is_dropped_gives_its_slot_back() {
    let pool = Permits::new(slots(1)).expect("a good configuration");
    let first = pool.acquire(Job::new(())).await.expect("granted");
    let second = tokio::spawn({
        let pool = pool.clone();
        async move { pool.acquire(Job::new(())).await.map(|_| ()) }
    });
    let mut third = Box::pin(pool.acquire(Job::new(())));
    assert!(
        timeout(Duration::from_millis(10), &mut third)
            .await
            .is_err()
    );
    until("both wait", || pool.inspect().waiting == 2).await;
    second.abort();
    until("one has left", || pool.inspect().waiting == 1).await;
    drop(first);
    let third = third.await.expect("granted");
    drop(third);
    assert_eq!(pool.inspect().running, 0);
}

#[tokio::test(start_paused = true)]
async fn a_caller_who_left_just_as_it_was_granted_pays_nothing() {
    let mut config = slots(1);
    config.limits.cost = Some(Rate::per_second(100.0));
    let pool = Permits::new(config).expect("a good configuration");
    let first = pool
        .acquire(Job::new(()).cost(Cost(1)))
        .await
        .expect("granted");
    let mut second = Box::pin(pool.acquire(Job::new(()).cost(Cost(99))));
    assert!(futures_util::poll!(&mut second).is_pending());
    first.finish(Report::done());
    drop(second); // granted by now, but never seen
    assert_eq!(pool.inspect().running, 0);
    let start = Instant::now();
    drop(
        pool.acquire(Job::new(()).cost(Cost(90)))
            .await
            .expect("granted"),
    );
    assert!(
        start.elapsed() < Duration::from_millis(10),
        "the bucket was full again"
    );
}

#[tokio::test(start_paused = true)]
async fn the_most_urgent_goes_next() {
    let pool = Permits::new(slots(1)).expect("a good configuration");
    let first = pool.acquire(Job::new(())).await.expect("granted");
    let mut bulk = Box::pin(pool.acquire(Job::new(()).class(Class(9))));
    let mut chat = Box::pin(pool.acquire(Job::new(()).class(Class(0))));
    assert!(futures_util::poll!(&mut bulk).is_pending());
    assert!(futures_util::poll!(&mut chat).is_pending());
    drop(first);
    assert!(futures_util::poll!(&mut bulk).is_pending());
    let chat = chat.await.expect("granted");
    assert_eq!(chat.class(), Class(0));
}

fn two_upstreams() -> (Permits, Job<()>) {
    let limits = Limits {
        concurrent: Some(1),
        ..Limits::default()
    };
    let target = TargetConfig {
        limits,
        fault_threshold: 1,
        suspend_for: Duration::from_secs(30),
        ..TargetConfig::default()
    };
    let config = Config {
        targets: vec![target, target],
        on_suspend: OnSuspend::Keep,
        ..Config::default()
    };
    let pool = Permits::new(config).expect("a good configuration");
    let both = pool
        .targets(&[TargetId::new(0), TargetId::new(1)])
        .expect("they exist");
    (pool, Job::new(()).targets(both))
}

#[tokio::test(start_paused = true)]
async fn a_job_that_one_target_refuses_goes_elsewhere() {
    let (pool, job) = two_upstreams();
    let permit = pool.acquire(job.clone()).await.expect("granted");
    let first = permit.target();
    let permit = permit
        .reacquire(Report::elsewhere())
        .await
        .expect("the other takes it");
    assert_ne!(permit.target(), first);
    let refused = permit
        .reacquire(Report::elsewhere())
        .await
        .map(|_: Permit| ());
    assert_eq!(
        refused,
        Err(Denied::Ended(EndReason::Failed)),
        "there is nowhere else"
    );
    assert_eq!(pool.inspect().running, 0);
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_target_is_left_alone_and_probed_afterwards() {
    let (pool, job) = two_upstreams();
    let permit = pool
        .acquire(job.clone().targets(TargetId::new(0)))
        .await
        .expect("granted");
    permit.finish(Report::done().target(Health::Overloaded(Duration::from_secs(20))));
    let (a, mut b) = (
        pool.acquire(job.clone()).await.expect("granted"),
        Box::pin(pool.acquire(job.clone())),
    );
    assert_eq!(a.target(), TargetId::new(1));
    assert!(futures_util::poll!(&mut b).is_pending());
    let start = Instant::now();
    let probe = b.await.expect("granted after the suspension");
    assert_eq!(probe.target(), TargetId::new(0));
    assert!(
        (20_000..20_010).contains(&start.elapsed().as_millis()),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(pool.inspect().targets[0].state, TargetState::Probation);
    probe.finish(Report::done());
    assert_eq!(pool.inspect().targets[0].state, TargetState::Active);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_too_long_is_denied() {
    let pool = Permits::new(slots(1)).expect("a good configuration");
    let _first = pool.acquire(Job::new(())).await.expect("granted");
    let expire = pool.now() + Duration::from_millis(250);
    let start = Instant::now();
    let denied = pool
        .acquire(Job::new(()).expire_at(expire))
        .await
        .map(|_| ());
    assert_eq!(denied, Err(Denied::Ended(EndReason::Expired)));
    assert!(
        (250..=252).contains(&start.elapsed().as_millis()),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn an_earlier_time_wakes_the_timer_earlier() {
    let pool = Permits::new(slots(1)).expect("a good configuration");
    let _first = pool.acquire(Job::new(())).await.expect("granted");
    let (late, early) = (Duration::from_secs(60), Duration::from_secs(1));
    let late = pool.acquire(Job::new(()).expire_at(pool.now() + late));
    tokio::task::yield_now().await; // the timer sleeps for the late one by now
    let start = Instant::now();
    let early = pool.acquire(Job::new(()).expire_at(pool.now() + early));
    assert_eq!(
        early.await.map(|_| ()),
        Err(Denied::Ended(EndReason::Expired))
    );
    assert!(
        start.elapsed() < Duration::from_secs(2),
        "{:?}",
        start.elapsed()
    );
    drop(late);
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_says_when_to_come_back() {
    let mut config = slots(1);
    config.bound = Bound::PerClass(2);
    let pool = Permits::new(config).expect("a good configuration");
    let first = pool.acquire(Job::new(())).await.expect("granted");
    let waiting = [pool.acquire(Job::new(())), pool.acquire(Job::new(()))];
    let denied = pool.acquire(Job::new(())).await.map(|_| ());
    let Err(Denied::Refused {
        reason: Reason::Full,
        retry_after: Some(_),
        ..
    }) = denied
    else {
        panic!("{denied:?}")
    };
    assert!(
        pool.try_acquire(Job::new(()).class(Class(1))).is_err(),
        "it would have to wait"
    );
    drop((first, waiting));
    let view = pool.inspect();
    assert_eq!((view.running, view.waiting), (0, 0));
    assert!(pool.try_acquire(Job::new(())).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_drain_tells_those_who_wait() {
    let pool = Permits::new(slots(1)).expect("a good configuration");
    let first = pool.acquire(Job::new(())).await.expect("granted");
    let second = pool.acquire(Job::new(()));
    let handle = pool.clone();
    let drain = tokio::spawn(pool.shutdown(Duration::from_secs(5)));
    assert_eq!(
        second.await.map(|_| ()),
        Err(Denied::Ended(EndReason::Returned))
    );
    first.finish(Report::done());
    assert_eq!(drain.await.expect("it ends").abandoned, 0);
    assert!(handle.acquire(Job::new(())).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_target_added_at_work_has_limits_of_its_own() {
    let pool = Permits::new(Config::default()).expect("a good configuration");
    let limits = Limits {
        concurrent: Some(1),
        ..Limits::default()
    };
    let config = TargetConfig {
        limits,
        ..TargetConfig::default()
    };
    let added = pool.add_target(config).expect("it can work");
    let job = || Job::new(()).targets(added);
    let first = pool.acquire(job()).await.expect("granted");
    assert_eq!(first.target(), added);
    assert!(pool.try_acquire(job()).is_err(), "one at once");
    assert!(pool.try_acquire(Job::new(())).is_ok(), "the other is free");
    drop(first);
    assert!(pool.try_acquire(job()).is_ok());
    assert_eq!(pool.config().targets.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pool_that_is_dropped_leaves_nobody_waiting() {
    let mut config = slots(5);
    config.limits.requests = Some(Rate::per_second(1.0));
    let pool = Permits::new(config).expect("a good configuration");
    let first = pool.acquire(Job::new(())).await.expect("granted");
    let second = pool.acquire(Job::new(()));
    drop(pool);
    let told = timeout(Duration::from_secs(60), second).await;
    let told = told.expect("it does not wait for ever").map(|_| ());
    assert_eq!(told, Err(Denied::Ended(EndReason::Returned)));
    let again = first.reacquire(Report::retry()).await.map(|_| ());
    assert_eq!(again, Err(Denied::Ended(EndReason::Returned)));
}

#[tokio::test(start_paused = true)]
async fn a_try_that_would_have_to_wait_costs_nobody_a_place() {
    let mut config = slots(1);
    config.bound = Bound::PerClass(2);
    let pool = Permits::new(config).expect("a good configuration");
    let first = pool.acquire(Job::new(())).await.expect("granted");
    let job = |flow| Job::new(()).flow(Flow(flow));
    let waiting = [pool.acquire(job(1)), pool.acquire(job(1))];
    assert!(pool.try_acquire(job(2)).is_err(), "it would have to wait");
    assert_eq!(
        pool.inspect().waiting,
        2,
        "its flow has more right to a place"
    );
    drop((first, waiting));
    assert!(pool.try_acquire(job(2)).is_ok());
}

/// A job that waits and leaves at once says nothing about how fast jobs are served: a thousand of
/// them once moved the hint from 94 ms to 12 µs.
#[tokio::test(start_paused = true)]
async fn denied_tries_do_not_shorten_the_hint() {
    const PLACES: usize = 20;
    let config = Config {
        bound: Bound::PerClass(PLACES),
        bookings: 0,
        ..slots(1)
    };
    let pool = Permits::new(config).expect("a good configuration");
    let mut running = pool.acquire(Job::new(())).await.expect("granted");
    let mut waiting: VecDeque<_> = (0..PLACES).map(|_| pool.acquire(Job::new(()))).collect();
    // Served one per second.
    for _ in 0..10 {
        tokio::time::advance(Duration::from_secs(1)).await;
        running.finish(Report::done());
        let next = waiting.pop_front().expect("some wait");
        running = next.await.expect("granted");
        waiting.push_back(pool.acquire(Job::new(())));
    }
    let hint = async || {
        let denied = pool.acquire(Job::new(())).await.expect_err("it is full");
        denied.retry_after().expect("a time to wait")
    };
    let before = hint().await;
    assert!(before >= Duration::from_millis(500), "{before:?}");
    waiting.pop_back();
    for _ in 0..1000 {
        let denied = pool.try_acquire(Job::new(())).map(|_| ());
        assert_eq!(denied, Err(Denied::WouldWait), "a place is free, no slot");
    }
    waiting.push_back(pool.acquire(Job::new(())));
    let after = hint().await;
    // Hints are spread by up to a tenth.
    assert!(
        after >= before * 10 / 11,
        "{before:?} before, {after:?} after"
    );
    drop((running, waiting));
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_start_counted_from_now_is_granted_then() {
    let pool = Permits::new(slots(1)).expect("a good configuration");
    let start = Instant::now();
    let later = pool.acquire(Job::new(()).start_in(Duration::from_secs(10)));
    let now = pool.acquire(Job::new(())).await.expect("granted");
    assert_eq!(start.elapsed(), Duration::ZERO, "the other holds no slot");
    now.finish(Report::done());
    let permit = later.await.expect("granted");
    assert_eq!(start.elapsed().as_secs(), 10);
    assert_eq!(permit.waited(), Duration::ZERO, "it was not ready before");
}

/// A waiter whose job has expired, but which has not heard of it yet, goes away. The timer task
/// cannot run in between: this is the only thread.
#[tokio::test]
async fn a_wait_dropped_after_its_expiry_loses_no_other_waiter() {
    let pool = Permits::new(slots(1)).expect("a good configuration");
    let first = pool.acquire(Job::new(())).await.expect("granted");
    for _ in 0..3 {
        let expire_at = pool.now() + Duration::from_millis(1);
        let mut hasty = Box::pin(pool.acquire(Job::new(()).expire_at(expire_at)));
        assert!(futures_util::poll!(&mut hasty).is_pending());
        while pool.now() <= expire_at {
            std::hint::spin_loop();
        }
        drop(hasty);
    }
    let mut patient = Box::pin(pool.acquire(Job::new(())));
    assert!(futures_util::poll!(&mut patient).is_pending());
    assert_eq!(pool.inspect().waiting, 1);
    first.finish(Report::done());
    assert!(futures_util::poll!(&mut patient).is_ready());
}

/// Lets the pool's tasks run as often as they like, and says how often its timer woke up.
async fn wake_ups(pool: &Permits) -> u64 {
    let before = pool.metrics().wakes;
    for _ in 0..1000 {
        tokio::task::yield_now().await;
    }
    pool.metrics().wakes - before
}

/// The last waiter for a global rate leaves: the time at which it would have been granted passes,
/// once.
#[tokio::test(start_paused = true)]
async fn a_pool_whose_last_rate_limited_waiter_left_is_idle() {
    let mut config = slots(10);
    config.limits.requests = Some(Rate::per_second(1.0));
    let pool = Permits::new(config).expect("a good configuration");
    drop(pool.acquire(Job::new(())).await.expect("granted"));
    let mut waits = Box::pin(pool.acquire(Job::new(())));
    assert!(futures_util::poll!(&mut waits).is_pending());
    drop(waits);
    tokio::time::advance(Duration::from_secs(10)).await;
    wake_ups(&pool).await;
    assert_eq!(wake_ups(&pool).await, 0);
}
