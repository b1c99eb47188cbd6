//! Built-in upstream that returns the prompt, slowly or with an error on request.
//!
//! The headers `x-echo-latency-ms`, `x-echo-token-ms`, `x-echo-tokens`, `x-echo-status` and
//! `x-echo-retry-after` override the configuration per request.

mod formats;

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use http_body::Frame;
use serde_json::Value;
use tokio::time::Sleep;

use super::call::ForwardedRequest;
use crate::config::UpstreamSettings;
use crate::wire::{Endpoint, Problem, read_summary};

/// Most tokens of one response, whatever the request says.
const MAX_TOKENS: u64 = 100_000;

/// Body that sends its pieces with a pause before each.
pub(crate) struct EchoBody {
    pieces: VecDeque<Bytes>,
    pause: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl EchoBody {
    fn new(pieces: impl IntoIterator<Item = Bytes>, pause: Duration) -> EchoBody {
        EchoBody {
            pieces: pieces.into_iter().collect(),
            pause,
            sleep: None,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.pieces.is_empty()
    }

    pub(crate) fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Frame<Bytes>>> {
        let this = self.get_mut();
        if this.pieces.is_empty() {
            return Poll::Ready(None);
        }
        if !this.pause.is_zero() {
            let pause = this.pause;
            let sleep = this
                .sleep
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(pause)));
            ready!(sleep.as_mut().poll(cx));
            this.sleep = None;
        }
        Poll::Ready(this.pieces.pop_front().map(Frame::data))
    }
}

/// Behaviour of one response.
struct EchoOptions {
    latency: Duration,
    pause: Duration,
    tokens: Option<u64>,
    status: StatusCode,
}

impl EchoOptions {
    fn new(settings: &UpstreamSettings, headers: &HeaderMap) -> EchoOptions {
        let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
        let time = |name: &str, otherwise| number(name).map_or(otherwise, Duration::from_millis);
        let status = number("x-echo-status").and_then(|code| u16::try_from(code).ok());
        EchoOptions {
            latency: time("x-echo-latency-ms", settings.latency),
            pause: time("x-echo-token-ms", settings.token_time),
            tokens: number("x-echo-tokens").or(settings.tokens),
            status: status
                .and_then(|code| StatusCode::from_u16(code).ok())
                // An informational status is not a final response.
                .filter(|status| !status.is_informational())
                .unwrap_or(StatusCode::OK),
        }
    }
}

/// Responds as an upstream would.
pub(crate) async fn answer(
    settings: &UpstreamSettings,
    forward: &ForwardedRequest,
) -> Response<EchoBody> {
    let options = EchoOptions::new(settings, &forward.headers);
    if !options.latency.is_zero() {
        tokio::time::sleep(options.latency).await;
    }
    if options.status != StatusCode::OK {
        return failure(&options, forward);
    }
    let body: Value = serde_json::from_slice(&forward.body).unwrap_or_default();
    let summary = read_summary(&forward.body).unwrap_or_default();
    let reply = formats::Reply::new(
        &body,
        &summary,
        options.tokens.map(|tokens| tokens.min(MAX_TOKENS)),
    );
    if summary.stream && forward.endpoint.generates() {
        let events = formats::stream(forward.endpoint, &reply);
        return respond(
            &options,
            "text/event-stream",
            EchoBody::new(events, options.pause),
        );
    }
    let time = options.pause * u32::try_from(reply.words.len()).unwrap_or(u32::MAX);
    if forward.endpoint.generates() && !time.is_zero() {
        tokio::time::sleep(time).await;
    }
    let whole = Bytes::from(formats::whole(forward.endpoint, &reply).to_string());
    respond(
        &options,
        "application/json",
        EchoBody::new([whole], Duration::ZERO),
    )
}

fn failure(options: &EchoOptions, forward: &ForwardedRequest) -> Response<EchoBody> {
    let problem = Problem::new(
        options.status,
        "ordered",
        "error requested by `x-echo-status`",
    );
    let body = problem.body(Endpoint::dialect(forward.endpoint), "echo");
    let mut response = respond(
        options,
        "application/json",
        EchoBody::new([body], Duration::ZERO),
    );
    if let Some(after) = forward.headers.get("x-echo-retry-after") {
        response.headers_mut().insert(RETRY_AFTER, after.clone());
    }
    response
}

fn respond(options: &EchoOptions, content: &'static str, body: EchoBody) -> Response<EchoBody> {
    let mut response = Response::new(body);
    *response.status_mut() = options.status;
    let content = HeaderValue::from_static(content);
    response.headers_mut().insert(CONTENT_TYPE, content);
    response
}
