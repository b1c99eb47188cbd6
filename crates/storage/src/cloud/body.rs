//! HTTP bodies: requests from memory, and responses read whole.

use bytes::{Buf, Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

/// Timeout for the next bytes of a response.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes in memory in segments, with a known length. Cloning is cheap.
#[derive(Clone, Default)]
pub(crate) struct SegmentedBytes {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl SegmentedBytes {
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.left += piece.len() as u64;
        self.pieces.push_back(piece);
    }

    pub(crate) fn len(&self) -> u64 {
        self.left
    }

    /// Returns the bytes without the first ones.
    pub(crate) fn skip_bytes(mut self, mut skipped: u64) -> SegmentedBytes {
        while skipped > 0
            && let Some(mut piece) = self.pieces.pop_front()
        {
            let cut = usize::try_from(skipped)
                .unwrap_or(usize::MAX)
                .min(piece.len());
            drop(piece.split_to(cut));
            skipped -= cut as u64;
            self.left -= cut as u64;
            if !piece.is_empty() {
                self.pieces.push_front(piece);
            }
        }
        self
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }
}

impl From<String> for SegmentedBytes {
    fn from(text: String) -> SegmentedBytes {
        let mut pieces = SegmentedBytes::default();
        pieces.push(text.into());
        pieces
    }
}

impl std::fmt::Debug for SegmentedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.left)
    }
}

impl Body for SegmentedBytes {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = self.pieces.pop_front();
        if let Some(piece) = &piece {
            self.left -= piece.len() as u64;
        }
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// A body whose bytes arrive while it is sent. Its length is known.
pub(crate) struct StreamedBody {
    receiver: mpsc::Receiver<Bytes>,
    left: u64,
}

/// Returns a body of this length, and the sender of its bytes.
pub(crate) fn streamed_body(length: u64) -> (mpsc::Sender<Bytes>, StreamedBody) {
    let (sender, receiver) = mpsc::channel(4);
    let left = length;
    (sender, StreamedBody { receiver, left })
}

impl Body for StreamedBody {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        match std::task::ready!(self.receiver.poll_recv(context)) {
            Some(bytes) => {
                self.left = self.left.saturating_sub(bytes.len() as u64);
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
            // A truncated body must not look complete.
            None => Poll::Ready(Some(Err("the upload was cancelled".to_owned()))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Returns the next bytes of a response; `None` at its end.
pub(crate) async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>, String> {
    loop {
        let frame = tokio::time::timeout(READ_TIMEOUT, body.frame()).await;
        let frame = frame.map_err(|_| format!("no data for {} s", READ_TIMEOUT.as_secs()))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(headworks_outbound::error_chain(&error)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) if bytes.has_remaining() => return Ok(Some(bytes)),
                _ => {}
            },
        }
    }
}

/// Reads a whole body, up to a limit.
pub(crate) async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, String> {
    let mut collected = BytesMut::new();
    while let Some(bytes) = next_bytes(&mut body).await? {
        if collected.len() + bytes.len() > limit {
            return Err(format!("the response is longer than {limit} bytes"));
        }
        collected.extend_from_slice(&bytes);
    }
    Ok(collected.freeze())
}

/// Reads a whole body, and checks its announced length.
pub(super) async fn collect_checked(
    body: Incoming,
    limit: usize,
    headers: &HeaderMap,
) -> Result<Bytes, String> {
    let announced = body.size_hint().exact();
    let collected = collect(body, limit).await?;
    let announced_by_header =
        super::header_text(headers, "content-length").and_then(|text| text.parse().ok());
    match announced.or(announced_by_header) {
        // A response to HEAD announces a body that it does not have.
        Some(length) if !collected.is_empty() && length != collected.len() as u64 => {
            Err(format!("received {} of {length} bytes", collected.len()))
        }
        _ => Ok(collected),
    }
}
