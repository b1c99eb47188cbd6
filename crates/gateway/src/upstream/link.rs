//! One connection to an upstream that speaks HTTP/1 in the clear.
//!
//! Whoever asks reads and writes itself: no task stands between a request and its answer, so there
//! is nobody to be woken but the one who waits. See `docs/adr/0014`.

use std::future::poll_fn;
use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::wire::http1::{Reply, take_reply};

/// What is read at once, on the stack.
const READ: usize = 16 << 10;

/// A connection.
pub(super) struct Link {
    stream: TcpStream,
    /// What came and was not taken yet.
    pub(super) input: BytesMut,
}

/// A request as it is sent.
pub(super) struct Sending {
    head: Vec<u8>,
    body: Bytes,
    sent: usize,
}

/// Why no answer began.
pub(super) enum Unanswered {
    /// Not a byte went out: it can be sent again.
    Unsent,
    Broken(String),
}

impl Sending {
    pub(super) fn new(path: &str, host: &str, headers: &HeaderMap, body: Bytes) -> Sending {
        let mut head = Vec::with_capacity(1024);
        let mut line = |parts: &[&[u8]]| {
            parts.iter().for_each(|part| head.extend_from_slice(part));
        };
        line(&[b"POST ", path.as_bytes(), b" HTTP/1.1\r\n"]);
        if !headers.contains_key(HOST) {
            line(&[b"host: ", host.as_bytes(), b"\r\n"]);
        }
        for (name, value) in headers {
            // How the body ends is said by us.
            if ![CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION].contains(name) {
                line(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
            }
        }
        let _ = write!(head, "content-length: {}\r\n\r\n", body.len());
        Sending {
            head,
            body,
            sent: 0,
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent == self.head.len() + self.body.len()
    }

    fn poll_send(&mut self, stream: &mut TcpStream, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.is_sent() {
            let head = &self.head[self.sent.min(self.head.len())..];
            let body = &self.body[self.sent.saturating_sub(self.head.len())..];
            let parts = [IoSlice::new(head), IoSlice::new(body)];
            self.sent += match ready!(Pin::new(&mut *stream).poll_write_vectored(cx, &parts))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => sent,
            };
        }
        Poll::Ready(Ok(()))
    }
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> Link {
        Link {
            stream,
            input: BytesMut::new(),
        }
    }

    /// Whether nothing was heard of it since its last answer. There is nothing to say then but that
    /// it ends.
    pub(super) fn is_quiet(&self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.input.is_empty() && self.stream.poll_read_ready(&mut nobody).is_pending()
    }

    /// Sends what is left of a request.
    pub(super) fn poll_send(
        &mut self,
        sending: &mut Sending,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        sending.poll_send(&mut self.stream, cx)
    }

    /// Reads more; 0 is the end.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [const { MaybeUninit::uninit() }; READ];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        self.input.extend_from_slice(room.filled());
        Poll::Ready(Ok(room.filled().len()))
    }

    /// Sends a request; returns when its answer begins, which may be before all of it is sent.
    pub(super) async fn ask(&mut self, sending: &mut Sending) -> Result<Reply, Unanswered> {
        let broken = |cause: &dyn ToString| Unanswered::Broken(cause.to_string());
        let mut reply = poll_fn(|cx| self.poll_reply(sending, cx)).await;
        if let Ok(reply) = &mut reply {
            reply.keep_alive &= sending.is_sent();
        }
        reply.map_err(|cause| match sending.sent {
            0 => Unanswered::Unsent,
            _ => broken(&cause),
        })
    }

    fn poll_reply(
        &mut self,
        sending: &mut Sending,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Reply>> {
        // An upstream that refuses a request may stop reading it: then its answer is there
        // nevertheless.
        let sent = match self.poll_send(sending, cx) {
            Poll::Ready(Err(cause)) => Err(cause),
            _ => Ok(()),
        };
        loop {
            if let Some(reply) = take_reply(&mut self.input).map_err(io::Error::other)? {
                return Poll::Ready(Ok(reply));
            }
            match self.poll_more(cx) {
                Poll::Ready(Ok(0)) => {
                    let early = io::Error::other("the connection ended before its answer");
                    return Poll::Ready(Err(sent.err().unwrap_or(early)));
                }
                Poll::Ready(more) => more?,
                Poll::Pending => {
                    sent?;
                    return Poll::Pending;
                }
            };
        }
    }
}
