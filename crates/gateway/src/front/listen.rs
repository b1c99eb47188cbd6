//! Connections: HTTP/1.1 and HTTP/2 on one port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::repoll::Repoll;
use super::route;
use crate::error::Error;
use crate::shared::Shared;

/// How long a client may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How often an HTTP/2 connection is asked whether it is still there.
const PING: Duration = Duration::from_secs(20);
/// How long accepting rests when the system has no sockets left.
const REST: Duration = Duration::from_millis(50);

/// An address that was taken.
pub(crate) struct Listener {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Listener {
    pub(crate) fn bind(address: SocketAddr) -> Result<Listener, Error> {
        let taken = |source| Error::Listen { address, source };
        let listener = std::net::TcpListener::bind(address).map_err(taken)?;
        listener.set_nonblocking(true).map_err(taken)?;
        let listener = TcpListener::from_std(listener).map_err(taken)?;
        let address = listener.local_addr().map_err(taken)?;
        Ok(Listener { listener, address })
    }

    /// The next connection, once there is a place for it.
    async fn accept(
        &self,
        places: &Arc<Semaphore>,
    ) -> std::io::Result<(TcpStream, OwnedSemaphorePermit)> {
        let place = places.clone().acquire_owned().await;
        let (stream, _) = self.listener.accept().await?;
        Ok((stream, place.expect("places are never closed")))
    }
}

/// Serves until it is told to stop, and then until the last answer has ended.
pub(crate) async fn serve(listener: Listener, shared: Arc<Shared>, stop: CancellationToken) {
    let builder = builder();
    let graceful = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(
        shared
            .plan
            .load()
            .config
            .max_connections
            .min(Semaphore::MAX_PERMITS),
    ));
    while let Some(accepted) = stop.run_until_cancelled(listener.accept(&places)).await {
        let (stream, place) = match accepted {
            Ok(accepted) => accepted,
            Err(cause) => {
                tracing::warn!(%cause, "cannot accept a connection");
                tokio::time::sleep(REST).await;
                continue;
            }
        };
        if let Err(cause) = stream.set_nodelay(true) {
            tracing::debug!(%cause, "a connection was gone before it began");
            continue;
        }
        let connection = Connection {
            stream,
            builder: builder.clone(),
            watcher: graceful.watcher(),
            shared: shared.clone(),
            _place: place,
        };
        tokio::spawn(connection.serve(stop.clone()));
    }
    drop(listener);
    graceful.shutdown().await;
}

/// One client's connection.
struct Connection {
    stream: TcpStream,
    builder: auto::Builder<TokioExecutor>,
    watcher: Watcher,
    shared: Arc<Shared>,
    /// Its place among all connections.
    _place: OwnedSemaphorePermit,
}

impl Connection {
    async fn serve(self, stop: CancellationToken) {
        // Who says nothing is not waited for: neither for ever, nor when we stop.
        let first_byte = tokio::time::timeout(HEAD_TIMEOUT, self.stream.readable());
        if !matches!(stop.run_until_cancelled(first_byte).await, Some(Ok(Ok(())))) {
            return;
        }
        let shared = self.shared;
        let service = service_fn(move |request| route::handle(shared.clone(), request));
        let connection = self
            .builder
            .serve_connection(TokioIo::new(self.stream), service);
        let connection = self.watcher.watch(connection.into_owned());
        if let Err(cause) = Repoll::new(connection).await {
            tracing::debug!(%cause, "a connection ended early");
        }
    }
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .max_concurrent_streams(1000);
    builder
}
