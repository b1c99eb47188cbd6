//! The database that a fleet shares, and how to connect to it.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConfig;
use tokio::task::JoinHandle;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Config, NoTls};

use super::convert;
use super::identity::DatabaseIdentity;
use super::link::Link;
use super::tls::Handshake;
use crate::error::{Error, Result};
use crate::net;
use crate::secrets::Secrets;
use crate::url::{Host, PostgresUrl};
use crate::within::within;

/// How long the steps of a transaction may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Timeouts {
    /// TCP, TLS and authentication of one server. Default 5 s.
    pub connect: Duration,
    /// One statement, enforced by the server. Default 5 s.
    pub statement: Duration,
    /// Waiting for a lock, enforced by the server. Default 2 s.
    pub lock: Duration,
    /// A transaction between two statements, enforced by the server. Default 10 s.
    pub idle: Duration,
    /// The answer to one statement, enforced by the client: a server that is stopped enforces
    /// nothing. Default 6 s.
    pub answer: Duration,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        Timeouts {
            connect: Duration::from_secs(5),
            statement: Duration::from_secs(5),
            lock: Duration::from_secs(2),
            idle: Duration::from_secs(10),
            answer: Duration::from_secs(6),
        }
    }
}

impl Timeouts {
    /// Timeouts with this limit for a statement and a little more for its answer.
    #[must_use]
    pub fn with_statement(self, statement: Duration) -> Timeouts {
        Timeouts {
            statement,
            answer: statement + Duration::from_secs(1),
            ..self
        }
    }
}

/// A PostgreSQL database, and what is needed to connect to it. Clones are cheap.
#[derive(Clone, Debug)]
pub struct Postgres {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    url: PostgresUrl,
    user: String,
    secrets: Secrets,
    tls: Option<Arc<ClientConfig>>,
    schema: String,
}

/// A connection to a primary, with the task that drives it.
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) identity: DatabaseIdentity,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A driver that waits for a stopped server would otherwise stay for minutes.
        self.driver.abort();
    }
}

impl Postgres {
    /// Prepares connections to `url`. Nothing is connected yet.
    ///
    /// # Errors
    /// When no user is known or the certificates cannot be used.
    pub fn new(url: PostgresUrl, secrets: Secrets) -> Result<Postgres> {
        let tls = net::tls_config(url.tls())?;
        let user = secrets.postgres_user(&url)?;
        let schema = "headworks".to_owned();
        Ok(Postgres {
            inner: Arc::new(Inner {
                url,
                user,
                secrets,
                tls,
                schema,
            }),
        })
    }

    /// The address.
    #[must_use]
    pub fn url(&self) -> &PostgresUrl {
        &self.inner.url
    }

    /// The name of the schema that has the fleet's tables. It needs no quotes.
    #[must_use]
    pub fn schema(&self) -> &str {
        &self.inner.schema
    }

    /// A connection that opens itself when it is first used, and again when it was lost. `purpose`
    /// is shown in `pg_stat_activity`.
    #[must_use]
    pub fn link(&self, purpose: &'static str, timeouts: Timeouts) -> Link {
        Link::new(self.clone(), purpose, timeouts)
    }

    /// The server and database as messages name them.
    pub(crate) fn name(&self) -> String {
        let hosts: Vec<String> = self.inner.url.hosts.iter().map(Host::to_string).collect();
        let database = self.inner.url.database();
        format!("PostgreSQL database `{database}` at {}", hosts.join(","))
    }

    /// Connects to the first server that is not a standby.
    pub(super) async fn connect(&self, purpose: &str, timeouts: Timeouts) -> Result<Connection> {
        let mut failed = None;
        for host in self.inner.url.hosts() {
            let attempt = self.connect_host(host, purpose);
            match within(&self.name(), timeouts.connect, attempt).await {
                Ok(connection) => return Ok(connection),
                Err(error) => failed = Some(error),
            }
        }
        Err(failed.unwrap_or_else(|| Error::Url("no host".to_owned())))
    }

    async fn connect_host(&self, host: &Host, purpose: &str) -> Result<Connection> {
        let server = self.name();
        let config = self.config(host, purpose)?;
        let stream = net::connect_tcp(host, self.inner.tls.is_none())
            .await
            .map_err(|error| net::connect_error(&server, &error))?;
        let failed = |error: tokio_postgres::Error| convert::error(&server, &error);
        let (client, driver) = match &self.inner.tls {
            None => {
                let (client, connection) =
                    config.connect_raw(stream, NoTls).await.map_err(failed)?;
                (client, tokio::spawn(drive(connection)))
            }
            Some(tls) => {
                let handshake = Handshake {
                    config: Arc::clone(tls),
                    host: host.name.clone(),
                };
                let (client, connection) = config
                    .connect_raw(stream, handshake)
                    .await
                    .map_err(failed)?;
                (client, tokio::spawn(drive(connection)))
            }
        };
        match DatabaseIdentity::read(&client).await.map_err(failed)? {
            Some(identity) => Ok(Connection {
                client,
                identity,
                driver,
            }),
            None => {
                driver.abort();
                Err(Error::Unreachable {
                    server,
                    cause: "the server is a standby".to_owned(),
                })
            }
        }
    }

    /// Reads the password anew, so that a changed one is used by the next connection.
    fn config(&self, host: &Host, purpose: &str) -> Result<Config> {
        let Inner {
            url, user, secrets, ..
        } = &*self.inner;
        let mut config = Config::new();
        config
            .user(user)
            .dbname(url.database())
            .application_name(format!("headworks {purpose}"))
            .ssl_mode(match self.inner.tls {
                Some(_) => SslMode::Require,
                None => SslMode::Disable,
            });
        if let Some(password) = secrets.postgres_password(url, host, user)? {
            config.password(password.expose());
        }
        Ok(config)
    }
}

async fn drive<C>(connection: C)
where
    C: Future<Output = Result<(), tokio_postgres::Error>>,
{
    // The statement that waits for an answer gets an error of its own.
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a database connection ended");
    }
}
