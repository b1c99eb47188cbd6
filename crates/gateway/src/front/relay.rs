//! Relays an upstream's response to the client, with the permit inside the body.
//!
//! The parts that hold the upstream's connection and the permit are behind a lock, which the idle
//! check of `watch` shares. See `docs/adr/0007`.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use headworks_service::config::show_duration;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;

use super::body::BoxError;
use super::held::{End, Held};
use super::watch::Watch;
use crate::upstream::UpstreamBody;
use crate::wire::{Meter, Problem};

/// The response as its client's connection sees it. Dropping it closes the upstream's connection
/// and returns the permit.
pub(crate) struct Relay {
    slot: Arc<Slot>,
    watch: Arc<Watch>,
    key: usize,
}

/// The response as the idle check sees it.
pub(crate) struct Slot(Mutex<Live>);

struct Live {
    source: Option<Source>,
    /// The side that has to act next. `since` is when its turn began.
    turn: Turn,
    since: Instant,
    /// When the request timeout ends.
    end_by: Instant,
    limits: Limits,
    waker: Option<Waker>,
    /// Last data or error for the client, after the source has ended.
    last_words: Option<Result<Bytes, BoxError>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Upstream,
    Client,
}

/// Timeouts of a response.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) idle: Duration,
    pub(super) client: Duration,
    pub(super) whole: Duration,
}

struct Source {
    body: UpstreamBody,
    meter: Meter,
    held: Held,
    first: bool,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.held.settle(End::Left, &self.meter);
    }
}

impl Relay {
    pub(super) fn new(body: UpstreamBody, held: Held, limits: Limits) -> Relay {
        let now = Instant::now();
        let watch = held.shared.watch.clone();
        let slot = Arc::new(Slot(Mutex::new(Live {
            turn: Turn::Upstream,
            since: now,
            end_by: held.began + limits.whole,
            limits,
            waker: None,
            last_words: None,
            source: Some(Source {
                body,
                meter: Meter::default(),
                held,
                first: true,
            }),
        })));
        let key = watch.add(&slot);
        Relay { slot, watch, key }
    }

    pub(super) fn poll_frame(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.slot.0.lock().poll_frame(cx)
    }

    pub(super) fn is_end_stream(&self) -> bool {
        let live = self.slot.0.lock();
        live.source.is_none() && live.last_words.is_none()
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        let live = self.slot.0.lock();
        live.source
            .as_ref()
            .map_or_else(SizeHint::default, |source| source.body.size_hint())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.watch.remove(self.key);
        // Taken under the lock, dropped outside it: dropping it settles the request and returns the
        // permit, which wakes others.
        let source = self.slot.0.lock().source.take();
        drop(source);
    }
}

impl Live {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(words) = self.last_words.take() {
            return Poll::Ready(Some(words.map(Frame::data)));
        }
        let Some(source) = self.source.as_mut() else {
            return Poll::Ready(None);
        };
        match Pin::new(&mut source.body).poll_frame(cx) {
            Poll::Pending => {
                // The client has read everything, so the upstream's time begins.
                if self.turn == Turn::Client {
                    (self.turn, self.since) = (Turn::Upstream, Instant::now());
                }
                self.remember(cx.waker());
                Poll::Pending
            }
            Poll::Ready(Some(Ok(frame))) => {
                // The body is polled again only when the client has read this frame, so the
                // client's time begins.
                (self.turn, self.since) = (Turn::Client, Instant::now());
                source.saw(&frame);
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

    fn remember(&mut self, waker: &Waker) {
        match &self.waker {
            Some(known) if known.will_wake(waker) => {}
            _ => self.waker = Some(waker.clone()),
        }
    }

    fn end(&mut self, end: End) {
        if let Some(mut source) = self.source.take() {
            source.held.settle(end, &source.meter);
        }
    }

    fn broken(&self, error: &BoxError) -> Result<Bytes, BoxError> {
        let name = self
            .source
            .as_ref()
            .map_or("", |source| source.held.upstream.name());
        let message =
            format!("the upstream `{name}` broke off in the middle of its answer: {error}");
        self.words(Problem::new(
            StatusCode::BAD_GATEWAY,
            "upstream_broke_off",
            message,
        ))
    }

    /// The last item that a client receives. Between two events of a stream, this is an error
    /// event. Otherwise it is an error that ends the connection: a truncated response must not look
    /// complete.
    fn words(&self, problem: Problem) -> Result<Bytes, BoxError> {
        let source = self.source.as_ref();
        match source.filter(|source| source.held.events && source.meter.is_between_events()) {
            Some(source) => {
                let id = source.held.shared.journal.ids.name(source.held.number);
                Ok(problem.event(source.held.dialect, &id))
            }
            None => Err(problem.into()),
        }
    }

    fn overdue(&self, now: Instant) -> Option<(End, Problem)> {
        let limits = self.limits;
        let waited = now.saturating_duration_since(self.since);
        let timeout =
            |reason, message: String| Problem::new(StatusCode::GATEWAY_TIMEOUT, reason, message);
        if self.turn == Turn::Client && waited > limits.client {
            let message = format!(
                "the answer was not read for {}",
                show_duration(limits.client)
            );
            return Some((End::Unread, timeout("client_not_reading", message)));
        }
        if self.turn == Turn::Upstream && waited > limits.idle {
            let message = format!(
                "the upstream said nothing for {}",
                show_duration(limits.idle)
            );
            return Some((End::Silent, timeout("upstream_silent", message)));
        }
        let message = || {
            format!(
                "the answer took longer than {}",
                show_duration(limits.whole)
            )
        };
        (now > self.end_by).then(|| (End::TooLong, timeout("request_timeout", message())))
    }
}

impl Source {
    fn saw(&mut self, frame: &Frame<Bytes>) {
        if std::mem::take(&mut self.first) {
            self.held
                .upstream
                .times
                .first_token
                .record(self.held.began.elapsed());
        }
        if let Some(data) = frame.data_ref() {
            self.meter.feed(data);
        }
    }
}

impl Slot {
    /// Ends the response if the client or the upstream exceeded its timeout.
    pub(super) fn examine(&self, now: Instant) {
        let mut live = self.0.lock();
        if live.source.is_none() {
            return;
        }
        if let Some((end, problem)) = live.overdue(now) {
            live.last_words = Some(live.words(problem));
            live.end(end);
            if let Some(waker) = live.waker.take() {
                waker.wake();
            }
        }
    }
}
