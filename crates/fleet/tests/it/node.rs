//! Nodes: heartbeats, fencing, loss.

use std::time::Duration;

use bytes::Bytes;
use headworks_fleet::postgres::Postgres;
use headworks_fleet::testing::{PostgresServer, eventually};
use headworks_fleet::{
    BootInstant, JoinCause, JoinOptions, LimitExchange, Liveness, Member, Node, PostgresExchange,
    Registry, Report, Timing,
};

async fn join(server: &Postgres, name: &str, timing: Timing) -> Node {
    let mut options = JoinOptions::new(name);
    options.timing = timing;
    Node::join(server, options).await.unwrap()
}

/// Heartbeats every 50 ms, lost after 300 ms of silence: for nodes that are to be lost.
fn hasty() -> Timing {
    Timing::scaled(0.01)
}

/// Heartbeats every 50 ms, lost after an hour: for nodes that are not.
fn steady() -> Timing {
    let mut timing = Timing::scaled(120.0);
    timing.heartbeat = Duration::from_millis(50);
    timing
}

#[tokio::test]
async fn nodes_see_each_other_and_leave() {
    let server = PostgresServer::start();
    let client = server.client();
    let a = join(&client, "a", steady()).await;
    let b = join(&client, "b", steady()).await;
    assert_ne!(a.membership().token(), b.membership().token());
    assert_eq!(a.membership().cause(), JoinCause::Started);
    b.set_info(Bytes::from_static(b"fingerprint")).unwrap();
    let mut members = a.members();
    members
        .wait_for(|all| {
            let beats = all.iter().filter(|member| member.beat > 2).count();
            beats == 2 && all[1].name == "b" && &all[1].info[..] == b"fingerprint"
        })
        .await
        .unwrap();
    let seen = members.borrow().clone();
    let program = headworks_fleet::tables::STEPS.last().unwrap().version;
    let is_well = |member: &Member| !member.lost && member.program == program;
    assert!(seen.iter().all(is_well));

    let old = b.membership();
    b.leave().await.unwrap();
    assert_eq!(old.liveness(), Liveness::Abort);
    members.wait_for(|all| all.len() == 1).await.unwrap();
    assert!(a.membership().check().is_ok());
}

#[tokio::test]
async fn a_node_that_ends_without_leaving_is_lost_and_can_be_expelled() {
    let server = PostgresServer::start();
    let client = server.client();
    let a = join(&client, "a", hasty()).await;
    let b = join(&client, "b", hasty()).await;
    let token = b.membership().token();
    drop(b);
    let mut members = a.members();
    let lost = members
        .wait_for(|all| {
            all.iter()
                .any(|member| member.token == token && member.lost)
        })
        .await
        .unwrap()
        .iter()
        .find(|member| member.token == token)
        .cloned()
        .unwrap();
    let mut registry = Registry::new(&client);
    // A heartbeat since then keeps it.
    let set = format!(
        "UPDATE headworks.node SET beat = beat + 1 WHERE name = '{}'",
        lost.name
    );
    server.psql("fleet", &set);
    assert!(!registry.expel(&lost).await.unwrap());
    let mut current = lost.clone();
    current.beat += 1;
    assert!(registry.expel(&current).await.unwrap());
    let left = registry.list().await.unwrap();
    assert!(left.iter().all(|member| member.token != token));
    // A node that is not lost is not expelled.
    assert!(!registry.expel(&left[0]).await.unwrap());
}

#[tokio::test]
async fn a_forgotten_node_rejoins_under_a_new_token() {
    let server = PostgresServer::start();
    let client = server.client();
    let node = join(&client, "a", steady()).await;
    let old = node.membership();
    let mut exchange = PostgresExchange::new(&client, old.token());
    exchange.tick(Report::default()).await.unwrap();
    let mut memberships = node.memberships();
    let mut registry = Registry::new(&client);
    assert!(registry.forget(old.token()).await.unwrap());
    assert!(!registry.forget(old.token()).await.unwrap());
    let new = memberships
        .wait_for(|membership| membership.token() != old.token())
        .await
        .unwrap()
        .clone();
    assert_eq!(new.cause(), JoinCause::Fenced);
    assert!(new.check().is_ok());
    assert!(old.check().is_err(), "the old token is of no use");
    old.aborted().await;
    let report = exchange.tick(Report::default()).await;
    assert!(matches!(report, Err(headworks_fleet::Error::Fenced)));
    exchange.rejoin(new.token());
    exchange.tick(Report::default()).await.unwrap();
}

#[tokio::test]
async fn a_node_without_its_database_stops_and_resumes_under_its_token() {
    let server = PostgresServer::start();
    let mut options = JoinOptions::new("a");
    options.timing = hasty();
    options.timeouts.connect = Duration::from_millis(200);
    options.timeouts = options.timeouts.with_statement(Duration::from_millis(500));
    options.timeouts.answer = Duration::from_millis(600);
    let node = Node::join(&server.client(), options).await.unwrap();
    let membership = node.membership();
    server.pause();
    membership.aborted().await;
    assert!(membership.check().is_err());
    server.unpause();
    eventually("heartbeats succeed again", async || membership.check().ok()).await;
    // Nobody removed it, so it still is the same node.
    assert_eq!(node.membership().token(), membership.token());
}

#[tokio::test]
async fn nobody_is_lost_because_the_database_was_away() {
    let mut server = PostgresServer::start();
    let client = server.client();
    let timing = Timing::scaled(0.2);
    let a = join(&client, "a", timing).await;
    let b = join(&client, "b", timing).await;
    let mut members = a.members();
    members.wait_for(|all| all.len() == 2).await.unwrap();
    server.crash();
    // It never sends a heartbeat again. Still, only time during which the other one looks counts.
    let ended = b.membership().token();
    drop(b);
    let crashed = BootInstant::now();
    eventually("the outage lasts longer than `lost_after`", async || {
        let away = BootInstant::now().since(crashed);
        (away > timing.lost_after).then_some(())
    })
    .await;
    let me = a.membership().token();
    let beat_of = |all: &[Member]| all.iter().find(|m| m.token == me).map(|m| m.beat);
    let before = beat_of(&members.borrow());
    server.start_again();
    let after = members.wait_for(|all| beat_of(all) > before).await.unwrap();
    let other = after.iter().find(|member| member.token == ended).unwrap();
    assert!(!other.lost, "{other:?}");
    assert_eq!(after.len(), 2);
}
