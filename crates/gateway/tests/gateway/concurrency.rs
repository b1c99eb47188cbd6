//! Concurrency limit, measured at the upstream.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::{CHAT, Reaction, Running, Upstream, chat, until};

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
