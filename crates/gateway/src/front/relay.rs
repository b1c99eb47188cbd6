//! Relays an upstream's response to the client, with the permit inside the body.
//!
//! If the client leaves, the rest of the response is read without it: what the upstream generates
//! until it stops is booked. The upstream is told at once that nobody waits.
//!
//! The parts that hold the upstream's connection and the permit are behind a lock, which the idle
//! check of `idle_timeouts` shares. See `docs/adr/0007`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use headworks_service::config::format_duration;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::body::BoxError;
use super::idle_timeout::IdleTimeouts;
use super::in_flight::{End, InFlight};
use crate::upstream::UpstreamBody;
use crate::wire::{Meter, Problem};
use headworks_h1::timeout;

/// The response as its client's connection sees it. Dropping it closes the upstream's connection
/// and returns the permit.
pub(crate) struct Relay {
    shared_relay: Arc<SharedRelay>,
    idle_timeouts: Arc<IdleTimeouts>,
    key: usize,
}

/// The response as the idle check sees it.
pub(crate) struct SharedRelay(Mutex<RelayState>);

struct RelayState {
    source: Option<Source>,
    /// The side that has to act next. `since` is when its turn began.
    awaited: AwaitedSide,
    since: Instant,
    /// When the request timeout ends.
    end_by: Instant,
    limits: Limits,
    waker: Option<Waker>,
    /// Last data or error for the client, after the source has ended.
    final_item: Option<Result<Bytes, BoxError>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AwaitedSide {
    Upstream,
    Client,
}

/// Timeouts of a response.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) idle: Duration,
    pub(crate) client: Duration,
    pub(crate) whole: Duration,
}

struct Source {
    body: UpstreamBody,
    meter: Meter,
    in_flight: InFlight,
    first: bool,
}

/// Longest time in which an upstream has to end a stream whose client has left. Then its connection
/// is closed.
const STREAM_LINGER: Duration = Duration::from_secs(1);
/// Most bytes that are read of a response whose client has left. A broken upstream may send without
/// an end, and nobody needs what it sends.
const MAX_UNWANTED: usize = 64 << 20;

impl Drop for Source {
    fn drop(&mut self) {
        self.in_flight.settle(End::Disconnected, &self.meter);
    }
}

impl Source {
    /// Ends the client's part of the response. The rest is read in the background if the upstream
    /// can be told that nobody waits for it; otherwise the connection is closed.
    fn leave(mut self, end: End, limits: Limits) {
        // Without a runtime, the process is about to exit.
        let can_read_on = self.body.half_close() && tokio::runtime::Handle::try_current().is_ok();
        if !can_read_on {
            return self.in_flight.settle(end, &self.meter);
        }
        self.in_flight.left = Some(end);
        let tasks = self.in_flight.shared.abandoned.clone();
        tasks.spawn(async move {
            let most = match self.in_flight.events {
                true => STREAM_LINGER,
                // A response that is not a stream has its usage report at its end.
                false => limits.whole,
            };
            let complete = matches!(timeout(most, self.read_rest(limits.idle)).await, Ok(true));
            let end = if complete { End::Complete } else { end };
            self.in_flight.settle(end, &self.meter);
        });
    }

    /// Reads to the end of the response. Returns whether it is complete.
    async fn read_rest(&mut self, idle: Duration) -> bool {
        let mut read = 0;
        loop {
            let frame = poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx));
            match timeout(idle, frame).await {
                Ok(Some(Ok(frame))) => {
                    self.record_frame(&frame);
                    read += frame.data_ref().map_or(0, Bytes::len);
                    if read > MAX_UNWANTED {
                        return false;
                    }
                }
                Ok(None) => return true,
                Ok(Some(Err(_))) | Err(_) => return false,
            }
        }
    }
}

impl Relay {
    pub(crate) fn new(body: UpstreamBody, in_flight: InFlight, limits: Limits) -> Relay {
        let now = Instant::now();
        let idle_timeouts = in_flight.shared.idle_timeouts.clone();
        let meter = match in_flight.events {
            true => Meter::of_events(),
            false => Meter::default(),
        };
        let shared_relay = Arc::new(SharedRelay(Mutex::new(RelayState {
            awaited: AwaitedSide::Upstream,
            since: now,
            end_by: in_flight.began + limits.whole,
            limits,
            waker: None,
            final_item: None,
            source: Some(Source {
                body,
                meter,
                in_flight,
                first: true,
            }),
        })));
        let key = idle_timeouts.add(&shared_relay);
        Relay {
            shared_relay,
            idle_timeouts,
            key,
        }
    }

    pub(crate) fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.shared_relay.0.lock().poll_frame(cx)
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        let state = self.shared_relay.0.lock();
        state.source.is_none() && state.final_item.is_none()
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        let state = self.shared_relay.0.lock();
        state
            .source
            .as_ref()
            .map_or_else(SizeHint::default, |source| source.body.size_hint())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.idle_timeouts.remove(self.key);
        // Taken under the lock, dropped outside it: dropping it settles the request and returns the
        // permit, which wakes others.
        let (source, limits) = {
            let mut state = self.shared_relay.0.lock();
            (state.source.take(), state.limits)
        };
        if let Some(source) = source {
            source.leave(End::Disconnected, limits);
        }
    }
}

impl RelayState {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(final_error) = self.final_item.take() {
            return Poll::Ready(Some(final_error.map(Frame::data)));
        }
        let Some(source) = self.source.as_mut() else {
            return Poll::Ready(None);
        };
        match Pin::new(&mut source.body).poll_frame(cx) {
            Poll::Pending => {
                // The client has read everything, so the upstream's time begins.
                if self.awaited == AwaitedSide::Client {
                    (self.awaited, self.since) = (AwaitedSide::Upstream, Instant::now());
                }
                self.set_waker(cx.waker());
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => {
                // The body is polled again only when the client has read this frame, so the
                // client's time begins.
                (self.awaited, self.since) = (AwaitedSide::Client, Instant::now());
                source.record_frame(&frame);
                if source.body.is_end_stream() {
                    // The slot is free as soon as the upstream is done, even if the client has not
                    // read everything.
                    self.end(End::Complete);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                let problem = self.broken(&error);
                self.end(End::Broken);
                Poll::Ready(Some(problem.map(Frame::data)))
            }
            Poll::Ready(None) => {
                self.end(End::Complete);
                Poll::Ready(None)
            }
        }
    }

    fn set_waker(&mut self, waker: &Waker) {
        match &self.waker {
            Some(known) if known.will_wake(waker) => {}
            _ => self.waker = Some(waker.clone()),
        }
    }

    fn end(&mut self, end: End) {
        if let Some(mut source) = self.source.take() {
            source.in_flight.settle(end, &source.meter);
        }
    }

    fn broken(&self, error: &BoxError) -> Result<Bytes, BoxError> {
        let name = self
            .source
            .as_ref()
            .map_or("", |source| source.in_flight.upstream.name());
        let message = format!("upstream `{name}` broke off in the middle of its response: {error}");
        self.final_error(Problem::new(
            StatusCode::BAD_GATEWAY,
            "upstream_broke_off",
            message,
        ))
    }

    /// The last item that a client receives. Between two events of a stream, this is an error
    /// event. Otherwise it is an error that ends the connection: a truncated response must not look
    /// complete.
    fn final_error(&self, problem: Problem) -> Result<Bytes, BoxError> {
        let source = self.source.as_ref();
        match source.filter(|source| source.in_flight.events && source.meter.is_between_events()) {
            Some(source) => {
                let id = source
                    .in_flight
                    .shared
                    .history
                    .ids
                    .name(source.in_flight.number);
                Ok(problem.event(source.in_flight.dialect, &id))
            }
            None => Err(problem.into()),
        }
    }

    fn overdue(&self, now: Instant) -> Option<(End, Problem)> {
        let limits = self.limits;
        let waited = now.saturating_duration_since(self.since);
        let timeout =
            |reason, message: String| Problem::new(StatusCode::GATEWAY_TIMEOUT, reason, message);
        if self.awaited == AwaitedSide::Client && waited > limits.client {
            let message = format!(
                "the client did not read the response for {}",
                format_duration(limits.client)
            );
            return Some((End::Unread, timeout("client_not_reading", message)));
        }
        if self.awaited == AwaitedSide::Upstream && waited > limits.idle {
            let message = format!(
                "the upstream sent nothing for {}",
                format_duration(limits.idle)
            );
            return Some((End::Silent, timeout("upstream_silent", message)));
        }
        let message = || {
            format!(
                "the response took longer than {}",
                format_duration(limits.whole)
            )
        };
        (now > self.end_by).then(|| (End::TooLong, timeout("request_timeout", message())))
    }
}

impl Source {
    fn record_frame(&mut self, frame: &Frame<Bytes>) {
        if std::mem::take(&mut self.first) {
            self.in_flight
                .upstream
                .metrics
                .first_token
                .record(self.in_flight.began.elapsed());
        }
        if let Some(data) = frame.data_ref() {
            self.meter.feed(data);
        }
    }
}

impl SharedRelay {
    /// Ends the response if the client or the upstream exceeded its timeout.
    pub(crate) fn end_if_overdue(&self, now: Instant) {
        let mut state = self.0.lock();
        if state.source.is_none() {
            return;
        }
        if let Some((end, problem)) = state.overdue(now) {
            state.final_item = Some(state.final_error(problem));
            match state.source.take() {
                // The client is gone in all but name.
                Some(source) if end == End::Unread => source.leave(end, state.limits),
                source => {
                    state.source = source;
                    state.end(end);
                }
            }
            if let Some(waker) = state.waker.take() {
                waker.wake();
            }
        }
    }
}
