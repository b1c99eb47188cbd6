//! Buffered I/O on a client's HTTP/1 connection: bytes received but not parsed, and bytes written
//! but not sent.
//!
//! Thousands of clients may be queued at the same time. Between two reads, a connection therefore
//! holds only the bytes that it has received; reads go through a buffer on the stack. See
//! `docs/adr/0014`.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncWriteExt, Interest, ReadBuf};
use tokio_util::io::poll_read_buf;

use crate::{BadChunk, Chunks, Length, Transport, timeout};

/// Size of the read buffer on the stack.
const READ_BUFFER: usize = 16 << 10;
/// Most bytes that a client may send ahead of its current response.
const MAX_READ_AHEAD: usize = 64 << 10;
/// Initial capacity for a body that has not fully arrived. It grows with the data, so that an
/// announced length alone cannot allocate much.
const INITIAL_BODY_CAPACITY: usize = 64 << 10;
/// Size of the pieces in which a chunked body is collected.
const PIECE: usize = 1 << 20;
/// Limits on reading the rest of a rejected body. Closing a socket with unread data resets the
/// connection, and the client would lose the error response.
const MAX_DRAIN: usize = 1 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Larger output buffers are freed after use.
const MAX_KEPT_OUTPUT: usize = 4 << 10;

/// Buffered client connection.
#[derive(Debug)]
pub(crate) struct BufferedStream<S> {
    stream: S,
    pub(crate) input: BytesMut,
    pub(crate) output: Vec<u8>,
    /// Whether a part of the current response may have been sent.
    pub(crate) response_started: bool,
    /// Framing of the body that follows in the input, until it is consumed.
    body: Option<Length>,
    /// Whether the client waits for `100 Continue`.
    expects_continue: bool,
}

impl<S: Transport> BufferedStream<S> {
    pub(crate) fn new(stream: S) -> Self {
        BufferedStream {
            stream,
            input: BytesMut::new(),
            output: Vec::new(),
            response_started: false,
            body: None,
            expects_continue: false,
        }
    }

    /// Returns the stream and the bytes already read from it.
    pub(crate) fn into_parts(self) -> (S, Bytes) {
        (self.stream, self.input.freeze())
    }

    /// Reads more input. Returns 0 at the end of the stream.
    pub(crate) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [const { MaybeUninit::uninit() }; READ_BUFFER];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        self.input.extend_from_slice(room.filled());
        Poll::Ready(Ok(room.filled().len()))
    }

    async fn fill(&mut self) -> Result<(), BodyError> {
        match std::future::poll_fn(|cx| self.poll_fill(cx)).await {
            Ok(0) => Err(BodyError::ended()),
            Ok(_) => Ok(()),
            Err(cause) => Err(BodyError::Broken(cause.to_string())),
        }
    }

    /// Waits until the client disconnects. Bytes that it sends ahead are kept.
    pub(crate) async fn disconnected(&mut self) {
        while self.input.len() < MAX_READ_AHEAD {
            if self.fill().await.is_err() {
                return;
            }
        }
        // The input buffer is full, so the end of the stream cannot be found by reading. Tokio
        // reports a closed stream also to a task that waits for urgent data, which no client sends.
        // The end arrives after all data before it, so it is missed while the socket's own buffer
        // is full.
        let _ = self.stream.socket().ready(Interest::PRIORITY).await;
    }

    /// Sends the output buffer. Fails if the client accepts nothing for `write_timeout`.
    pub(crate) async fn flush(&mut self, write_timeout: Duration) -> io::Result<()> {
        self.response_started |= !self.output.is_empty();
        let BufferedStream { stream, output, .. } = self;
        send_all(stream, output, write_timeout).await?;
        output.clear();
        if output.capacity() > MAX_KEPT_OUTPUT {
            *output = Vec::new();
        }
        Ok(())
    }

    /// Sends `data` without copying it, after the output buffer.
    pub(crate) async fn pass(&mut self, data: &[u8], write_timeout: Duration) -> io::Result<()> {
        self.flush(write_timeout).await?;
        send_all(&mut self.stream, data, write_timeout).await
    }

    /// Begins the body that a request head announced.
    pub(crate) fn body(&mut self, length: Length, expects_continue: bool) -> RequestBody<'_, S> {
        self.expects_continue = expects_continue;
        self.body = Some(length).filter(|length| *length != Length::Known(0));
        RequestBody(self)
    }

    /// Skips a body that was not read. Returns whether the next request can be parsed, which is not
    /// the case while a part of the body is missing.
    pub(crate) fn skip_body(&mut self) -> bool {
        match self.body {
            None => true,
            Some(Length::Known(length)) if length <= self.input.len() as u64 => {
                drop(self.input.split_to(length as usize));
                self.body = None;
                true
            }
            Some(_) => false,
        }
    }

    /// Closes the connection.
    pub(crate) async fn close(self) {
        if self.body.is_some() || !self.input.is_empty() {
            self.drain().await;
        }
    }

    /// Closes the connection while the client may still send. The write side is shut down first and
    /// the input is read for a while, so that the client receives the response.
    pub(crate) async fn drain(mut self) {
        if self.stream.shutdown().await.is_err() {
            return;
        }
        let rest = async {
            let mut left = MAX_DRAIN;
            while left > 0 {
                self.input.clear();
                if self.fill().await.is_err() {
                    return;
                }
                left = left.saturating_sub(self.input.len());
            }
        };
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, rest).await;
    }

    /// Makes the close a reset, where a regular close would look like the end of a complete
    /// response.
    pub(crate) fn reset(&self) {
        let _ = self.stream.socket().set_zero_linger();
    }

    async fn read_known(
        &mut self,
        length: usize,
        budget: &mut impl BodyBudget,
    ) -> Result<Bytes, BodyError> {
        let first = length.min(INITIAL_BODY_CAPACITY.max(self.input.len()));
        if !budget.grow(first) {
            return Err(BodyError::NoMemory);
        }
        if self.input.len() >= length {
            return Ok(self.input.split_to(length).freeze());
        }
        let mut body = BytesMut::with_capacity(first);
        body.extend_from_slice(&self.input);
        let mut granted = first;
        self.input = BytesMut::new();
        while body.len() < length {
            // Reserves no more than the body needs: it keeps this memory while the request is
            // queued.
            if body.len() >= granted {
                let more = (length - body.len()).min(body.len());
                if !budget.grow(more) {
                    return Err(BodyError::NoMemory);
                }
                granted += more;
            }
            if body.len() == body.capacity() {
                body.reserve((length - body.len()).min(body.len()));
            }
            let read =
                std::future::poll_fn(|cx| poll_read_buf(Pin::new(&mut self.stream), cx, &mut body));
            match read.await {
                Ok(0) => return Err(BodyError::ended()),
                Ok(_) => {}
                Err(cause) => return Err(BodyError::Broken(cause.to_string())),
            }
        }
        // Bytes beyond the body belong to the next request.
        self.input = body.split_off(length);
        Ok(body.freeze())
    }

    async fn read_chunked(
        &mut self,
        most: u64,
        budget: &mut impl BodyBudget,
    ) -> Result<Bytes, BodyError> {
        let (mut chunks, mut body) = (Chunks::new(most), BytesMut::new());
        // The length is unknown. One buffer that grows by doubling would need three times the
        // memory of the body at worst, so a large body is collected in pieces.
        let mut pieces = Vec::new();
        loop {
            let before = body.len();
            let read = chunks.read(&mut self.input, &mut body);
            if body.len() > before && !budget.grow(body.len() - before) {
                return Err(BodyError::NoMemory);
            }
            match read {
                Ok(true) if pieces.is_empty() => return Ok(body.freeze()),
                Ok(true) => {
                    pieces.push(body);
                    return Ok(joined(pieces));
                }
                Ok(false) if body.len() >= PIECE => {
                    let next = BytesMut::with_capacity(2 * PIECE);
                    pieces.push(std::mem::replace(&mut body, next));
                }
                Ok(false) => self.fill().await?,
                Err(BadChunk::TooLarge) => return Err(BodyError::TooLarge),
                Err(BadChunk::Malformed) => {
                    return Err(BodyError::Broken("malformed chunked encoding".to_owned()));
                }
            }
        }
    }
}

/// Joins the pieces of a body. Each is freed as soon as it is copied.
fn joined(pieces: Vec<BytesMut>) -> Bytes {
    let length = pieces.iter().map(BytesMut::len).sum();
    let mut whole = BytesMut::with_capacity(length);
    for piece in pieces {
        whole.extend_from_slice(&piece);
    }
    whole.freeze()
}

/// Sends all of `bytes`. Fails if the other side accepts nothing for `write_timeout`.
async fn send_all(
    stream: &mut impl Transport,
    bytes: &[u8],
    write_timeout: Duration,
) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    let mut sent = 0;
    while sent < bytes.len() {
        let write =
            std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, &bytes[sent..]));
        sent += match timeout(write_timeout, write).await.map_err(late)?? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            more => more,
        };
    }
    // A socket has nothing to flush, but TLS may hold a record that the socket had no room for.
    let flush = std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_flush(cx));
    timeout(write_timeout, flush).await.map_err(late)?
}

/// Memory that a body may take.
pub trait BodyBudget: Send {
    /// Takes this many bytes more. Returns false if there is no room for them: the body is then
    /// not read on.
    fn grow(&mut self, bytes: usize) -> bool;
}

/// A budget without a bound.
impl BodyBudget for () {
    fn grow(&mut self, _: usize) -> bool {
        true
    }
}

/// Reason why a body could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It has more bytes than are accepted.
    #[error("the body is too large")]
    TooLarge,
    /// Its budget has no room for it.
    #[error("no memory is left for the body")]
    NoMemory,
    /// The client left, or its bytes are no body.
    #[error("{0}")]
    Broken(String),
}

impl BodyError {
    fn ended() -> BodyError {
        BodyError::Broken("the client closed the connection".to_owned())
    }
}

/// Body of the request whose head was read last.
#[derive(Debug)]
pub struct RequestBody<'a, S>(&'a mut BufferedStream<S>);

impl<S: Transport> RequestBody<'_, S> {
    /// Reads the whole body if it has at most `most` bytes. The budget is charged as the body
    /// arrives: an announced length alone takes little of it.
    ///
    /// # Errors
    /// If it is larger or malformed, the client leaves, or the budget has no room.
    pub async fn read_all(
        self,
        most: u64,
        budget: &mut impl BodyBudget,
    ) -> Result<Bytes, BodyError> {
        let buffered = self.0;
        let Some(length) = buffered.body else {
            return Ok(Bytes::new());
        };
        if matches!(length, Length::Known(length) if length > most) {
            return Err(BodyError::TooLarge);
        }
        if buffered.expects_continue && buffered.input.is_empty() {
            let leave = b"HTTP/1.1 100 Continue\r\n\r\n";
            let written = buffered.pass(leave, DRAIN_TIMEOUT).await;
            written.map_err(|cause| BodyError::Broken(cause.to_string()))?;
        }
        let body = match length {
            Length::Known(length) => {
                buffered
                    .read_known(usize::try_from(length).unwrap_or(usize::MAX), budget)
                    .await?
            }
            Length::Chunked => buffered.read_chunked(most, budget).await?,
        };
        buffered.body = None;
        if buffered.input.is_empty() {
            // An empty `BytesMut` would keep the whole allocation that it was split from.
            buffered.input = BytesMut::new();
        }
        Ok(body)
    }
}
