//! Nodes that are connected share every limit.

use std::sync::Arc;
use std::time::Duration;

use headworks_fleet::testing::{PostgresServer, ValkeyServer};
use headworks_fleet::{JoinOptions, LimitExchange, Node, PostgresExchange, Report};
use headworks_gateway::FleetStatus;
use tokio::sync::Semaphore;

use crate::support::{CHAT, Reaction, Running, Upstream, chat, config, until};
use crate::{Server, join, share, status, until_status};

/// Requests that an upstream answers when it is told to.
pub(crate) async fn holding() -> (Upstream, Arc<Semaphore>) {
    let permits = Arc::new(Semaphore::new(0));
    let held = permits.clone();
    let upstream = Upstream::start(move |_| Reaction::When(held.clone(), 1)).await;
    (upstream, permits)
}

/// Sends requests to a node that all succeed in the end.
pub(crate) fn send(node: &Running, count: usize) -> Vec<tokio::task::JoinHandle<u16>> {
    let send = |_| {
        let client = node.client();
        tokio::spawn(async move { client.post(CHAT, &[], &chat(1, false)).await.status })
    };
    (0..count).map(send).collect()
}

pub(crate) async fn all_succeed(sent: Vec<tokio::task::JoinHandle<u16>>) {
    for one in sent {
        assert_eq!(one.await.unwrap(), 200);
    }
}

/// Limits that do not matter, beside those of a test.
pub(crate) const WIDE: &str = "scheduler_max_rps = 0\nscheduler_max_tokens_per_sec = 0\n\
                               scheduler_queue_timeout = '5m'\n";

async fn slots_are_shared<S: Server>() {
    let (server, (upstream, permits)) = (S::start(), holding().await);
    let toml = format!("{WIDE}scheduler_max_concurrent = 10");
    let (one, two) = tokio::join!(
        join(&server, ("one", ""), &upstream, &toml),
        join(&server, ("two", ""), &upstream, &toml),
    );
    // All demand is on one node, then on the other as well.
    let mut sent = send(&one, 30);
    until("one node has all slots", || upstream.now() == 10).await;
    sent.extend(send(&two, 30));
    permits.add_permits(60);
    all_succeed(sent).await;
    assert_eq!(upstream.count(), 60);
    assert_eq!(upstream.peak(), 10, "never more than the limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_shared_over_postgres() {
    slots_are_shared::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slots_are_shared_over_valkey() {
    slots_are_shared::<ValkeyServer>().await;
}

/// Tenants without limits or settings of their own have weights and demand, too.
#[tokio::test(flavor = "multi_thread")]
async fn two_busy_nodes_have_half_of_the_slots_each() {
    let (server, (upstream, permits)) = (PostgresServer::start(), holding().await);
    let toml = format!("{WIDE}scheduler_max_concurrent = 8");
    let (one, two) = tokio::join!(
        join(&server, ("one", ""), &upstream, &toml),
        join(&server, ("two", ""), &upstream, &toml),
    );
    let mut sent = send(&one, 100);
    sent.extend(send(&two, 100));
    until_status(&server, "half each", |status| {
        ["one", "two"].map(|node| share(status, node, "concurrent")) == [Some(4.0); 2]
    })
    .await;
    permits.add_permits(200);
    all_succeed(sent).await;
    assert_eq!(upstream.peak(), 8);
}

/// A report that nobody can read comes from a program of another version, or from a bug.
#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_a_report_is_ignored() {
    let (server, (upstream, permits)) = (PostgresServer::start(), holding().await);
    let toml = format!("{WIDE}scheduler_max_concurrent = 10");
    let one = join(&server, ("one", ""), &upstream, &toml).await;
    let client = server.client();
    let node = Node::join(&client, JoinOptions::new("odd")).await.unwrap();
    let mut exchange = PostgresExchange::new(&client, node.membership().token());
    for body in [
        &b""[..],
        b"\x09later",
        b"\x01\xff\xff\xff\xff",
        &[0xff; 4000],
    ] {
        let body = body.to_vec().into();
        let report = Report {
            body,
            ..Report::default()
        };
        exchange.tick(report).await.unwrap();
        let before = status(&server).await;
        let sent = send(&one, 20);
        permits.add_permits(20);
        all_succeed(sent).await;
        // Another epoch counts from the beginning.
        let position = |status: &FleetStatus| (status.epoch, status.allocations);
        until_status(&server, "it allocates on", |now| {
            position(now) > position(&before)
        })
        .await;
    }
    let odd = status(&server).await;
    let odd = odd.nodes.iter().find(|node| node.name == "odd").unwrap();
    assert!(odd.version.is_empty() && odd.shares.is_empty(), "{odd:?}");
}

/// A reload replaces the limits of the fleet, and at no time has a node the whole of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_reload_keeps_the_share_and_replaces_the_limits() {
    let (server, (upstream, permits)) = (PostgresServer::start(), holding().await);
    let toml = |slots: u32, more: &str| {
        format!(
            "{WIDE}scheduler_max_concurrent = {slots}\n{more}\n{}",
            upstream.toml("one", "")
        )
    };
    let ten = format!("{WIDE}scheduler_max_concurrent = 10");
    let (one, two) = tokio::join!(
        join(&server, ("one", ""), &upstream, &ten),
        join(&server, ("two", ""), &upstream, &ten),
    );
    let sent: Vec<_> = [&one, &two]
        .into_iter()
        .flat_map(|node| send(node, 40))
        .collect();
    until("all slots are used", || upstream.now() == 10).await;
    for node in [&one, &two] {
        node.gateway
            .apply(config(&toml(10, "default_output_tokens = 100")))
            .unwrap();
    }
    permits.add_permits(20);
    until("others run", || upstream.count() >= 30).await;
    assert_eq!(
        upstream.peak(),
        10,
        "a reload that changes nothing gives nothing away"
    );

    // One node alone has other limits: the fleet says so.
    one.gateway.apply(config(&toml(4, ""))).unwrap();
    let differs = until_status(&server, "a mismatch", |status| {
        status.differing().count() == 1
    });
    differs.await;
    two.gateway.apply(config(&toml(4, ""))).unwrap();
    until_status(&server, "no mismatch", |status| {
        status.differing().count() == 0
    })
    .await;
    until_status(&server, "the new limit", |status| {
        let shares = ["one", "two"].map(|node| share(status, node, "concurrent"));
        shares.into_iter().flatten().sum::<f64>() <= 10.0
    })
    .await;
    permits.add_permits(60);
    all_succeed(sent).await;
    until_status(&server, "four slots", |status| {
        let shares = ["one", "two"].map(|node| share(status, node, "concurrent"));
        shares.into_iter().flatten().sum::<f64>() == 4.0
    })
    .await;
}

/// Without scheduling there is nothing to share.
#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_does_not_schedule_is_ready_at_once() {
    // It has no keys, so that nothing but the limits could hold requests up.
    let server = ValkeyServer::start();
    server.pause();
    let upstream = Upstream::answering(Duration::ZERO, 1).await;
    let toml = format!("scheduler_enabled = false\n{}", upstream.toml("one", ""));
    let url = server.url();
    let starting = crate::try_start(&url, ValkeyServer::secrets(), ("one", ""), &toml);
    let one = starting.await.unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(one.client().get("/ready", &[]).await.status, 200);
    all_succeed(send(&one, 20)).await;
}
