//! Everything behind PgBouncer in transaction mode.

use std::time::Duration;

use headworks_fleet::testing::{PgBouncer, PostgresServer, eventually};
use headworks_fleet::{
    Allocated, FactChange, JoinOptions, LimitExchange, Node, PostgresExchange, Publication, Report,
    Stamp, Timing,
};

#[tokio::test]
async fn nodes_and_exchange_work_behind_a_transaction_pooler() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server);
    let client = PostgresServer::client_of(&server.url_at(pooler.port()));
    let mut options = JoinOptions::new("node");
    options.timing = Timing::scaled(120.0);
    options.timing.heartbeat = Duration::from_millis(20);

    // More clients than server connections, so that sessions are shared.
    let mut nodes = Vec::new();
    for _ in 0..4 {
        let node = Node::join(&client, options.clone()).await.unwrap();
        let exchange = PostgresExchange::new(&client, node.membership().token());
        nodes.push((node, exchange));
    }
    for round in 1..=10 {
        for (_, exchange) in &mut nodes {
            let reply = exchange.tick(Report::default()).await.unwrap();
            let Some(view) = reply.view else { continue };
            let share = |report: &headworks_fleet::NodeReport| Allocated {
                node: report.node,
                body: vec![7; 5000].into(),
                raised: round % 2 == 0,
            };
            let publication = Publication {
                stamp: Stamp::new(view.epoch, round),
                allocations: view.reports.iter().map(share).collect(),
            };
            exchange.publish(publication).await.unwrap();
        }
    }
    let change = vec![FactChange::set("k", "v")];
    nodes[3].1.change_facts(change).await.unwrap();
    let reply = nodes[2].1.tick(Report::default()).await.unwrap();
    assert_eq!(reply.allocation.unwrap().stamp.number, 10);
    assert!(reply.facts.unwrap().get("k").is_some());

    let mut members = nodes[0].0.members();
    members
        .wait_for(|all| all.len() == 4 && all.iter().all(|member| member.beat > 5))
        .await
        .unwrap();
    // Nothing leaked into the shared sessions.
    let left = eventually("all transactions ended", async || {
        let sql = "SELECT count(*) FROM pg_stat_activity \
                   WHERE usename = 'fleet' AND state LIKE 'idle in%'";
        (server.psql("fleet", sql) == "0").then_some(())
    });
    left.await;
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted";
    eventually("no advisory lock stays", async || {
        (server.psql("fleet", locks) == "0").then_some(())
    })
    .await;
    for (node, mut exchange) in nodes {
        exchange.leave().await.unwrap();
        node.leave().await.unwrap();
    }
    assert_eq!(
        server.psql("fleet", "SELECT count(*) FROM headworks.node"),
        "0"
    );
}
