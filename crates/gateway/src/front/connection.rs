//! HTTP/1 server connection: reads requests and writes responses, one at a time and in order.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, Request, Response, StatusCode};
use http_body::{Body, Frame};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};
use tokio_util::sync::CancellationToken;

use super::body::{BoxError, GatewayBody};
use super::line::Line;
use super::marks::instead;
use super::route::{self, Desk};
use crate::wire::http1::{Framing, Head, MAX_HEAD, head_end, read_head, write_head};
use crate::wire::{Problem, http1};

/// Longest time for a client to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Connection preface of HTTP/2 (RFC 9113, 3.4). The whole preface is required: a client that sends
/// only a part of it is timed out like any other.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Body data up to this size is copied into the output buffer, so that it is sent in one system
/// call with its framing.
const COPIED: usize = 16 << 10;
/// Extra time for a write. The idle check of all responses ends a stalled response first: it knows
/// the reason and records it.
const GRACE: Duration = Duration::from_secs(5);

/// Reason why serving a connection ended.
pub(super) enum Over {
    /// The connection is closed or has to be closed.
    Ended,
    /// The client speaks HTTP/2. The bytes were read already.
    Http2(TcpStream, Bytes),
}

/// Next event on a connection.
enum Next {
    Head(Head),
    Bad(Problem),
    Http2,
    Nothing,
}

/// Properties of a request that determine how its response is written.
#[derive(Clone, Copy)]
struct Manner {
    /// A `HEAD` request: the response has no body.
    head_only: bool,
    /// Whether the client understands chunked encoding.
    chunks: bool,
    /// Whether the connection stays open.
    keep: bool,
}

/// One client's connection.
pub(super) struct Connection {
    line: Line,
    desk: Arc<Desk>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, desk: Arc<Desk>) -> Connection {
        Connection {
            line: Line::new(stream),
            desk,
        }
    }

    /// Serves requests until the client disconnects. After `stop` it finishes the current one only.
    pub(super) async fn serve(mut self, stop: &CancellationToken) -> Over {
        let mut timer = pin!(sleep(HEAD_TIMEOUT));
        let mut stopped = pin!(stop.cancelled());
        let mut first = true;
        loop {
            let next = self.next(timer.as_mut(), stopped.as_mut(), first).await;
            first = false;
            let head = match next {
                Next::Head(head) => head,
                Next::Bad(problem) => {
                    let answer = route::misunderstood(&self.desk.shared, &problem);
                    if self.answer(answer, Manner::last()).await.is_ok() {
                        self.line.drain().await;
                    }
                    return Over::Ended;
                }
                Next::Http2 => {
                    let (stream, start) = self.line.into_parts();
                    return Over::Http2(stream, start);
                }
                Next::Nothing => return Over::Ended,
            };
            let mut manner = Manner {
                head_only: head.method == Method::HEAD,
                chunks: head.chunks,
                keep: head.keep_alive,
            };
            let Some(response) = self.respond(head).await else {
                return Over::Ended;
            };
            manner.keep = manner.keep && self.line.skip_body() && !stop.is_cancelled();
            match self.answer(response, manner).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return Over::Ended,
            }
        }
        self.line.close().await;
        Over::Ended
    }

    /// Reads the next request head.
    async fn next(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        mut stopped: Pin<&mut impl Future>,
        first: bool,
    ) -> Next {
        let line = &mut self.line;
        let (mut seen, mut since) = (0, None);
        loop {
            // Some old clients send an empty line after a body (RFC 9112, 2.2).
            while line.input.starts_with(b"\r\n") {
                drop(line.input.split_to(2));
            }
            // HTTP/2 can only begin a connection. The first part of its preface would also parse as
            // a request head, so nothing is decided until the rest has arrived.
            let http2 = first && !line.input.is_empty();
            if http2 && line.input.starts_with(HTTP2) {
                return Next::Http2;
            }
            let undecided = http2 && HTTP2.starts_with(&line.input);
            if let Some(end) = head_end(&line.input, seen).filter(|_| !undecided) {
                return take_head(line, end);
            }
            if http1::ends_bare(&line.input, seen) {
                return Next::Bad(http1::bare_line());
            }
            seen = line.input.len();
            if seen > MAX_HEAD {
                return Next::Bad(http1::too_long());
            }
            let more = poll_fn(|cx| {
                if let Poll::Ready(read) = line.poll_more(cx) {
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
                return Next::Nothing;
            }
        }
    }

    /// Handles a request. Returns `None` if the client disconnects before there is a response.
    async fn respond(&mut self, head: Head) -> Option<Response<GatewayBody>> {
        let body = self.line.body(head.length, head.expects);
        // Boxed: this future ends before the request is queued, and inline it would enlarge every
        // queued request.
        let received = Box::pin(route::receive(&self.desk, parts(head), body)).await;
        let passage = match received {
            Ok(passage) => passage,
            Err(response) => return Some(*response),
        };
        // `biased`: a response that is ready is sent even if the client has half-closed the
        // connection since.
        tokio::select! {
            biased;
            response = passage.go() => Some(response),
            () = self.line.gone() => None,
        }
    }

    /// Writes a response at the client's pace. Returns whether the connection can be reused.
    async fn answer(&mut self, answer: Response<GatewayBody>, manner: Manner) -> io::Result<bool> {
        let patience = self.desk.shared.plan.load().config.client_timeout + GRACE;
        let (parts, mut body) = answer.into_parts();
        let framing = manner.framing(parts.status, &body);
        let keep = manner.keep && framing != Framing::Close;
        let word = match (keep, manner.chunks) {
            (false, _) => Some("close"),
            (true, true) => None,
            (true, false) => Some("keep-alive"),
        };
        self.line.heard = false;
        let output = &mut self.line.output;
        write_head(parts.status, &parts.headers, framing, word, output);
        if !manner.head_only && framing != Framing::Nothing {
            let passed = self.pass(&mut body, framing, patience).await;
            if let Err(error) = passed {
                // If nothing was sent yet, the status can still change: the client gets the reason
                // instead of a connection that breaks.
                let unheard = Some(&error).filter(|_| !self.line.heard);
                if let Some(problem) = unheard.and_then(problem) {
                    // Boxed because the function calls itself.
                    let answer = instead(&parts.headers, problem);
                    self.line.output.clear();
                    return Box::pin(self.answer(answer, manner)).await;
                }
                // Without a length or chunks, a closed connection is the regular end of a response.
                // Only a reset shows the client that this one is incomplete.
                if framing == Framing::Close {
                    self.line.reset();
                }
                return Err(error);
            }
        }
        // Released before the last bytes are sent: a client that has the whole response finds its
        // slot free.
        drop(body);
        self.line.flush(patience).await?;
        Ok(keep)
    }

    /// Streams a body. Its last bytes remain in the output buffer for the caller to flush.
    async fn pass(
        &mut self,
        body: &mut GatewayBody,
        framing: Framing,
        patience: Duration,
    ) -> io::Result<()> {
        let mut passed = 0;
        while let Some(frame) = self.frame(body, patience).await? {
            if let Ok(data) = frame.into_data() {
                passed += data.len() as u64;
                self.write(framing, &data, patience).await?;
            }
            // The end of the body is sent together with its last data.
            if body.is_end_stream() {
                break;
            }
            self.line.flush(patience).await?;
        }
        match framing {
            // A client would wait for the missing bytes, or take surplus bytes for the next
            // response.
            Framing::Length(length) if length != passed => Err(io::ErrorKind::InvalidData.into()),
            Framing::Chunked => {
                self.line.output.extend_from_slice(b"0\r\n\r\n");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Returns the next frame of a body. If none is ready, the output is flushed before waiting for
    /// it, so that small events of a stream are not delayed.
    async fn frame(
        &mut self,
        body: &mut GatewayBody,
        patience: Duration,
    ) -> io::Result<Option<Frame<Bytes>>> {
        let at_once = poll_fn(|cx| Poll::Ready(Pin::new(&mut *body).poll_frame(cx))).await;
        let frame = match at_once {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                self.line.flush(patience).await?;
                tokio::select! {
                    biased;
                    frame = poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)) => frame,
                    () = self.line.gone() => Some(Err(gone())),
                }
            }
        };
        frame.transpose().map_err(io::Error::other)
    }

    async fn write(
        &mut self,
        framing: Framing,
        data: &Bytes,
        patience: Duration,
    ) -> io::Result<()> {
        use std::io::Write;
        if data.is_empty() {
            // A chunk of length 0 would end the body.
            return Ok(());
        }
        let chunked = framing == Framing::Chunked;
        if chunked {
            write!(self.line.output, "{:x}\r\n", data.len())?;
        }
        match data.len() {
            ..=COPIED => self.line.output.extend_from_slice(data),
            _ => self.line.pass(data, patience).await?,
        }
        if chunked {
            self.line.output.extend_from_slice(b"\r\n");
        }
        Ok(())
    }
}

impl Manner {
    /// Closes the connection after the response: the position in the byte stream is no longer
    /// known.
    fn last() -> Manner {
        Manner {
            head_only: false,
            chunks: true,
            keep: false,
        }
    }

    fn framing(self, status: StatusCode, body: &GatewayBody) -> Framing {
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

fn take_head(line: &mut Line, end: usize) -> Next {
    if end > MAX_HEAD {
        return Next::Bad(http1::too_long());
    }
    let head = line.input.split_to(end).freeze();
    match read_head(&head) {
        Ok(head) => Next::Head(head),
        Err(problem) => Next::Bad(problem),
    }
}

fn parts(head: Head) -> Parts {
    let (mut parts, ()) = Request::new(()).into_parts();
    (parts.method, parts.uri, parts.headers) = (head.method, head.uri, head.headers);
    parts
}

/// Extracts the problem to report, if the error carries one.
fn problem(error: &io::Error) -> Option<&Problem> {
    error.get_ref()?.downcast_ref()
}

fn gone() -> BoxError {
    "the client is gone".into()
}
