//! Concurrency limit, measured at the upstream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::{CHAT, Client, Reaction, Running, Upstream, chat, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrency_never_exceeds_the_limit() {
    let upstream = Upstream::answering(Duration::from_millis(10), 5).await;
    let limits =
        "scheduler_max_concurrent = 5\nscheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0";
    let running = Running::before(&upstream, limits);
    let mut clients = JoinSet::new();
    for _ in 0..200 {
        let client = running.client();
        clients.spawn(async move { client.post(CHAT, &[], &chat(10, false)).await.status });
    }
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    assert_eq!(upstream.peak(), 5);
    assert_eq!(upstream.count(), 200);
    running.is_idle().await;
    assert_eq!(running.gateway.in_flight(), 0);
}

/// The fastest of three runs of sixty requests through `client`, with at most ten in flight if
/// `bare`.
async fn sixty(client: &Client, bare: bool) -> Duration {
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let semaphore = Arc::new(Semaphore::new(if bare { 10 } else { 60 }));
        let start = Instant::now();
        let mut clients = JoinSet::new();
        for _ in 0..60 {
            let (client, semaphore) = (client.clone(), semaphore.clone());
            clients.spawn(async move {
                let _permit = semaphore.acquire().await;
                client.post(CHAT, &[], &chat(10, false)).await.status
            });
        }
        while let Some(status) = clients.join_next().await {
            assert_eq!(status.unwrap(), 200);
        }
        fastest = fastest.min(start.elapsed());
    }
    fastest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queueing_does_not_slow_short_requests() {
    let upstream = Upstream::answering(Duration::from_millis(5), 5).await;
    let free = "scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0";
    let bare = Running::before(&upstream, &format!("scheduler_enabled = false\n{free}"));
    let running = Running::before(&upstream, &format!("scheduler_max_concurrent = 10\n{free}"));
    let before = sixty(&bare.client(), true).await;
    let queued = sixty(&running.client(), false).await;
    // The bound is loose, because other tests run at the same time. It catches a queue that is
    // polled, for example.
    assert!(
        queued < before.mul_f64(3.0),
        "{queued:?} through the queue, {before:?} behind a semaphore"
    );
}

/// Coding agents ask for many tokens and use few. Charged in full, they would run one at a time.
#[tokio::test]
async fn twelve_requests_of_32000_max_tokens_run_at_once_after_a_cold_start() {
    let release = Arc::new(Semaphore::new(0));
    let held = release.clone();
    let upstream = Upstream::start(move |_| Reaction::When(held.clone(), 700)).await;
    let running = Running::before(&upstream, "");
    for round in 1..=3 {
        let mut agents = JoinSet::new();
        for _ in 0..12 {
            let client = running.client();
            agents.spawn(async move { client.post(CHAT, &[], &chat(32_000, false)).await.status });
        }
        until("all twelve run", || upstream.now() == 12).await;
        release.add_permits(12);
        assert_eq!(agents.join_all().await, [200; 12], "round {round}");
        running.is_idle().await;
    }
}
