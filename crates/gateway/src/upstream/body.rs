//! Body of an upstream's response, whatever its transport.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::client_pool::DirectBody;
use super::echo::EchoBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Body of an upstream's response.
pub(crate) enum UpstreamBody {
    /// From the HTTP client: TLS, proxies and HTTP/2.
    Http(Incoming),
    /// From a direct HTTP/1 connection.
    Direct(DirectBody),
    /// From the built-in echo upstream.
    Echo(EchoBody),
}

impl UpstreamBody {
    /// Tells the upstream that nobody waits for the rest, which can still be read. Returns whether
    /// the transport can do that.
    pub(crate) fn half_close(&mut self) -> bool {
        match self {
            UpstreamBody::Direct(body) => {
                body.half_close();
                true
            }
            UpstreamBody::Http(_) | UpstreamBody::Echo(_) => false,
        }
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            UpstreamBody::Http(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            UpstreamBody::Direct(body) => {
                let data = body.poll_data(cx);
                data.map(|data| data.map(|data| data.map(Frame::data).map_err(Into::into)))
            }
            UpstreamBody::Echo(body) => Pin::new(body).poll_frame(cx).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            UpstreamBody::Http(body) => body.is_end_stream(),
            UpstreamBody::Direct(body) => body.is_end_stream(),
            UpstreamBody::Echo(body) => body.is_done(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            UpstreamBody::Http(body) => body.size_hint(),
            UpstreamBody::Direct(body) => body.size_hint(),
            UpstreamBody::Echo(_) => SizeHint::default(),
        }
    }
}
