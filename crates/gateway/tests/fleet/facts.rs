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
