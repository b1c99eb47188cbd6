//! Several gateways on one database: keys, quotas and usage.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use headworks_fleet::Secrets;
use headworks_fleet::testing::{PostgresServer, eventually};
use headworks_gateway::{FleetConfig, Gateway};
use headworks_service::outbound::{Outbound, OutboundConfig};
use headworks_service::shutdown::Shutdown;
use http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::support::{Answer, CHAT, Running, Upstream, chat, config, until};

/// Long enough that keys are never too old on a busy machine.
const PATIENT: Duration = Duration::from_secs(3600);

async fn try_start(
    url: &str,
    secrets: Secrets,
    max_age: Duration,
    toml: &str,
) -> Result<Running, String> {
    let mut fleet = FleetConfig::default();
    (fleet.url, fleet.keys_max_age) = (Some(url.to_owned()), max_age);
    let mut outbound = OutboundConfig::default();
    outbound.proxy_from_environment = false;
    let outbound = Outbound::new(&outbound).unwrap();
    let shutdown = Shutdown::new();
    // Keys and usage alone: without scheduling, no request waits for a share of the limits.
    let config = config(&format!("scheduler_enabled = false\n{toml}"));
    let fleet = Arc::new(fleet);
    match Gateway::start_in_fleet(&config, &fleet, secrets, outbound, &shutdown).await {
        Ok(gateway) => Ok(Running { gateway, shutdown }),
        Err(error) => Err(format!("{error:?} {error}")),
    }
}

/// Starts a gateway on the database of `server`.
async fn start(server: &PostgresServer, max_age: Duration, toml: &str) -> Running {
    try_start(&server.url(), PostgresServer::secrets(), max_age, toml)
        .await
        .unwrap()
}

/// Sends a request to the admin routes of a gateway.
async fn admin(running: &Running, method: &str, path: &str, body: Value) -> (u16, Value) {
    let request = Request::builder().method(method).uri(path);
    let body = match body {
        Value::Null => Body::empty(),
        body => Body::from(body.to_string()),
    };
    let request = request.body(body).unwrap();
    let answer = running.gateway.routes().oneshot(request).await.unwrap();
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

/// Creates a key and returns it.
async fn add_key(running: &Running, id: &str, tenant: &str) -> String {
    let body = json!({ "id": id, "tenant": tenant });
    let (status, answer) = admin(running, "POST", "/admin/gateway/keys", body).await;
    assert_eq!(status, 201, "{answer}");
    answer["key"].as_str().unwrap().to_owned()
}

async fn ask(running: &Running, key: &str) -> Answer {
    let headers = [("x-api-key", key)];
    running.client().post(CHAT, &headers, &chat(5, false)).await
}

async fn quota(running: &Running, key: &str) -> Value {
    let answer = running
        .client()
        .get("/v1/quota", &[("x-api-key", key)])
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.json()
}

/// Waits until a request with `key` gets this status.
async fn becomes(running: &Running, key: &str, status: u16) -> Answer {
    eventually(&format!("status {status}"), async || {
        let answer = ask(running, key).await;
        (answer.status == status).then_some(answer)
    })
    .await
}

#[tokio::test]
async fn a_change_at_one_gateway_is_in_force_at_the_other() {
    let server = PostgresServer::start();
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let toml = upstream.toml("one", "");
    let (first, second) = (
        start(&server, PATIENT, &toml).await,
        start(&server, PATIENT, &toml).await,
    );
    let mut times = Vec::new();
    for round in 0..5 {
        let id = format!("key {round}");
        let key = add_key(&first, &id, "search").await;
        assert_eq!(
            ask(&first, &key).await.status,
            200,
            "at once where it was made"
        );
        becomes(&second, &key, 200).await;
        let path = format!("/admin/gateway/keys/key%20{round}");
        let revoked = Instant::now();
        let (status, answer) = admin(&first, "DELETE", &path, Value::Null).await;
        assert_eq!(status, 200, "{answer}");
        assert_eq!(
            ask(&first, &key).await.status,
            401,
            "at once where it was revoked"
        );
        becomes(&second, &key, 401).await;
        times.push(revoked.elapsed());
    }
    times.sort();
    println!("revoked within {times:?}");
    // Counted by hand only: this machine may be busy with something else.
    let is_full = std::env::var_os("HEADWORKS_FULL").is_some();
    assert!(!is_full || times[2] < Duration::from_secs(2), "{times:?}");
}

#[tokio::test]
async fn stored_keys_are_refused_while_the_database_is_away_too_long() {
    let mut server = PostgresServer::start();
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let toml = format!(
        "{}\n[[gateway.key]]\nprefix = 'configured-'\ntenant = 't'\n",
        upstream.toml("one", "")
    );
    let running = start(&server, Duration::from_secs(5), &toml).await;
    let key = add_key(&running, "stored", "search").await;
    becomes(&running, &key, 200).await;
    server.crash();
    let refused = becomes(&running, &key, 503).await;
    assert_eq!(refused.header("x-headworks-reason"), "keys_unavailable");
    assert!(!refused.header("retry-after").is_empty());
    // Nobody knows whether this one was stored meanwhile.
    assert_eq!(ask(&running, "unknown").await.status, 503);
    assert_eq!(ask(&running, "configured-1").await.status, 200);
    server.start_again();
    becomes(&running, &key, 200).await;
    assert_eq!(ask(&running, "unknown").await.status, 401);
}

#[tokio::test]
async fn a_gateway_that_starts_without_its_database_serves_nobody_until_it_is_there() {
    let mut server = PostgresServer::start();
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let toml = upstream.toml("one", "");
    let key = {
        let running = start(&server, PATIENT, &toml).await;
        assert_eq!(
            ask(&running, "").await.status,
            200,
            "open: no key was ever stored"
        );
        add_key(&running, "stored", "search").await
    };
    server.crash();
    let running = start(&server, PATIENT, &toml).await;
    for key in [&*key, "unknown", ""] {
        assert_eq!(ask(&running, key).await.status, 503);
    }
    server.start_again();
    becomes(&running, &key, 200).await;
    for key in ["unknown", ""] {
        assert_eq!(ask(&running, key).await.status, 401, "not open any more");
    }
    // Revoking the last key does not open the gateway, also not after a restart.
    admin(
        &running,
        "DELETE",
        "/admin/gateway/keys/stored",
        Value::Null,
    )
    .await;
    let running = start(&server, PATIENT, &toml).await;
    assert_eq!(ask(&running, "").await.status, 401);
}

#[tokio::test]
async fn a_database_that_cannot_be_used_stops_the_start() {
    let server = PostgresServer::start();
    let wrong = Secrets::from_variables(|name| (name == "PGPASSWORD").then(|| "hunter2".into()));
    let refused = try_start(&server.url(), wrong, PATIENT, "")
        .await
        .err()
        .unwrap();
    assert!(refused.contains("rejects the connection"), "{refused}");
    assert!(!refused.contains("hunter2"), "{refused}");
    server.psql("fleet", "CREATE TABLE public.invoices (x int)");
    let secrets = PostgresServer::secrets();
    let refused = try_start(&server.url(), secrets, PATIENT, "")
        .await
        .err()
        .unwrap();
    assert!(refused.contains("invoices"), "{refused}");
}

#[tokio::test]
async fn a_quota_holds_over_all_gateways() {
    let server = PostgresServer::start();
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let toml = upstream.toml("one", "");
    let (first, second) = (
        start(&server, PATIENT, &toml).await,
        start(&server, PATIENT, &toml).await,
    );
    let tenant = json!({ "name": "search", "tokens_per_day": 25, "max_concurrent": 3 });
    let (status, answer) = admin(&first, "POST", "/admin/gateway/tenants", tenant).await;
    assert_eq!(status, 200, "{answer}");
    let key = add_key(&first, "one", "search").await;
    // The upstream reports 7 tokens and no prompt.
    for _ in 0..3 {
        assert_eq!(ask(&first, &key).await.status, 200);
    }
    until("all is booked", || {
        first.gateway.running_and_waiting() == (0, 0)
    })
    .await;
    becomes(&second, &key, 200).await;
    let refused = becomes(&second, &key, 429).await;
    assert_eq!(refused.header("x-headworks-reason"), "quota");
    assert_eq!(refused.header("x-should-retry"), "false");
    becomes(&first, &key, 429).await;
    let expected = quota(&first, &key).await;
    assert_eq!(expected["tenant"], "search");
    assert_eq!(expected["key"]["id"], "one");
    assert_eq!(expected["limits"]["max_concurrent"], 3);
    assert_eq!(expected["tokens_per_day"]["remaining"], 0);
    assert_eq!(expected["tokens_per_month"]["limit"], Value::Null);
    eventually("both know the same", async || {
        (quota(&second, &key).await == quota(&first, &key).await).then_some(())
    })
    .await;
    // More is permitted at once, and the other limits stay.
    let tenant = json!({ "name": "search", "tokens_per_day": 1000 });
    admin(&first, "POST", "/admin/gateway/tenants", tenant).await;
    assert_eq!(ask(&first, &key).await.status, 200);
    assert_eq!(quota(&first, &key).await["limits"]["max_concurrent"], 3);
    for wrong in [
        json!({ "name": "search", "tokens_per_dya": 1 }),
        json!({ "weight": 2 }),
    ] {
        let (status, answer) = admin(&first, "POST", "/admin/gateway/tenants", wrong).await;
        assert_eq!(status, 400, "{answer}");
    }
    let cleared = json!({ "name": "search", "max_concurrent": null });
    admin(&first, "POST", "/admin/gateway/tenants", cleared).await;
    assert_eq!(
        quota(&first, &key).await["limits"]["max_concurrent"],
        Value::Null
    );
    becomes(&second, &key, 200).await;
}

/// Requests and output tokens in the database.
fn booked(server: &PostgresServer) -> (u64, u64) {
    let sql = "SELECT coalesce(sum(requests), 0), coalesce(sum(output_tokens), 0) \
               FROM headworks.gateway_usage";
    let answer = server.psql("fleet", sql);
    let (requests, tokens) = answer.split_once('|').unwrap();
    (requests.parse().unwrap(), tokens.parse().unwrap())
}

#[tokio::test]
async fn usage_is_exact_after_crashes_of_the_database() {
    let mut server = PostgresServer::start();
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let toml = upstream.toml("one", "[[gateway.key]]\nprefix = 'k'\ntenant = 't'\n");
    let toml = format!("scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n{toml}");
    let gateways = [
        start(&server, PATIENT, &toml).await,
        start(&server, PATIENT, &toml).await,
    ];
    let mut sent = 0;
    for _ in 0..4 {
        // Usage is written at any time of this, and a crash meets some of the writes.
        let until_crash = Instant::now();
        while until_crash.elapsed() < Duration::from_millis(1500) {
            for running in &gateways {
                assert_eq!(ask(running, "k").await.status, 200);
                sent += 1;
            }
        }
        server.crash();
        assert_eq!(
            ask(&gateways[0], "k").await.status,
            200,
            "no request needs the database"
        );
        sent += 1;
        server.start_again();
    }
    for running in gateways {
        let drained = running.shutdown.drain(Duration::from_secs(60)).await;
        assert!(drained.unfinished.is_empty(), "{drained:?}");
    }
    println!("{sent} requests");
    assert_eq!(booked(&server), (sent, 7 * sent));
}

#[tokio::test]
async fn usage_of_all_gateways_is_listed_at_each() {
    let server = PostgresServer::start();
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let toml = upstream.toml("one", "");
    let (first, second) = (
        start(&server, PATIENT, &toml).await,
        start(&server, PATIENT, &toml).await,
    );
    assert_eq!(ask(&first, "").await.status, 200);
    assert_eq!(ask(&second, "").await.status, 200);
    eventually("both are listed", async || {
        // Each writes its own usage before it lists that of all.
        let (_, listed) = admin(&first, "GET", "/admin/usage", Value::Null).await;
        (listed["usage"][0]["requests"] == 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_console_creates_rotates_and_revokes_keys() {
    let server = PostgresServer::start();
    let upstream = Upstream::answering(Duration::ZERO, 7).await;
    let running = start(&server, PATIENT, &upstream.toml("one", "")).await;
    let panel = running.gateway.key_panel();
    let act = async |action: &str, args: Value| {
        let known = panel.actions();
        let known = known.iter().find(|known| known.name == action).unwrap();
        let args = args.as_object().unwrap();
        known.check(args).unwrap();
        panel.act(action, args).await.map(|done| done.message)
    };
    let key_in = |message: &str| {
        let key = message.split_once(" is hw-").unwrap().1;
        format!("hw-{}", key.split_once(';').unwrap().0)
    };
    let added = json!({ "tenant": "t", "id": "one", "expires": "30d" });
    let first = key_in(&act("add-key", added).await.unwrap());
    let rotated = json!({ "key": "one", "id": "two", "keep_until": "1h" });
    let second = key_in(&act("rotate-key", rotated).await.unwrap());
    assert_eq!(ask(&running, &first).await.status, 200);
    assert_eq!(ask(&running, &second).await.status, 200);
    act("revoke-key", json!({ "key": "two" })).await.unwrap();
    assert_eq!(ask(&running, &second).await.status, 401);
    act("expire-key", json!({ "key": "one", "at": "2020-01-01" }))
        .await
        .unwrap();
    let expired = ask(&running, &first).await;
    assert_eq!(
        (expired.status, expired.header("x-headworks-reason")),
        (401, "key_expired")
    );
    let budget = json!({ "tenant": "t", "tokens_per_day": 5 });
    act("set-budget", budget).await.unwrap();
    let shown = serde_json::to_string(&panel.snapshot()).unwrap();
    assert!(
        shown.contains("\"one\"") && !shown.contains(&first),
        "{shown}"
    );
    assert!(act("revoke-key", json!({ "key": "absent" })).await.is_err());
}
