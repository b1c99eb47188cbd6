//! Accepting connections, and letting them end.
//!
//! A client that sends nothing, or the head of a request byte by byte, is cut off after a while,
//! and there are never more connections than [`MOST`]: nobody can hold the listener by holding on
//! to it.

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

/// Connections at once; others wait until one ends.
const MOST: usize = 1024;

/// How long to wait when the system has no connection to give, for want of file handles perhaps.
const RECOVERY: Duration = Duration::from_millis(100);

/// Answers until `stop`, then lets running requests end.
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
            accepted = listener.accept(), if connections.len() < MOST => match accepted {
                Ok((stream, peer)) => {
                    let (server, router, stop) = (server.clone(), router.clone(), stop.clone());
                    connections.spawn(connection(server, stream, peer, router, stop));
                }
                Err(cause) => {
                    tracing::warn!(%cause, "the admin listener cannot accept");
                    tokio::time::sleep(RECOVERY).await;
                }
            },
        }
    }
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
    // Only speed is lost without it.
    let _ = stream.set_nodelay(true);
    let answer = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        answer(router.clone(), request)
    });
    let connection = server.serve_connection(TokioIo::new(stream), answer);
    let mut connection = pin!(connection.with_upgrades());
    // How a connection ends is its client's business: there is nobody to tell.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

async fn answer(mut router: Router, request: Request<Incoming>) -> Result<Response, Infallible> {
    router.call(request).await
}
