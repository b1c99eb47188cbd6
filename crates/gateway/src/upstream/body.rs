//! An answer's body, wherever it comes from.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::echo::EchoBody;
use super::links::LinkBody;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An answer's body.
pub(crate) enum UpstreamBody {
    Http(Incoming),
    Link(LinkBody),
    Echo(EchoBody),
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
            UpstreamBody::Link(body) => {
                let data = body.poll_data(cx);
                data.map(|data| data.map(|data| data.map(Frame::data).map_err(Into::into)))
            }
            UpstreamBody::Echo(body) => Pin::new(body).poll_frame(cx).map(|frame| frame.map(Ok)),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            UpstreamBody::Http(body) => body.is_end_stream(),
            UpstreamBody::Link(body) => body.is_end_stream(),
            UpstreamBody::Echo(body) => body.is_done(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            UpstreamBody::Http(body) => body.size_hint(),
            UpstreamBody::Link(body) => body.size_hint(),
            UpstreamBody::Echo(_) => SizeHint::default(),
        }
    }
}
