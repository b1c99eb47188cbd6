//! A connection to the server that returns after it was lost.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, ErrorKind, RedisConnectionInfo, RedisError, ScriptInvocation};
use redis::{ServerErrorKind, Value};
use rustls::ClientConfig;
use tokio::task::JoinHandle;

use crate::backoff::Backoff;
use crate::error::{Error, Result};
use crate::net::{self, Stream};
use crate::secrets::{Secret, Secrets};
use crate::url::ValkeyUrl;
use crate::within::within;

/// The connection of one exchange.
pub(super) struct ValkeyLink {
    url: ValkeyUrl,
    password: Option<Secret>,
    tls: Option<Arc<ClientConfig>>,
    pub(super) timeout: Duration,
    connection: Option<Connection>,
    backoff: Backoff,
}

struct Connection {
    client: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl ValkeyLink {
    pub(super) fn new(url: ValkeyUrl, secrets: &Secrets) -> Result<ValkeyLink> {
        Ok(ValkeyLink {
            tls: net::tls_config(url.tls())?,
            password: secrets.valkey_password(&url),
            url,
            timeout: Duration::from_secs(3),
            connection: None,
            backoff: Backoff::default(),
        })
    }

    /// Runs a script. It is not repeated after a failure, because it may have run. A call without
    /// an answer costs the connection.
    pub(super) async fn call(&mut self, call: &ScriptInvocation<'_>) -> Result<Value> {
        let (server, timeout) = (self.name(), self.timeout);
        let mut connection = match self.connection.take() {
            Some(open) if !open.driver.is_finished() => open,
            _ => self.connect().await?,
        };
        let answer = call.invoke_async(&mut connection.client);
        let answer = tokio::time::timeout(timeout, answer).await;
        let answer = answer.map_err(|_| Error::Timeout {
            server: server.clone(),
            after: timeout,
        })?;
        // A connection that is not put back is closed.
        match answer {
            Ok(value) => {
                self.connection = Some(connection);
                Ok(value)
            }
            Err(error) => {
                if !error.is_io_error() {
                    self.connection = Some(connection);
                }
                Err(convert(server, &error))
            }
        }
    }

    /// Runs a script that returns one word.
    pub(super) async fn call_for_word(&mut self, call: &ScriptInvocation<'_>) -> Result<String> {
        let answer = self.call(call).await?;
        redis::from_redis_value(answer).map_err(|_| self.malformed())
    }

    async fn connect(&mut self) -> Result<Connection> {
        self.backoff.wait().await;
        let opened = within(&self.name(), self.timeout, self.open()).await;
        match opened {
            Ok(_) => self.backoff.succeeded(),
            Err(_) => self.backoff.failed(),
        }
        opened
    }

    async fn open(&self) -> Result<Connection> {
        let server = self.name();
        let stream = Stream::connect(self.url.host(), self.tls.clone())
            .await
            .map_err(|error| net::connect_error(&server, &error))?;
        let mut info = RedisConnectionInfo::default()
            .set_db(i64::from(self.url.database))
            .set_skip_set_lib_name();
        if let Some(user) = self.url.user() {
            info = info.set_username(user);
        }
        if let Some(password) = &self.password {
            info = info.set_password(password.expose());
        }
        // Timeouts are ours: they cover the whole call.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let failed = |error: RedisError| convert(server.clone(), &error);
        let (client, driver) = MultiplexedConnection::new_with_config(&info, stream, config)
            .await
            .map_err(failed)?;
        let driver = tokio::spawn(driver);
        let mut connection = Connection { client, driver };
        // Without a password that is needed, a script would fail with an error about its length.
        let ping = redis::cmd("PING");
        let pong: Result<String, RedisError> = ping.query_async(&mut connection.client).await;
        pong.map_err(failed)?;
        Ok(connection)
    }

    pub(super) fn malformed(&self) -> Error {
        Error::Failed {
            server: self.name(),
            cause: "unexpected answer to a script".to_owned(),
        }
    }

    fn name(&self) -> String {
        format!("Valkey at {}", self.url.host())
    }
}

fn convert(server: String, error: &RedisError) -> Error {
    let cause = error.to_string();
    let denied = ["NOAUTH", "WRONGPASS", "NOPERM"];
    if error.kind() == ErrorKind::AuthenticationFailed
        || error.code().is_some_and(|code| denied.contains(&code))
    {
        return Error::Rejected { server, cause };
    }
    let waits = [
        ServerErrorKind::BusyLoading,
        ServerErrorKind::MasterDown,
        ServerErrorKind::ReadOnly,
        ServerErrorKind::ClusterDown,
        ServerErrorKind::TryAgain,
    ];
    match error.kind() {
        ErrorKind::Server(kind) if waits.contains(&kind) => Error::Unreachable { server, cause },
        ErrorKind::Io => Error::Unreachable { server, cause },
        _ => Error::Failed { server, cause },
    }
}

impl std::fmt::Debug for ValkeyLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ValkeyLink")
            .field("server", &self.name())
            .finish_non_exhaustive()
    }
}
