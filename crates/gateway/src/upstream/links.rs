//! Connection pool of a serving thread. Connections in plain HTTP/1 are kept here; those with TLS
//! or a proxy belong to the HTTP client.

use std::io;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use headworks_core::TargetId;
use headworks_service::outbound::Outbound;
use http::{HeaderMap, Response, Uri};
use http_body::SizeHint;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::call::{Failure, causes};
use super::link::{Link, Sending, Unanswered};
use crate::wire::http1::{Chunks, Reply, ReplyEnd};

/// Connections of one serving thread to all upstreams.
pub(crate) struct Links {
    pub(super) outbound: Outbound,
    /// By target.
    places: Mutex<Vec<Place>>,
}

/// Idle connections to one upstream, the most recently used last.
#[derive(Default)]
struct Place {
    /// Host and port of the connections. A reload may change it.
    host: String,
    /// Whether the upstream is reached directly: without TLS and without a proxy.
    direct: bool,
    idle: Vec<(Link, Instant)>,
    /// Whether a task closes connections that have been idle too long.
    tended: bool,
}

impl Links {
    /// Creates an empty pool, with its own pool in the HTTP client.
    pub(crate) fn new(outbound: &Outbound) -> Arc<Links> {
        Arc::new(Links {
            outbound: outbound.apart(),
            places: Mutex::default(),
        })
    }

    /// Sends a request. Returns when the head of the response has arrived, or `None` if the
    /// upstream is not reached directly.
    pub(super) async fn ask(
        self: &Arc<Self>,
        target: TargetId,
        uri: &Uri,
        headers: &HeaderMap,
        body: &Bytes,
    ) -> Option<Result<Response<LinkBody>, Failure>> {
        let host = host_of(uri)?;
        let path = uri.path_and_query()?.as_str();
        let mut idle = self.take(target, uri, &host)?;
        let mut sending = Sending::new(path, &host, headers, body.clone());
        loop {
            let used = idle.is_some();
            let mut link = match idle.take() {
                Some(link) => link,
                None => match self.outbound.connect(uri.clone()).await {
                    Ok(stream) => Link::new(stream),
                    Err(cause) => return Some(Err(Failure::Connect(causes(&*cause)))),
                },
            };
            match link.ask(&mut sending).await {
                Ok(reply) => {
                    let rest = Some(sending).filter(|sending| !sending.is_sent());
                    return Some(Ok(self.answer(target, host, link, reply, rest)));
                }
                // The upstream closed the idle connection. Another one is tried; a new one at the
                // latest.
                Err(Unanswered::Unsent) if used => {}
                Err(Unanswered::Unsent) => {
                    let cause = "it took nothing".to_owned();
                    return Some(Err(Failure::Broken(cause)));
                }
                Err(Unanswered::Broken(cause)) => return Some(Err(Failure::Broken(cause))),
            }
        }
    }

    fn answer(
        self: &Arc<Self>,
        target: TargetId,
        host: String,
        link: Link,
        reply: Reply,
        sending: Option<Sending>,
    ) -> Response<LinkBody> {
        let rest = match reply.end {
            ReplyEnd::Length(length) => Rest::Length(length),
            ReplyEnd::Chunked => Rest::Chunked(Chunks::new(u64::MAX)),
            ReplyEnd::Close => Rest::Close,
        };
        let mut body = LinkBody {
            home: reply
                .keep_alive
                .then(|| (Arc::downgrade(self), target, host)),
            link: Some(link),
            sending: sending.map(Box::new),
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
    fn take(&self, target: TargetId, uri: &Uri, host: &str) -> Option<Option<Link>> {
        let mut places = self.places.lock();
        if places.len() <= target.index() {
            places.resize_with(target.index() + 1, Place::default);
        }
        let place = &mut places[target.index()];
        if place.host != host {
            host.clone_into(&mut place.host);
            place.direct = self.outbound.is_direct(uri);
            place.idle.clear();
        }
        if !place.direct {
            return None;
        }
        // The most recently used connection is the least likely to be closed, and surplus ones time
        // out.
        while let Some((link, _)) = place.idle.pop() {
            if link.is_quiet() {
                return Some(Some(link));
            }
        }
        Some(None)
    }

    /// Keeps a connection for the next request.
    fn keep(self: &Arc<Self>, target: TargetId, host: &str, link: Link) {
        let mut places = self.places.lock();
        let place = &mut places[target.index()];
        // If the upstream has moved since the request was sent, the connection is closed.
        if place.host != host {
            return;
        }
        place.idle.push((link, Instant::now()));
        if !std::mem::replace(&mut place.tended, true) {
            let links = Arc::downgrade(self);
            tokio::spawn(tend(links, target, self.outbound.idle_timeout()));
        }
    }
}

/// Closes connections that are idle for too long, and ends when none is left.
async fn tend(links: Weak<Links>, target: TargetId, longest: Duration) {
    let mut next = Instant::now() + longest;
    loop {
        tokio::time::sleep_until(next).await;
        let Some(links) = links.upgrade() else {
            return;
        };
        let mut places = links.places.lock();
        let place = &mut places[target.index()];
        let now = Instant::now();
        place.idle.retain(|(_, since)| *since + longest > now);
        // The first one has been idle longest.
        match place.idle.first() {
            Some((_, since)) => next = *since + longest,
            None => {
                place.tended = false;
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
pub(crate) struct LinkBody {
    link: Option<Link>,
    /// The rest of the request, if the response began before it was sent.
    sending: Option<Box<Sending>>,
    rest: Rest,
    /// Pool that keeps the connection after the last byte.
    home: Option<(Weak<Links>, TargetId, String)>,
}

/// The part of the body that is not read yet.
enum Rest {
    Length(u64),
    Chunked(Chunks),
    Close,
    Nothing,
}

impl LinkBody {
    pub(super) fn poll_data(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Some(link) = self.link.as_mut() else {
                return Poll::Ready(None);
            };
            let data = match self.rest.take(&mut link.input) {
                Ok(data) => data,
                Err(cause) => {
                    self.link = None;
                    return Poll::Ready(Some(Err(io::Error::other(cause))));
                }
            };
            self.end_if_over();
            if !data.is_empty() {
                return Poll::Ready(Some(Ok(data)));
            }
            let Some(link) = self.link.as_mut() else {
                return Poll::Ready(None);
            };
            if let Some(sending) = &mut self.sending
                && link.poll_send(sending, cx).is_ready()
            {
                // Errors are ignored: whether the response is complete is decided by reading it.
                self.sending = None;
            }
            let read = ready!(link.poll_more(cx));
            if !matches!(read, Ok(1..)) {
                self.link = None;
                return Poll::Ready(match (&self.rest, read) {
                    (Rest::Close, Ok(_)) => None,
                    (_, Ok(_)) => Some(Err(io::Error::other("the connection ended"))),
                    (_, Err(cause)) => Some(Err(cause)),
                });
            }
        }
    }

    /// Returns the connection to the pool after the last byte.
    fn end_if_over(&mut self) {
        if !matches!(self.rest, Rest::Length(0) | Rest::Nothing) {
            return;
        }
        let (link, home) = (self.link.take(), self.home.take());
        if let (Some(link), Some((links, target, host))) = (link, home)
            && let Some(links) = links.upgrade()
        {
            links.keep(target, &host, link);
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        self.link.is_none()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match self.rest {
            Rest::Length(length) => SizeHint::with_exact(length),
            Rest::Nothing => SizeHint::with_exact(0),
            Rest::Chunked(_) | Rest::Close => SizeHint::default(),
        }
    }
}

impl Rest {
    /// Consumes the body data that is in `input`.
    fn take(&mut self, input: &mut BytesMut) -> Result<Bytes, &'static str> {
        match self {
            Rest::Nothing => Ok(Bytes::new()),
            Rest::Close => Ok(input.split().freeze()),
            Rest::Length(left) => {
                let there = usize::try_from(*left)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                *left -= there as u64;
                Ok(input.split_to(there).freeze())
            }
            Rest::Chunked(chunks) => {
                let mut data = BytesMut::new();
                match chunks.read(input, &mut data) {
                    Ok(false) => {}
                    Ok(true) => *self = Rest::Nothing,
                    Err(_) => return Err("its chunks are none"),
                }
                Ok(data.freeze())
            }
        }
    }
}
