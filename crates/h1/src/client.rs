//! Client connection.
//!
//! The task that makes the request also reads and writes the connection. With no task in between,
//! nothing else has to be woken. See `docs/adr/0014`.

use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use rustix::net::{RecvFlags, Shutdown};
use tokio::io::ReadBuf;

use crate::bytes_acked::bytes_acked;
use crate::{MAX_HEAD, ResponseHead, Transport, take_response_head};

/// Most bytes of interim responses (1xx) before the response itself. A server could send them
/// forever.
const MAX_INTERIM: usize = 256 << 10;
/// Size of the read buffer on the stack.
const READ_BUFFER: usize = 16 << 10;

/// A client connection.
#[derive(Debug)]
pub struct ClientConnection<S> {
    stream: S,
    /// Bytes sent since the connection was opened.
    sent: u64,
    /// Bytes received since the request was sent, while there is no response.
    received: usize,
    /// Whether the server was told that nobody waits for its response.
    is_half_closed: bool,
    /// Bytes received and not consumed yet.
    pub input: BytesMut,
}

/// A serialized request and how much of it was sent.
#[derive(Debug)]
pub struct OutgoingRequest {
    head: Vec<u8>,
    body: Bytes,
    sent: usize,
    flushed: bool,
    progress: Arc<CallProgress>,
}

/// How far a call got, shared with those who may have to abandon it. It is read each time that the
/// call is polled, so the one who abandons a call polls it afterwards.
#[derive(Debug, Default)]
pub struct CallProgress {
    sent: AtomicBool,
    can_half_close: AtomicBool,
    abandoned: AtomicBool,
}

impl CallProgress {
    /// Whether a server has been sent the whole request and has not responded yet. Only then can
    /// it be working on it.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.sent.load(Ordering::Relaxed)
    }

    /// Records whether a server has the whole request.
    pub fn set_sent(&self, sent: bool) {
        self.sent.store(sent, Ordering::Relaxed);
    }

    /// Whether the server can be told that nobody waits, while its response is still read.
    #[must_use]
    pub fn can_half_close(&self) -> bool {
        self.is_sent() && self.can_half_close.load(Ordering::Relaxed)
    }

    /// Whether nobody waits for the response.
    #[must_use]
    pub fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Records that nobody waits for the response.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }
}

/// Reason why no response began.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The server has read nothing of the request, so it can be sent again on another connection.
    #[error("the server accepted no data")]
    Unsent,
    /// The connection broke, or the response is malformed.
    #[error("{0}")]
    Broken(String),
}

impl OutgoingRequest {
    /// A `POST` of `body`. `host` is sent unless `headers` has one.
    #[must_use]
    pub fn new(path: &str, host: &str, headers: &HeaderMap, body: Bytes) -> OutgoingRequest {
        let mut head = Vec::with_capacity(1024);
        let mut line = |parts: &[&[u8]]| {
            parts.iter().for_each(|part| head.extend_from_slice(part));
        };
        line(&[b"POST ", path.as_bytes(), b" HTTP/1.1\r\n"]);
        if !headers.contains_key(HOST) {
            line(&[b"host: ", host.as_bytes(), b"\r\n"]);
        }
        for (name, value) in headers {
            // The body is sent with a length, whatever framing the client used.
            if ![CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(name) {
                line(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
            }
        }
        let _ = write!(head, "content-length: {}\r\n\r\n", body.len());
        OutgoingRequest {
            head,
            body,
            sent: 0,
            flushed: false,
            progress: Arc::default(),
        }
    }

    /// The same request, with a progress that others can see.
    #[must_use]
    pub fn with_progress(self, progress: Arc<CallProgress>) -> OutgoingRequest {
        OutgoingRequest { progress, ..self }
    }

    /// Whether all of it was sent.
    #[must_use]
    pub fn is_sent(&self) -> bool {
        self.flushed
    }

    fn poll_send(
        &mut self,
        stream: &mut impl Transport,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.sent < self.head.len() + self.body.len() {
            let head = &self.head[self.sent.min(self.head.len())..];
            let body = &self.body[self.sent.saturating_sub(self.head.len())..];
            // Head and body are sent in one system call, without copying the body.
            let parts = [IoSlice::new(head), IoSlice::new(body)];
            self.sent += match ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &parts))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => sent,
            };
        }
        // A socket has nothing to flush, but TLS may hold a record that the socket had no room for.
        ready!(Pin::new(&mut *stream).poll_flush(cx))?;
        self.flushed = true;
        self.progress.set_sent(true);
        self.progress.can_half_close.store(true, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<S: Transport> ClientConnection<S> {
    /// Wraps a stream on which nothing was sent yet.
    pub fn new(stream: S) -> Self {
        ClientConnection {
            stream,
            sent: 0,
            received: 0,
            is_half_closed: false,
            input: BytesMut::new(),
        }
    }

    /// Whether the connection is usable. A server sends nothing between two responses, so
    /// readable data is either the end of the stream or garbage.
    ///
    /// The socket itself is asked: the runtime may not have noticed the server's close yet.
    pub fn is_reusable(&self) -> bool {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let peeked = rustix::net::recv(self.stream.socket(), &mut [0; 1], flags);
        self.input.is_empty() && matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }

    /// Sends the rest of a request.
    pub fn poll_send(
        &mut self,
        outgoing: &mut OutgoingRequest,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let before = outgoing.sent;
        let sent = outgoing.poll_send(&mut self.stream, cx);
        self.sent += (outgoing.sent - before) as u64;
        sent
    }

    /// Tells the server that nobody waits for its response, and keeps reading: what it has
    /// generated until it stops is still counted. A server that looks for disconnects sees this as
    /// one.
    pub fn half_close(&mut self) {
        if !std::mem::replace(&mut self.is_half_closed, true) {
            // A connection that is gone already needs no notice.
            let _ = rustix::net::shutdown(self.stream.socket(), Shutdown::Write);
        }
    }

    /// Reads more input. Returns 0 at the end of the stream.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [const { MaybeUninit::uninit() }; READ_BUFFER];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        self.input.extend_from_slice(room.filled());
        Poll::Ready(Ok(room.filled().len()))
    }

    /// Sends a request. Returns when the head of the response has arrived, possibly before the
    /// request is fully sent.
    ///
    /// # Errors
    /// If no response begins.
    pub async fn send(
        &mut self,
        outgoing: &mut OutgoingRequest,
    ) -> Result<ResponseHead, SendError> {
        let before = self.sent;
        self.received = 0;
        let mut reply = poll_fn(|cx| self.poll_reply(outgoing, cx)).await;
        if let Ok(reply) = &mut reply {
            // A connection on which a part of the request is still to be sent cannot be reused.
            reply.keep_alive &= outgoing.is_sent() && !self.is_half_closed;
        }
        outgoing.progress.set_sent(false);
        // A request is repeated silently only if the upstream read no byte of it: otherwise it
        // could be generated twice.
        reply.map_err(|cause| {
            if outgoing.sent == 0 || self.was_closed_before(&cause, before) {
                (outgoing.sent, outgoing.flushed) = (0, false);
                return SendError::Unsent;
            }
            SendError::Broken(cause.to_string())
        })
    }

    /// Whether the upstream had closed the connection before any byte of the request arrived.
    ///
    /// Its close was then the first thing that came back: the end of the stream, or a broken pipe
    /// if the reset that answers the request came as well. A reset alone proves nothing, because
    /// it overtakes acknowledgements. `before` is what was sent on the connection before the
    /// request.
    fn was_closed_before(&self, cause: &io::Error, before: u64) -> bool {
        let closed = [io::ErrorKind::UnexpectedEof, io::ErrorKind::BrokenPipe];
        // The system counts the SYN as a byte.
        let is_unread = |acked| acked <= before + 1;
        self.input.is_empty()
            && closed.contains(&cause.kind())
            && bytes_acked(self.stream.socket()).is_some_and(is_unread)
    }

    fn poll_reply(
        &mut self,
        outgoing: &mut OutgoingRequest,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<ResponseHead>> {
        // A server that rejects a request may stop reading it. Its response can be read even if
        // sending failed.
        let sent = match self.poll_send(outgoing, cx) {
            Poll::Ready(Err(cause)) => Err(cause),
            _ => Ok(()),
        };
        if outgoing.progress.is_abandoned() && outgoing.is_sent() {
            self.half_close();
        }
        loop {
            if let Some(reply) = take_response_head(&mut self.input).map_err(io::Error::other)? {
                return Poll::Ready(Ok(reply));
            }
            match self.poll_fill(cx) {
                Poll::Ready(Ok(0)) => {
                    let early = "connection closed before the response";
                    let early = io::Error::new(io::ErrorKind::UnexpectedEof, early);
                    return Poll::Ready(Err(sent.err().unwrap_or(early)));
                }
                Poll::Ready(more) => self.received += more?,
                Poll::Pending => {
                    sent?;
                    return Poll::Pending;
                }
            }
            if self.received > MAX_INTERIM + MAX_HEAD {
                let cause = "too many interim responses";
                return Poll::Ready(Err(io::Error::other(cause)));
            }
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::net::TcpStream;

    async fn pair() -> (ClientConnection<TcpStream>, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
        let (peer, _) = listener.accept().await.unwrap();
        (ClientConnection::new(stream.unwrap()), peer)
    }

    fn request() -> OutgoingRequest {
        let (headers, body) = (HeaderMap::new(), Bytes::from_static(b"{}"));
        OutgoingRequest::new("/", "host", &headers, body)
    }

    #[tokio::test]
    async fn a_connection_that_was_closed_before_the_request_leaves_it_unsent() {
        for _ in 0..50 {
            let (mut connection, peer) = pair().await;
            drop(peer);
            let mut outgoing = request();
            let sent = connection.send(&mut outgoing).await;
            assert!(matches!(sent, Err(SendError::Unsent)));
            assert_eq!(outgoing.sent, 0, "it is sent from its start again");
            assert!(!outgoing.is_sent());
        }
    }

    #[tokio::test]
    async fn a_connection_that_closes_after_a_byte_was_read_breaks_the_request() {
        for all in [false, true] {
            let (mut connection, mut peer) = pair().await;
            let upstream = tokio::spawn(async move {
                peer.read_u8().await.unwrap();
                if all {
                    let mut rest = [0; 1024];
                    assert_ne!(peer.read(&mut rest).await.unwrap(), 0);
                }
            });
            let sent = connection.send(&mut request()).await;
            assert!(matches!(sent, Err(SendError::Broken(_))), "all: {all}");
            upstream.await.unwrap();
        }
    }

    #[tokio::test]
    async fn endless_interim_responses_break_the_request() {
        use tokio::io::AsyncWriteExt;
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
        let (mut connection, mut peer) = pair().await;
        // Many times more than is read.
        let server = async {
            for _ in 0..10_000 {
                if peer.write_all(interim.as_bytes()).await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        };
        let mut request = request();
        let sent = tokio::select! {
            sent = connection.send(&mut request) => sent,
            () = server => panic!("all interim responses were read"),
        };
        assert!(matches!(sent, Err(SendError::Broken(_))));
    }

    #[tokio::test]
    async fn a_few_interim_responses_are_skipped() {
        use tokio::io::AsyncWriteExt;
        let (mut connection, mut peer) = pair().await;
        let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(50);
        peer.write_all(interim.as_bytes()).await.unwrap();
        let last = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        peer.write_all(last.as_bytes()).await.unwrap();
        assert!(connection.send(&mut request()).await.is_ok());
    }

    #[tokio::test]
    async fn a_late_second_response_makes_a_connection_unusable() {
        use tokio::io::AsyncWriteExt;
        let response = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        let (mut connection, mut peer) = pair().await;
        peer.write_all(response).await.unwrap();
        assert!(connection.send(&mut request()).await.unwrap().keep_alive);
        assert!(connection.is_reusable());
        peer.write_all(response).await.unwrap();
        connection.stream.readable().await.unwrap();
        assert!(!connection.is_reusable());
        // It does not matter whether the bytes were read already.
        poll_fn(|cx| connection.poll_fill(cx)).await.unwrap();
        assert!(!connection.is_reusable());
    }

    #[tokio::test]
    async fn a_closed_connection_is_seen_at_once() {
        let (connection, peer) = pair().await;
        assert!(connection.is_reusable());
        drop(peer);
        // No await in between: the runtime has no chance to notice the close.
        assert!(!connection.is_reusable());
    }
}
