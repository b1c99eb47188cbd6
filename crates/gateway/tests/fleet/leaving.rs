//! Nodes that leave or are removed give their share back.

use std::time::{Duration, Instant};

use headworks_fleet::testing::{PostgresServer, ValkeyServer};

use crate::nodes::{WIDE, all_succeed, holding, send};
use crate::support::until;
use crate::{Server, forget, join, share, until_status};

/// A node that stays away keeps its share for longer than any test runs.
const LONG: &str = "forget_after = '1h'";

async fn leaving_gives_the_share_back_at_once<S: Server>() {
    let (server, (upstream, permits)) = (S::start(), holding().await);
    let toml = format!("{WIDE}scheduler_max_concurrent = 10");
    let (one, two) = tokio::join!(
        join(&server, ("one", LONG), &upstream, &toml),
        join(&server, ("two", LONG), &upstream, &toml),
    );
    let of_one = send(&one, 5);
    let mut of_two = send(&two, 40);
    until("both work", || {
        upstream.now() == 10 && one.gateway.running_and_waiting().0 > 0
    })
    .await;
    let (running, _) = one.gateway.running_and_waiting();
    // Running requests go on, waiting ones are told to come back.
    one.shutdown.request();
    until("the rest is rejected", || {
        one.gateway.running_and_waiting() == (running, 0)
    })
    .await;
    let at_most = 10 - running as usize;
    until_status(&server, "the slots that are free move", |status| {
        share(status, "two", "concurrent") == Some(at_most as f64)
    })
    .await;
    assert_eq!(upstream.peak(), 10);
    permits.add_permits(45);
    let left = one.shutdown.drain(Duration::from_secs(60)).await;
    assert!(left.unfinished.is_empty(), "{left:?}");
    until_status(&server, "one node is left, with everything", |status| {
        status.nodes.len() == 1 && share(status, "two", "concurrent") == Some(10.0)
    })
    .await;
    of_two.extend(send(&two, 20));
    permits.add_permits(20);
    all_succeed(of_two).await;
    let served = futures_util::future::join_all(of_one).await;
    let served = served
        .into_iter()
        .filter(|one| *one.as_ref().unwrap() == 200)
        .count();
    assert_eq!(served as u64, running, "requests that ran were served");
    assert_eq!(upstream.peak(), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_gives_the_share_back_at_once_over_postgres() {
    leaving_gives_the_share_back_at_once::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaving_gives_the_share_back_at_once_over_valkey() {
    leaving_gives_the_share_back_at_once::<ValkeyServer>().await;
}

/// An operator removes a node that is alive: it stops, joins anew, and the limit holds.
async fn a_node_that_was_forgotten_joins_anew<S: Server>() {
    let (server, (upstream, permits)) = (S::start(), holding().await);
    let toml = format!("{WIDE}scheduler_max_concurrent = 10");
    let (one, two) = tokio::join!(
        join(&server, ("one", LONG), &upstream, &toml),
        join(&server, ("two", LONG), &upstream, &toml),
    );
    let before = until_status(&server, "two nodes", |status| status.nodes.len() == 2).await;
    let token = |status: &headworks_gateway::FleetStatus| {
        let node = status.nodes.iter().find(|node| node.name == "one");
        node.map(|node| node.token.clone())
    };
    forget(&server, "one").await;
    let began = Instant::now();
    until_status(&server, "it is back under another token", |status| {
        token(status).is_some_and(|now| Some(now) != token(&before))
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(60));
    let mut sent = send(&one, 20);
    sent.extend(send(&two, 20));
    permits.add_permits(40);
    all_succeed(sent).await;
    assert!(upstream.peak() <= 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_forgotten_joins_anew_over_postgres() {
    a_node_that_was_forgotten_joins_anew::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_forgotten_joins_anew_over_valkey() {
    a_node_that_was_forgotten_joins_anew::<ValkeyServer>().await;
}
