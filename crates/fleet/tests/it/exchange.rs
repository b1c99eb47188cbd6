//! The behaviour of every limit exchange.

use std::time::Duration;

use bytes::Bytes;
use headworks_fleet::testing::eventually;
use headworks_fleet::{Allocated, Error, FactChange, NodeToken, Publication, Report, Stamp};

use crate::stage::{Exchange, HASTY, PATIENT, PostgresStage, Stage, ValkeyStage, tick};

macro_rules! suite {
    ($($test:ident),* $(,)?) => {
        mod postgres {
            $(#[tokio::test]
            async fn $test() {
                super::$test(<super::PostgresStage as super::Stage>::start().await).await;
            })*
        }
        mod valkey {
            $(#[tokio::test]
            async fn $test() {
                super::$test(<super::ValkeyStage as super::Stage>::start().await).await;
            })*
        }
    };
}

suite![
    the_first_node_allocates_for_all,
    an_allocation_arrives_once_and_never_goes_back,
    publications_need_the_lease_the_epoch_and_a_new_number,
    a_silent_allocator_is_replaced_and_its_publications_refused,
    a_new_allocator_gets_the_grants_that_may_be_in_force,
    an_allocator_that_leaves_is_replaced_at_once,
    a_forgotten_node_has_to_rejoin,
    a_node_that_rejoins_replaces_its_old_token,
    a_new_epoch_exceeds_every_echoed_one,
    an_emptied_exchange_is_recognised,
    an_allocator_that_learned_nothing_leaves_the_exchange_emptied,
    facts_arrive_once_and_expire_by_the_allocators_clock,
    many_nodes_have_one_allocator_per_epoch,
    a_paused_server_costs_no_more_than_the_timeout,
    large_bodies_are_refused_before_they_are_sent,
];

fn report(body: &str) -> Report {
    echo(Stamp::default(), body)
}

fn echo(echoed: Stamp, body: &str) -> Report {
    Report {
        echoed,
        body: Bytes::copy_from_slice(body.as_bytes()),
    }
}

fn publication(epoch: u64, number: u64, allocations: &[(NodeToken, &str, bool)]) -> Publication {
    Publication {
        stamp: Stamp::new(epoch, number),
        allocations: allocations
            .iter()
            .map(|(node, body, raised)| Allocated {
                node: *node,
                body: Bytes::copy_from_slice(body.as_bytes()),
                raised: *raised,
            })
            .collect(),
    }
}

fn is_lost<T>(result: &Result<T, Error>) -> bool {
    matches!(result, Err(Error::LeaseLost { .. }))
}

/// The epoch of a node that takes the lease now.
async fn lead(exchange: &mut Exchange, report: Report) -> u64 {
    tick(exchange, report).await.view.expect("the lease").epoch
}

async fn the_first_node_allocates_for_all(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    let first = tick(&mut a, report("demand of a")).await;
    let view = first.view.expect("the first node takes the free lease");
    assert_eq!((view.epoch, view.number, view.emptied), (1, 0, true));
    assert_eq!(view.grants.expect("grants come with a new epoch"), []);

    let second = tick(&mut b, echo(Stamp::new(0, 7), "demand of b")).await;
    assert!(second.view.is_none() && second.allocation.is_none());
    assert_eq!(second.allocator, Some(a.node()));

    let view = tick(&mut a, report("more")).await.view.expect("the lease");
    assert!(view.grants.is_none(), "the allocator knows its own grants");
    let mut reports = view.reports;
    reports.sort_by(|x, y| x.name.cmp(&y.name));
    let seen: Vec<_> = reports
        .iter()
        .map(|r| (r.node, r.name.as_str(), r.echoed, &r.body[..]))
        .collect();
    let expected = [
        (a.node(), "a", Stamp::new(0, 0), &b"more"[..]),
        (b.node(), "b", Stamp::new(0, 7), &b"demand of b"[..]),
    ];
    // A Valkey exchange keeps the names itself, PostgreSQL the registry; both know them.
    assert_eq!(seen, expected);
    let status = b.status().await.unwrap();
    assert_eq!((status.epoch, status.allocator), (1, Some(a.node())));
    assert_eq!(status.reports.len(), 2);
}

async fn an_allocation_arrives_once_and_never_goes_back(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    let epoch = lead(&mut a, report("")).await;
    tick(&mut b, report("")).await;
    let node = b.node();
    let body: Vec<u8> = (0..=255).cycle().take(20_000).collect();
    let mut first = publication(epoch, 3, &[(node, "", true)]);
    first.allocations[0].body = body.clone().into();
    a.publish(first).await.unwrap();

    let got = tick(&mut b, report(""))
        .await
        .allocation
        .expect("published");
    assert_eq!(got.stamp, Stamp::new(epoch, 3));
    assert_eq!(got.body, body);
    assert!(tick(&mut b, echo(got.stamp, "")).await.allocation.is_none());
    // A node that knows a later epoch ignores this one.
    let ahead = echo(Stamp::new(epoch + 5, 0), "");
    assert!(tick(&mut b, ahead).await.allocation.is_none());
}

async fn publications_need_the_lease_the_epoch_and_a_new_number(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    let node = b.node();
    let share = [(node, "x", true)];
    assert!(
        is_lost(&a.publish(publication(1, 1, &share)).await),
        "no epoch yet"
    );
    let epoch = lead(&mut a, report("")).await;
    tick(&mut b, report("")).await;
    assert!(is_lost(&b.publish(publication(epoch, 1, &share)).await));
    assert!(is_lost(&a.publish(publication(epoch + 1, 1, &share)).await));
    assert!(is_lost(&a.publish(publication(epoch, 0, &share)).await));
    a.publish(publication(epoch, 2, &share)).await.unwrap();
    assert!(is_lost(&a.publish(publication(epoch, 2, &share)).await));
    assert!(is_lost(&a.publish(publication(epoch, 1, &share)).await));
    a.publish(publication(epoch, 3, &[])).await.unwrap();
    // Nodes that nobody knows are skipped.
    let stranger = [(NodeToken::random(), "x", true)];
    a.publish(publication(epoch, 4, &stranger)).await.unwrap();
    assert_eq!(tick(&mut a, report("")).await.view.unwrap().number, 4);
    let got = tick(&mut b, report("")).await.allocation.unwrap();
    assert_eq!(got.stamp.number, 2);
}

/// Ticks until `exchange` holds the lease.
async fn take_over(exchange: &mut Exchange) -> headworks_fleet::AllocatorView {
    let exchange = tokio::sync::Mutex::new(exchange);
    eventually("a silent allocator is replaced", async || {
        tick(*exchange.lock().await, report("")).await.view
    })
    .await
}

async fn a_silent_allocator_is_replaced_and_its_publications_refused(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", HASTY).await;
    let old = lead(&mut a, report("")).await;
    a.publish(publication(old, 1, &[])).await.unwrap();
    let view = take_over(&mut b).await;
    assert!(view.epoch > old);
    assert!(!view.emptied, "nothing was lost");
    assert_eq!(view.reports.len(), 2, "the report of the silent node stays");
    let late = publication(old, 2, &[(b.node(), "late", true)]);
    assert!(is_lost(&a.publish(late).await));
    let reply = tick(&mut a, report("")).await;
    assert!(reply.view.is_none());
    assert_eq!(reply.allocator, Some(b.node()));
    b.publish(publication(view.epoch, 1, &[(a.node(), "new", false)]))
        .await
        .unwrap();
    let got = tick(&mut a, report("")).await.allocation.unwrap();
    assert_eq!(got.stamp, Stamp::new(view.epoch, 1));
}

async fn a_new_allocator_gets_the_grants_that_may_be_in_force(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", HASTY).await;
    let epoch = lead(&mut a, report("")).await;
    tick(&mut b, report("")).await;
    let node = b.node();
    for (number, body, raised) in [
        (1, "10", true),
        (2, "20", true),
        (3, "5", false),
        (4, "30", true),
    ] {
        let share = [(node, body, raised)];
        a.publish(publication(epoch, number, &share)).await.unwrap();
    }
    // The node has applied the decrease, and not yet the last raise. Raising again tidies up.
    tick(&mut b, echo(Stamp::new(epoch, 3), "5")).await;
    a.publish(publication(epoch, 5, &[(node, "40", true)]))
        .await
        .unwrap();
    let view = take_over(&mut b).await;
    let mut grants = view.grants.expect("grants come with a new epoch");
    grants.sort_by_key(|grant| grant.stamp);
    let seen: Vec<_> = grants
        .iter()
        .map(|grant| (grant.node, grant.stamp.number, &grant.body[..]))
        .collect();
    // The second bounds what the node had when it echoed the third; the first is superseded.
    let expected = [
        (node, 2, &b"20"[..]),
        (node, 4, &b"30"[..]),
        (node, 5, &b"40"[..]),
    ];
    assert_eq!(seen, expected);
}

async fn an_allocator_that_leaves_is_replaced_at_once(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    let epoch = lead(&mut a, report("")).await;
    tick(&mut b, report("")).await;
    a.publish(publication(epoch, 1, &[(a.node(), "all", true)]))
        .await
        .unwrap();
    a.leave().await.unwrap();
    let view = tick(&mut b, report(""))
        .await
        .view
        .expect("the lease is free");
    assert!(view.epoch > epoch && !view.emptied);
    assert_eq!(
        view.reports.len(),
        1,
        "the share of the node that left is free"
    );
    assert_eq!(view.grants.unwrap(), []);
}

async fn a_forgotten_node_has_to_rejoin(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    lead(&mut a, report("")).await;
    tick(&mut b, report("")).await;
    a.forget(b.node()).await.unwrap();
    assert!(matches!(b.tick(report("")).await, Err(Error::Fenced)));
    let reports = tick(&mut a, report("")).await.view.unwrap().reports;
    assert_eq!(reports.len(), 1);
    b.rejoin(stage.token("b").await);
    tick(&mut b, report("")).await;
    let reports = tick(&mut a, report("")).await.view.unwrap().reports;
    assert_eq!(reports.len(), 2);
}

async fn a_node_that_rejoins_replaces_its_old_token(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    let epoch = lead(&mut a, report("")).await;
    tick(&mut b, report("")).await;
    let old = b.node();
    a.publish(publication(epoch, 1, &[(old, "10", true)]))
        .await
        .unwrap();
    b.rejoin(stage.token("b").await);
    let reports = tick(&mut a, report("")).await.view.unwrap().reports;
    assert!(
        reports.iter().any(|r| r.node == old),
        "the share is kept until the first report"
    );
    let reply = tick(&mut b, echo(Stamp::new(epoch, 1), "10")).await;
    assert!(reply.allocation.is_none());
    let reports = tick(&mut a, report("")).await.view.unwrap().reports;
    assert!(reports.iter().all(|r| r.node != old));
    assert!(reports.iter().any(|r| r.node == b.node()));
}

async fn a_new_epoch_exceeds_every_echoed_one(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    let epoch = lead(&mut a, report("")).await;
    // The server lost what came after this: a restored backup, or a promoted standby.
    tick(&mut b, echo(Stamp::new(1000, 4), "")).await;
    assert!(1000 > epoch);
    let view = tick(&mut a, report(""))
        .await
        .view
        .expect("the lease stays");
    assert!(view.epoch > 1000);
    assert!(view.emptied, "what was granted since is not known");
    assert!(view.grants.is_some());
    assert!(is_lost(&a.publish(publication(epoch, 1, &[])).await));
    let share = [(b.node(), "x", false)];
    a.publish(publication(view.epoch, 1, &share)).await.unwrap();
    let got = tick(&mut b, echo(Stamp::new(1000, 4), "")).await.allocation;
    assert_eq!(got.unwrap().stamp, Stamp::new(view.epoch, 1));
}

async fn an_emptied_exchange_is_recognised<S: Stage>(mut stage: S) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    let epoch = lead(&mut a, report("")).await;
    tick(&mut b, report("")).await;
    a.publish(publication(epoch, 1, &[(b.node(), "10", true)]))
        .await
        .unwrap();
    let got = tick(&mut b, report("")).await.allocation.unwrap();
    stage.crash();
    // Computed from reports that are lost.
    let stale = [(b.node(), "20", true)];
    let allocator = tokio::sync::Mutex::new(&mut a);
    let refused = eventually("the server is back", async || {
        let stale = publication(epoch, 2, &stale);
        let published = allocator.lock().await.publish(stale).await;
        match published {
            Err(error) if error.is_temporary() => None,
            other => Some(other),
        }
    });
    assert!(is_lost(&refused.await));

    let reply = tick(&mut b, echo(got.stamp, "10")).await;
    let view = reply.view.expect("nobody holds the lease");
    assert!(view.emptied && view.epoch > epoch);
    assert_eq!(view.reports.len(), 1, "the other node has not reported yet");
    assert_eq!(view.grants.unwrap().len(), usize::from(S::DURABLE));
    assert!(tick(&mut a, report("")).await.view.is_none());
    assert_eq!(
        tick(&mut b, report("")).await.view.unwrap().reports.len(),
        2
    );
}

async fn an_allocator_that_learned_nothing_leaves_the_exchange_emptied(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    let first = tick(&mut a, report("")).await.view.unwrap();
    assert!(first.emptied);
    a.leave().await.unwrap();
    let second = tick(&mut b, report("")).await.view.unwrap();
    assert!(second.emptied);
    b.publish(publication(second.epoch, 1, &[])).await.unwrap();
    b.leave().await.unwrap();
    let mut c = stage.join("c", PATIENT).await;
    assert!(!tick(&mut c, report("")).await.view.unwrap().emptied);
}

async fn facts_arrive_once_and_expire_by_the_allocators_clock(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let mut b = stage.join("b", PATIENT).await;
    lead(&mut a, report("")).await;
    tick(&mut b, report("")).await;
    let minute = Duration::from_secs(60);
    b.change_facts(vec![
        FactChange::set("override/limit", "7"),
        FactChange::set("suspension/x", "busy").lasting(minute),
        FactChange::set("suspension/y", "gone").lasting(Duration::from_millis(1)),
    ])
    .await
    .unwrap();
    let facts = tick(&mut b, report("")).await.facts.expect("they changed");
    assert_eq!(&facts.get("override/limit").unwrap().body[..], b"7");
    assert_eq!(facts.get("override/limit").unwrap().remaining, None);
    // The allocator has not ticked since, so its clock stands.
    assert_eq!(facts.get("suspension/x").unwrap().remaining, Some(minute));
    assert!(tick(&mut b, report("")).await.facts.is_none());

    // The allocator's time passes, and with it the short fact.
    let allocator = tokio::sync::Mutex::new(&mut a);
    eventually("the fleet clock moves", async || {
        let mut a = allocator.lock().await;
        tick(&mut a, report("")).await;
        let mut fresh = stage.join("fresh", PATIENT).await;
        let facts = tick(&mut fresh, report("")).await.facts.unwrap();
        let left = facts.get("suspension/x").unwrap().remaining.unwrap();
        (left < minute && facts.get("suspension/y").is_none()).then_some(())
    })
    .await;

    b.change_facts(vec![
        FactChange::remove("override/limit"),
        FactChange::set("suspension/x", "again").lasting(minute),
    ])
    .await
    .unwrap();
    let facts = tick(&mut a, report("")).await.facts.expect("they changed");
    let keys: Vec<_> = facts.facts.iter().map(|fact| fact.key.as_str()).collect();
    assert_eq!(keys, ["suspension/x"]);
    assert_eq!(&facts.facts[0].body[..], b"again");
}

async fn many_nodes_have_one_allocator_per_epoch(stage: impl Stage) {
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};
    let holders: Arc<Mutex<HashMap<u64, NodeToken>>> = Arc::default();
    let stamps: Arc<Mutex<Vec<Stamp>>> = Arc::default();
    let mut tasks = Vec::new();
    for index in 0..6 {
        let mut exchange = stage.join(&format!("n{index}"), HASTY).await;
        let (holders, stamps) = (Arc::clone(&holders), Arc::clone(&stamps));
        tasks.push(tokio::spawn(async move {
            let mut seen = Stamp::default();
            for round in 0..30 {
                let reply = tick(&mut exchange, echo(seen, "x")).await;
                if let Some(allocation) = reply.allocation {
                    assert!(allocation.stamp > seen);
                    seen = allocation.stamp;
                }
                let Some(view) = reply.view else { continue };
                let holder = *holders
                    .lock()
                    .unwrap()
                    .entry(view.epoch)
                    .or_insert(exchange.node());
                assert_eq!(
                    holder,
                    exchange.node(),
                    "two allocators in epoch {}",
                    view.epoch
                );
                let stamp = Stamp::new(view.epoch, view.number + 1);
                let shares = view
                    .reports
                    .iter()
                    .map(|r| (r.node, "share", round % 3 == 0));
                let shares: Vec<_> = shares.collect();
                let publication = publication(stamp.epoch, stamp.number, &shares);
                match exchange.publish(publication).await {
                    Ok(()) => stamps.lock().unwrap().push(stamp),
                    Err(error) => assert!(
                        matches!(error, Error::LeaseLost { .. }) || error.is_temporary(),
                        "{error}"
                    ),
                }
                // Leaves the others in the lurch.
                if round == 20 {
                    exchange.leave().await.unwrap();
                    return;
                }
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let mut stamps = std::mem::take(&mut *stamps.lock().unwrap());
    let published = stamps.len();
    stamps.sort();
    stamps.dedup();
    assert_eq!(stamps.len(), published, "no stamp is published twice");
    assert!(published > 20, "{published}");
}

async fn a_paused_server_costs_no_more_than_the_timeout(stage: impl Stage) {
    let mut a = stage.join_impatient("a").await;
    let epoch = lead(&mut a, report("")).await;
    stage.pause();
    for _ in 0..2 {
        let ended = tokio::time::timeout(Duration::from_secs(30), a.tick(report(""))).await;
        let error = ended.expect("the timeout holds").unwrap_err();
        assert!(error.is_temporary(), "{error}");
    }
    stage.unpause();
    assert_eq!(
        lead(&mut a, report("")).await,
        epoch,
        "the lease is still its own"
    );
}

async fn large_bodies_are_refused_before_they_are_sent(stage: impl Stage) {
    let mut a = stage.join("a", PATIENT).await;
    let large = Report {
        body: vec![0; 300 << 10].into(),
        ..Report::default()
    };
    assert!(matches!(a.tick(large).await, Err(Error::TooLarge { .. })));
    let fact = FactChange::set("k", vec![0; 65 << 10]);
    let refused = a.change_facts(vec![fact]).await;
    assert!(matches!(refused, Err(Error::TooLarge { .. })));
    let far = echo(Stamp::new(1 << 60, 0), "");
    assert!(a.tick(far).await.is_err());
    assert!(tick(&mut a, report("")).await.view.is_some());
}
