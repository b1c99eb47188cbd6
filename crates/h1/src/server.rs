//! HTTP/1 server connection: reads requests and writes responses, one at a time and in order.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use crate::buffered_stream::{BufferedStream, RequestBody};
use crate::request_head::has_bare_line_end;
use crate::{
    BoxError, Framing, HeadError, MAX_HEAD, RequestHead, Transport, head_end, read_request_head,
    write_response_head,
};

/// Longest time for a client to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Connection preface of HTTP/2 (RFC 9113, 3.4). The whole preface is required: a client that sends
/// only a part of it is timed out like any other.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Body data up to this size is copied into the output buffer, so that it is sent in one system
/// call with its framing.
const MAX_COPIED: usize = 16 << 10;
/// Answers the requests of a connection.
pub trait Service<S> {
    /// A request that was read and checked.
    type Request;
    /// The body of a response.
    type Body: Body<Data = Bytes, Error = BoxError> + Unpin;

    /// Reads a request.
    fn receive(
        &self,
        parts: Parts,
        body: RequestBody<'_, S>,
    ) -> impl Future<Output = Received<Self::Request, Self::Body>> + Send;

    /// Serves a request. The future is dropped if the client disconnects.
    fn serve(&self, request: Self::Request) -> impl Future<Output = Response<Self::Body>> + Send;

    /// Called before the connection waits for its next request.
    fn idle(&self) {}

    /// The response to input that is not a request.
    fn reject(&self, error: &HeadError) -> Response<Self::Body>;

    /// The response that takes the place of one whose body failed before a byte of it was sent.
    /// Without one, the connection is closed.
    fn replace(&self, headers: &HeaderMap, error: &io::Error) -> Option<Response<Self::Body>>;

    /// How long a client may accept nothing of a response.
    fn write_timeout(&self) -> Duration;
}

/// A request that was read.
#[derive(Debug)]
pub enum Received<R, B> {
    /// It is to be served.
    Request(R),
    /// It has its response already: it was rejected, or its route answers directly.
    Response(Box<Response<B>>),
}

/// Reason why serving a connection ended.
#[derive(Debug)]
pub enum ServeOutcome<S> {
    /// The connection is closed or has to be closed.
    Ended,
    /// The client speaks HTTP/2. The bytes were read already.
    Http2(S, Bytes),
}

/// Next event on a connection.
#[expect(
    clippy::large_enum_variant,
    reason = "it is used at once, and most are requests"
)]
enum NextRequest {
    RequestHead(RequestHead),
    Bad(HeadError),
    Http2,
    Nothing,
}

/// Properties of a request that determine how its response is written.
#[derive(Clone, Copy)]
struct ResponseOptions {
    /// A `HEAD` request: the response has no body.
    head_only: bool,
    /// Whether the client understands chunked encoding.
    chunks: bool,
    /// Whether the connection stays open.
    keep_alive: bool,
}

/// One client's connection.
#[derive(Debug)]
pub struct ServerConnection<S, V> {
    buffered: BufferedStream<S>,
    service: V,
}

impl<S: Transport, V: Service<S>> ServerConnection<S, V> {
    /// A connection that was accepted.
    pub fn new(stream: S, service: V) -> Self {
        ServerConnection {
            buffered: BufferedStream::new(stream),
            service,
        }
    }

    /// Serves requests until the client disconnects. After `stop` it finishes the current one only.
    pub async fn serve(mut self, stop: &CancellationToken) -> ServeOutcome<S> {
        let mut timer = pin!(sleep(HEAD_TIMEOUT));
        let mut stopped = pin!(stop.cancelled());
        let mut first = true;
        loop {
            self.service.idle();
            let next = self.next(timer.as_mut(), stopped.as_mut(), first).await;
            first = false;
            let head = match next {
                NextRequest::RequestHead(head) => head,
                NextRequest::Bad(error) => {
                    let answer = self.service.reject(&error);
                    if self.answer(answer, ResponseOptions::last()).await.is_ok() {
                        self.buffered.drain().await;
                    }
                    return ServeOutcome::Ended;
                }
                NextRequest::Http2 => {
                    let (stream, start) = self.buffered.into_parts();
                    return ServeOutcome::Http2(stream, start);
                }
                NextRequest::Nothing => return ServeOutcome::Ended,
            };
            let mut options = ResponseOptions {
                head_only: head.method == Method::HEAD,
                chunks: head.chunks,
                keep_alive: head.keep_alive,
            };
            let Some(response) = self.respond(head).await else {
                return ServeOutcome::Ended;
            };
            options.keep_alive =
                options.keep_alive && self.buffered.skip_body() && !stop.is_cancelled();
            match self.answer(response, options).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return ServeOutcome::Ended,
            }
        }
        self.buffered.close().await;
        ServeOutcome::Ended
    }

    /// Reads the next request head.
    async fn next(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        mut stopped: Pin<&mut impl Future>,
        first: bool,
    ) -> NextRequest {
        let buffered = &mut self.buffered;
        let (mut seen, mut since) = (0, None);
        loop {
            // Some old clients send an empty line after a body (RFC 9112, 2.2).
            while buffered.input.starts_with(b"\r\n") {
                drop(buffered.input.split_to(2));
            }
            // HTTP/2 can only begin a connection. The first part of its preface would also parse as
            // a request head, so nothing is decided until the rest has arrived.
            let http2 = first && !buffered.input.is_empty();
            if http2 && buffered.input.starts_with(HTTP2_PREFACE) {
                return NextRequest::Http2;
            }
            let undecided = http2 && HTTP2_PREFACE.starts_with(&buffered.input);
            if let Some(end) = head_end(&buffered.input, seen).filter(|_| !undecided) {
                return parse_head(buffered, end);
            }
            if has_bare_line_end(&buffered.input, seen) {
                return NextRequest::Bad(HeadError::BareLineFeed);
            }
            seen = buffered.input.len();
            if seen > MAX_HEAD {
                return NextRequest::Bad(HeadError::TooLarge);
            }
            let more = poll_fn(|cx| {
                if let Poll::Ready(read) = buffered.poll_fill(cx) {
                    return Poll::Ready(read.unwrap_or(0) > 0);
                }
                // An idle client is not waited for: neither beyond the timeout, nor at shutdown.
                if stopped.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                let since = *since.get_or_insert_with(Instant::now);
                // The timer keeps running from one request to the next. Resetting it for each would
                // cost more than checking the time when it fires.
                while timer.as_mut().poll(cx).is_ready() {
                    let end = since + HEAD_TIMEOUT;
                    if end <= Instant::now() {
                        return Poll::Ready(false);
                    }
                    timer.as_mut().reset(end);
                }
                Poll::Pending
            });
            if !more.await {
                return NextRequest::Nothing;
            }
        }
    }

    /// Handles a request. Returns `None` if the client disconnects before there is a response.
    async fn respond(&mut self, head: RequestHead) -> Option<Response<V::Body>> {
        let body = self.buffered.body(head.length, head.expects_continue);
        // Boxed: this future ends before the request is queued, and inline it would enlarge every
        // queued request.
        let received = Box::pin(self.service.receive(parts(head), body)).await;
        let request = match received {
            Received::Request(request) => request,
            Received::Response(response) => return Some(*response),
        };
        // `biased`: a response that is ready is sent even if the client has half-closed the
        // connection since.
        tokio::select! {
            biased;
            response = self.service.serve(request) => Some(response),
            () = self.buffered.disconnected() => None,
        }
    }

    /// Writes a response at the client's pace. Returns whether the connection can be reused.
    async fn answer(
        &mut self,
        answer: Response<V::Body>,
        options: ResponseOptions,
    ) -> io::Result<bool> {
        let write_timeout = self.service.write_timeout();
        let (parts, mut body) = answer.into_parts();
        let framing = options.framing(parts.status, &body);
        let keep_alive = options.keep_alive && framing != Framing::Close;
        let connection_value = match (keep_alive, options.chunks) {
            (false, _) => Some("close"),
            (true, true) => None,
            (true, false) => Some("keep-alive"),
        };
        self.buffered.response_started = false;
        let output = &mut self.buffered.output;
        write_response_head(
            parts.status,
            &parts.headers,
            framing,
            connection_value,
            output,
        );
        if !options.head_only && framing != Framing::Nothing {
            let passed = self.pass(&mut body, framing, write_timeout).await;
            if let Err(error) = passed {
                // If nothing was sent yet, the status can still change: the client gets the reason
                // instead of a connection that breaks.
                let replacement = match self.buffered.response_started {
                    true => None,
                    false => self.service.replace(&parts.headers, &error),
                };
                if let Some(answer) = replacement {
                    self.buffered.output.clear();
                    // Boxed because the function calls itself.
                    return Box::pin(self.answer(answer, options)).await;
                }
                // Without a length or chunks, a closed connection is the regular end of a response.
                // Only a reset shows the client that this one is incomplete.
                if framing == Framing::Close {
                    self.buffered.reset();
                }
                return Err(error);
            }
        }
        // The body is dropped before the last bytes are sent, because it may hold a permit of a
        // scheduler: a client that has the whole response can then be granted again at once.
        drop(body);
        self.buffered.flush(write_timeout).await?;
        Ok(keep_alive)
    }

    /// Streams a body. Its last bytes remain in the output buffer for the caller to flush.
    async fn pass(
        &mut self,
        body: &mut V::Body,
        framing: Framing,
        write_timeout: Duration,
    ) -> io::Result<()> {
        let mut passed = 0;
        while let Some(frame) = self.frame(body, write_timeout).await? {
            if let Ok(data) = frame.into_data() {
                passed += data.len() as u64;
                self.write(framing, &data, write_timeout).await?;
            }
            // The end of the body is sent together with its last data.
            if body.is_end_stream() {
                break;
            }
            self.buffered.flush(write_timeout).await?;
        }
        match framing {
            // A client would wait for the missing bytes, or take surplus bytes for the next
            // response.
            Framing::Length(length) if length != passed => Err(io::ErrorKind::InvalidData.into()),
            Framing::Chunked => {
                self.buffered.output.extend_from_slice(b"0\r\n\r\n");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the next frame of a body. If none is ready, the output is flushed before waiting for
    /// it, so that small events of a stream are not delayed.
    async fn frame(
        &mut self,
        body: &mut V::Body,
        write_timeout: Duration,
    ) -> io::Result<Option<Frame<Bytes>>> {
        let at_once = poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await;
        let frame = match at_once {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                self.buffered.flush(write_timeout).await?;
                tokio::select! {
                    biased;
                    frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)) => frame,
                    () = self.buffered.disconnected() => Some(Err(disconnected())),
                }
            }
        };
        frame.transpose().map_err(io::Error::other)
    }

    async fn write(
        &mut self,
        framing: Framing,
        data: &Bytes,
        write_timeout: Duration,
    ) -> io::Result<()> {
        use std::io::Write;
        if data.is_empty() {
            // A chunk of length 0 would end the body.
            return Ok(());
        }
        let chunked = framing == Framing::Chunked;
        if chunked {
            write!(self.buffered.output, "{:x}\r\n", data.len())?;
        }
        match data.len() {
            ..=MAX_COPIED => self.buffered.output.extend_from_slice(data),
            _ => self.buffered.pass(data, write_timeout).await?,
        }
        if chunked {
            self.buffered.output.extend_from_slice(b"\r\n");
        }
        Ok(())
    }
}

impl ResponseOptions {
    /// Closes the connection after the response: the position in the byte stream is no longer
    /// known.
    fn last() -> ResponseOptions {
        ResponseOptions {
            head_only: false,
            chunks: true,
            keep_alive: false,
        }
    }

    fn framing(self, status: StatusCode, body: &impl Body) -> Framing {
        let bodiless = status.is_informational()
            || [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
        match body.size_hint().exact() {
            _ if bodiless => Framing::Nothing,
            Some(length) => Framing::Length(length),
            None if self.chunks => Framing::Chunked,
            None => Framing::Close,
        }
    }
}

fn parse_head<S: Transport>(buffered: &mut BufferedStream<S>, end: usize) -> NextRequest {
    if end > MAX_HEAD {
        return NextRequest::Bad(HeadError::TooLarge);
    }
    let head = buffered.input.split_to(end).freeze();
    match read_request_head(&head) {
        Ok(head) => NextRequest::RequestHead(head),
        Err(error) => NextRequest::Bad(error),
    }
}

fn parts(head: RequestHead) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) = (head.method, head.uri, head.headers);
    parts
}

fn disconnected() -> BoxError {
    "the client disconnected".into()
}
