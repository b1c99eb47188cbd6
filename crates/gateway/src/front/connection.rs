//! One HTTP/1 connection: requests in order, one at a time.

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

/// How long a client may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How HTTP/2 begins. All of it: who does not say the rest is not waited for any longer than
/// others.
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Pieces of an answer up to this size are copied together with what is around them.
const COPIED: usize = 16 << 10;
/// The watch over all answers knows why a client's time is up, so it comes first.
const GRACE: Duration = Duration::from_secs(5);

/// What became of a connection.
pub(super) enum Over {
    Ended,
    /// It speaks HTTP/2, and said so with these bytes.
    Http2(TcpStream, Bytes),
}

/// What came next on a connection.
enum Next {
    Head(Head),
    Bad(Problem),
    Http2,
    Nothing,
}

/// How one request is to be answered.
#[derive(Clone, Copy)]
struct Manner {
    /// Without a body: only the head was asked for.
    head_only: bool,
    chunks: bool,
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

    /// Serves until the client leaves, or has its answer after `stop`.
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

    /// Waits for the next head.
    async fn next(
        &mut self,
        mut timer: Pin<&mut Sleep>,
        mut stopped: Pin<&mut impl Future>,
        first: bool,
    ) -> Next {
        let line = &mut self.line;
        let (mut seen, mut since) = (0, None);
        loop {
            // A few clients send an empty line behind a body.
            while line.input.starts_with(b"\r\n") {
                drop(line.input.split_to(2));
            }
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
                // Who says nothing is not waited for: neither for ever, nor when we stop.
                if stopped.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                let since = *since.get_or_insert_with(Instant::now);
                // The timer runs on from request to request: setting it anew for each costs more
                // than looking late.
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

    /// Finds an answer; `None` if the client left before there was one.
    async fn respond(&mut self, head: Head) -> Option<Response<GatewayBody>> {
        let body = self.line.body(head.length, head.expects);
        // In a box: it is over before the wait begins, and would leave its room in what waits.
        let received = Box::pin(route::receive(&self.desk, parts(head), body)).await;
        let passage = match received {
            Ok(passage) => passage,
            Err(response) => return Some(*response),
        };
        tokio::select! {
            biased;
            response = passage.go() => Some(response),
            () = self.line.gone() => None,
        }
    }

    /// Writes an answer, as fast as the client takes it; says whether the connection goes on.
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
                let unheard = Some(&error).filter(|_| !self.line.heard);
                if let Some(problem) = unheard.and_then(problem) {
                    // In a box: it is this same function.
                    let answer = instead(&parts.headers, problem);
                    self.line.output.clear();
                    return Box::pin(self.answer(answer, manner)).await;
                }
                if framing == Framing::Close {
                    self.line.reset();
                }
                return Err(error);
            }
        }
        // Who has the whole answer finds that nothing is held for it any more.
        drop(body);
        self.line.flush(patience).await?;
        Ok(keep)
    }

    /// Passes a body on; its end is left to be sent.
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
            // The end goes with the last piece where it can.
            if body.is_end_stream() {
                break;
            }
            self.line.flush(patience).await?;
        }
        match framing {
            Framing::Length(length) if length != passed => Err(io::ErrorKind::InvalidData.into()),
            Framing::Chunked => {
                self.line.output.extend_from_slice(b"0\r\n\r\n");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The next piece of an answer. What was written is sent before it is waited for.
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
            // It would be the last chunk.
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
    /// After which nothing on the connection can be trusted.
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

/// Why an answer cannot be given, if that can be said.
fn problem(error: &io::Error) -> Option<&Problem> {
    error.get_ref()?.downcast_ref()
}

fn gone() -> BoxError {
    "the client is gone".into()
}
