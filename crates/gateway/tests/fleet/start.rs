//! The start of a node: before its first share, and with a server that is wrong or away.

use std::time::Duration;

use headworks_fleet::testing::{PostgresServer, ValkeyServer};
use headworks_gateway::Secrets;

use crate::nodes::{WIDE, all_succeed, send};
use crate::support::{Upstream, until};
use crate::{Server, try_start};

/// Without PostgreSQL nobody knows the keys, so nothing is let in. A node that only shares limits
/// knows them, and lets requests wait for its share.
async fn a_server_that_is_away_is_tried_again<S: Server>(before: u16) {
    let server = S::start();
    let upstream = Upstream::answering(Duration::ZERO, 1).await;
    server.pause();
    let toml = format!("{WIDE}{}", upstream.toml("one", ""));
    let one = try_start(&server.url(), S::secrets(), ("one", ""), &toml).await;
    let one = one.unwrap_or_else(|error| panic!("{error}"));
    let probe = |path| {
        let client = one.client();
        async move { client.get(path, &[]).await.status }
    };
    for (path, status) in [
        ("/ready", 503),
        ("/readyz", 503),
        ("/healthz", 200),
        ("/health", 200),
    ] {
        assert_eq!(probe(path).await, status, "{path}");
    }
    let sent = send(&one, 10);
    if before == 200 {
        until("they wait", || one.gateway.running_and_waiting() == (0, 10)).await;
        assert_eq!(upstream.count(), 0);
        server.unpause();
    }
    for one in sent {
        assert_eq!(one.await.unwrap(), before);
    }
    server.unpause();
    until("it has a share", || one.gateway.is_ready()).await;
    assert_eq!(probe("/ready").await, 200);
    all_succeed(send(&one, 10)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_let_in_before_postgres_has_said_who_may() {
    a_server_that_is_away_is_tried_again::<PostgresServer>(503).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_the_first_share_from_valkey() {
    a_server_that_is_away_is_tried_again::<ValkeyServer>(200).await;
}

async fn fails(url: &str, secrets: Secrets, expected: &str) {
    let error = match try_start(url, secrets, ("one", ""), "").await {
        Ok(_) => panic!("it starts with {url}"),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(expected), "{error}");
}

fn wrong_password() -> Secrets {
    Secrets::from_variables(|name| {
        ["PGPASSWORD", "VALKEYCLI_AUTH"]
            .contains(&name)
            .then(|| "wrong".to_owned())
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_server_is_an_error_at_the_start() {
    let server = PostgresServer::start();
    let (url, secrets) = (server.url(), PostgresServer::secrets);
    fails(&url, wrong_password(), "rejects the connection").await;
    let absent = url.replace("/fleet", "/absent");
    fails(&absent, secrets(), "rejects the connection").await;
    server.psql("fleet", "CREATE TABLE public.orders (id int)");
    fails(&url, secrets(), "belongs to something else").await;
    server.psql("fleet", "DROP TABLE public.orders");
    // It can be used now, and then a newer program upgrades it.
    let one = try_start(&url, secrets(), ("one", ""), "")
        .await
        .map_err(|error| error.to_string());
    one.unwrap()
        .shutdown
        .drain(Duration::from_secs(60))
        .await
        .unfinished
        .clear();
    let newer = "UPDATE headworks.schema_version SET version = 99, min_compatible = 99";
    server.psql("fleet", newer);
    fails(&url, secrets(), "upgrade Headworks on this machine").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_of_valkey_is_an_error_at_the_start() {
    let server = <ValkeyServer as Server>::start();
    fails(&server.url(), wrong_password(), "rejects the connection").await;
}
