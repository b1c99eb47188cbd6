//! Connection pool of a serving thread. Connections in plain HTTP/1 are kept here; those with TLS
//! or a proxy belong to the HTTP client.

use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use headworks_core::TargetId;
use headworks_h1::{
    CallProgress, Chunks, ClientConnection, OutgoingRequest, ResponseFraming, ResponseHead,
    SendError,
};
use headworks_service::outbound::Outbound;
use http::{HeaderMap, Response, Uri};
use http_body::SizeHint;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::call::CallError;

/// Connections of one serving thread to all upstreams.
pub(crate) struct ClientPool {
    pub(crate) outbound: Outbound,
    idle_timeout: Duration,
    /// By target.
    hosts: Mutex<Vec<HostPool>>,
}

/// Idle connections to one upstream, the most recently used last.
#[derive(Default)]
struct HostPool {
    /// Host and port of the connections. A reload may change it.
    host: String,
    /// Whether the upstream is reached directly: without TLS and without a proxy.
    direct: bool,
    idle: Vec<(ClientConnection<TcpStream>, Instant)>,
    /// Whether a task closes connections that have been idle too long.
    reaper_running: bool,
}

impl ClientPool {
    /// Creates an empty pool, with its own pool in the HTTP client.
    pub(crate) fn new(outbound: &Outbound, idle_timeout: Duration) -> Arc<ClientPool> {
        let outbound = outbound.with_own_pool(idle_timeout);
        Arc::new(ClientPool {
            idle_timeout: outbound.idle_timeout(),
            outbound,
            hosts: Mutex::default(),
        })
    }

    /// Sends a request. Returns when the head of the response has arrived, or `None` if the
    /// upstream is not reached directly.
    pub(crate) async fn send(
        self: &Arc<Self>,
        target: TargetId,
        uri: &Uri,
        headers: &HeaderMap,
        body: &Bytes,
        progress: &Arc<CallProgress>,
    ) -> Option<Result<Response<DirectBody>, CallError>> {
        let host = host_of(uri)?;
        let path = uri.path_and_query()?.as_str();
        let mut idle = self.take_idle(target, uri, &host)?;
        let mut outgoing = OutgoingRequest::new(path, &host, headers, body.clone())
            .with_progress(progress.clone());
        loop {
            let used = idle.is_some();
            let mut connection = match idle.take() {
                Some(connection) => connection,
                None => match self.outbound.connect(uri.clone()).await {
                    Ok(stream) => ClientConnection::new(stream),
                    Err(cause) => return Some(Err(CallError::connect(&*cause))),
                },
            };
            match connection.send(&mut outgoing).await {
                Ok(reply) => {
                    let rest = Some(outgoing).filter(|outgoing| !outgoing.is_sent());
                    return Some(Ok(self.answer(target, host, connection, reply, rest)));
                }
                // The upstream closed the idle connection. Another one is tried; a new one at the
                // latest.
                Err(SendError::Unsent) if used && !progress.is_abandoned() => {}
                Err(SendError::Unsent) if progress.is_abandoned() => {
                    let cause = "the client disconnected".to_owned();
                    return Some(Err(CallError::Connect(cause)));
                }
                Err(SendError::Unsent) => {
                    let cause = "it accepted no data".to_owned();
                    return Some(Err(CallError::Broken(cause)));
                }
                Err(SendError::Broken(cause)) => return Some(Err(CallError::Broken(cause))),
            }
        }
    }

    fn answer(
        self: &Arc<Self>,
        target: TargetId,
        host: String,
        connection: ClientConnection<TcpStream>,
        reply: ResponseHead,
        outgoing: Option<OutgoingRequest>,
    ) -> Response<DirectBody> {
        let rest = match reply.end {
            ResponseFraming::Length(length) => Remaining::Length(length),
            ResponseFraming::Chunked => Remaining::Chunked(Chunks::new(u64::MAX)),
            ResponseFraming::Close => Remaining::Close,
        };
        let mut body = DirectBody {
            return_to: reply
                .keep_alive
                .then(|| (Arc::downgrade(self), target, host)),
            connection: Some(connection),
            outgoing: outgoing.map(Box::new),
            rest,
        };
        body.end_if_over();
        let mut response = Response::new(body);
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        response
    }

    /// Takes an idle connection. Returns `Some(None)` if no connection is idle, and `None` if the
    /// upstream is not reached directly.
    fn take_idle(
        &self,
        target: TargetId,
        uri: &Uri,
        host: &str,
    ) -> Option<Option<ClientConnection<TcpStream>>> {
        let mut hosts = self.hosts.lock();
        if hosts.len() <= target.index() {
            hosts.resize_with(target.index() + 1, HostPool::default);
        }
        let host_pool = &mut hosts[target.index()];
        if host_pool.host != host {
            host.clone_into(&mut host_pool.host);
            host_pool.direct = self.outbound.is_direct(uri);
            host_pool.idle.clear();
        }
        if !host_pool.direct {
            return None;
        }
        // The most recently used connection is the least likely to be closed, and surplus ones time
        // out.
        while let Some((connection, since)) = host_pool.idle.pop() {
            // The task that closes them may be late.
            if since.elapsed() < self.idle_timeout && connection.is_reusable() {
                return Some(Some(connection));
            }
        }
        Some(None)
    }

    /// Keeps a connection for the next request.
    fn keep(
        self: &Arc<Self>,
        target: TargetId,
        host: &str,
        connection: ClientConnection<TcpStream>,
    ) {
        let mut hosts = self.hosts.lock();
        let host_pool = &mut hosts[target.index()];
        // If the upstream has moved since the request was sent, the connection is closed.
        if host_pool.host != host {
            return;
        }
        host_pool.idle.push((connection, Instant::now()));
        if !std::mem::replace(&mut host_pool.reaper_running, true) {
            let client_pool = Arc::downgrade(self);
            tokio::spawn(close_idle(client_pool, target, self.idle_timeout));
        }
    }
}

/// Closes connections that are idle for too long, and ends when none is left.
async fn close_idle(client_pool: Weak<ClientPool>, target: TargetId, longest: Duration) {
    let mut next = Instant::now() + longest;
    loop {
        tokio::time::sleep_until(next).await;
        let Some(client_pool) = client_pool.upgrade() else {
            return;
        };
        let mut hosts = client_pool.hosts.lock();
        let host_pool = &mut hosts[target.index()];
        let now = Instant::now();
        host_pool.idle.retain(|(_, since)| *since + longest > now);
        // The first one has been idle longest.
        match host_pool.idle.first() {
            Some((_, since)) => next = *since + longest,
            None => {
                host_pool.reaper_running = false;
                return;
            }
        }
    }
}

/// Value of the `host` header.
fn host_of(uri: &Uri) -> Option<String> {
    let host = uri.host()?;
    Some(match uri.port_u16().filter(|port| *port != 80) {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    })
}

/// Body of a response, with the connection that it is read from.
pub(crate) struct DirectBody {
    connection: Option<ClientConnection<TcpStream>>,
    /// The rest of the request, if the response began before it was sent.
    outgoing: Option<Box<OutgoingRequest>>,
    rest: Remaining,
    /// Pool that keeps the connection after the last byte.
    return_to: Option<(Weak<ClientPool>, TargetId, String)>,
}

/// The part of the body that is not read yet.
enum Remaining {
    Length(u64),
    Chunked(Chunks),
    Close,
    Nothing,
}

impl DirectBody {
    pub(crate) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Some(connection) = self.connection.as_mut() else {
                return Poll::Ready(None);
            };
            let data = match self.rest.take(&mut connection.input) {
                Ok(data) => data,
                Err(cause) => {
                    self.connection = None;
                    return Poll::Ready(Some(Err(io::Error::other(cause))));
                }
            };
            self.end_if_over();
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(data)));
            }
            let Some(connection) = self.connection.as_mut() else {
                return Poll::Ready(None);
            };
            if let Some(outgoing) = &mut self.outgoing
                && connection.poll_send(outgoing, cx).is_ready()
            {
                // Errors are ignored: whether the response is complete is decided by reading it.
                self.outgoing = None;
            }
            let read = ready!(connection.poll_fill(cx));
            if !matches!(read, Ok(1..)) {
                self.connection = None;
                return Poll::Ready(match (&self.rest, read) {
                    (Remaining::Close, Ok(_)) => None,
                    (_, Ok(_)) => Some(Err(io::Error::other("connection closed"))),
                    (_, Err(cause)) => Some(Err(cause)),
                });
            }
        }
    }

    /// Returns the connection to the pool after the last byte.
    fn end_if_over(&mut self) {
        if !matches!(self.rest, Remaining::Length(0) | Remaining::Nothing) {
            return;
        }
        let (connection, return_to) = (self.connection.take(), self.return_to.take());
        // Surplus bytes are a response to no request.
        if let (Some(connection), Some((client_pool, target, host))) = (connection, return_to)
            && connection.input.is_empty()
            && let Some(client_pool) = client_pool.upgrade()
        {
            client_pool.keep(target, &host, connection);
        }
    }

    /// Tells the upstream that nobody waits for the rest. The connection is not used again.
    pub(crate) fn half_close(&mut self) {
        self.return_to = None;
        if let Some(connection) = &mut self.connection {
            connection.half_close();
        }
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        self.connection.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.rest {
            Remaining::Length(length) => SizeHint::with_exact(length),
            Remaining::Nothing => SizeHint::with_exact(0),
            Remaining::Chunked(_) | Remaining::Close => SizeHint::default(),
        }
    }
}

impl Remaining {
    /// Consumes the body data that is in `input`.
    fn take(&mut self, input: &mut BytesMut) -> Result<Bytes, &'static str> {
        match self {
            Remaining::Nothing => Ok(Bytes::new()),
            Remaining::Close => Ok(input.split().freeze()),
            Remaining::Length(left) => {
                let there = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                *left -= there as u64;
                Ok(input.split_to(there).freeze())
            }
            Remaining::Chunked(chunks) => {
                let mut data = BytesMut::new();
                match chunks.read(input, &mut data) {
                    Ok(false) => {}
                    Ok(true) => *self = Remaining::Nothing,
                    Err(_) => return Err("malformed chunked encoding"),
                }
                Ok(data.freeze())
            }
        }
    }
}
