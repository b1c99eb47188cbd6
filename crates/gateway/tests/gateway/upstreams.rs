//! Upstreams that reject, fail, hang, break off, send nonsense, or do not exist.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use crate::support::{Answer, CHAT, PATIENCE, Reaction, Running, Upstream, chat, until};
use crate::views::json;

const FINE: Reaction = Reaction::Answer {
    after: Duration::ZERO,
    tokens: 3,
};

/// A gateway in front of a bad upstream and a good one; the bad one is tried first.
async fn beside(bad: Reaction, more: &str) -> (Running, Upstream, Upstream) {
    let bad = Upstream::start(move |_| bad.clone()).await;
    let good = Upstream::start(|_| FINE).await;
    let toml = format!(
        "{}{}",
        bad.toml("bad", &format!("weight = 1000\n{more}")),
        good.toml("good", "")
    );
    (Running::start(&toml), bad, good)
}

#[tokio::test]
async fn an_overloaded_upstream_is_suspended_and_another_serves() {
    let (running, bad, good) = beside(Reaction::Status(429, "\r\nretry-after: 60"), "").await;
    for n in 1..=3 {
        let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
        assert_eq!(
            (answer.status, answer.header("x-headworks-upstream")),
            (200, "good")
        );
        assert_eq!(
            (bad.count(), good.count()),
            (1, n),
            "it is suspended for a minute"
        );
    }
    running.is_idle().await;
}

#[tokio::test]
async fn a_failing_upstream_is_suspended() {
    let (running, bad, good) = beside(
        Reaction::Status(500, ""),
        "fault_threshold = 2\nsuspend_for = '60s'\nretry_on = [500]",
    )
    .await;
    for n in 1..=5 {
        let answer = running.client().post(CHAT, &[], &chat(n, false)).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!((bad.count(), good.count()), (2, 5));
    running.is_idle().await;
}

#[tokio::test]
async fn a_request_timeout_of_an_upstream_is_a_fault() {
    let settings = "fault_threshold = 2\nsuspend_for = '60s'\nretry_on = [408]";
    let (running, bad, good) = beside(Reaction::Status(408, ""), settings).await;
    for n in 1..=5 {
        let answer = running.client().post(CHAT, &[], &chat(n, false)).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!((bad.count(), good.count()), (2, 5));
}

#[tokio::test]
async fn the_same_request_counts_as_one_fault() {
    let (running, bad, good) = beside(
        Reaction::Status(500, ""),
        "fault_threshold = 2\nsuspend_for = '60s'\nretry_on = [500]",
    )
    .await;
    for _ in 0..5 {
        let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!((bad.count(), good.count()), (5, 5));
}

#[tokio::test]
async fn a_429_on_one_model_does_not_stop_the_others() {
    let upstream = Upstream::start(|call| match call.json()["model"] == "m" {
        true => Reaction::Status(429, "\r\nretry-after: 100"),
        false => FINE,
    })
    .await;
    let running = Running::before(&upstream, "");
    let client = running.client();
    assert_eq!(client.post(CHAT, &[], &chat(10, false)).await.status, 429);
    for _ in 0..5 {
        let other = chat(10, false).replace("\"m\"", "\"other\"");
        assert_eq!(client.post(CHAT, &[], &other).await.status, 200);
        assert_eq!(client.post(CHAT, &[], &chat(10, false)).await.status, 503);
    }
    assert_eq!(upstream.count(), 6, "only the model is suspended");
}

#[tokio::test]
async fn a_429_that_one_tenant_gets_suspends_that_tenant_alone() {
    let upstream = Upstream::start(|call| match call.body.contains("fail") {
        true => Reaction::Status(429, "\r\nretry-after: 100"),
        false => FINE,
    })
    .await;
    let toml = format!("{TWO_TENANTS}{}", upstream.toml("one", ""));
    let running = Running::start(&toml);
    let client = running.client();
    let failing = chat(10, false).replace("hello", "fail");
    assert_eq!(client.post(CHAT, &HOSTILE, &failing).await.status, 429);
    let answer = client.post(CHAT, &HOSTILE, &failing).await;
    let reason = answer.header("x-headworks-reason");
    assert_eq!((answer.status, reason), (503, "upstreams_suspended"));
    let answer = client.post(CHAT, &OTHER, &chat(10, false)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// Several attackers send prompts that fail at every upstream, each prompt once, while a victim
/// works. Before, they suspended one upstream after the other.
#[tokio::test]
async fn prompts_that_fail_everywhere_cost_a_neighbour_no_answer() {
    let upstreams = [
        obedient(500).await,
        obedient(500).await,
        obedient(500).await,
    ];
    let mut toml = String::from(
        "[[gateway.key]]\nprefix = 'sk-victim'\ntenant = 'victim'\n\
         [[gateway.key]]\nprefix = 'sk-a'\ntenant = 'a'\n\
         [[gateway.key]]\nprefix = 'sk-b'\ntenant = 'b'\n\
         [[gateway.key]]\nprefix = 'sk-c'\ntenant = 'c'\n",
    );
    for (n, upstream) in upstreams.iter().enumerate() {
        let settings = "fault_threshold = 2\nsuspend_for = '60s'\nretry_on = [500]";
        toml += &upstream.toml(&format!("u{n}"), settings);
    }
    let running = Running::start(&toml);
    let client = running.client();
    let victim = [("x-api-key", "sk-victim")];
    let good = chat(10, false);
    assert_eq!(client.post(CHAT, &victim, &good).await.status, 200);
    for n in 0..30 {
        for key in ["sk-a", "sk-b", "sk-c"] {
            let poison = good.replace("hello", &format!("fail {key} {n}"));
            client.post(CHAT, &[("x-api-key", key)], &poison).await;
        }
        let answer = client.post(CHAT, &victim, &good).await;
        assert_eq!(answer.status, 200, "{n}: {}", answer.body);
    }
    running.is_idle().await;
}

#[tokio::test]
async fn a_request_that_fails_at_two_upstreams_is_blamed_itself() {
    let (one, two) = (obedient(500).await, obedient(500).await);
    let settings = "fault_threshold = 1\nsuspend_for = '60s'\nretry_on = [500]";
    let toml = format!("{}{}", one.toml("one", settings), two.toml("two", settings));
    let running = Running::start(&toml);
    let client = running.client();
    for n in 0..10 {
        let poison = chat(10, false).replace("hello", &format!("fail {n}"));
        assert_eq!(client.post(CHAT, &[], &poison).await.status, 500);
        assert_eq!((one.count(), two.count()), (n + 1, n + 1));
    }
    let answer = client.post(CHAT, &[], &chat(10, false)).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

#[tokio::test]
async fn requests_that_wait_for_a_suspended_upstream_follow_one_probe() {
    let held = Arc::new(Semaphore::new(0));
    let (answer, calls) = (held.clone(), Arc::new(AtomicUsize::new(0)));
    let upstream = Upstream::start(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reaction::Status(500, ""),
        _ => Reaction::When(answer.clone(), 5),
    })
    .await;
    let running =
        Running::start(&upstream.toml("one", "fault_threshold = 1\nsuspend_for = '50ms'"));
    let client = running.client();
    assert_eq!(client.post(CHAT, &[], &chat(10, false)).await.status, 500);
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..10 {
        let client = client.clone();
        waiting.spawn(async move { client.post(CHAT, &[], &chat(n + 1, false)).await.status });
    }
    until("the probe arrived", || upstream.count() == 2).await;
    until("the others wait for it", || {
        running.gateway.running_and_waiting() == (1, 9)
    })
    .await;
    assert_eq!(upstream.count(), 2, "one request at a time probes");
    held.add_permits(10);
    assert_eq!(waiting.join_all().await, [200; 10]);
    running.is_idle().await;
}

#[tokio::test]
async fn a_tenant_has_a_bounded_number_of_requests_that_wait_for_a_suspension() {
    let upstream = Upstream::start(|_| Reaction::Status(429, "\r\nretry-after: 20")).await;
    let settings = "scheduler_max_queue_depth = 2\nscheduler_priority_levels = 2\n";
    let running = Running::before(&upstream, settings);
    let client = running.client();
    assert_eq!(client.post(CHAT, &[], &chat(10, false)).await.status, 429);
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..4 {
        let client = client.clone();
        waiting.spawn(async move { client.post(CHAT, &[], &chat(n + 1, false)).await.status });
    }
    until("four wait", || {
        running.gateway.running_and_waiting() == (0, 4)
    })
    .await;
    let answer = client.post(CHAT, &[], &chat(9, false)).await;
    let reason = answer.header("x-headworks-reason");
    assert_eq!((answer.status, reason), (429, "full"), "{}", answer.body);
    waiting.abort_all();
    running.is_idle().await;
}

/// More wait for the end of a suspension than the queue has places: those that find none then look
/// again until their own time is up, not once in ten seconds.
#[tokio::test]
async fn requests_that_find_no_place_after_a_suspension_look_again_soon() {
    let calls = Arc::new(AtomicUsize::new(0));
    let upstream = Upstream::start(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => Reaction::Status(429, "\r\nretry-after-ms: 300"),
        _ => Reaction::Answer {
            after: Duration::ZERO,
            tokens: 5,
        },
    })
    .await;
    let settings = "scheduler_max_queue_depth = 3\nscheduler_queue_timeout = '8s'\n";
    let running = Running::before(&upstream, settings);
    let client = running.client();
    assert_eq!(client.post(CHAT, &[], &chat(10, false)).await.status, 429);
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..12 {
        let client = client.clone();
        waiting.spawn(async move { client.post(CHAT, &[], &chat(n + 1, false)).await.status });
    }
    assert_eq!(waiting.join_all().await, [200; 12]);
}

#[tokio::test]
async fn an_error_after_which_something_may_be_generated_is_not_tried_elsewhere() {
    for (status, settings, expected) in [
        (408, "", 408),
        (408, "retry_on = [408]", 200),
        (500, "", 500),
        (502, "", 502),
        (504, "", 504),
        (524, "", 524),
        (529, "", 529),
        (500, "retry_on = [500, 529]", 200),
        (529, "retry_on = [500, 529]", 200),
        (502, "retry_on = [500, 529]", 502),
        (429, "", 200),
        (503, "", 200),
    ] {
        let (running, bad, good) = beside(Reaction::Status(status, ""), settings).await;
        let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
        assert_eq!(answer.status, expected, "{status} {settings}");
        let elsewhere = usize::from(expected == 200);
        assert_eq!(
            (bad.count(), good.count()),
            (1, elsewhere),
            "{status} {settings}"
        );
        running.is_idle().await;
    }
}

#[tokio::test]
async fn a_503_without_a_refusal_is_not_tried_elsewhere() {
    for (answer, elsewhere) in [
        (
            "HTTP/1.1 503 Lost\r\ncontent-type: text/html\r\ncontent-length: 4\r\n\r\nlost",
            0,
        ),
        ("HTTP/1.1 503 Lost\r\ncontent-length: 0\r\n\r\n", 0),
        (
            "HTTP/1.1 503 Busy\r\nretry-after: 9\r\ncontent-length: 0\r\n\r\n",
            1,
        ),
        (
            "HTTP/1.1 503 Busy\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}",
            1,
        ),
    ] {
        let (running, bad, good) = beside(Reaction::Raw(answer), "").await;
        running.client().post(CHAT, &[], &chat(10, false)).await;
        assert_eq!((bad.count(), good.count()), (1, elsewhere), "{answer}");
    }
}

#[tokio::test]
async fn retry_after_suspends_an_upstream() {
    for status in [503, 529] {
        let act = Reaction::Status(status, "\r\nretry-after: 60");
        let (running, bad, good) = beside(
            act,
            if status == 529 {
                "retry_on = [529]"
            } else {
                ""
            },
        )
        .await;
        for n in 1..=3 {
            let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
            assert_eq!(answer.status, 200, "{status}");
            assert_eq!((bad.count(), good.count()), (1, n), "{status}");
        }
    }
}

/// Requests that are answered at once, or with 503 because they would have to wait too long.
async fn statuses(running: &Running, paths: &[&str]) -> Vec<(u16, u64)> {
    let mut statuses = Vec::new();
    for path in paths {
        let answer = running.client().post(path, &[], &chat(10, false)).await;
        let after = answer.header("retry-after").parse().unwrap_or(0);
        statuses.push((answer.status, after));
    }
    statuses
}

/// Leaks a response with these headers, for a scripted upstream.
fn answer_with(headers: &str) -> Reaction {
    let text = format!("HTTP/1.1 200 OK\r\n{headers}\r\ncontent-length: 2\r\n\r\n{{}}");
    Reaction::Raw(Box::leak(text.into_boxed_str()))
}

#[tokio::test]
async fn an_exhausted_rate_limit_is_waited_for() {
    for headers in [
        "x-ratelimit-limit-requests: 60\r\nx-ratelimit-remaining-requests: 0\r\n\
         x-ratelimit-reset-requests: 1m40s",
        "x-ratelimit-remaining-tokens: 0\r\nx-ratelimit-reset-tokens: 100s",
        "date: Wed, 21 Oct 2015 07:28:00 GMT\r\n\
         anthropic-ratelimit-requests-remaining: 0\r\n\
         anthropic-ratelimit-requests-reset: 2015-10-21T07:29:40Z",
    ] {
        let first = answer_with(headers);
        let upstream = Upstream::start(move |_| first.clone()).await;
        let running = Running::before(&upstream, "scheduler_queue_timeout = '500ms'");
        let answers = statuses(&running, &[CHAT]).await;
        assert_eq!(answers, [(200, 0)], "{headers}");
        let (status, after) = statuses(&running, &[CHAT]).await[0];
        assert_eq!((status, upstream.count()), (503, 1), "{headers}");
        // A limit that is known grows back steadily, and one request is there after 1.7 s.
        let expected = if headers.contains("limit-requests:") {
            1..=3
        } else {
            95..=111
        };
        assert!(expected.contains(&after), "{after} for {headers}");
    }
}

#[tokio::test]
async fn a_reset_lets_the_waiting_request_go() {
    let first =
        answer_with("x-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 300ms");
    let calls = Arc::new(AtomicUsize::new(0));
    let upstream = Upstream::start(move |_| match calls.fetch_add(1, Ordering::SeqCst) {
        0 => first.clone(),
        _ => FINE,
    })
    .await;
    let running = Running::before(&upstream, "");
    assert_eq!(statuses(&running, &[CHAT]).await, [(200, 0)]);
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    let reason = answer.header("x-headworks-reason");
    assert_eq!((answer.status, reason), (200, "queued"));
    let waited: u64 = answer.header("x-headworks-wait-ms").parse().unwrap();
    assert!(waited >= 200, "{waited}");
}

#[tokio::test]
async fn entries_of_one_account_share_what_is_left() {
    let headers = "x-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 100s";
    let first = answer_with(headers);
    let upstream = Upstream::start(move |_| first.clone()).await;
    for (keys, second) in [(["k", "k"], 503), (["k", "l"], 200)] {
        let entry = |name, kind, key| {
            let more = format!("kind = '{kind}'\napi_key = '{key}'\nmodels = ['m']");
            upstream.toml(name, &more)
        };
        let [one, two] = keys;
        let entries = [entry("one", "openai", one), entry("two", "anthropic", two)];
        let timeout = "scheduler_queue_timeout = '500ms'";
        let running = Running::start(&format!("{timeout}\n{}", entries.concat()));
        let answers = statuses(&running, &[CHAT, "/v1/messages"]).await;
        let statuses: Vec<u16> = answers.iter().map(|answer| answer.0).collect();
        assert_eq!(statuses, [200, second], "{keys:?}");
    }
}

#[tokio::test]
async fn a_time_of_day_to_return_at_is_obeyed() {
    for (status, first) in [(429, 429), (503, 503)] {
        let headers = "\r\ndate: Wed, 21 Oct 2015 07:28:00 GMT\r\n\
                       retry-after: Wed, 21 Oct 2015 07:29:40 GMT";
        let upstream = Upstream::start(move |_| Reaction::Status(status, headers)).await;
        let running = Running::before(&upstream, "scheduler_queue_timeout = '500ms'");
        assert_eq!(statuses(&running, &[CHAT]).await[0].0, first);
        let (suspended, after) = statuses(&running, &[CHAT]).await[0];
        assert_eq!((suspended, upstream.count()), (503, 1), "{status}");
        assert!((90..=111).contains(&after), "{after} for {status}");
    }
}

#[tokio::test]
async fn an_unreachable_upstream_is_skipped() {
    let good = Upstream::start(|_| FINE).await;
    let gone = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let gone =
        format!("[[gateway.upstream]]\nname = 'gone'\nweight = 1000\nurl = 'http://{gone}'\n");
    let running = Running::start(&format!("{gone}{}", good.toml("good", "")));
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-upstream")),
        (200, "good")
    );
    let alone = Running::start(&gone);
    let answer = alone.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-reason")),
        (503, "no_upstream")
    );
    assert!(
        answer.body.contains("`gone` cannot be reached"),
        "{}",
        answer.body
    );
    alone.is_idle().await;
}

#[tokio::test]
async fn an_upstream_that_accepts_no_connection_is_skipped() {
    let good = Upstream::start(|_| FINE).await;
    let (full, _taken) = full().await;
    let full =
        format!("[[gateway.upstream]]\nname = 'full'\nweight = 1000\nurl = 'http://{full}'\n");
    let toml = format!("{full}{}", good.toml("good", ""));
    let running = Running::connecting_within(Duration::from_millis(200), &toml);
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-upstream")),
        (200, "good")
    );
    assert_eq!(good.count(), 1);
    running.is_idle().await;
}

/// A server with a full backlog: the system does not complete further connections.
async fn full() -> (SocketAddr, (TcpListener, Vec<TcpStream>)) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    let mut taken = Vec::new();
    let soon = Duration::from_millis(200);
    while let Ok(stream) = tokio::time::timeout(soon, TcpStream::connect(address)).await {
        taken.push(stream.unwrap());
    }
    (address, (listener, taken))
}

#[tokio::test]
async fn a_429_of_the_only_upstream_has_retry_after() {
    for (headers, after) in [("\r\nretry-after: 7", "7"), ("", "5")] {
        let upstream = Upstream::start(move |_| Reaction::Status(429, headers)).await;
        let running = Running::before(&upstream, "");
        let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
        assert_eq!((answer.status, answer.header("retry-after")), (429, after));
        assert_eq!(answer.json()["error"]["message"], "ordered");
        running.is_idle().await;
    }
}

#[tokio::test]
async fn interim_responses_are_dropped_and_101_is_an_error() {
    let patient = concat!(
        "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n",
        "HTTP/1.1 102 Processing\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    );
    let upstream = Upstream::start(move |_| Reaction::Raw(patient)).await;
    let running = Running::before(&upstream, "");
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, "{}"));
    assert_eq!(answer.header("link"), "");

    let switch = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let (running, bad, good) = beside(Reaction::Raw(switch), "").await;
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-reason")),
        (502, "upstream_broke_off")
    );
    assert!(answer.body.contains("101"), "{}", answer.body);
    assert_eq!((bad.count(), good.count()), (1, 0), "it may have generated");
    running.is_idle().await;
}

#[tokio::test]
async fn a_request_is_rejected_if_all_upstreams_are_suspended_for_longer() {
    let upstream = Upstream::start(|_| Reaction::Status(429, "\r\nretry-after: 100")).await;
    let running = Running::before(&upstream, "");
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(10, false))
            .await
            .status,
        429
    );
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-reason")),
        (503, "upstreams_suspended")
    );
    let after: u64 = answer.header("retry-after").parse().unwrap();
    // At most a tenth later, so that clients do not all retry at once.
    assert!((95..=110).contains(&after), "{after}");
    assert_eq!(upstream.count(), 1);
    running.is_idle().await;
}

#[tokio::test]
async fn a_broken_response_is_not_retried() {
    for bad in [Reaction::Close, Reaction::Garbage] {
        let (running, bad, good) = beside(bad, "").await;
        let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
        assert_eq!(
            (answer.status, answer.header("x-headworks-reason")),
            (502, "upstream_broke_off")
        );
        assert_eq!((bad.count(), good.count()), (1, 0));
        running.is_idle().await;
    }
}

#[tokio::test]
async fn a_timeout_is_not_retried_unless_configured() {
    let (running, bad, good) = beside(Reaction::Hang, "first_byte_timeout = '100ms'").await;
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-reason")),
        (504, "upstream_timeout")
    );
    assert_eq!((bad.count(), good.count()), (1, 0));
    until("the upstream was told", || bad.left() == 1).await;
    let more = "first_byte_timeout = '100ms'\nretry_on_timeout = true";
    let (running, bad, good) = beside(Reaction::Hang, more).await;
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(10, false))
            .await
            .status,
        200
    );
    assert_eq!((bad.count(), good.count()), (1, 1));
    running.is_idle().await;
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error() {
    let upstream = Upstream::start(|_| Reaction::BreakOff { in_event: false }).await;
    let running = Running::before(&upstream, "");
    let answer = running.client().post(CHAT, &[], &chat(10, true)).await;
    assert_eq!(answer.status, 200);
    let last = answer.body.trim_end().rsplit("\n\n").next().unwrap();
    let error: serde_json::Value =
        serde_json::from_str(last.strip_prefix("data: ").unwrap()).unwrap();
    assert_eq!(error["error"]["code"], "upstream_broke_off");
    running.is_idle().await;
    // Inside an event nothing can be inserted. The connection is closed, so that no client takes
    // the response for complete.
    let upstream = Upstream::start(|_| Reaction::BreakOff { in_event: true }).await;
    let running = Running::before(&upstream, "");
    assert!(
        running
            .client()
            .try_post(CHAT, &[], &chat(10, true))
            .await
            .is_err()
    );
    running.is_idle().await;
}

#[tokio::test]
async fn a_silent_upstream_times_out() {
    let gap = Duration::from_secs(3600);
    let upstream = Upstream::start(move |_| Reaction::Stream { events: 2, gap }).await;
    let running = Running::start(&upstream.toml("one", "idle_timeout = '500ms'"));
    let answer = running.client().post(CHAT, &[], &chat(10, true)).await;
    assert!(answer.body.contains("upstream_silent"), "{}", answer.body);
    running.is_idle().await;
    until("the upstream stopped", || upstream.left() == 1).await;
}

#[tokio::test]
async fn rejected_credentials_are_a_502() {
    for (status, reason) in [(401, "upstream_credentials"), (403, "upstream_refused")] {
        let upstream = Upstream::start(move |_| Reaction::Status(status, "")).await;
        let running = Running::before(&upstream, "");
        let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
        let told = answer.header("x-headworks-reason");
        assert_eq!((answer.status, told), (502, reason));
        assert_eq!(answer.header("x-should-retry"), "false");
        let blames_the_key = answer.body.contains("gateway's own credentials");
        assert_eq!(blames_the_key, status == 401, "{}", answer.body);
        running.is_idle().await;
    }
}

#[tokio::test]
async fn unusual_responses_are_relayed_and_leak_no_slot() {
    let odd = "HTTP/1.1 200 OK\r\ncontent-length: 27\r\n\r\n{\"usage\": {\"prompt_tokens\":";
    let upstream = Upstream::start(move |_| Reaction::Raw(odd)).await;
    let running = Running::before(&upstream, "");
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!((answer.status, answer.body.len()), (200, 27));
    running.is_idle().await;
}

#[tokio::test]
async fn a_recovered_upstream_is_used_again() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let upstream = Upstream::start(|_| match CALLS.fetch_add(1, Ordering::SeqCst) {
        0 => Reaction::Status(429, "\r\nretry-after-ms: 200"),
        _ => FINE,
    })
    .await;
    let running = Running::before(&upstream, "");
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(10, false))
            .await
            .status,
        429
    );
    let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-reason")),
        (200, "queued")
    );
    let waited: u64 = answer.header("x-headworks-wait-ms").parse().unwrap();
    assert!((100..5000).contains(&waited), "{waited}");
}

const TWO_TENANTS: &str = "
    [[gateway.key]]
    prefix = 'sk-hostile'
    tenant = 'hostile'
    [[gateway.key]]
    prefix = 'sk-other'
    tenant = 'other'
";
const HOSTILE: [(&str, &str); 1] = [("x-api-key", "sk-hostile")];
const OTHER: [(&str, &str); 1] = [("x-api-key", "sk-other")];

/// Fails whenever the prompt asks for it.
async fn obedient(status: u16) -> Upstream {
    Upstream::start(move |call| match call.body.contains("fail") {
        true => Reaction::Status(status, ""),
        false => FINE,
    })
    .await
}

#[tokio::test]
async fn one_tenants_faults_do_not_suspend_an_upstream_for_others() {
    let failing = chat(10, false).replace("hello", "fail");
    for status in [401, 403, 408, 500, 502] {
        let upstream = obedient(status).await;
        let settings = "fault_threshold = 2\nsuspend_for = '60s'";
        let toml = format!("{TWO_TENANTS}{}", upstream.toml("one", settings));
        let running = Running::start(&toml);
        let client = running.client();
        let good = chat(10, false);
        assert_eq!(client.post(CHAT, &OTHER, &good).await.status, 200);
        for _ in 0..5 {
            let answer = client.post(CHAT, &HOSTILE, &failing).await;
            assert!(answer.status >= 408, "{status}: {}", answer.body);
        }
        let answer = client.post(CHAT, &OTHER, &good).await;
        assert_eq!(answer.status, 200, "{status}: {}", answer.body);
        running.is_idle().await;
    }
}

#[tokio::test]
async fn faults_of_two_tenants_suspend_an_upstream() {
    let upstream = obedient(500).await;
    let settings = "fault_threshold = 2\nsuspend_for = '60s'";
    let toml = format!("{TWO_TENANTS}{}", upstream.toml("one", settings));
    let running = Running::start(&toml);
    let client = running.client();
    let (good, failing) = (chat(10, false), chat(10, false).replace("hello", "fail"));
    assert_eq!(client.post(CHAT, &OTHER, &good).await.status, 200);
    for headers in [HOSTILE, OTHER] {
        let failing = failing.replace("fail", &format!("fail {headers:?}").replace('"', ""));
        assert_eq!(client.post(CHAT, &headers, &failing).await.status, 500);
    }
    let answer = client.post(CHAT, &OTHER, &good).await;
    let reason = answer.header("x-headworks-reason");
    assert_eq!((answer.status, reason), (503, "upstreams_suspended"));
}

#[tokio::test]
async fn an_upstream_that_fails_for_one_tenant_is_avoided_for_that_tenant() {
    let (bad, good) = (obedient(500).await, Upstream::start(|_| FINE).await);
    let settings = "weight = 1000\nfault_threshold = 2\nsuspend_for = '60s'\nretry_on = [500]";
    let toml = format!(
        "{TWO_TENANTS}{}{}",
        bad.toml("bad", settings),
        good.toml("good", "")
    );
    let running = Running::start(&toml);
    let client = running.client();
    let (fine, failing) = (chat(10, false), chat(10, false).replace("hello", "fail"));
    assert_eq!(client.post(CHAT, &OTHER, &fine).await.status, 200);
    for n in 0..5 {
        let failing = failing.replace("fail", &format!("fail {n}"));
        assert_eq!(client.post(CHAT, &HOSTILE, &failing).await.status, 200);
    }
    assert_eq!(
        (bad.count(), good.count()),
        (3, 5),
        "two faults were enough"
    );
    let answer = client.post(CHAT, &OTHER, &fine).await;
    assert_eq!(answer.header("x-headworks-upstream"), "bad");
}

/// An entry of the pool `p` whose server refuses connections.
fn gone(name: &str, more: &str) -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    format!("[[gateway.upstream]]\nname = '{name}'\nurl = 'http://{address}'\npool = 'p'\n{more}\n")
}

/// Upstreams that were called for a request, in order.
async fn tried(running: &Running, answer: &Answer) -> Vec<String> {
    let id = answer.header("x-headworks-request-id");
    let told = json(running, &format!("/admin/explain/{id}")).await;
    let tried = told["request"]["upstreams"].as_array().unwrap().iter();
    tried
        .map(|name| name.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn a_server_of_a_pool_that_is_gone_is_avoided() {
    let good = Upstream::start(|_| FINE).await;
    let rule = "fault_threshold = 3\nsuspend_for = '1h'";
    let toml = [gone("gone", rule), good.toml("good", "pool = 'p'")];
    let running = Running::start(&toml.concat());
    let mut wasted = 0;
    for n in 0..20 {
        let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
        assert_eq!(answer.status, 200, "{n}: {}", answer.body);
        let tried = tried(&running, &answer).await;
        wasted += usize::from(tried.contains(&"gone".to_owned()));
    }
    assert_eq!(wasted, 3);
    running.is_idle().await;
}

#[tokio::test]
async fn a_pool_is_suspended_only_if_all_of_its_servers_are_gone() {
    let rule = "fault_threshold = 3\nsuspend_for = '1h'";
    let running = Running::start(&[gone("one", rule), gone("two", rule)].concat());
    for n in 0..5 {
        let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
        let (reason, calls) = match n {
            0..3 => ("no_upstream", 2),
            _ => ("upstreams_suspended", 0),
        };
        assert_eq!(answer.header("x-headworks-reason"), reason, "{n}");
        assert_eq!(tried(&running, &answer).await.len(), calls, "{n}");
    }
}

#[tokio::test]
async fn the_servers_of_a_pool_are_called_by_weight() {
    let upstreams = [
        Upstream::start(|_| FINE).await,
        Upstream::start(|_| FINE).await,
    ];
    let toml = [
        upstreams[0].toml("small", "pool = 'p'"),
        upstreams[1].toml("large", "pool = 'p'\nweight = 3"),
    ];
    let running = Running::start(&toml.concat());
    for _ in 0..40 {
        let answer = running.client().post(CHAT, &[], &chat(10, false)).await;
        assert_eq!(answer.status, 200);
    }
    assert_eq!(upstreams.map(|upstream| upstream.count()), [10, 30]);
}

/// Unlike an error response, a failed connection cannot be the fault of a tenant or a body.
#[tokio::test]
async fn failed_connections_of_one_tenant_suspend_an_upstream_for_others() {
    let rule = "fault_threshold = 2\nsuspend_for = '1h'";
    let running = Running::start(&format!("{TWO_TENANTS}{}", gone("gone", rule)));
    let client = running.client();
    let body = chat(10, false);
    for _ in 0..2 {
        let answer = client.post(CHAT, &HOSTILE, &body).await;
        let reason = answer.header("x-headworks-reason");
        assert_eq!((answer.status, reason), (503, "no_upstream"));
    }
    let answer = client.post(CHAT, &OTHER, &body).await;
    let reason = answer.header("x-headworks-reason");
    assert_eq!((answer.status, reason), (503, "upstreams_suspended"));
}

#[tokio::test]
async fn one_tenants_429s_do_not_lower_the_learned_rate() {
    let upstream = Upstream::start(|call| match call.body.contains("fail") {
        true => Reaction::Status(429, "\r\nretry-after-ms: 1"),
        false => FINE,
    })
    .await;
    let learned = "max_rps = 1000\nmin_rps = 1";
    let running = Running::start(&format!("{TWO_TENANTS}{}", upstream.toml("one", learned)));
    let client = running.client();
    let (good, failing) = (chat(10, false), chat(10, false).replace("hello", "fail"));
    let rate = async || {
        let stats = json(&running, "/admin/scheduler/stats").await;
        stats["pools"][0]["max_rps"].as_f64().unwrap()
    };
    assert_eq!(client.post(CHAT, &OTHER, &good).await.status, 200);
    let before = rate().await;
    // A rate changes once per second at most.
    let (start, mut n) = (Instant::now(), 0);
    let mut reject = async |who: &[(&str, &str)]| {
        n += 1;
        let failing = failing.replace("\"m\"", &format!("\"model-{n}\""));
        assert_eq!(client.post(CHAT, who, &failing).await.status, 429);
    };
    while start.elapsed() < Duration::from_millis(1500) {
        reject(&HOSTILE).await;
        assert_eq!(rate().await, before);
    }
    // Once both are rejected and none is served, the upstream is overloaded.
    while rate().await >= before {
        assert!(start.elapsed() < PATIENCE, "the rate is never lowered");
        reject(&HOSTILE).await;
        // At the model at which it was served.
        assert_eq!(client.post(CHAT, &OTHER, &failing).await.status, 429);
    }
}
