//! The accept loop, with a connection limit and graceful shutdown.
//!
//! A client that sends nothing, or sends a request head byte by byte, is disconnected after the
//! header timeout. Open connections are limited to [`MAX_CONNECTIONS`], so slow clients cannot
//! exhaust the listener.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::response::Response;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::Service;

/// Maximum open connections; further ones wait in the accept queue.
const MAX_CONNECTIONS: usize = 1024;

/// Pause after a failed accept, for example for lack of file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Serves until `stop`, then lets running requests finish.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    header_timeout: Duration,
    stop: CancellationToken,
) {
    let mut server = http1::Builder::new();
    server
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, peer)) => {
                    let (server, router, stop) = (server.clone(), router.clone(), stop.clone());
                    connections.spawn(connection(server, stream, peer, router, stop));
                }
                Err(cause) => {
                    tracing::warn!(%cause, "admin listener: accept failed");
                    tokio::time::sleep(ACCEPT_BACKOFF).await;
                }
            },
        }
    }
    // Closed before draining, so that new clients are refused instead of waiting for a server that
    // is shutting down.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

async fn connection(
    server: http1::Builder,
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    stop: CancellationToken,
) {
    // Without it responses are merely slower.
    let _ = stream.set_nodelay(true);
    let handle = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        handle(router.clone(), request)
    });
    let connection = server.serve_connection(TokioIo::new(stream), handle);
    let mut connection = pin!(connection.with_upgrades());
    // Errors end the connection and concern only its client, so they are not logged.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn handle(mut router: Router, request: Request<Incoming>) -> Result<Response, Infallible> {
    router.call(request).await
}
