//! Statistics, explanations, metrics and the panel.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use headworks_service::metrics::Registry;
use headworks_service::panel::{Change, Snapshot};
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::sync::Semaphore;
use tower::ServiceExt;

use crate::support::{CHAT, Reaction, Running, Upstream, chat, until};

async fn get(running: &Running, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let answer = running.gateway.routes().oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

pub(crate) async fn json(running: &Running, path: &str) -> Value {
    let (status, body) = get(running, path).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn a_request_is_explained_while_it_waits_and_after() {
    let after = Duration::from_millis(100);
    let upstream = Upstream::start(move |_| Reaction::Answer { after, tokens: 9 }).await;
    let running = Running::before(&upstream, "scheduler_max_concurrent = 1");
    let (first, second) = (running.client(), running.client());
    let first = tokio::spawn(async move { first.post(CHAT, &[], &chat(10, false)).await });
    until("the first runs", || upstream.now() == 1).await;
    let second = tokio::spawn(async move { second.post(CHAT, &[], &chat(10, false)).await });
    until("the second waits", || {
        running.gateway.running_and_waiting().1 == 1
    })
    .await;
    first.await.unwrap();
    let answer = second.await.unwrap();
    assert_eq!(
        (
            answer.header("x-headworks-reason"),
            answer.header("x-headworks-position")
        ),
        ("queued", "1")
    );
    let path = format!("/admin/explain/{}", answer.header("x-headworks-request-id"));
    let told = json(&running, &path).await;
    let summary = told["explanation"]["summary"].as_str().unwrap();
    assert!(
        summary.contains("because `scheduler_max_concurrent` is reached: 1 of 1 are running"),
        "{summary}"
    );
    assert_eq!(told["request"]["stage"], "done");
    assert_eq!(told["request"]["tokens"], 9);
    assert_eq!(told["request"]["upstreams"], serde_json::json!(["one"]));
    assert!(told["request"]["waited"].as_f64().unwrap() > 10.0, "{told}");
    assert_eq!(get(&running, "/admin/explain/hw-0-0").await.0, 404);
}

#[tokio::test]
async fn totals_and_queues() {
    let upstream = Upstream::answering(Duration::ZERO, 5).await;
    let running = Running::before(&upstream, "scheduler_max_context_length = 100");
    for _ in 0..3 {
        assert_eq!(
            running
                .client()
                .post(CHAT, &[("x-priority", "2")], &chat(10, false))
                .await
                .status,
            200
        );
    }
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(1000, false))
            .await
            .status,
        413
    );
    running.is_idle().await;
    let stats = json(&running, "/admin/scheduler/stats").await;
    assert_eq!(
        (&stats["total_scheduled"], &stats["total_queued"]),
        (&3.into(), &0.into())
    );
    assert_eq!(stats["total_rejected"], 1);
    assert_eq!(stats["upstreams"][0]["granted"], 3);
    assert_eq!(stats["tenants"][0]["tokens"], 15);
    let queues = json(&running, "/admin/scheduler/queues").await;
    assert_eq!(queues["queues"][2]["name"], "high");
    assert_eq!(queues["queues"][2]["granted"], 3);
    let (_, csv) = get(&running, "/admin/usage?format=csv").await;
    assert!(csv.contains(",default,m,3,0,0,15\n"), "{csv}");
}

#[tokio::test]
async fn prometheus_metrics() {
    let upstream = Upstream::answering(Duration::ZERO, 5).await;
    let running = Running::before(&upstream, "");
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(10, false))
            .await
            .status,
        200
    );
    let registry = Registry::new();
    registry.add(running.gateway.collector());
    let text = registry.render();
    for line in [
        "headworks_gateway_granted_total{class=\"P5\"} 1",
        "headworks_gateway_tokens_total{tenant=\"default\",class=\"P5\"} 5",
        "headworks_gateway_upstream_answers_total{upstream=\"one\",outcome=\"answered\"} 1",
        "headworks_gateway_first_token_seconds_count{upstream=\"one\"} 1",
        "headworks_gateway_wait_seconds_count{class=\"P5\"} 1",
        "headworks_gateway_weight{class=\"P0\"} 256",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    let panel = running.gateway.panel();
    assert_eq!(panel.snapshot().widgets.len(), 8);
}

#[tokio::test]
async fn usage_corrects_the_estimate() {
    // The estimate is 1000, the actual cost 10: after the response, only 10 are missing in the
    // bucket.
    let upstream = Upstream::answering(Duration::ZERO, 10).await;
    let limit = "scheduler_max_tokens_per_sec = 1\nscheduler_tokens_burst = 2000";
    let running = Running::before(&upstream, limit);
    let before = json(&running, "/admin/scheduler/stats").await["capacity"]["tokens_free"]
        .as_f64()
        .unwrap();
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(1000, false))
            .await
            .status,
        200
    );
    running.is_idle().await;
    let after = json(&running, "/admin/scheduler/stats").await["capacity"]["tokens_free"]
        .as_f64()
        .unwrap();
    assert!(
        (before - after - 10.0).abs() < 5.0,
        "{before} before, {after} after"
    );
    // A stream that reports its usage in its last event.
    let upstream = Upstream::start(|_| Reaction::Stream {
        events: 3,
        gap: Duration::ZERO,
    })
    .await;
    let running = Running::before(&upstream, limit);
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(1000, true))
            .await
            .status,
        200
    );
    running.is_idle().await;
    let after = json(&running, "/admin/scheduler/stats").await["capacity"]["tokens_free"]
        .as_f64()
        .unwrap();
    assert!((2000.0 - after - 9.0).abs() < 5.0, "{after}");
}

#[tokio::test]
async fn rates_are_learned_from_response_headers() {
    let headers = "\r\nx-ratelimit-limit-requests: 120";
    let upstream = Upstream::start(move |_| Reaction::Status(400, headers)).await;
    let running = Running::start(&upstream.toml("one", "max_rps = 50\nmin_rps = 1"));
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(10, false))
            .await
            .status,
        400
    );
    running.is_idle().await;
    // The learned rate is 2 per second, so twenty quick requests take almost twenty from the
    // bucket. At 50 per second it would be refilled meanwhile.
    let free = async || {
        let stats = json(&running, "/admin/scheduler/stats").await;
        stats["upstreams"][0]["requests_free"].as_f64().unwrap()
    };
    let before = free().await;
    for _ in 0..20 {
        running.client().post(CHAT, &[], &chat(10, false)).await;
    }
    let used = before - free().await;
    assert!(
        (15.0..=20.0).contains(&used),
        "at fifty a second it would have been refilled: {used}"
    );
}

#[tokio::test]
async fn requests_that_end_during_shutdown_are_booked() {
    let file = std::env::temp_dir().join(format!("headworks-late-{}.db", std::process::id()));
    let after = Duration::from_millis(200);
    let upstream = Upstream::start(move |_| Reaction::Answer { after, tokens: 9 }).await;
    let running = Running::before(&upstream, &format!("usage_file = '{}'", file.display()));
    let client = running.client();
    let answer = tokio::spawn(async move { client.post(CHAT, &[], &chat(10, false)).await.status });
    until("it runs", || upstream.now() == 1).await;
    let drained = running.shutdown.drain(Duration::from_secs(20)).await;
    assert!(drained.unfinished.is_empty(), "{drained:?}");
    assert_eq!(answer.await.unwrap(), 200);
    let store = headworks_gateway::SqliteUsageStore::open(Some(&file)).unwrap();
    assert_eq!(store.rows(0, u32::MAX).unwrap()[0].output_tokens, 9);
    drop(store);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}

#[tokio::test]
async fn a_response_that_outlives_the_grace_period_takes_no_usage_of_others_with_it() {
    let file = std::env::temp_dir().join(format!("headworks-cut-{}.db", std::process::id()));
    let upstream = Upstream::start(|call| match call.header("x-do") {
        Some(_) => Reaction::Hang,
        None => Reaction::Answer {
            after: Duration::ZERO,
            tokens: 9,
        },
    })
    .await;
    let running = Running::before(&upstream, &format!("usage_file = '{}'", file.display()));
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(10, false))
            .await
            .status,
        200
    );
    let client = running.client();
    let endless = tokio::spawn(async move {
        let hang = [("x-do", "hang")];
        client.try_post(CHAT, &hang, &chat(10, false)).await.is_ok()
    });
    until("it runs", || upstream.now() == 1).await;
    running.shutdown.request();
    let store = headworks_gateway::SqliteUsageStore::open(Some(&file)).unwrap();
    until("the other request is in the file", || {
        let rows = store.rows(0, u32::MAX).unwrap();
        rows.first().is_some_and(|row| row.output_tokens == 9)
    })
    .await;
    assert_eq!(upstream.now(), 1, "the endless one still runs");
    running.shutdown.force();
    endless.abort();
    drop(store);
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
}

fn args(value: &Value) -> &serde_json::Map<String, Value> {
    value.as_object().unwrap()
}

#[tokio::test]
async fn settings_are_compared_applied_and_reset() {
    let upstream = Upstream::answering(Duration::from_millis(5), 10).await;
    let running = Running::before(
        &upstream,
        "scheduler_max_concurrent = 1\nscheduler_policy = 'wfq'",
    );
    let asked = (0..40).map(|n| {
        let client = running.client();
        let class = ["1", "2"][n % 2];
        async move {
            client
                .post(CHAT, &[("x-priority", class)], &chat(10, false))
                .await
                .status
        }
    });
    assert_eq!(futures_util::future::join_all(asked).await, [200; 40]);
    let panel = running.gateway.panel();
    let changes = [Change {
        key: "max_concurrent".into(),
        value: 40.into(),
    }];
    let answer = panel.what_if(&changes).await.unwrap();
    let wait = answer
        .compared
        .iter()
        .find(|row| row.name == "P2 p50 wait")
        .unwrap();
    assert!(wait.now > 0.01 && wait.then == 0.0, "{answer:?}");
    let wrong = [Change {
        key: "weight_12".into(),
        value: 3.into(),
    }];
    assert!(panel.what_if(&wrong).await.is_err());

    let most = |snapshot: Snapshot| match &snapshot.widgets[0].body {
        headworks_service::panel::Body::Series(series) => series.lines[0].limit,
        other => panic!("{other:?}"),
    };
    let change = serde_json::json!({ "max_concurrent": 7, "weight_2": 50, "policy": null });
    panel.act("change", args(&change)).await.unwrap();
    assert_eq!(most(panel.snapshot()), Some(7.0));
    let classes = json(&running, "/admin/scheduler/queues").await;
    assert!(classes.to_string().contains("50"), "{classes}");
    let nothing = serde_json::json!({});
    panel.act("reset", args(&nothing)).await.unwrap();
    assert_eq!(most(panel.snapshot()), Some(1.0));
    assert!(panel.act("change", args(&nothing)).await.is_err());
}

#[tokio::test]
async fn a_time_rule_in_force_is_what_explanations_and_statistics_state() {
    let release = Arc::new(Semaphore::new(0));
    let held = release.clone();
    let upstream = Upstream::start(move |_| Reaction::When(held.clone(), 5)).await;
    let rule = "scheduler_max_concurrent = 5\nscheduler_max_rps = 50\n\
        [[gateway.rule]]\nname = 'always'\nmax_concurrent = 1\nmax_rps = 7\n\
        [[gateway.rule.tenant]]\nname = 'nobody'\nmax_concurrent = 1\n";
    let running = Running::before(&upstream, rule);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..2 {
        let client = running.client();
        tasks.spawn(async move { client.post(CHAT, &[], &chat(10, false)).await });
    }
    until("one waits", || {
        running.gateway.running_and_waiting() == (1, 1)
    })
    .await;
    let stats = json(&running, "/admin/scheduler/stats").await;
    assert_eq!(stats["capacity"]["max_concurrent"], 1);
    assert_eq!(stats["capacity"]["max_rps"], 7.0);
    assert_eq!(stats["rules_in_force"][0], "always");
    release.add_permits(2);
    let answers = tasks.join_all().await;
    let queued = answers
        .iter()
        .find(|answer| answer.header("x-headworks-reason") == "queued");
    let id = queued.unwrap().header("x-headworks-request-id");
    let told = json(&running, &format!("/admin/explain/{id}")).await;
    let blocked = told["request"]["held_by"].as_str().unwrap();
    let expected = "`scheduler_max_concurrent` is reached: 1 of 1 are running";
    assert!(blocked.starts_with(expected), "{blocked}");
}

#[tokio::test]
async fn the_expected_wait_is_that_under_the_rule_in_force() {
    let upstream = Upstream::start(|_| Reaction::Hang).await;
    let rule = "scheduler_max_rps = 50\n[[gateway.rule]]\nname = 'always'\nmax_rps = 0.05\n";
    let running = Running::before(&upstream, rule);
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..2 {
        let client = running.client();
        tasks.spawn(async move { client.post(CHAT, &[], &chat(10, false)).await });
        until("it runs or waits", || {
            running.gateway.running_and_waiting() == (1, n)
        })
        .await;
    }
    let facts = facts(&running).await;
    let wait = &facts["wait expected on arrival"];
    // One request in 20 s, not fifty per second.
    let millis: f64 = wait.strip_suffix(" ms").unwrap().parse().unwrap();
    assert!((19_000.0..=26_000.0).contains(&millis), "{wait}");
}

/// Facts of the explanation of the newest request.
async fn facts(running: &Running) -> std::collections::HashMap<String, String> {
    let snapshot = serde_json::to_value(running.gateway.panel().snapshot()).unwrap();
    let text = snapshot.to_string();
    let newest = text.match_indices("\"hw-").map(|(at, _)| &text[at + 1..]);
    let newest = newest.filter_map(|id| id.split('"').next()).max().unwrap();
    let told = json(running, &format!("/admin/explain/{newest}")).await;
    let facts = told["explanation"]["facts"].as_array().unwrap();
    let word = |fact: &Value, key: &str| fact[key].as_str().unwrap().to_owned();
    facts
        .iter()
        .map(|fact| (word(fact, "name"), word(fact, "value")))
        .collect()
}

#[tokio::test]
async fn an_explanation_names_the_gate_the_position_and_the_time() {
    let tenant = "[[gateway.tenant]]\nname = 'limited'\nmax_concurrent = 1\n\
        [[gateway.key]]\nprefix = 'l'\ntenant = 'limited'\n";
    for (toml, more, gate) in [
        (
            tenant,
            "",
            "`max_concurrent` of tenant `limited` is reached: 1 of 1 are running",
        ),
        (
            "[[gateway.key]]\nprefix = 'l'\ntenant = 'limited'\n",
            "max_concurrent = 1\npool = 'gpu'",
            "`max_concurrent` of pool `gpu` is reached: 1 of 1 are running",
        ),
    ] {
        let upstream = Upstream::start(|_| Reaction::Hang).await;
        let running = Running::start(&format!("{toml}{}", upstream.toml("one", more)));
        let mut tasks = tokio::task::JoinSet::new();
        for waiting in 0..3 {
            let client = running.client();
            tasks.spawn(async move {
                client
                    .post(CHAT, &[("x-api-key", "l")], &chat(10, false))
                    .await
            });
            until("it waits", || {
                running.gateway.running_and_waiting() == (1, waiting)
            })
            .await;
        }
        let facts = facts(&running).await;
        assert_eq!(facts["blocked now by"], gate, "{facts:?}");
        assert!(
            facts["blocked on arrival by"].starts_with(gate),
            "{facts:?}"
        );
        assert_eq!(facts["position now"], "2", "{facts:?}");
        assert!(
            facts["wait expected on arrival"].ends_with(" ms"),
            "{facts:?}"
        );
        assert!(
            facts["expected to be granted in"].ends_with(" ms"),
            "{facts:?}"
        );
        tasks.shutdown().await;
    }
}

#[tokio::test]
async fn stats_have_the_figures_of_every_capacity_pool() {
    let upstream = Upstream::start(|call| match call.header("x-refuse") {
        Some(_) => Reaction::Status(429, "\r\nretry-after: 86400"),
        None => Reaction::Hang,
    })
    .await;
    let more = "max_concurrent = 1\nmax_rps = 50\nmodels = ['m']\npool = 'gpu'";
    let other = "models = ['other']\npool = 'elsewhere'";
    let toml = [upstream.toml("one", more), upstream.toml("two", other)].concat();
    let running = Running::start(&toml);
    let mut tasks = tokio::task::JoinSet::new();
    for waiting in 0..3 {
        let client = running.client();
        tasks.spawn(async move { client.post(CHAT, &[], &chat(10, false)).await });
        until("it waits", || {
            running.gateway.running_and_waiting() == (1, waiting)
        })
        .await;
    }
    let refused = chat(10, false).replace("\"m\"", "\"other\"");
    let answer = running
        .client()
        .post(CHAT, &[("x-refuse", "1")], &refused)
        .await;
    assert_eq!(answer.status, 429, "{}", answer.body);
    let stats = json(&running, "/admin/scheduler/stats").await;
    let (gpu, elsewhere) = (&stats["pools"][0], &stats["pools"][1]);
    assert_eq!(
        (&gpu["name"], &gpu["upstreams"][0]),
        (&"gpu".into(), &"one".into())
    );
    assert_eq!((&gpu["waiting"], &gpu["running"]), (&2.into(), &1.into()));
    assert_eq!(
        (&gpu["max_concurrent"], &gpu["max_rps"]),
        (&1.into(), &50.0.into())
    );
    assert_eq!(gpu["suspended_until"], Value::Null);
    assert_eq!(
        (&elsewhere["waiting"], &elsewhere["running"]),
        (&0.into(), &0.into())
    );
    // A day is cut to an hour: then one request probes.
    let until: jiff::Timestamp = elsewhere["suspended_until"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap();
    let left = until.duration_since(jiff::Timestamp::now()).as_secs();
    assert!((3000..=3600).contains(&left), "{left}");
    // No client is told a longer time than SDKs obey.
    let answer = running.client().post(CHAT, &[], &refused).await;
    assert_eq!(answer.header("x-headworks-reason"), "upstreams_suspended");
    assert_eq!(answer.header("retry-after"), "120");
    tasks.shutdown().await;
}
