//! Concurrency limit, measured at the upstream.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::{CHAT, Client, Running, Upstream, chat};

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
