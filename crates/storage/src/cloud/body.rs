//! Bodies: what we send from memory, and what we read whole.

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

/// How long the next bytes of an answer may take.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// Bytes in memory, as they came, with a known length; cloning copies none of them.
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

    /// The same without its first bytes.
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

/// Bytes that come while they are sent, as many as were announced.
pub(crate) struct StreamedBody {
    receiver: mpsc::Receiver<Bytes>,
    left: u64,
}

/// A body of that length, and where its bytes go in.
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
            // What is half sent must not look whole.
            None => Poll::Ready(Some(Err("it was given up".to_owned()))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The next bytes of an answer; `None` at its end.
pub(crate) async fn next_bytes(body: &mut Incoming) -> Result<Option<Bytes>, String> {
    loop {
        let frame = tokio::time::timeout(READ_TIMEOUT, body.frame()).await;
        let frame = frame.map_err(|_| format!("nothing came for {} s", READ_TIMEOUT.as_secs()))?;
        match frame {
            None => return Ok(None),
            Some(Err(error)) => return Err(super::error_chain(&error)),
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) if bytes.has_remaining() => return Ok(Some(bytes)),
                _ => {}
            },
        }
    }
}

/// All of it, up to a bound.
pub(crate) async fn collect(mut body: Incoming, limit: usize) -> Result<Bytes, String> {
    let mut whole = BytesMut::new();
    while let Some(bytes) = next_bytes(&mut body).await? {
        if whole.len() + bytes.len() > limit {
            return Err(format!("the answer is longer than {limit} bytes"));
        }
        whole.extend_from_slice(&bytes);
    }
    Ok(whole.freeze())
}

/// All of it, and as much as was announced.
pub(super) async fn collect_checked(
    body: Incoming,
    limit: usize,
    headers: &HeaderMap,
) -> Result<Bytes, String> {
    let announced = body.size_hint().exact();
    let whole = collect(body, limit).await?;
    let announced_by_header =
        super::header_text(headers, "content-length").and_then(|text| text.parse().ok());
    match announced.or(announced_by_header) {
        // An answer to HEAD announces what it does not bring.
        Some(length) if !whole.is_empty() && length != whole.len() as u64 => {
            Err(format!("{} of {length} bytes came", whole.len()))
        }
        _ => Ok(whole),
    }
}
