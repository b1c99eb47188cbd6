//! Comments in an event stream while its request is queued. Once the first one is sent, the status
//! is 200, and every error is reported inside the stream.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use headworks_pool::Acquire;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Limited};
use serde_json::Value;
use tokio::time::Interval;
use tokio_util::task::AbortOnDropHandle;

use super::body::{BoxError, GatewayBody};
use super::request::ScheduledRequest;
use crate::shared::QueuedGuard;
use crate::wire::{Dialect, Problem};

/// Most bytes read of an upstream's error response to report it as an event.
const LONGEST_ERROR: usize = 64 << 10;

/// The request in a task of its own. Over HTTP/2 the body is not polled while its client reads
/// nothing, but a request that is granted has to go on, under its timeouts. Dropping the body drops
/// the request.
type PendingResponse = AbortOnDropHandle<Result<GatewayBody, Bytes>>;

/// Body that sends comments, then the response.
pub(crate) struct Progress {
    state: ProgressState,
    tick: Interval,
    position: u32,
}

enum ProgressState {
    Waiting(PendingResponse),
    Relaying(GatewayBody),
    Done,
}

/// Responds at once; the wait continues inside the body.
pub(crate) fn respond(
    request: Box<ScheduledRequest>,
    acquire: Acquire,
    queued_guard: QueuedGuard,
) -> Response<GatewayBody> {
    let (dialect, id) = (request.dialect(), request.response_headers.id.clone());
    let mut response_headers = request.response_headers.clone();
    response_headers.reason = "waiting";
    let mut period = request.active.config.queue_progress_interval;
    // An interval of zero would panic.
    period = period.max(Duration::from_millis(10));
    let progress = Progress {
        position: response_headers.position,
        tick: tokio::time::interval(period),
        state: ProgressState::Waiting(AbortOnDropHandle::new(tokio::spawn(async move {
            let response = request.wait(acquire, queued_guard).await;
            in_stream(response, dialect, &id).await
        }))),
    };
    let mut response = Response::new(GatewayBody::Progress(Box::new(progress)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response_headers.write(dialect, headers);
    response
}

/// Body of the response, or the error as an event.
async fn in_stream(
    response: Response<GatewayBody>,
    dialect: Dialect,
    id: &str,
) -> Result<GatewayBody, Bytes> {
    let status = response.status();
    if status.is_success() {
        return Ok(response.into_body());
    }
    let body = Limited::new(response.into_body(), LONGEST_ERROR)
        .collect()
        .await;
    let body = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    Err(error_event(status, &body, dialect, id))
}

fn error_event(status: StatusCode, body: &[u8], dialect: Dialect, id: &str) -> Bytes {
    let name = if dialect == Dialect::Anthropic {
        "event: error\n"
    } else {
        ""
    };
    match serde_json::from_slice::<Value>(body) {
        // Serialized again, because an event has to be on one line.
        Ok(error) if error.get("error").is_some() => {
            Bytes::from(format!("{name}data: {error}\n\n"))
        }
        _ => Problem::new(
            status,
            "upstream_failed",
            format!("the upstream responded with {status}"),
        )
        .event(dialect, id),
    }
}

impl Progress {
    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        loop {
            match &mut self.state {
                ProgressState::Done => return Poll::Ready(None),
                ProgressState::Relaying(body) => return Pin::new(body).poll_frame(cx),
                ProgressState::Waiting(pending) => match Pin::new(pending).poll(cx) {
                    Poll::Ready(Ok(Ok(body))) => self.state = ProgressState::Relaying(body),
                    // The task panicked; the response ends without an event.
                    Poll::Ready(Err(_)) => self.state = ProgressState::Done,
                    Poll::Ready(Ok(Err(event))) => {
                        self.state = ProgressState::Done;
                        return Poll::Ready(Some(Ok(Frame::data(event))));
                    }
                    Poll::Pending => {
                        ready!(self.tick.poll_tick(cx));
                        let comment = format!(
                            ": waiting, position {} in its class on arrival\n\n",
                            self.position
                        );
                        return Poll::Ready(Some(Ok(Frame::data(Bytes::from(comment)))));
                    }
                },
            }
        }
    }
}
