//! Facts that one node finds out and all nodes know.

use headworks_fleet::testing::{PostgresServer, ValkeyServer};
use headworks_gateway::{FleetStatus, Gateway};
use headworks_service::metrics::Registry;
use serde_json::json;

use crate::nodes::{WIDE, all_succeed, holding, send};
use crate::support::{CHAT, Reaction, Upstream, chat, config, until};
use crate::{Server, join, until_status};

fn metrics(gateway: &Gateway) -> String {
    let registry = Registry::new();
    registry.add(gateway.collector());
    registry.add(gateway.fleet_collector().unwrap());
    registry.render()
}

/// The sum of the shares of all nodes.
fn sum(status: &FleetStatus, scope: &str, limit: &str) -> f64 {
    let shares = status.nodes.iter().flat_map(|node| &node.shares);
    let shares = shares.filter(|share| share.scope == scope && share.limit == limit);
    shares.map(|share| share.value).sum()
}

async fn a_suspension_is_known_to_all<S: Server>() {
    let server = S::start();
    let overloaded = "\r\nretry-after: 3000";
    let upstream = Upstream::start(move |_| Reaction::Status(429, overloaded)).await;
    let (one, two) = tokio::join!(
        join(&server, ("one", ""), &upstream, WIDE),
        join(&server, ("two", ""), &upstream, WIDE),
    );
    let suspended = "upstream=\"one\",state=\"suspended\"";
    assert!(!metrics(&two.gateway).contains(suspended));
    let answer = one.client().post(CHAT, &[], &chat(1, false)).await;
    assert_eq!(answer.status, 429);
    until("the other node knows", || {
        metrics(&two.gateway).contains(suspended)
    })
    .await;
    let answer = two.client().post(CHAT, &[], &chat(1, false)).await;
    assert_ne!(answer.status, 200);
    assert_eq!(
        upstream.count(),
        1,
        "the other node did not have to find out"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_is_known_to_all_over_postgres() {
    a_suspension_is_known_to_all::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_is_known_to_all_over_valkey() {
    a_suspension_is_known_to_all::<ValkeyServer>().await;
}

/// Both nodes see an overload; the rate of the fleet is cut by one of them, for both.
#[tokio::test(flavor = "multi_thread")]
async fn the_allocator_learns_limits_for_all() {
    let server = PostgresServer::start();
    let upstream = Upstream::start(|_| Reaction::Status(429, "\r\nretry-after: 1")).await;
    let learns = "max_rps = 100.0\nmin_rps = 1.0";
    let toml = format!("{WIDE}{}", upstream.toml("one", learns));
    let (one, two) = tokio::join!(
        crate::start(&server, ("one", ""), &toml),
        crate::start(&server, ("two", ""), &toml),
    );
    until_status(&server, "the whole rate is shared", |status| {
        (sum(status, "pool", "requests") - 100.0).abs() < 0.01
    })
    .await;
    let body = chat(1, false);
    let (one, two) = (one.client(), two.client());
    let answers = tokio::join!(one.post(CHAT, &[], &body), two.post(CHAT, &[], &body));
    assert_eq!((answers.0.status, answers.1.status), (429, 429));
    // Cut once or, if the two were more than a second apart, twice; never by each node.
    let status = until_status(&server, "the rate is cut", |status| {
        sum(status, "pool", "requests") < 71.0
    })
    .await;
    let rate = sum(&status, "pool", "requests");
    assert!(
        (rate - 70.0).abs() < 0.1 || (rate - 49.0).abs() < 0.1,
        "{rate}"
    );
}

/// A rule holds where the allocator's clock says so, whatever the clock of another node says. The
/// two nodes are twelve hours apart, by their zones.
#[tokio::test(flavor = "multi_thread")]
async fn time_rules_hold_by_the_clock_of_the_allocator() {
    let (server, (upstream, _permits)) = (PostgresServer::start(), holding().await);
    let now = jiff::Timestamp::now();
    let time = |hours: i64| {
        let at = now + jiff::SignedDuration::from_hours(hours);
        at.strftime("%H:%M").to_string()
    };
    let toml = |zone: &str| {
        format!(
            "{WIDE}scheduler_max_concurrent = 10\n[[gateway.rule]]\nname = 'now'\n\
             from = '{}'\nto = '{}'\nzone = '{zone}'\nmax_concurrent = 6\n",
            time(-5),
            time(5)
        )
    };
    let one = join(&server, ("one", ""), &upstream, &toml("UTC")).await;
    let slots = |status: &FleetStatus| sum(status, "gateway", "concurrent");
    until_status(&server, "the rule holds at the allocator", |status| {
        slots(status) == 6.0
    })
    .await;
    let two = join(&server, ("two", ""), &upstream, &toml("Etc/GMT-12")).await;
    let is_six = |status: &FleetStatus| status.nodes.len() == 2 && slots(status) == 6.0;
    until_status(&server, "both share six slots", is_six).await;
    // Its configured limit is what it would use without the fleet's rule.
    let shown = |gateway: &Gateway| {
        let settings = gateway.panel().settings();
        let slots = settings
            .into_iter()
            .find(|one| one.name == "max_concurrent");
        slots.and_then(|slots| slots.now).unwrap()
    };
    until("both use the rule", || {
        [&one, &two].map(|node| shown(&node.gateway)) == ["6", "6"]
    })
    .await;
}

/// The learned rates, as all nodes know them.
fn learned(server: &PostgresServer) -> String {
    let sql = "SELECT convert_from(body, 'UTF8') FROM headworks.fact WHERE key = 'learned/one'";
    server.psql("fleet", sql)
}

/// Waits until a node has exchanged that many times more.
async fn exchanges(node: &Gateway, count: u64) {
    let name = "headworks_fleet_exchanges_total{outcome=\"succeeded\"} ";
    let now = || {
        let shown = metrics(node);
        let value = shown
            .split(name)
            .nth(1)
            .and_then(|rest| rest.lines().next());
        value
            .and_then(|value| value.parse::<f64>().ok())
            .unwrap_or_default() as u64
    };
    let before = now();
    until("it exchanges", || now() >= before + count).await;
}

/// The report of a node that has died stays, and so does the overload in it.
#[tokio::test(flavor = "multi_thread")]
async fn an_overload_counts_once_though_its_node_dies() {
    let server = PostgresServer::start();
    let upstream = Upstream::start(|_| Reaction::Status(429, "\r\nretry-after: 1")).await;
    let toml = format!(
        "{WIDE}{}",
        upstream.toml("one", "max_rps = 100.0\nmin_rps = 1.0")
    );
    let two = crate::start(&server, ("two", ""), &toml).await;
    until("it allocates", || two.gateway.is_ready()).await;
    // A runtime of its own ends at once, without leaving the fleet.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (url, dies) = (server.url(), toml);
    let started = runtime.spawn(async move {
        crate::try_start(&url, PostgresServer::secrets(), ("one", ""), &dies).await
    });
    let one = started
        .await
        .unwrap()
        .unwrap_or_else(|error| panic!("{error}"));
    until("it has a share", || one.gateway.is_ready()).await;
    assert_eq!(
        one.client().post(CHAT, &[], &chat(1, false)).await.status,
        429
    );
    until("the rate is cut", || !learned(&server).is_empty()).await;
    runtime.shutdown_background();
    exchanges(&two.gateway, 40).await;
    assert_eq!(learned(&server), "[70.0,null]");
}

/// An exchange that fails does not lose what its report would have told.
#[tokio::test(flavor = "multi_thread")]
async fn an_overload_is_reported_after_an_outage() {
    let server = PostgresServer::start();
    let upstream = Upstream::start(|_| Reaction::Status(429, "\r\nretry-after: 1")).await;
    let toml = format!(
        "{WIDE}{}",
        upstream.toml("one", "max_rps = 100.0\nmin_rps = 1.0")
    );
    let one = crate::start(&server, ("one", ""), &toml).await;
    until("it has a share", || one.gateway.is_ready()).await;
    server.pause();
    assert_eq!(
        one.client().post(CHAT, &[], &chat(1, false)).await.status,
        429
    );
    let failed = "headworks_fleet_exchanges_total{outcome=\"failed\"} ";
    until("exchanges fail", || {
        let shown = metrics(&one.gateway);
        let value = shown
            .split(failed)
            .nth(1)
            .and_then(|rest| rest.lines().next());
        value.is_some_and(|value| !["0", "1"].contains(&value))
    })
    .await;
    server.unpause();
    exchanges(&one.gateway, 20).await;
    assert_eq!(learned(&server), "[70.0,null]");
}

/// Valkey restarts empty: what the nodes know is told again.
#[tokio::test(flavor = "multi_thread")]
async fn facts_outlive_a_server_that_restarts_empty() {
    let mut server = ValkeyServer::start();
    let overloaded = "\r\nretry-after: 3000";
    let upstream = Upstream::start(move |_| Reaction::Status(429, overloaded)).await;
    let toml = format!("{WIDE}scheduler_max_concurrent = 10");
    let (one, two) = tokio::join!(
        join(&server, ("one", ""), &upstream, &toml),
        join(&server, ("two", ""), &upstream, &toml),
    );
    let args = json!({ "max_concurrent": 6 });
    let change = one
        .gateway
        .panel()
        .act("change", args.as_object().unwrap())
        .await;
    change.unwrap();
    assert_eq!(
        one.client().post(CHAT, &[], &chat(1, false)).await.status,
        429
    );
    let suspended = "upstream=\"one\",state=\"suspended\"";
    let known = |node: &Gateway| {
        let settings = node.panel().settings();
        let slots = settings
            .into_iter()
            .find(|setting| setting.name == "max_concurrent");
        let is_changed = slots.and_then(|slots| slots.now).unwrap() == "6";
        (is_changed, metrics(node).contains(suspended))
    };
    until("both know", || {
        known(&one.gateway) == (true, true) && known(&two.gateway) == (true, true)
    })
    .await;
    server.crash_and_start();
    exchanges(&one.gateway, 20).await;
    exchanges(&two.gateway, 20).await;
    assert_eq!(
        [known(&one.gateway), known(&two.gateway)],
        [(true, true); 2]
    );
    // A node that joins now finds the facts in the server.
    let three = join(&server, ("three", ""), &upstream, &toml).await;
    until("a new one knows", || known(&three.gateway) == (true, true)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_in_the_console_holds_on_all_nodes_until_a_reload() {
    let (server, (upstream, permits)) = (PostgresServer::start(), holding().await);
    let toml = format!("{WIDE}scheduler_max_concurrent = 10");
    let (one, two) = tokio::join!(
        join(&server, ("one", ""), &upstream, &toml),
        join(&server, ("two", ""), &upstream, &toml),
    );
    until_status(&server, "ten slots", |status| {
        sum(status, "gateway", "concurrent") == 10.0
    })
    .await;
    let args = json!({ "max_concurrent": 6 });
    let changed = one
        .gateway
        .panel()
        .act("change", args.as_object().unwrap())
        .await;
    assert!(changed.is_ok(), "{changed:?}");
    let slots = |gateway: &Gateway| {
        let settings = gateway.panel().settings();
        let slots = settings
            .into_iter()
            .find(|setting| setting.name == "max_concurrent");
        slots.and_then(|slots| slots.now).unwrap()
    };
    until("both have the change", || {
        [&one, &two].map(|node| slots(&node.gateway)) == ["6", "6"]
    })
    .await;
    until_status(&server, "six slots", |status| {
        sum(status, "gateway", "concurrent") == 6.0
    })
    .await;
    let reloaded = config(&format!("{toml}\n{}", upstream.toml("one", "")));
    two.gateway.apply(reloaded).unwrap();
    until("the change is gone", || {
        [&one, &two].map(|node| slots(&node.gateway)) == ["10", "10"]
    })
    .await;
    let sent = send(&one, 10);
    permits.add_permits(10);
    all_succeed(sent).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn console_and_metrics_show_the_fleet() {
    let (server, (upstream, _permits)) = (PostgresServer::start(), holding().await);
    let toml = format!("{WIDE}scheduler_max_concurrent = 10");
    let one = join(&server, ("one", ""), &upstream, &toml).await;
    let panel = one.gateway.fleet_panel().unwrap();
    // The fleet is described every two seconds.
    until("it knows its share", || {
        metrics(&one.gateway).contains("headworks_fleet_share{")
    })
    .await;
    let shown = metrics(&one.gateway);
    for line in [
        "headworks_fleet_connected 1",
        "headworks_fleet_nodes 1",
        "headworks_fleet_ready 1",
        "headworks_fleet_allocator 1",
        "headworks_fleet_config_mismatches 0",
        "headworks_fleet_exchanges_total{outcome=\"succeeded\"}",
        "headworks_fleet_share{scope=\"gateway\",name=\"\",limit=\"concurrent\"}",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    let text = serde_json::to_string(&panel.snapshot()).unwrap();
    assert!(
        text.contains("this one, allocator") && text.contains("all requests"),
        "{text}"
    );
    let args = json!({ "node": "nonsense" });
    let refused = panel.act("forget", args.as_object().unwrap()).await;
    assert!(refused.is_err());
}
