//! Keys, classes, response formats, headers, models and quotas, as clients see them.

use std::time::Duration;

use crate::support::{CHAT, Reaction, Running, Upstream, chat, config};

const KEYS: &str = "
    [[gateway.key]]
    hash = '2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683'
    tenant = 'search'
    class = 4
    max_class = 2
    models = ['m', 'gpt-*']
    [[gateway.key]]
    prefix = 'sk-batch-'
    tenant = 'batch'
    class = 9
";

async fn echo() -> (Running, Upstream) {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let running = Running::before(&upstream, KEYS);
    (running, upstream)
}

#[tokio::test]
async fn a_key_determines_tenant_and_class() {
    let (running, _upstream) = echo().await;
    let client = running.client();
    let class = async |key: &str, priority: &[(&str, &str)]| {
        let bearer = format!("Bearer {key}");
        let headers = [&[("authorization", bearer.as_str())], priority].concat();
        let answer = client.post(CHAT, &headers, &chat(5, false)).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.header("x-headworks-class").to_owned()
    };
    // The hash above is that of "key".
    assert_eq!(class("key", &[]).await, "P4");
    assert_eq!(class("key", &[("x-priority", "background")]).await, "P9");
    assert_eq!(
        class("key", &[("x-priority", "0")]).await,
        "P2",
        "raised as far as it may be"
    );
    assert_eq!(
        class("sk-batch-17", &[("x-priority", "critical")]).await,
        "P9"
    );
}

#[tokio::test]
async fn errors_have_the_shape_of_each_api() {
    let (running, upstream) = echo().await;
    let client = running.client();
    let answer = client
        .post(CHAT, &[("authorization", "Bearer wrong")], &chat(5, false))
        .await;
    assert_eq!(
        (answer.status, &answer.json()["error"]["code"]),
        (401, &"invalid_api_key".into())
    );
    assert_eq!(
        answer.header("x-request-id"),
        answer.header("x-headworks-request-id")
    );
    let answer = client.post("/v1/messages", &[], &chat(5, false)).await;
    let (body, id) = (answer.json(), answer.header("request-id").to_owned());
    assert_eq!((answer.status, &body["type"]), (401, &"error".into()));
    assert_eq!(
        (&body["error"]["type"], &body["request_id"]),
        (&"authentication_error".into(), &id.into())
    );
    let key = [("x-api-key", "key")];
    for (path, body, status, reason) in [
        (CHAT, "{", 400, "bad_request"),
        (CHAT, r#"{"messages":[]}"#, 400, "bad_request"),
        (CHAT, r#"{"model":"other"}"#, 403, "model_not_allowed"),
        ("/v1/messages", r#"{"model":"m"}"#, 404, "model_not_found"),
        ("/v1/nothing", "{}", 404, "unknown_url"),
    ] {
        let answer = client.post(path, &key, body).await;
        assert_eq!(
            (answer.status, answer.header("x-headworks-reason")),
            (status, reason),
            "{path} {body}"
        );
    }
    let priority = [("x-api-key", "key"), ("x-priority", "soon")];
    assert_eq!(
        client
            .post(CHAT, &priority, &chat(5, false))
            .await
            .header("x-headworks-reason"),
        "unknown_priority"
    );
    assert_eq!(client.get(CHAT, &key).await.status, 405);
    assert_eq!(upstream.count(), 0);
}

/// OpenRouter reads `models`, LiteLLM `fallbacks` and the query.
#[tokio::test]
async fn a_key_permits_every_model_that_the_upstream_may_use() {
    let (running, upstream) = echo().await;
    let client = running.client();
    let post = async |key: &str, query: &str, fields: &str| {
        let body = format!(r#"{{"model":"m","messages":[]{fields}}}"#);
        let (path, key) = (format!("{CHAT}{query}"), [("x-api-key", key)]);
        client.post(&path, &key, &body).await
    };
    let long = format!(r#","models":["{}"]"#, "x".repeat(1000));
    for (query, fields) in [
        ("", r#","models":["m","other"]"#),
        ("", r#","Models":"other""#),
        ("", r#","fallbacks":["gpt-4","other"]"#),
        ("", r#","fallbacks":[{"model":"other"}]"#),
        ("", r#","context_window_fallbacks":[{"m":["other"]}]"#),
        ("", long.as_str()),
        ("?model=other", ""),
        ("?a=b&mod%65l=other", ""),
    ] {
        let answer = post("key", query, fields).await;
        let reason = answer.header("x-headworks-reason");
        let expected = (403, "model_not_allowed");
        assert_eq!((answer.status, reason), expected, "{query} {fields}");
        let answer = post("sk-batch-1", query, fields).await;
        assert_eq!(answer.status, 200, "that key permits every model");
    }
    let before = upstream.count();
    for (query, fields) in [
        (
            "",
            r#","models":["m","gpt-4"],"fallbacks":[{"m":["gpt-5"]}]"#,
        ),
        ("?model=gpt-4&x=other", ""),
    ] {
        assert_eq!(post("key", query, fields).await.status, 200, "{query}");
    }
    assert_eq!(upstream.count(), before + 2);
}

#[tokio::test]
async fn bytes_and_unknown_headers_go_through_and_credentials_do_not() {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let more = "kind = 'anthropic'\napi_key = 'theirs'\nheaders = { x-org = 'ours' }";
    let running = Running::start(&format!("{KEYS}{}", upstream.toml("one", more)));
    let body =
        r#"{ "model":"m",  "unknown": {"a":[1, 2.50]}, "tools":[{"name":"t"}], "max_tokens":5 }"#;
    let headers = [
        ("x-api-key", "key"),
        ("authorization", "Bearer key"),
        ("anthropic-version", "2099-12-31"),
        ("anthropic-beta", "tools-2099"),
        ("x-unknown", "kept"),
        ("cookie", "secret=1"),
    ];
    let answer = running
        .client()
        .post("/v1/messages?beta=true", &headers, body)
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        (answer.header("x-upstream"), answer.header("set-cookie")),
        ("kept", "")
    );
    let call = &upstream.calls()[0];
    assert_eq!(call.body, body);
    assert!(
        call.head
            .starts_with("post /v1/messages?beta=true http/1.1"),
        "{}",
        call.head
    );
    assert_eq!(call.header("x-api-key"), Some("theirs"));
    assert_eq!(call.header("x-org"), Some("ours"));
    assert_eq!(call.header("anthropic-version"), Some("2099-12-31"));
    assert_eq!(call.header("x-unknown"), Some("kept"));
    assert!(
        !call.head.contains("secret") && !call.head.contains("bearer"),
        "{}",
        call.head
    );
}

#[tokio::test]
async fn a_body_that_names_two_models_is_refused() {
    let (running, upstream) = echo().await;
    let client = running.client();
    for body in [
        r#"{"model":"m","MODEL":"other"}"#,
        r#"{"model":"m","model":"other"}"#,
        r#"{"model":"m","mo\u0064el":"other"}"#,
        r#"{"model":"m","\u004dodel":"other"}"#,
    ] {
        let answer = client.post(CHAT, &[("x-api-key", "key")], body).await;
        let reason = answer.header("x-headworks-reason");
        assert_eq!((answer.status, reason), (400, "bad_request"), "{body}");
        let message = answer.json()["error"]["message"].to_string();
        assert!(message.contains("`model`"), "{message}");
    }
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn secrets_are_sent_to_the_upstream_and_never_shown() {
    use headworks_gateway::GatewayConfig;
    use headworks_service::config::{Schema, Sources};
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let more = "headers = { x-org = 'env:CARGO_PKG_NAME', x-pass = 'header-secret' }";
    let toml = format!(
        "[[gateway.key]]\nprefix = 'prefix-secret'\ntenant = 'a'\n\
         [[gateway.key]]\npattern = '*pattern-secret'\ntenant = 'b'\n{}",
        upstream.toml("one", more)
    );
    let running = Running::start(&toml);
    let client = running.client();
    for key in ["prefix-secret-1", "a-pattern-secret"] {
        let headers = [("x-api-key", key)];
        let answer = client.post(CHAT, &headers, &chat(5, false)).await;
        assert_eq!(answer.status, 200, "{key}");
    }
    let call = &upstream.calls()[0];
    assert_eq!(call.header("x-org"), Some("headworks-gateway"));
    assert_eq!(call.header("x-pass"), Some("header-secret"));

    let schema = Schema::new().with::<GatewayConfig>();
    let sources = Sources::new().text("test.toml", format!("[gateway]\n{toml}"));
    let config = schema
        .load(&sources)
        .unwrap_or_else(|told| panic!("{told}"));
    let shown: Vec<_> = config.values().iter().map(ToString::to_string).collect();
    let told = format!(
        "{}\n{:?}",
        shown.join("\n"),
        config.section::<GatewayConfig>()
    );
    assert!(told.contains("x-pass"), "{told}");
    assert!(
        !told.contains("secret") && !told.contains("headworks-gateway"),
        "{told}"
    );
}

#[tokio::test]
async fn models_come_from_the_configuration() {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let models = "models = ['m', 'gpt-9', 'gpt-*', 'secret']";
    let running = Running::start(&format!("{KEYS}{}", upstream.toml("one", models)));
    let (client, key) = (running.client(), ("x-api-key", "key"));
    let list = client.get("/v1/models", &[key]).await.json();
    let names: Vec<_> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|model| model["id"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["gpt-9", "m"], "named ones that this key may use");
    assert_eq!(
        client.get("/v1/models/gpt-9", &[key]).await.json()["object"],
        "model"
    );
    assert_eq!(client.get("/v1/models/secret", &[key]).await.status, 404);
    let anthropic = client
        .get("/v1/models", &[key, ("anthropic-version", "2023-06-01")])
        .await
        .json();
    assert_eq!(
        anthropic["data"],
        serde_json::json!([]),
        "no upstream speaks that"
    );
    assert_eq!(client.get("/v1/models", &[]).await.status, 401);
}

#[tokio::test]
async fn probes_and_paths_without_a_version_are_answered() {
    let (running, upstream) = echo().await;
    let (client, key) = (running.client(), [("x-api-key", "key")]);
    for probe in ["/healthz", "/health", "/ready", "/readyz"] {
        let answer = client.get(probe, &[]).await;
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (200, "ok\n"),
            "{probe}"
        );
    }
    let answer = client
        .post("/chat/completions", &key, &chat(5, false))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let call = &upstream.calls()[0];
    assert!(
        call.head.starts_with("post /v1/chat/completions "),
        "{}",
        call.head
    );
    assert_eq!(client.get("/models", &key).await.status, 200);
    assert_eq!(client.get("/models", &[]).await.status, 401);
}

#[tokio::test]
async fn bodies_are_bounded() {
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let running = Running::before(&upstream, "max_body = '1KiB'");
    let large = chat(5, false).replace("hello", &"x".repeat(2000));
    let answer = running.client().post(CHAT, &[], &large).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-reason")),
        (413, "body_too_large")
    );
    assert_eq!(answer.header("x-should-retry"), "false");
    assert_eq!(upstream.count(), 0);
}

#[tokio::test]
async fn a_used_up_quota_rejects_requests() {
    let upstream = Upstream::answering(Duration::ZERO, 60).await;
    let quota = "[[gateway.tenant]]\nname = 'search'\ntokens_per_day = 100\n";
    let running = Running::before(&upstream, &format!("{KEYS}{quota}"));
    let (client, key) = (running.client(), [("x-api-key", "key")]);
    for _ in 0..2 {
        assert_eq!(client.post(CHAT, &key, &chat(5, false)).await.status, 200);
    }
    let answer = client.post(CHAT, &key, &chat(5, false)).await;
    assert_eq!(
        (answer.status, answer.header("x-headworks-reason")),
        (429, "quota")
    );
    assert_eq!(answer.header("x-should-retry"), "false");
    let seconds: u64 = answer.header("retry-after").parse().unwrap();
    assert!(
        (1..=24 * 3600).contains(&seconds),
        "until the next day, in UTC"
    );
    assert_eq!(answer.json()["error"]["type"], "insufficient_quota");
    let other = [("x-api-key", "sk-batch-1")];
    assert_eq!(client.post(CHAT, &other, &chat(5, false)).await.status, 200);
}

#[tokio::test]
async fn a_reload_applies_at_once_and_drops_no_connection() {
    let upstream = Upstream::start(|_| Reaction::Stream {
        events: 10,
        gap: Duration::from_millis(20),
    })
    .await;
    let running = Running::before(&upstream, "");
    let client = running.client();
    let stream = tokio::spawn(async move { client.post(CHAT, &[], &chat(5, true)).await });
    crate::support::until("it streams", || upstream.now() == 1).await;
    let other = Upstream::answering(Duration::ZERO, 1).await;
    let toml = format!("{KEYS}{}", other.toml("two", "models = ['gpt-9']"));
    running.gateway.apply(config(&toml)).unwrap();
    assert_eq!(
        running
            .client()
            .post(CHAT, &[], &chat(5, false))
            .await
            .status,
        401,
        "keys count now"
    );
    let key = [("x-api-key", "key")];
    let body = chat(5, false).replace("\"m\"", "\"gpt-9\"");
    assert_eq!(
        running
            .client()
            .post(CHAT, &key, &body)
            .await
            .header("x-headworks-upstream"),
        "two"
    );
    let answer = stream.await.unwrap();
    assert!(answer.body.ends_with("data: [DONE]\n\n"), "{}", answer.body);
}

#[tokio::test]
async fn the_predecessors_ini_file_is_read() {
    use headworks_gateway::GatewayConfig;
    use headworks_service::config::{Schema, Sources};
    let ini = "[scheduler]\nscheduler_enabled = true\nscheduler_priority_levels = 4\nscheduler_max_queue_depth = 7\n\
               scheduler_max_concurrent = 3\nscheduler_max_tokens_per_sec = 500\nscheduler_policy = strict\n";
    let schema = Schema::new().with::<GatewayConfig>();
    let sources = Sources::new().text("old.ini", ini);
    let read = schema
        .load(&sources)
        .unwrap_or_else(|problems| panic!("{problems}"))
        .section::<GatewayConfig>();
    assert_eq!(
        (
            read.scheduler_priority_levels,
            read.scheduler_max_queue_depth
        ),
        (4, 7)
    );
    assert_eq!(
        (
            read.scheduler_max_concurrent,
            read.scheduler_max_tokens_per_sec
        ),
        (3, 500.0)
    );
}

#[tokio::test]
async fn models_that_patterns_stand_for_are_asked_from_upstreams_once() {
    let list = r#"{"data":[{"id":"gpt-1"},{"id":"gpt-2"},{"id":"other"}]}"#;
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{list}",
        list.len()
    );
    let answer: &'static str = Box::leak(answer.into_boxed_str());
    let upstream = Upstream::start(move |_| Reaction::Raw(answer)).await;
    let settings = "models = ['gpt-*', 'named']\napi_key = 'secret'";
    let running = Running::start(&upstream.toml("one", settings));
    for _ in 0..3 {
        let models = running.client().get("/v1/models", &[]).await;
        let models = models.json();
        let models = models["data"].as_array().unwrap().iter();
        let ids: Vec<_> = models
            .map(|model| model["id"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(ids, ["gpt-1", "gpt-2", "named"]);
    }
    assert_eq!(
        running.client().get("/v1/models/gpt-2", &[]).await.status,
        200
    );
    assert_eq!(upstream.count(), 1, "the list is kept");
    let call = &upstream.calls()[0];
    assert!(call.head.starts_with("get /v1/models "), "{}", call.head);
    assert_eq!(call.header("authorization"), Some("bearer secret"));
}
