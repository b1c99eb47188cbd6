//! Response bodies as the client's connection polls them.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::connections::RunningGuard;
use super::progress::Progress;
use super::relay::Relay;

pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Body of a response.
pub(crate) enum GatewayBody {
    /// A complete body made by the gateway itself.
    Whole(Option<Bytes>),
    /// The body of an upstream's response.
    Relay(Relay),
    /// Comments while the request is queued, then the body of an upstream's response.
    Progress(Box<Progress>),
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            GatewayBody::Whole(bytes) => {
                Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes))))
            }
            GatewayBody::Relay(relay) => relay.poll_frame(cx),
            GatewayBody::Progress(progress) => progress.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            GatewayBody::Whole(bytes) => bytes.is_none(),
            GatewayBody::Relay(relay) => relay.is_end_stream(),
            GatewayBody::Progress(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            GatewayBody::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            GatewayBody::Relay(relay) => relay.size_hint(),
            GatewayBody::Progress(_) => SizeHint::default(),
        }
    }
}

/// Body of a response over HTTP/2. Its request is running until the body is dropped.
pub(super) struct TrackedBody {
    body: GatewayBody,
    _running: Option<RunningGuard>,
}

impl TrackedBody {
    pub(super) fn new(body: GatewayBody, running: Option<RunningGuard>) -> TrackedBody {
        TrackedBody {
            body,
            _running: running,
        }
    }
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
