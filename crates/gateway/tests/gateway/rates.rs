//! Requests per second and tokens per second, measured at the upstream.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::support::{CHAT, Running, Upstream, chat};

/// Checks that at every call no more was sent since the start than the burst and the rate allow. A
/// call is seen after its grant, so a busy machine only adds slack. (That the same holds in every
/// window is checked under virtual time, by the core's auditor.)
fn assert_rate(start: Instant, calls: &[(Instant, f64)], burst: f64, rate: f64) {
    let mut sum = 0.0;
    for (at, cost) in calls {
        sum += cost;
        let passed = at.duration_since(start).as_secs_f64();
        assert!(sum <= burst + rate * passed, "{sum} within {passed:.3} s");
    }
}

/// Sends all requests at once and waits for their responses. Returns when that began.
async fn storm(running: &Running, requests: usize, max_tokens: u64) -> Instant {
    let start = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..requests {
        let client = running.client();
        clients.spawn(async move {
            client
                .post(CHAT, &[], &chat(max_tokens, false))
                .await
                .status
        });
    }
    while let Some(status) = clients.join_next().await {
        assert_eq!(status.unwrap(), 200);
    }
    running.is_idle().await;
    start
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_request_rate_holds() {
    let upstream = Upstream::answering(Duration::ZERO, 1).await;
    let running = Running::before(
        &upstream,
        "scheduler_max_rps = 50\nscheduler_rps_burst = 10\nscheduler_max_tokens_per_sec = 0",
    );
    let start = storm(&running, 120, 10).await;
    let calls: Vec<_> = upstream.calls().iter().map(|call| (call.at, 1.0)).collect();
    assert_eq!(calls.len(), 120);
    assert_rate(start, &calls, 10.0, 50.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_rate_holds() {
    // The actual cost equals the estimate: 2 for the prompt and role, 98 for the response.
    let upstream = Upstream::answering(Duration::ZERO, 100).await;
    let running = Running::before(
        &upstream,
        "scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 2000\nscheduler_tokens_burst = 500",
    );
    let body = chat(97, false);
    let ask = headworks_gateway::wire::read_summary(body.as_bytes()).unwrap();
    assert_eq!(ask.prompt + 97, 100);
    let start = storm(&running, 45, 97).await;
    let calls: Vec<_> = upstream
        .calls()
        .iter()
        .map(|call| (call.at, 100.0))
        .collect();
    assert_rate(start, &calls, 500.0, 2000.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenants_own_rates_hold_as_well() {
    let free = "scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n";
    let tenant = "[[gateway.tenant]]\nname = 'default'\n";
    // The burst is one second of the rate.
    for (limit, requests, cost, rate) in [
        ("max_rps = 50", 90, 1.0, 50.0),
        ("max_tokens_per_sec = 4000", 60, 100.0, 4000.0),
    ] {
        let upstream = Upstream::answering(Duration::ZERO, 100).await;
        let running = Running::before(&upstream, &format!("{free}{tenant}{limit}\n"));
        let start = storm(&running, requests, 98).await;
        let calls: Vec<_> = upstream
            .calls()
            .iter()
            .map(|call| (call.at, cost))
            .collect();
        assert_eq!(calls.len(), requests, "{limit}");
        assert_rate(start, &calls, rate, rate);
    }
}
