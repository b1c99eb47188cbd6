//! Listener: accepts connections and serves HTTP/1.1 and HTTP/2 on one port.

use std::convert::Infallible;
use std::io::Cursor;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use headworks_h1::{ServeOutcome, ServerConnection};
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::body::TrackedBody;
use super::connections::{Connections, OpenConnection};
use super::descriptors::{AddressGuard, Addresses, ConnectionLimits};
use super::route::{self, ServeContext};
use super::serve_threads::ServeThreads;
use super::service::GatewayService;
use crate::error::Error;
use crate::shared::Shared;

/// Interval of HTTP/2 keep-alive pings. An idle multiplexed connection is otherwise not known to be
/// dead.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// How long an HTTP/2 connection is kept without a request.
const HTTP2_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Backlog of connections that are not accepted yet.
const BACKLOG: u32 = 1024;
/// Pause after a failed `accept`, which mostly means that the process has no file descriptors left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// A bound address.
pub(crate) struct Listener {
    listener: TcpListener,
    pub(crate) address: SocketAddr,
}

impl Listener {
    pub(crate) fn bind(address: SocketAddr) -> Result<Listener, Error> {
        let listen_error = |source| Error::Listen { address, source };
        let socket = match address {
            SocketAddr::V4(_) => TcpSocket::new_v4(),
            SocketAddr::V6(_) => TcpSocket::new_v6(),
        };
        let socket = socket.map_err(listen_error)?;
        socket.set_reuseaddr(true).map_err(listen_error)?;
        socket.bind(address).map_err(listen_error)?;
        let listener = socket.listen(BACKLOG).map_err(listen_error)?;
        let address = listener.local_addr().map_err(listen_error)?;
        Ok(Listener { listener, address })
    }
}

/// Waits until the connection limit permits another connection. Further ones wait in the backlog of
/// the system.
async fn connection_slot(
    connection_slots: &Arc<Semaphore>,
    connections: &Connections,
) -> OwnedSemaphorePermit {
    if let Ok(connection_permit) = connection_slots.clone().try_acquire_owned() {
        return connection_permit;
    }
    connections.close_one();
    let connection_permit = connection_slots.clone().acquire_owned().await;
    connection_permit.expect("the semaphore is never closed")
}

/// Serves until `stop`, then until the last response has ended.
pub(crate) async fn serve(listener: Listener, shared: Arc<Shared>, stop: CancellationToken) {
    let limits = ConnectionLimits::new(&shared.active.load().config);
    let connection_slots = Arc::new(Semaphore::new(limits.total.min(Semaphore::MAX_PERMITS)));
    let (addresses, connections) = (
        Arc::new(Addresses::default()),
        Connections::new(limits.total),
    );
    let mut serve_threads = ServeThreads::start(&shared, &stop);
    while let Some(accepted) = stop.run_until_cancelled(listener.listener.accept()).await {
        let (stream, client) = match accepted {
            Ok(accepted) => accepted,
            Err(cause) => {
                tracing::warn!(%cause, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                continue;
            }
        };
        // The connection is closed at once: if it waited, others could not be accepted.
        let Some(address_guard) = addresses.join(client.ip(), limits.per_address) else {
            tracing::debug!(%client, "connection closed: its address has too many");
            continue;
        };
        let connection_slot = connection_slot(&connection_slots, &connections);
        let Some(connection_permit) = stop.run_until_cancelled(connection_slot).await else {
            break;
        };
        // `into_std` deregisters the socket from this runtime. The serving thread registers it with
        // its own.
        let stream = stream.set_nodelay(true).and_then(|()| stream.into_std());
        match stream {
            Ok(stream) => {
                serve_threads
                    .serve(AcceptedConnection {
                        stream,
                        connection_permit,
                        address_guard,
                        connection: connections.join(),
                    })
                    .await;
            }
            Err(cause) => tracing::debug!(%cause, "the client disconnected before it was served"),
        }
    }
    drop(listener);
    serve_threads.join().await;
}

/// An accepted connection.
pub(crate) struct AcceptedConnection {
    stream: std::net::TcpStream,
    /// Counts against `max_connections`.
    connection_permit: OwnedSemaphorePermit,
    /// Counts against `max_connections_per_address`.
    address_guard: AddressGuard,
    connection: OpenConnection,
}

impl AcceptedConnection {
    /// Serves the connection on the current thread.
    pub(crate) async fn serve(
        self,
        context: Arc<ServeContext>,
        http2: Arc<http2::Builder<TokioExecutor>>,
        stop: CancellationToken,
    ) {
        let _counted = (self.connection_permit, self.address_guard);
        let stream = match TcpStream::from_std(self.stream) {
            Ok(stream) => stream,
            Err(cause) => return tracing::warn!(%cause, "cannot serve a connection"),
        };
        let open = Arc::new(self.connection);
        let served = async {
            let service = GatewayService::new(context.clone(), open.clone());
            let connection = ServerConnection::new(stream, service);
            if let ServeOutcome::Http2(stream, start) = connection.serve(&stop).await {
                // Boxed: few connections need the space of an HTTP/2 server.
                let open = open.clone();
                Box::pin(serve_http2(stream, start, &http2, (context, open), &stop)).await;
            }
        };
        tokio::select! {
            biased;
            () = served => {}
            () = open.closed() => {
                tracing::debug!("connection closed for another one: all are taken");
            }
        }
    }
}

/// Serves an HTTP/2 client. `start` are the bytes already read, beginning with the preface.
async fn serve_http2(
    stream: TcpStream,
    start: Bytes,
    http2: &http2::Builder<TokioExecutor>,
    (context, open): (Arc<ServeContext>, Arc<OpenConnection>),
    stop: &CancellationToken,
) {
    let (reader, writer) = stream.into_split();
    let stream = tokio::io::join(AsyncReadExt::chain(Cursor::new(start), reader), writer);
    let idle = open.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let running = open.begin(&context.shared, request.headers());
        let response = route::handle(context.clone(), request);
        async move {
            let response = response.await?;
            Ok::<_, Infallible>(response.map(|body| TrackedBody::new(body, running)))
        }
    });
    let mut connection = pin!(http2.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        biased;
        ended = connection.as_mut() => Some(ended),
        () = stop.cancelled() => None,
        () = idle.idle_for(HTTP2_IDLE_TIMEOUT) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(cause) = ended {
        tracing::debug!(%cause, "HTTP/2 connection ended with an error");
    }
}

/// Settings of the HTTP/2 server.
pub(crate) fn http2() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_INTERVAL)
        .max_concurrent_streams(1000);
    builder
}
