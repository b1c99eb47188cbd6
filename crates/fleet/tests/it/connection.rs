//! Connections: wrong addresses and passwords, servers that restart, stop and are of no use.

use std::time::Duration;

use headworks_fleet::postgres::{Postgres, Timeouts, Type};
use headworks_fleet::testing::{PostgresServer, ValkeyServer, eventually};
use headworks_fleet::{Error, LimitExchange, NodeToken, Report, Secrets, ValkeyExchange};

async fn failure(url: &str, secrets: Secrets) -> Error {
    let server = Postgres::new(url.parse().unwrap(), secrets).unwrap();
    let mut link = server.link("test", Timeouts::default());
    let begun = link.begin().await;
    match begun {
        Ok(_) => panic!("{url} works"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn errors_name_the_server_and_never_the_password() {
    let server = PostgresServer::start();
    let port = server.port();
    let wrong = || Secrets::from_variables(|name| (name == "PGPASSWORD").then(|| "hunter2".into()));
    let none = || Secrets::from_variables(|_| None);
    let url = server.url();
    for (error, expected) in [
        (
            failure(&url, wrong()).await,
            "password authentication failed",
        ),
        (failure(&url, none()).await, "password missing"),
        (
            failure(
                &format!("postgres://fleet@127.0.0.1:{port}/absent"),
                PostgresServer::secrets(),
            )
            .await,
            "database \"absent\" does not exist",
        ),
    ] {
        assert!(matches!(error, Error::Rejected { .. }), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(expected) && text.contains("127.0.0.1"),
            "{text}"
        );
        assert!(!format!("{error:?} {text}").contains("hunter2"));
        assert!(!error.is_temporary());
    }
    drop(server);
    let error = failure(&url, wrong()).await;
    assert!(matches!(error, Error::Unreachable { .. }), "{error:?}");
    assert!(error.is_temporary());
}

#[tokio::test]
async fn a_server_that_is_not_postgresql_is_an_error_in_time() {
    let valkey = ValkeyServer::start();
    let url = format!("postgres://u@127.0.0.1:{}/d", valkey.port());
    let server = Postgres::new(url.parse().unwrap(), Secrets::from_variables(|_| None)).unwrap();
    let mut timeouts = Timeouts::default();
    timeouts.connect = Duration::from_secs(1);
    let mut link = server.link("test", timeouts);
    assert!(link.begin().await.is_err());
}

#[tokio::test]
async fn a_wrong_password_for_valkey_is_rejected() {
    let server = ValkeyServer::start();
    let tick = async |secrets: &Secrets| {
        let url = server.url().parse().unwrap();
        let mut exchange = ValkeyExchange::new(url, secrets, "a", NodeToken::random()).unwrap();
        exchange.tick(Report::default()).await
    };
    let wrong = Secrets::from_variables(|name| (name == "REDISCLI_AUTH").then(|| "hunter2".into()));
    for secrets in [wrong, Secrets::from_variables(|_| None)] {
        let error = tick(&secrets).await.unwrap_err();
        assert!(matches!(error, Error::Rejected { .. }), "{error:?}");
        assert!(!format!("{error:?} {error}").contains("hunter2"));
    }
    assert!(tick(&ValkeyServer::secrets()).await.is_ok());
}

#[tokio::test]
async fn every_transaction_sets_its_timeouts_and_leaves_none() {
    let server = PostgresServer::start();
    let mut link = server.client().link("test", Timeouts::default());
    let transaction = link.begin().await.unwrap();
    for (setting, expected) in [
        ("statement_timeout", "5s"),
        ("lock_timeout", "2s"),
        ("idle_in_transaction_session_timeout", "10s"),
    ] {
        let row = transaction
            .query_one(&format!("SHOW {setting}"), &[])
            .await
            .unwrap();
        assert_eq!(row.get::<_, &str>(0), expected);
    }
    transaction.commit().await.unwrap();
    let shown = server.psql(
        "fleet",
        "SELECT application_name FROM pg_stat_activity \
                                      WHERE application_name LIKE 'headworks%'",
    );
    assert_eq!(shown, "headworks test");
}

#[tokio::test]
async fn a_dropped_transaction_is_rolled_back_and_its_connection_goes_on() {
    let server = PostgresServer::start();
    server.psql("fleet", "CREATE TABLE t (x int)");
    let mut link = server.client().link("test", Timeouts::default());
    let insert = "INSERT INTO public.t SELECT unnest($1::int[])";
    let rows: &[i32] = &[1, 2, 3];
    let parameters = [(&rows as _, Type::INT4_ARRAY)];
    let first = link.begin().await.unwrap();
    assert_eq!(first.execute(insert, &parameters).await.unwrap(), 3);
    drop(first);
    let second = link.begin().await.unwrap();
    // A statement that fails ends the transaction, not the connection.
    assert!(matches!(
        second.query("SELECT 1/0", &[]).await,
        Err(Error::Failed { .. })
    ));
    drop(second);
    let third = link.begin().await.unwrap();
    assert_eq!(third.execute(insert, &parameters).await.unwrap(), 3);
    third.commit().await.unwrap();
    assert_eq!(server.psql("fleet", "SELECT count(*) FROM t"), "3");
    let sessions =
        "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'headworks test'";
    assert_eq!(server.psql("fleet", sessions), "1");
}

#[tokio::test]
async fn a_restarted_server_is_used_again() {
    let mut server = PostgresServer::start();
    let link = tokio::sync::Mutex::new(server.client().link("test", Timeouts::default()));
    let works = async || {
        let mut link = link.lock().await;
        let transaction = link.begin().await.ok()?;
        transaction.query("SELECT 1", &[]).await.ok()?;
        transaction.commit().await.ok()
    };
    assert!(works().await.is_some());
    server.restart();
    eventually("the connection returns after a restart", works).await;
    server.crash();
    assert!(works().await.is_none());
    server.start_again();
    eventually("the connection returns after a crash", works).await;
}

#[tokio::test]
async fn a_paused_server_and_a_held_lock_cost_no_more_than_their_timeouts() {
    let server = PostgresServer::start();
    server.psql("fleet", "CREATE TABLE t (x int)");
    let mut timeouts = Timeouts::default().with_statement(Duration::from_secs(2));
    timeouts.lock = Duration::from_millis(100);
    timeouts.connect = Duration::from_millis(500);
    let client = server.client();
    let mut holder = client.link("holder", Timeouts::default());
    let held = holder.begin().await.unwrap();
    held.batch("LOCK TABLE public.t").await.unwrap();
    let mut link = client.link("test", timeouts);
    let waiting = link.begin().await.unwrap();
    let error = waiting
        .query("SELECT FROM public.t", &[])
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Conflict { .. }), "{error:?}");
    assert!(error.to_string().contains("lock timeout"), "{error}");
    drop(waiting);

    let open = link.begin().await.unwrap();
    server.pause();
    let error = open.query("SELECT 1", &[]).await.unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    drop(open);
    let error = link.begin().await.map(drop).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    server.unpause();
}
