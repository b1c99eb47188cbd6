//! One behaviour suite for all usage stores.

use std::sync::Arc;

use headworks_fleet::NodeToken;
use headworks_fleet::testing::{PgBouncer, PostgresServer};
use headworks_gateway::{
    Booked, PostgresUsageStore, SqliteUsageStore, UsageBatch, UsageRow, UsageStore,
};

type Store = Arc<dyn UsageStore>;

const DAY: u32 = 20_261_130;

fn row(day: u32, tenant: &str, model: &str, tokens: u64) -> UsageRow {
    let mut row = UsageRow::default();
    (row.day, row.tenant, row.model) = (day, tenant.into(), model.into());
    (row.requests, row.refused) = (1, 2);
    (row.input_tokens, row.output_tokens) = (tokens, 10 * tokens);
    row
}

fn batch(process: NodeToken, seq: u64, rows: &[UsageRow]) -> UsageBatch {
    UsageBatch::new(process, seq, rows.iter().cloned())
}

async fn book(store: &Store, batch: &UsageBatch, tenants: &[&str]) -> Booked {
    let tenants: Vec<String> = tenants.iter().map(ToString::to_string).collect();
    store.book(batch, &tenants, DAY).await.unwrap()
}

fn totals(booked: &Booked) -> Vec<(&str, u32, u64)> {
    let each = booked.totals.iter();
    let mut all: Vec<_> = each
        .map(|total| (&*total.tenant, total.period, total.tokens))
        .collect();
    all.sort_unstable();
    all
}

async fn rows_add_up_over_batches_and_processes(store: Store) {
    let (one, other) = (NodeToken::random(), NodeToken::random());
    book(
        &store,
        &batch(one, 1, &[row(DAY, "a", "m", 1), row(DAY, "b", "m", 5)]),
        &[],
    )
    .await;
    book(&store, &batch(one, 2, &[row(DAY, "a", "m", 2)]), &[]).await;
    book(
        &store,
        &batch(other, 1, &[row(DAY, "a", "m", 4), row(DAY - 1, "a", "", 0)]),
        &[],
    )
    .await;
    let rows = store.rows(0, u32::MAX).await.unwrap();
    let brief: Vec<_> = rows
        .iter()
        .map(|row| {
            (
                row.day,
                &*row.tenant,
                &*row.model,
                row.requests,
                row.refused,
            )
        })
        .collect();
    let expected = [
        (DAY - 1, "a", "", 1, 2),
        (DAY, "a", "m", 3, 6),
        (DAY, "b", "m", 1, 2),
    ];
    assert_eq!(brief, expected);
    assert_eq!((rows[1].input_tokens, rows[1].output_tokens), (7, 70));
    assert_eq!(store.rows(DAY, DAY).await.unwrap(), rows[1..]);
    assert_eq!(store.rows(0, 1).await.unwrap(), []);
}

async fn a_repeated_batch_is_booked_once(store: Store) {
    let process = NodeToken::random();
    let first = batch(process, 1, &[row(DAY, "a", "m", 1)]);
    let second = batch(process, 2, &[row(DAY, "a", "m", 2)]);
    for sent in [&first, &first, &second, &first, &second] {
        book(&store, sent, &["a"]).await;
    }
    assert_eq!(store.rows(DAY, DAY).await.unwrap()[0].requests, 2);
    let booked = book(&store, &second, &["a"]).await;
    assert_eq!(totals(&booked), [("a", DAY / 100, 33), ("a", DAY, 33)]);
    // The same number of another process is another batch.
    book(
        &store,
        &batch(NodeToken::random(), 1, &[row(DAY, "a", "m", 0)]),
        &[],
    )
    .await;
    assert_eq!(store.rows(DAY, DAY).await.unwrap()[0].requests, 3);
}

async fn totals_are_of_the_day_and_the_month_and_of_those_asked_for(store: Store) {
    let process = NodeToken::random();
    let rows = [
        row(DAY, "a", "m", 1),
        row(DAY, "a", "n", 2),
        row(DAY - 5, "a", "m", 4),
        row(20_261_031, "a", "m", 100),
        row(DAY - 1, "b", "m", 8),
        row(DAY, "other", "m", 16),
    ];
    let booked = book(&store, &batch(process, 1, &rows), &["a", "b", "absent"]).await;
    let expected = [("a", 202_611, 77), ("a", DAY, 33), ("b", 202_611, 88)];
    assert_eq!(totals(&booked), expected);
    assert_eq!(
        totals(&book(&store, &batch(process, 2, &[]), &[]).await),
        []
    );
    let all = store.totals(DAY).await.unwrap();
    assert_eq!(all.len(), 5);
}

async fn a_batch_without_rows_changes_nothing(store: Store) {
    let process = NodeToken::random();
    let booked = book(&store, &batch(process, 1, &[]), &[]).await;
    assert_eq!(booked.nodes, 1);
    book(&store, &batch(process, 1, &[row(DAY, "a", "m", 1)]), &[]).await;
    book(&store, &batch(process, 2, &[]), &[]).await;
    assert_eq!(store.rows(0, u32::MAX).await.unwrap().len(), 1);
}

async fn names_that_cannot_be_stored_are_changed(store: Store) {
    let long = "x".repeat(100_000);
    let rows = [row(DAY, "a\0b", "m\0", 1), row(DAY, "c", &long, 1)];
    book(&store, &batch(NodeToken::random(), 1, &rows), &[]).await;
    let rows = store.rows(DAY, DAY).await.unwrap();
    assert_eq!(
        (&*rows[0].tenant, &*rows[0].model),
        ("a\u{fffd}b", "m\u{fffd}")
    );
    assert_eq!(rows[1].model.len(), 500);
}

/// Many processes book the same tenants in both orders: none fails, and nothing is lost.
async fn concurrent_batches_lose_nothing(stores: &[Store]) {
    let mut tasks = tokio::task::JoinSet::new();
    for store in stores.iter().cycle().take(8) {
        let store = store.clone();
        tasks.spawn(async move {
            let process = NodeToken::random();
            for seq in 1..=10 {
                let mut rows: Vec<UsageRow> = (0..20)
                    .map(|number| row(DAY, &format!("{number}"), "m", 1))
                    .collect();
                if seq % 2 == 0 {
                    rows.reverse();
                }
                book(&store, &batch(process, seq, &rows), &[]).await;
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.unwrap();
    }
    let rows = stores[0].rows(DAY, DAY).await.unwrap();
    assert_eq!(rows.len(), 20);
    assert!(
        rows.iter()
            .all(|row| (row.requests, row.input_tokens) == (80, 80))
    );
}

/// Runs every behaviour on an empty store of its own.
async fn suite(empty: impl Fn() -> Store) {
    rows_add_up_over_batches_and_processes(empty()).await;
    a_repeated_batch_is_booked_once(empty()).await;
    totals_are_of_the_day_and_the_month_and_of_those_asked_for(empty()).await;
    a_batch_without_rows_changes_nothing(empty()).await;
    names_that_cannot_be_stored_are_changed(empty()).await;
}

#[tokio::test]
async fn sqlite_passes_the_suite() {
    let empty = || -> Store { Arc::new(SqliteUsageStore::open(None).unwrap()) };
    suite(empty).await;
    concurrent_batches_lose_nothing(&[empty()]).await;
}

fn empty_database(server: &PostgresServer, port: u16) -> Store {
    server.psql(
        "fleet",
        "DO $$ BEGIN IF to_regclass('headworks.gateway_usage') IS NOT NULL THEN TRUNCATE \
         headworks.gateway_usage, headworks.gateway_usage_total, headworks.gateway_usage_batch; \
         END IF; END $$",
    );
    let client = PostgresServer::client_of(&server.url_at(port));
    Arc::new(PostgresUsageStore::new(&client))
}

// A connection of an earlier store ends on another thread, while this one waits for psql.
#[tokio::test(flavor = "multi_thread")]
async fn postgresql_passes_the_suite() {
    let server = PostgresServer::start();
    suite(|| empty_database(&server, server.port())).await;
    let pooler = PgBouncer::start(&server);
    suite(|| empty_database(&server, pooler.port())).await;
    empty_database(&server, server.port());
    let store = || -> Store { Arc::new(PostgresUsageStore::new(&server.client())) };
    concurrent_batches_lose_nothing(&[store(), store(), store(), store()]).await;
    let booked = book(&store(), &batch(NodeToken::random(), 1, &[]), &[]).await;
    assert!(
        booked.nodes >= 2,
        "the others were seen just now: {}",
        booked.nodes
    );
}
