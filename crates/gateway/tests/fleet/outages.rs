//! The shared server is away.

use std::time::Duration;

use headworks_fleet::testing::{PostgresServer, ValkeyServer};

use crate::nodes::{WIDE, all_succeed, holding, send};
use crate::support::{CHAT, Upstream, chat, until};
use crate::{Server, join};

/// With "keep", every node keeps using its share: no request fails.
async fn nodes_that_are_cut_off_go_on_with_their_shares<S: Server>() {
    let (server, (upstream, permits)) = (S::start(), holding().await);
    let toml = format!("{WIDE}scheduler_max_concurrent = 10");
    let (one, two) = tokio::join!(
        join(&server, ("one", ""), &upstream, &toml),
        join(&server, ("two", ""), &upstream, &toml),
    );
    let mut sent = send(&one, 20);
    sent.extend(send(&two, 20));
    until("both work", || {
        let running = [&one, &two].map(|node| node.gateway.running_and_waiting().0);
        running.iter().all(|running| *running > 1) && upstream.now() == 10
    })
    .await;
    server.pause();
    permits.add_permits(40);
    all_succeed(sent).await;
    let mut sent = send(&one, 20);
    sent.extend(send(&two, 20));
    permits.add_permits(40);
    all_succeed(sent).await;
    assert!(one.gateway.is_ready() && two.gateway.is_ready());
    assert_eq!(upstream.peak(), 10);
    server.unpause();
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_cut_off_go_on_with_their_shares_over_postgres() {
    nodes_that_are_cut_off_go_on_with_their_shares::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_cut_off_go_on_with_their_shares_over_valkey() {
    nodes_that_are_cut_off_go_on_with_their_shares::<ValkeyServer>().await;
}

/// An outage longer than `forget_after`: nobody was silent, because nobody could be heard.
async fn an_outage_forgets_nobody<S: Server>() {
    let (server, (upstream, permits)) = (S::start(), holding().await);
    let toml = format!("{WIDE}scheduler_max_concurrent = 10");
    let soon = "forget_after = '2s'";
    let (one, two) = tokio::join!(
        join(&server, ("one", soon), &upstream, &toml),
        join(&server, ("two", soon), &upstream, &toml),
    );
    let mut sent = send(&one, 40);
    sent.extend(send(&two, 40));
    until("both work", || {
        let running = [&one, &two].map(|node| node.gateway.running_and_waiting().0);
        running.iter().all(|running| *running > 1) && upstream.now() == 10
    })
    .await;
    let tokens = |status: headworks_gateway::FleetStatus| -> Vec<String> {
        status.nodes.into_iter().map(|node| node.token).collect()
    };
    let before = tokens(crate::status(&server).await);
    server.pause();
    // Both must have missed more than `forget_after`.
    let began = std::time::Instant::now();
    until("it is away for five seconds", || {
        began.elapsed() > Duration::from_secs(5)
    })
    .await;
    server.unpause();
    for _ in 0..40 {
        permits.add_permits(2);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    all_succeed(sent).await;
    assert!(upstream.peak() <= 10, "{} at once", upstream.peak());
    assert_eq!(
        tokens(crate::status(&server).await),
        before,
        "nobody had to rejoin"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_forgets_nobody_over_postgres() {
    an_outage_forgets_nobody::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_forgets_nobody_over_valkey() {
    an_outage_forgets_nobody::<ValkeyServer>().await;
}

/// With "closed", a node that is cut off grants nothing until it is back. Waiting requests are
/// served then.
async fn a_node_that_is_cut_off_stops<S: Server>() {
    let server = S::start();
    let upstream = Upstream::answering(Duration::ZERO, 1).await;
    let closed = ("one", "on_loss = 'closed'");
    let one = join(&server, closed, &upstream, WIDE).await;
    all_succeed(send(&one, 5)).await;
    server.pause();
    until("it stops", || !one.gateway.is_ready()).await;
    assert_eq!(one.client().get("/ready", &[]).await.status, 503);
    assert_eq!(one.client().get("/healthz", &[]).await.status, 200);
    let before = upstream.count();
    let sent = send(&one, 5);
    until("they wait", || one.gateway.running_and_waiting() == (0, 5)).await;
    assert_eq!(upstream.count(), before);
    server.unpause();
    all_succeed(sent).await;
    until("it is ready again", || one.gateway.is_ready()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_stops_over_postgres() {
    a_node_that_is_cut_off_stops::<PostgresServer>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_cut_off_stops_over_valkey() {
    a_node_that_is_cut_off_stops::<ValkeyServer>().await;
}

/// PostgreSQL crashes and loses its unlogged tables: reports, allocations and the lease.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_of_the_server_costs_no_request() {
    let mut server = PostgresServer::start();
    let upstream = Upstream::answering(Duration::from_millis(5), 1).await;
    let toml = format!("{WIDE}scheduler_max_concurrent = 6");
    let (one, two) = tokio::join!(
        join(&server, ("one", ""), &upstream, &toml),
        join(&server, ("two", ""), &upstream, &toml),
    );
    let mut load = tokio::task::JoinSet::new();
    let (stop, stopped) = tokio::sync::watch::channel(false);
    for client in [one.client(), two.client()]
        .into_iter()
        .flat_map(|one| vec![one; 6])
    {
        let stopped = stopped.clone();
        load.spawn(async move {
            while !*stopped.borrow() {
                let answer = client.post(CHAT, &[], &chat(1, false)).await;
                assert_eq!(answer.status, 200, "{}", answer.body);
            }
        });
    }
    let served = upstream.count();
    until("it works", || upstream.count() > served + 100).await;
    server.crash();
    let served = upstream.count();
    until("it works on", || upstream.count() > served + 100).await;
    server.start_again();
    let status = crate::until_status(&server, "both are back", |status| {
        status.nodes.len() == 2 && status.allocations > 0
    });
    status.await;
    let served = upstream.count();
    until("it works on", || upstream.count() > served + 100).await;
    stop.send_replace(true);
    while let Some(ended) = load.join_next().await {
        ended.unwrap();
    }
    assert!(upstream.peak() <= 6, "{} at once", upstream.peak());
}
