//! Queueing and rejection.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, mpsc};

use crate::support::{Answer, CHAT, Reaction, Running, Upstream, chat, config, until};

/// One slot, held until the sender releases it. `more` sets the length of the queue.
async fn one_slot(more: &str) -> (Running, Upstream) {
    let upstream = Upstream::start(|call| match call.header("x-hold") {
        Some(_) => Reaction::Hang,
        None => Reaction::Answer {
            after: Duration::from_millis(call.header("x-slow").map_or(0, |_| 200)),
            tokens: 3,
        },
    })
    .await;
    let running = Running::before(&upstream, &format!("scheduler_max_concurrent = 1\n{more}"));
    (running, upstream)
}

/// Takes the slot. Dropping the handle releases it.
async fn hold(running: &Running, upstream: &Upstream) -> tokio::task::JoinHandle<()> {
    let client = running.client();
    let before = upstream.now();
    let held = tokio::spawn(async move {
        client
            .post(CHAT, &[("x-hold", "1")], &chat(10, false))
            .await;
    });
    until("the slot is taken", || upstream.now() == before + 1).await;
    held
}

fn ask(
    running: &Running,
    headers: &'static [(&'static str, &'static str)],
    body: String,
) -> tokio::task::JoinHandle<Answer> {
    let client = running.client();
    tokio::spawn(async move { client.post(CHAT, headers, &body).await })
}

async fn waiting(running: &Running, count: u64) {
    until("they wait", || {
        running.gateway.running_and_waiting().1 == count
    })
    .await;
}

#[tokio::test]
async fn a_full_queue_rejects_at_once_with_retry_after() {
    let (running, upstream) = one_slot("scheduler_max_queue_depth = 2").await;
    let held = hold(&running, &upstream).await;
    let queued: Vec<_> = (0..2)
        .map(|_| ask(&running, &[], chat(10, false)))
        .collect();
    waiting(&running, 2).await;
    let refused = running.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!(
        (refused.status, refused.header("x-headworks-reason")),
        (429, "full")
    );
    assert_eq!(
        (
            refused.header("x-should-retry"),
            refused.header("x-headworks-class")
        ),
        ("true", "P5")
    );
    let (seconds, millis): (u64, u64) = (
        refused.header("retry-after").parse().unwrap(),
        refused.header("retry-after-ms").parse().unwrap(),
    );
    assert_eq!(seconds, millis.div_ceil(1000));
    assert_eq!(refused.json()["error"]["type"], "rate_limit_error");
    // Another class has its own places.
    let other = ask(&running, &[("x-priority", "bulk")], chat(10, false));
    waiting(&running, 3).await;
    held.abort();
    for answer in queued.into_iter().chain([other]) {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    running.is_idle().await;
}

#[tokio::test]
async fn a_client_that_retries_on_time_has_a_place() {
    a_retry_with_these_headers_has_a_place(&[("x-stainless-retry-count", "1")]).await;
}

/// Vercel's AI SDK, curl and most clients do not say that a request is a retry.
#[tokio::test]
async fn a_client_that_does_not_say_that_it_retries_has_a_place() {
    a_retry_with_these_headers_has_a_place(&[]).await;
}

async fn a_retry_with_these_headers_has_a_place(headers: &'static [(&'static str, &'static str)]) {
    let (running, upstream) = one_slot("scheduler_max_queue_depth = 4").await;
    // The scheduler first has to learn how fast slots are freed. They are freed slowly, because a
    // place is booked for a quarter of the announced time beyond it.
    for answer in (0..4)
        .map(|_| ask(&running, &[("x-slow", "1")], chat(10, false)))
        .collect::<Vec<_>>()
    {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    let held = hold(&running, &upstream).await;
    let mut queued: Vec<_> = (0..4)
        .map(|_| ask(&running, &[], chat(10, false)))
        .collect();
    waiting(&running, 4).await;
    let refused = running.client().post(CHAT, &[], &chat(99, false)).await;
    assert_eq!(refused.status, 429);
    let told = Duration::from_millis(refused.header("retry-after-ms").parse().unwrap());
    // A queued client leaves. The rejected client has booked the free place, so a newcomer does not
    // get it.
    queued.remove(0).abort();
    waiting(&running, 3).await;
    tokio::time::sleep(told).await;
    let newcomer = running.client().post(CHAT, &[], &chat(50, false)).await;
    assert_eq!(newcomer.status, 429, "told to retry in {told:?}");
    let again = ask(&running, headers, chat(99, false));
    waiting(&running, 4).await;
    held.abort();
    for answer in queued.into_iter().chain([again]) {
        assert_eq!(answer.await.unwrap().status, 200);
    }
}

/// Retries at the announced times until the request is served. Returns the number of rejections.
async fn retry_until_served(running: &Running, turn: u64) -> usize {
    let body = chat(10 + turn, false);
    let mut rejected = 0;
    loop {
        let count = rejected.to_string();
        let headers = [("x-stainless-retry-count", count.as_str())];
        let answer = running.client().post(CHAT, &headers, &body).await;
        match (answer.status, answer.header("x-headworks-reason")) {
            (200, _) => return rejected,
            (429, "full") => rejected += 1,
            other => panic!("{other:?}"),
        }
        let told: u64 = answer.header("retry-after-ms").parse().unwrap();
        tokio::time::sleep(Duration::from_millis(told)).await;
    }
}

/// How many of the retries find a place depends on how fast this machine lets clients come back.
/// The scenario `refused-clients` counts them in virtual time; here all of them are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_retry_on_time_are_all_served() {
    let upstream = Upstream::answering(Duration::from_millis(20), 10).await;
    let limits = "scheduler_max_concurrent = 4\nscheduler_max_queue_depth = 20\nscheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0";
    let running = Running::before(&upstream, limits);
    // The scheduler first has to learn how fast slots are freed.
    for turn in 0..40 {
        assert_eq!(retry_until_served(&running, turn).await, 0);
    }
    // Sixty at once, for four slots and twenty places.
    let clients = (0..60).map(|n| retry_until_served(&running, 100 * n));
    let rejected: usize = futures_util::future::join_all(clients).await.iter().sum();
    assert!(rejected > 0, "the queue was never full");
    assert_eq!(upstream.count(), 100, "each was served once");
    running.is_idle().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn later_rejections_get_later_retry_times() {
    const SERVICE: Duration = Duration::from_millis(100);
    let upstream = Upstream::answering(SERVICE, 10).await;
    let limits = "scheduler_max_concurrent = 4\nscheduler_max_queue_depth = 12\nscheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0";
    let running = Running::before(&upstream, limits);
    let fill = |count: usize| {
        (0..count)
            .map(|_| ask(&running, &[], chat(10, false)))
            .collect::<Vec<_>>()
    };
    let learned = fill(16);
    until("half of them are done", || upstream.count() >= 12).await;
    // The queue is full again, while requests keep finishing steadily.
    let mut queued = learned;
    while running.gateway.running_and_waiting().1 < 12 {
        queued.push(ask(&running, &[], chat(10, false)));
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let mut told = Vec::new();
    for n in 0..8 {
        let refused = running.client().post(CHAT, &[], &chat(20 + n, false)).await;
        assert_eq!(refused.status, 429);
        told.push(refused.header("retry-after-ms").parse::<f64>().unwrap() / 1e3);
    }
    // The accuracy of these times is tested in the core, under virtual time.
    let (first, last) = (told[0], told[told.len() - 1]);
    assert!(first > 0.0 && first < last && last < 5.0, "{told:?}");
    for answer in queued {
        answer.abort();
    }
    running.is_idle().await;
}

#[tokio::test]
async fn an_aged_request_overtakes_more_urgent_ones() {
    let aging = "scheduler_policy = 'strict'\n[[gateway.class]]\nlevel = 9\naging = '1ms'";
    let (running, upstream) = one_slot(aging).await;
    let held = hold(&running, &upstream).await;
    let old = ask(
        &running,
        &[("x-priority", "9"), ("x-label", "old")],
        chat(10, false),
    );
    waiting(&running, 1).await;
    let urgent: Vec<_> = (0..20)
        .map(|_| ask(&running, &[("x-priority", "1")], chat(10, false)))
        .collect();
    waiting(&running, 21).await;
    held.abort();
    for answer in urgent.into_iter().chain([old]) {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    let calls = upstream.calls();
    let place = calls
        .iter()
        .position(|call| call.header("x-label") == Some("old"));
    assert!(
        place.unwrap() <= 4,
        "one grant in four is for the old: {place:?}"
    );
}

#[tokio::test]
async fn a_lone_p0_is_the_next_grant_after_the_first_release() {
    let (running, upstream) = one_slot("").await;
    let held = hold(&running, &upstream).await;
    let queued: Vec<_> = (0..20)
        .map(|_| ask(&running, &[("x-label", "rest")], chat(10, false)))
        .collect();
    waiting(&running, 20).await;
    let urgent = ask(
        &running,
        &[("x-priority", "critical"), ("x-label", "urgent")],
        chat(10, false),
    );
    waiting(&running, 21).await;
    held.abort();
    assert_eq!(urgent.await.unwrap().header("x-headworks-class"), "P0");
    for answer in queued {
        assert_eq!(answer.await.unwrap().status, 200);
    }
    assert_eq!(upstream.calls()[1].header("x-label"), Some("urgent"));
}

#[tokio::test]
async fn a_wait_ends_with_the_timeout_of_class_or_client() {
    let classes = "[[gateway.class]]\nlevel = 7\nqueue_timeout = '150ms'";
    let (running, upstream) = one_slot(classes).await;
    let held = hold(&running, &upstream).await;
    for headers in [
        &[("x-priority", "low")],
        &[("x-stainless-read-timeout", "0.15")],
        &[("x-stainless-timeout", "0.15")],
    ] {
        let answer = running.client().post(CHAT, headers, &chat(10, false)).await;
        assert_eq!(
            (answer.status, answer.header("x-headworks-reason")),
            (429, "expired")
        );
        assert!(!answer.header("retry-after").is_empty());
    }
    held.abort();
    running.is_idle().await;
    assert_eq!(upstream.count(), 1);
}

#[tokio::test]
async fn a_request_that_never_fits_is_rejected_for_good() {
    let (running, upstream) = one_slot("scheduler_max_context_length = 1000").await;
    let answer = running.client().post(CHAT, &[], &chat(5000, false)).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-reason")),
        (413, "too_large")
    );
    assert_eq!(answer.header("x-should-retry"), "false");
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_greedy_tenant_is_shed_in_a_full_queue() {
    let keys = "
        scheduler_max_queue_depth = 4
        [[gateway.key]]
        prefix = 'g'
        tenant = 'greedy'
        [[gateway.key]]
        prefix = 'm'
        tenant = 'modest'
    ";
    let upstream = Upstream::start(|_| Reaction::Hang).await;
    let running = Running::before(&upstream, &format!("scheduler_max_concurrent = 1\n{keys}"));
    let greedy: Vec<_> = (0..5)
        .map(|_| ask(&running, &[("x-api-key", "g")], chat(10, false)))
        .collect();
    waiting(&running, 4).await;
    let modest = ask(&running, &[("x-api-key", "m")], chat(10, false));
    let mut shed = 0;
    let mut left = Vec::new();
    until("one was shed", || {
        greedy.iter().any(tokio::task::JoinHandle::is_finished)
    })
    .await;
    for answer in greedy {
        if answer.is_finished() {
            let answer = answer.await.unwrap();
            assert_eq!(
                (answer.status, answer.header("x-headworks-reason")),
                (429, "shed")
            );
            shed += 1;
        } else {
            left.push(answer);
        }
    }
    assert_eq!(shed, 1);
    waiting(&running, 4).await;
    for answer in left.into_iter().chain([modest]) {
        answer.abort();
    }
    running.is_idle().await;
}

#[tokio::test]
async fn a_queued_stream_receives_progress() {
    use http_body_util::BodyExt;
    let (running, upstream) =
        one_slot("queue_progress = true\nqueue_progress_interval = '20ms'").await;
    let held = hold(&running, &upstream).await;
    let mut response = running
        .client()
        .begin("POST", CHAT, &[], &chat(10, true))
        .await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    for _ in 0..3 {
        let frame = response
            .frame()
            .await
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap();
        assert!(frame.starts_with(b": waiting"), "{frame:?}");
    }
    held.abort();
    let rest = response.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&rest).contains("usage"), "{rest:?}");
    running.is_idle().await;
}

#[tokio::test]
async fn a_queued_stream_receives_its_rejection() {
    for (path, expected) in [
        (CHAT, "data: {\"error\":{\"code\":\"expired\""),
        ("/v1/messages", "event: error\ndata: {\"error\":{"),
    ] {
        let upstream = Upstream::start(|_| Reaction::Hang).await;
        let toml = "scheduler_max_concurrent = 1\nscheduler_queue_timeout = '300ms'\nqueue_progress = true\nqueue_progress_interval = '20ms'";
        let more = "kind = 'anthropic'";
        let running = Running::start(&format!(
            "{toml}\n{}{}",
            upstream.toml("one", ""),
            upstream.toml("two", more)
        ));
        let held = hold(&running, &upstream).await;
        let answer = running.client().post(path, &[], &chat(10, true)).await;
        assert_eq!(answer.status, 200);
        assert!(answer.body.starts_with(": waiting"), "{}", answer.body);
        assert!(answer.body.contains(expected), "{}", answer.body);
        held.abort();
        running.is_idle().await;
    }
}

#[tokio::test]
async fn without_the_scheduler_nothing_waits() {
    let upstream = Upstream::start(|_| Reaction::Hang).await;
    let running = Running::before(
        &upstream,
        "scheduler_enabled = false\nscheduler_max_concurrent = 1",
    );
    let asked: Vec<_> = (0..10)
        .map(|_| ask(&running, &[], chat(10, false)))
        .collect();
    until("all are there", || upstream.now() == 10).await;
    for answer in asked {
        answer.abort();
    }
    running.is_idle().await;
}

#[tokio::test]
async fn shutdown_rejects_queued_requests_and_finishes_running_ones() {
    let (release, mut released) = mpsc::channel::<()>(1);
    let upstream = Upstream::start(|_| Reaction::Answer {
        after: Duration::from_millis(500),
        tokens: 3,
    })
    .await;
    let running = Running::before(&upstream, "scheduler_max_concurrent = 1");
    let first = ask(&running, &[], chat(10, false));
    until("one runs", || upstream.now() == 1).await;
    let second = ask(&running, &[], chat(10, false));
    waiting(&running, 1).await;
    let shutdown = running.shutdown.clone();
    let drained = tokio::spawn(async move {
        let drained = shutdown.drain(Duration::from_secs(20)).await;
        drop(release);
        drained
    });
    let sent_away = second.await.unwrap();
    assert_eq!(
        (sent_away.status, sent_away.header("x-headworks-reason")),
        (503, "draining")
    );
    assert_eq!(first.await.unwrap().status, 200);
    released.recv().await;
    assert!(drained.await.unwrap().unfinished.is_empty());
}

#[tokio::test]
async fn a_reload_that_replaces_an_upstream_drops_no_queued_request() {
    let held = Arc::new(Semaphore::new(0));
    let answer = held.clone();
    let old = Upstream::start(move |_| Reaction::When(answer.clone(), 5)).await;
    let new = Upstream::answering(Duration::ZERO, 5).await;
    let toml = |upstream: &Upstream, name| {
        format!(
            "scheduler_max_concurrent = 1\n{}",
            upstream.toml(name, "max_concurrent = 1")
        )
    };
    let running = Running::start(&toml(&old, "old"));
    let mut requests = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let client = running.client();
        requests.spawn(async move { client.post(CHAT, &[], &chat(10, false)).await.status });
    }
    until("all but one wait", || {
        running.gateway.running_and_waiting() == (1, 19)
    })
    .await;
    running.gateway.apply(config(&toml(&new, "new"))).unwrap();
    held.add_permits(1);
    assert_eq!(requests.join_all().await, [200; 20]);
    assert_eq!((old.count(), new.count()), (1, 19));
    running.is_idle().await;
}

#[tokio::test]
async fn an_expired_request_gets_the_length_of_the_queue() {
    let (running, upstream) = one_slot("scheduler_queue_timeout = '1200ms'").await;
    let held = hold(&running, &upstream).await;
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    let reason = answer.header("x-headworks-reason");
    assert_eq!((answer.status, reason), (429, "expired"));
    // One request was granted since the start, so the next will take as long again.
    let told: u64 = answer.header("retry-after-ms").parse().unwrap();
    assert!(told >= 1200, "{told}");
    held.abort();
}

#[tokio::test]
async fn an_unreachable_deadline_is_no_reason_to_retry_at_once() {
    let (running, upstream) = one_slot("").await;
    for _ in 0..4 {
        let slow = [("x-slow", "1")];
        assert_eq!(
            running
                .client()
                .post(CHAT, &slow, &chat(10, false))
                .await
                .status,
            200
        );
    }
    let held = hold(&running, &upstream).await;
    let queued: Vec<_> = (0..20)
        .map(|_| ask(&running, &[], chat(10, false)))
        .collect();
    waiting(&running, 20).await;
    let hasty = [("x-request-timeout", "1ms")];
    let answer = running.client().post(CHAT, &hasty, &chat(10, false)).await;
    assert_eq!(answer.status, 429, "{}", answer.body);
    let told: u64 = answer.header("retry-after-ms").parse().unwrap();
    assert!(
        told >= 100,
        "{told} after {}",
        answer.header("x-headworks-reason")
    );
    held.abort();
    queued.into_iter().for_each(|one| one.abort());
}

/// Two tenants. One of them may have a single request at upstreams.
const LIMITED_TENANT: &str = "
    scheduler_queue_timeout = '400ms'
    [[gateway.tenant]]
    name = 'limited'
    max_concurrent = 1
    [[gateway.key]]
    prefix = 'l'
    tenant = 'limited'
    [[gateway.key]]
    prefix = 'o'
    tenant = 'other'
";

#[tokio::test]
async fn a_hint_grows_while_the_only_slot_of_a_tenant_hangs() {
    let upstream = Upstream::start(|call| match call.header("x-hold") {
        Some(_) => Reaction::Hang,
        None => Reaction::Answer {
            after: Duration::ZERO,
            tokens: 3,
        },
    })
    .await;
    let running = Running::before(&upstream, LIMITED_TENANT);
    let post = async |headers: &[(&str, &str)]| {
        let answer = running.client().post(CHAT, headers, &chat(10, false)).await;
        let told = answer.header("retry-after-ms").parse::<u64>();
        (answer.status, told.unwrap_or(0))
    };
    for _ in 0..8 {
        assert_eq!(post(&[("x-api-key", "o")]).await.0, 200);
    }
    let client = running.client();
    let held = tokio::spawn(async move {
        let headers = [("x-api-key", "l"), ("x-hold", "1")];
        client.post(CHAT, &headers, &chat(10, false)).await;
    });
    until("the slot is taken", || upstream.now() == 1).await;
    let mut told = Vec::new();
    for _ in 0..3 {
        let (status, millis) = post(&[("x-api-key", "l")]).await;
        assert_eq!(status, 429);
        told.push(millis);
        // The slots of all tenants together are free.
        assert_eq!(post(&[("x-api-key", "o")]).await.0, 200);
    }
    // Each of them waited in vain for 400 ms, while the request before it hung.
    assert!(
        told[0] >= 400 && told[1] >= 800 && told[2] >= 1200,
        "{told:?}"
    );
    held.abort();
}

#[tokio::test]
async fn the_wait_for_a_probe_counts() {
    let release = Arc::new(Semaphore::new(0));
    let held = release.clone();
    let upstream = Upstream::start(move |call| match call.header("x-refuse") {
        Some(_) => Reaction::Status(429, "\r\nretry-after-ms: 50"),
        None => Reaction::When(held.clone(), 5),
    })
    .await;
    let running = Running::before(&upstream, "");
    let refuse = [("x-refuse", "1")];
    let refused = running.client().post(CHAT, &refuse, &chat(10, false)).await;
    assert_eq!(refused.status, 429);
    // The first request after the suspension probes the upstream. The second waits for its outcome.
    let probe = ask(&running, &[], chat(10, false));
    until("the probe is there", || upstream.now() == 1).await;
    let waiting = ask(&running, &[], chat(11, false));
    until("the other request is there", || {
        let snapshot = running.gateway.panel().snapshot();
        let text = serde_json::to_string(&snapshot).unwrap();
        text.matches("\"id\":\"hw-").count() == 3
    })
    .await;
    let since = std::time::Instant::now();
    until("some time has passed", || {
        since.elapsed() >= Duration::from_millis(200)
    })
    .await;
    release.add_permits(2);
    assert_eq!(probe.await.unwrap().status, 200);
    let answer = waiting.await.unwrap();
    assert_eq!(answer.status, 200);
    let waited: u64 = answer.header("x-headworks-wait-ms").parse().unwrap();
    assert!(waited >= 200, "{waited}");
}
