//! Encrypted connections: only to servers that prove their name.

use headworks_fleet::postgres::{Postgres, Timeouts};
use headworks_fleet::testing::{Certificates, PostgresServer, ValkeyServer};
use headworks_fleet::{Error, LimitExchange, NodeToken, Report, Result, ValkeyExchange};

/// A file with the CA of a test.
fn ca_file(certificates: &Certificates) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &certificates.ca).unwrap();
    file
}

async fn begin(url: &str) -> Result<()> {
    let server = Postgres::new(url.parse()?, PostgresServer::secrets())?;
    let mut link = server.link("test", Timeouts::default());
    let transaction = link.begin().await?;
    let row = transaction
        .query_one(
            "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
            &[],
        )
        .await?;
    assert!(row.get::<_, bool>(0), "the server sees TLS");
    transaction.commit().await
}

#[tokio::test]
async fn postgresql_is_verified_by_name_and_certificate() {
    let ours = Certificates::new(&["localhost"]);
    let server = PostgresServer::start_with_tls(&ours);
    let (port, ca) = (server.port(), ca_file(&ours));
    let ca = ca.path().display();
    begin(&format!(
        "postgres://fleet@localhost:{port}/fleet?sslrootcert={ca}"
    ))
    .await
    .unwrap();

    // The certificate names `localhost`, not the address.
    let other_name = format!("postgres://fleet@127.0.0.1:{port}/fleet?sslrootcert={ca}");
    let error = begin(&other_name).await.unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error:?}");

    let others = ca_file(&Certificates::new(&["localhost"]));
    let other_ca = others.path().display();
    for parameters in [
        format!("sslrootcert={other_ca}"),
        "sslmode=verify-full".to_owned(),
    ] {
        let url = format!("postgres://fleet@localhost:{port}/fleet?{parameters}");
        let error = begin(&url).await.unwrap_err();
        assert!(matches!(error, Error::Rejected { .. }), "{error:?}");
        assert!(error.to_string().contains("certificate"), "{error}");
    }

    let plain = format!("postgres://fleet@localhost:{port}/fleet");
    let error = begin(&plain).await.unwrap_err();
    assert!(error.to_string().contains("no encryption"), "{error}");
    let absent = format!("postgres://fleet@localhost:{port}/fleet?sslrootcert=/absent.pem");
    assert!(matches!(begin(&absent).await, Err(Error::Certificates(_))));
}

#[tokio::test]
async fn a_server_without_tls_is_refused_if_tls_is_asked_for() {
    let server = PostgresServer::start();
    let url = format!("{}?sslmode=verify-full", server.url());
    let error = begin(&url).await.unwrap_err();
    assert!(error.to_string().contains("TLS"), "{error}");
}

#[tokio::test]
async fn valkey_is_verified_by_name_and_certificate() -> Result<()> {
    let ours = Certificates::new(&["localhost"]);
    let server = ValkeyServer::start_with_tls(&ours);
    let (port, file) = (server.port(), ca_file(&ours));
    let tick = async |host: &str, ca: &std::path::Path| {
        let url = format!("rediss://{host}:{port}/0?sslrootcert={}", ca.display());
        let (url, node) = (url.parse()?, NodeToken::random());
        let mut exchange = ValkeyExchange::new(url, &ValkeyServer::secrets(), "a", node)?;
        exchange.tick(Report::default()).await
    };
    assert!(tick("localhost", file.path()).await?.view.is_some());
    let error = tick("127.0.0.1", file.path()).await.unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error:?}");
    let others = ca_file(&Certificates::new(&["localhost"]));
    let error = tick("localhost", others.path()).await.unwrap_err();
    assert!(matches!(error, Error::Rejected { .. }), "{error:?}");
    Ok(())
}
