//! Token shares of classes and of tenants, measured at the upstream.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::support::{CHAT, Reaction, ReceivedRequest, Running, Upstream, chat, until};

/// Actual cost of a request: mixed sizes, and up to forty times more or less than announced.
fn actual_tokens(said: u64) -> u64 {
    match said {
        20 => 800,
        800 => 20,
        same => same,
    }
}

/// An upstream that answers one request per permit, with the usage that `actual_tokens` returns.
async fn upstream() -> (Upstream, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let release = permits.clone();
    let upstream = Upstream::start(move |call| {
        let said = call.json()["max_tokens"].as_u64().unwrap();
        Reaction::When(permits.clone(), actual_tokens(said))
    });
    (upstream.await, release)
}

/// Runs clients that send requests in a loop, each with its own headers, until `calls` were made.
/// Returns the tokens by label.
///
/// A request is answered only when `backlog` others are running or queued and requests of every
/// label wait in the scheduler, so that each is always backlogged, however slow this machine is.
async fn crowd(
    running: &Running,
    (upstream, release): &(Upstream, Arc<Semaphore>),
    clients: &[(&'static str, &'static str, usize)],
    (calls, backlog): (usize, u64),
) -> HashMap<String, u64> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = JoinSet::new();
    for (header, value, count) in clients.iter().copied() {
        for n in 0..count {
            let (client, stop) = (running.client(), stop.clone());
            tasks.spawn(async move {
                let mut turn = n;
                while !stop.load(Ordering::SeqCst) {
                    let said = [20, 800, 100, 400][turn % 4];
                    turn += 1;
                    let label = [(header, value), ("x-label", value)];
                    let status = client.post(CHAT, &label, &chat(said, false)).await.status;
                    assert!(status == 200 || status == 429, "{status}");
                    if status == 429 {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                }
            });
        }
    }
    let all_wait = || {
        let (at_work, waiting) = running.gateway.running_and_waiting();
        let (classes, tenants) = running.gateway.backlogged();
        at_work + waiting >= backlog && classes.max(tenants) == clients.len()
    };
    for call in 0..calls {
        until("every client waits", all_wait).await;
        release.add_permits(1);
        until("the next call is made", || upstream.count() > call + SLOTS).await;
    }
    let seen = upstream.calls();
    stop.store(true, Ordering::SeqCst);
    release.add_permits(Semaphore::MAX_PERMITS / 2);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let mut tokens = HashMap::new();
    for call in &seen[calls / 10..calls] {
        let said = call.json()["max_tokens"].as_u64().unwrap();
        *tokens
            .entry(call.header("x-label").unwrap().to_owned())
            .or_default() += actual_tokens(said);
    }
    running.is_idle().await;
    tokens
}

fn assert_shares(tokens: &HashMap<String, u64>, weights: &[(&str, u64)]) {
    let all: u64 = tokens.values().sum();
    let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
    for (label, weight) in weights {
        let share = tokens[*label] as f64 / all as f64;
        let right = *weight as f64 / total as f64;
        assert!(
            (share / right - 1.0).abs() < 0.02,
            "{label}: {share:.4}, not {right:.4} of {tokens:?}"
        );
    }
}

/// Requests that run at once.
const SLOTS: usize = 4;
const FREE: &str =
    "scheduler_max_concurrent = 4\nscheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn classes_share_by_weight_despite_wrong_estimates() {
    let upstream = upstream().await;
    let config = format!(
        "{FREE}scheduler_priority_levels = 4\nscheduler_weights = [1, 4, 2, 1]\ndefault_class = 1"
    );
    let running = Running::before(&upstream.0, &config);
    let clients = [
        ("x-priority", "1", 32),
        ("x-priority", "2", 32),
        ("x-priority", "3", 32),
    ];
    let tokens = crowd(&running, &upstream, &clients, (3000, 96)).await;
    assert_shares(&tokens, &[("1", 4), ("2", 2), ("3", 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_of_a_class_share_by_weight_whatever_their_load() {
    let upstream = upstream().await;
    let tenants = "
        scheduler_max_queue_depth = 60
        [[gateway.key]]
        pattern = 'a*'
        tenant = 'a'
        [[gateway.key]]
        pattern = 'b*'
        tenant = 'b'
        [[gateway.tenant]]
        name = 'b'
        weight = 2
    ";
    let running = Running::before(&upstream.0, &format!("{FREE}{tenants}"));
    // The greedy tenant has more clients than the queue has places, so the queue is always full; up
    // to half of its places are booked for clients that were told to retry.
    let clients = [("x-api-key", "a", 120), ("x-api-key", "b", 40)];
    let tokens = crowd(&running, &upstream, &clients, (2500, 34)).await;
    assert_shares(&tokens, &[("a", 1), ("b", 2)]);
}

/// Requests of two tenants, and an upstream that answers one at a time when released.
struct Crowd {
    running: Running,
    upstream: Upstream,
    release: Arc<Semaphore>,
    asked: JoinSet<(&'static str, u16)>,
    sent: usize,
    ended: usize,
    modest: usize,
}

impl Crowd {
    fn ask(&mut self, who: &'static str) {
        let client = self.running.client();
        self.sent += 1;
        self.asked.spawn(async move {
            let label = [("x-api-key", who), ("x-label", who)];
            let answer = client.post(CHAT, &label, &chat(100, false)).await;
            (who, answer.status)
        });
    }

    /// Waits until every request is answered, queued or at the upstream.
    async fn settle(&mut self) {
        loop {
            while let Some(ended) = self.asked.try_join_next() {
                let (who, status) = ended.unwrap();
                self.ended += 1;
                self.modest -= usize::from(who == "m");
                // Some places are booked for clients that were told to retry, so the modest tenant
                // may be rejected too.
                assert!(matches!(status, 200 | 429), "{who}: {status}");
            }
            let (running, waiting) = self.running.gateway.running_and_waiting();
            if self.ended + (running + waiting) as usize == self.sent {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_times_the_requests_give_no_larger_share() {
    const CALLS: usize = 100;
    let release = Arc::new(Semaphore::new(0));
    let gate = release.clone();
    let upstream = Upstream::start(move |_| Reaction::When(gate.clone(), 100)).await;
    let tenants = "
        scheduler_max_queue_depth = 20
        [[gateway.key]]
        prefix = 'g'
        tenant = 'greedy'
        [[gateway.key]]
        prefix = 'm'
        tenant = 'modest'
    ";
    let mut crowd = Crowd {
        running: Running::before(&upstream, &format!("{FREE}{tenants}")),
        upstream,
        release,
        asked: JoinSet::new(),
        sent: 0,
        ended: 0,
        modest: 0,
    };
    while crowd.upstream.count() < CALLS {
        let missing = 8 - crowd.modest;
        for _ in 0..missing {
            crowd.modest += 1;
            crowd.ask("m");
        }
        for _ in 0..100 * missing.max(1) {
            crowd.ask("g");
        }
        crowd.settle().await;
        let before = crowd.upstream.count();
        crowd.release.add_permits(1);
        until("the next is there", || crowd.upstream.count() > before).await;
    }
    let calls = crowd.upstream.calls();
    let counted = &calls[CALLS / 10..CALLS];
    let greedy = counted
        .iter()
        .filter(|call| call.header("x-label") == Some("g"));
    let share = greedy.count() as f64 / counted.len() as f64;
    assert!((0.48..=0.52).contains(&share), "{share}");
}

/// Use of one model does not count against a tenant at an unrelated one, whatever limits the tenant
/// has and however busy the other model is.
#[tokio::test]
async fn fairness_is_kept_for_each_capacity_pool() {
    let (y, release) = upstream().await;
    let x = Upstream::answering(Duration::ZERO, 1000).await;
    let keys = "[[gateway.key]]\nprefix = 'sk-a'\ntenant = 'a'\n[[gateway.key]]\nprefix = 'sk-b'\ntenant = 'b'\n";
    let tenants = "[[gateway.tenant]]\nname = 'a'\nmax_concurrent = 30\n[[gateway.tenant]]\nname = 'b'\nweight = 2\n";
    let running = Running::start(&format!(
        "scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n{keys}{tenants}{}{}",
        x.toml("x", "models = ['x']\nmax_concurrent = 1"),
        y.toml("y", "models = ['y']\nmax_concurrent = 1"),
    ));
    let ask = |model: &str| chat(100, false).replace("\"m\"", &format!("\"{model}\""));
    let (mut tasks, stop) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
    for (key, label) in [("sk-a", "a"), ("sk-b", "b")].repeat(10) {
        let (client, body, stop) = (running.client(), ask("y"), stop.clone());
        tasks.spawn(async move {
            while !stop.load(Ordering::SeqCst) {
                let headers = [("x-api-key", key), ("x-label", label)];
                assert_eq!(client.post(CHAT, &headers, &body).await.status, 200);
            }
        });
    }
    for served in 0..60 {
        let all_ask = || running.gateway.running_and_waiting() == (1, 19);
        until("all but one wait", all_ask).await;
        for _ in 0..3 {
            let client = running.client();
            let answer = client.post(CHAT, &[("x-api-key", "sk-a")], &ask("x")).await;
            assert_eq!(answer.status, 200);
        }
        release.add_permits(1);
        until("the next one runs", || y.count() == served + 2).await;
    }
    let calls = y.calls();
    let is_of_a = |call: &&ReceivedRequest| call.header("x-label") == Some("a");
    let of_a = calls[..60].iter().filter(is_of_a).count();
    assert!((18..=22).contains(&of_a), "{of_a} of 60");
    stop.store(true, Ordering::SeqCst);
    release.add_permits(80);
    tasks.join_all().await;
    running.is_idle().await;
}
