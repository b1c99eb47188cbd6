//! A standby is promoted: another history of the same database.

use std::time::Duration;

use headworks_fleet::testing::{PostgresServer, eventually};
use headworks_fleet::{
    JoinCause, JoinOptions, LimitExchange, Node, PostgresExchange, Registry, Report, Timing,
};

fn options(name: &str) -> JoinOptions {
    let mut options = JoinOptions::new(name);
    options.timing = Timing::scaled(120.0);
    options.timing.heartbeat = Duration::from_millis(50);
    options
}

#[tokio::test]
async fn nodes_follow_a_promoted_standby_under_new_tokens() {
    let mut primary = PostgresServer::start();
    let first = Node::join(&primary.client(), options("before"))
        .await
        .unwrap();
    let standby = primary.start_standby();
    // A client that knows both servers uses the one that is not a standby.
    let both = format!(
        "postgres://fleet@127.0.0.1:{},127.0.0.1:{}/fleet",
        standby.port(),
        primary.port()
    );
    let client = PostgresServer::client_of(&both);
    let node = Node::join(&client, options("a")).await.unwrap();
    let old = node.membership();
    let mut exchange = PostgresExchange::new(&client, old.token());
    let view = exchange
        .tick(Report::default())
        .await
        .unwrap()
        .view
        .unwrap();
    let caught_up = "SELECT count(*) FROM headworks.node";
    eventually("the standby has both nodes", async || {
        (standby.psql("fleet", caught_up) == "2").then_some(())
    })
    .await;

    primary.crash();
    standby.promote();
    let mut memberships = node.memberships();
    let new = memberships
        .wait_for(|membership| membership.token() != old.token())
        .await
        .unwrap()
        .clone();
    assert_eq!(new.cause(), JoinCause::DatabaseChanged);
    assert_eq!(new.identity().system, old.identity().system);
    assert_eq!(old.identity().timeline, "00000001");
    assert_eq!(new.identity().timeline, "00000002");
    assert!(old.check().is_err());

    // The exchange is empty there, and begins a later epoch.
    exchange.rejoin(new.token());
    let exchange = tokio::sync::Mutex::new(exchange);
    let after = eventually("the exchange goes on", async || {
        exchange.lock().await.tick(Report::default()).await.ok()
    })
    .await
    .view
    .unwrap();
    assert!(after.emptied && after.epoch > view.epoch);
    let names: Vec<_> = Registry::new(&client).list().await.unwrap();
    let names: Vec<_> = names.iter().map(|member| member.name.as_str()).collect();
    assert_eq!(names, ["a", "before"], "one row per node");
    drop(first);
}

#[tokio::test]
async fn a_pooler_that_switches_servers_is_noticed() {
    use headworks_fleet::testing::PgBouncer;
    let mut primary = PostgresServer::start();
    let pooler = PgBouncer::start(&primary);
    let standby = primary.start_standby();
    let client = PostgresServer::client_of(&primary.url_at(pooler.port()));
    let node = Node::join(&client, options("a")).await.unwrap();
    let old = node.membership();
    eventually("the standby has the node", async || {
        let count = "SELECT count(*) FROM pg_class WHERE relname = 'raised_grant'";
        (standby.psql("fleet", count) == "1").then_some(())
    })
    .await;
    primary.crash();
    standby.promote();
    pooler.switch_to(&standby);
    let mut memberships = node.memberships();
    let new = memberships.wait_for(|membership| membership.token() != old.token());
    let cause = new.await.unwrap().cause();
    assert_eq!(cause, JoinCause::DatabaseChanged);
}
