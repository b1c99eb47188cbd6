//! The client's end of an HTTP/1 connection: what came and is not read yet, and what is written and
//! not sent yet.
//!
//! Thousands of clients may wait at the same time, so between two reads nothing is held but the
//! bytes that there are.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use super::upload::{Upload, UploadError};
use super::within::within;
use crate::wire::http1::{BadChunk, Chunks, Length};

/// What is read at once, on the stack.
const READ: usize = 16 << 10;
/// What a client may send ahead of its turn.
const AHEAD: usize = 64 << 10;
/// A body that did not come at once is given so much room at first.
const ROOM: usize = 64 << 10;
/// How much is still read of a body that nobody wants, and for how long, so that the client hears
/// why.
const UNWANTED: usize = 1 << 20;
const UNWANTED_FOR: Duration = Duration::from_secs(2);
/// An output buffer larger than this is not kept.
const KEPT: usize = 4 << 10;

/// The client's end of a connection.
pub(super) struct Line {
    stream: TcpStream,
    pub(super) input: BytesMut,
    pub(super) output: Vec<u8>,
    /// Whether any of the answer that is being given may have been sent.
    pub(super) heard: bool,
    /// The body that comes next in the input.
    body: Option<Length>,
    expects: bool,
}

impl Line {
    pub(super) fn new(stream: TcpStream) -> Line {
        Line {
            stream,
            input: BytesMut::new(),
            output: Vec::new(),
            heard: false,
            body: None,
            expects: false,
        }
    }

    /// The stream, and what was read from it.
    pub(super) fn into_parts(self) -> (TcpStream, Bytes) {
        (self.stream, self.input.freeze())
    }

    /// Reads more; 0 is the end.
    pub(super) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = [const { MaybeUninit::uninit() }; READ];
        let mut room = ReadBuf::uninit(&mut room);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        self.input.extend_from_slice(room.filled());
        Poll::Ready(Ok(room.filled().len()))
    }

    async fn more(&mut self) -> Result<(), UploadError> {
        match std::future::poll_fn(|cx| self.poll_more(cx)).await {
            Ok(0) => Err(UploadError::ended()),
            Ok(_) => Ok(()),
            Err(cause) => Err(UploadError::Broken(cause.to_string())),
        }
    }

    /// Waits until the client is gone. What it sends ahead of its turn is kept.
    pub(super) async fn gone(&mut self) {
        while self.input.len() < AHEAD {
            if self.more().await.is_err() {
                return;
            }
        }
        // More is not read, so its end cannot be either: the system tells of that as of urgent
        // bytes, which are not asked for. It comes after whatever the socket still holds.
        let _ = self.stream.ready(Interest::PRIORITY).await;
    }

    /// Sends the output; a client that takes nothing for `patience` is gone.
    pub(super) async fn flush(&mut self, patience: Duration) -> io::Result<()> {
        self.heard |= !self.output.is_empty();
        let Line { stream, output, .. } = self;
        let mut sent = 0;
        while sent < output.len() {
            sent += send(stream, &output[sent..], patience).await?;
        }
        output.clear();
        if output.capacity() > KEPT {
            *output = Vec::new();
        }
        Ok(())
    }

    /// Sends `data` without a copy, after the output.
    pub(super) async fn pass(&mut self, data: &[u8], patience: Duration) -> io::Result<()> {
        self.flush(patience).await?;
        let mut sent = 0;
        while sent < data.len() {
            sent += send(&mut self.stream, &data[sent..], patience).await?;
        }
        Ok(())
    }

    /// The body that a head announced.
    pub(super) fn body(&mut self, length: Length, expects: bool) -> BodyOf<'_> {
        self.expects = expects;
        self.body = Some(length).filter(|length| *length != Length::Known(0));
        BodyOf(self)
    }

    /// Whether the next request can be read: its own body was, or is all there and can be thrown
    /// away.
    pub(super) fn skip_body(&mut self) -> bool {
        match self.body {
            None => true,
            Some(Length::Known(length)) if length <= self.input.len() as u64 => {
                drop(self.input.split_to(length as usize));
                self.body = None;
                true
            }
            Some(_) => false,
        }
    }

    /// Ends the connection.
    pub(super) async fn close(self) {
        if self.body.is_some() || !self.input.is_empty() {
            self.drain().await;
        }
    }

    /// Ends the connection although more may come. While bytes come that nobody read, ending it at
    /// once would take the answer from the client.
    pub(super) async fn drain(mut self) {
        if self.stream.shutdown().await.is_err() {
            return;
        }
        let rest = async {
            let mut left = UNWANTED;
            while left > 0 {
                self.input.clear();
                if self.more().await.is_err() {
                    return;
                }
                left = left.saturating_sub(self.input.len());
            }
        };
        let _ = tokio::time::timeout(UNWANTED_FOR, rest).await;
    }

    /// Makes the connection's end an error, where the end alone would look like that of a whole
    /// answer.
    pub(super) fn reset(&self) {
        let _ = self.stream.set_zero_linger();
    }

    async fn known(&mut self, length: usize) -> Result<Bytes, UploadError> {
        if self.input.len() >= length {
            return Ok(self.input.split_to(length).freeze());
        }
        let mut body = BytesMut::with_capacity(length.min(ROOM));
        body.extend_from_slice(&self.input);
        self.input = BytesMut::new();
        while body.len() < length {
            // Never more room than the body needs: it may have to wait in it.
            if body.len() == body.capacity() {
                body.reserve((length - body.len()).min(body.len()));
            }
            let read =
                std::future::poll_fn(|cx| poll_read_buf(Pin::new(&mut self.stream), cx, &mut body));
            match read.await {
                Ok(0) => return Err(UploadError::ended()),
                Ok(_) => {}
                Err(cause) => return Err(UploadError::Broken(cause.to_string())),
            }
        }
        // What was read beyond it is the next request's.
        self.input = body.split_off(length);
        Ok(body.freeze())
    }

    async fn chunked(&mut self, most: u64) -> Result<Bytes, UploadError> {
        let (mut chunks, mut body) = (Chunks::new(most), BytesMut::new());
        loop {
            match chunks.read(&mut self.input, &mut body) {
                Ok(true) => return Ok(body.freeze()),
                Ok(false) => self.more().await?,
                Err(BadChunk::TooLarge) => return Err(UploadError::TooLarge),
                Err(BadChunk::Malformed) => {
                    return Err(UploadError::Broken("its chunks are none".to_owned()));
                }
            }
        }
    }
}

/// Sends some of `bytes`.
async fn send(stream: &mut TcpStream, bytes: &[u8], patience: Duration) -> io::Result<usize> {
    let write = std::future::poll_fn(|cx| Pin::new(&mut *stream).poll_write(cx, bytes));
    match within(patience, write).await {
        Ok(Ok(0)) => Err(io::ErrorKind::WriteZero.into()),
        Ok(sent) => sent,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The body of the request that was read last.
pub(super) struct BodyOf<'a>(&'a mut Line);

impl Upload for BodyOf<'_> {
    async fn whole(self, most: u64) -> Result<Bytes, UploadError> {
        let line = self.0;
        let Some(length) = line.body else {
            return Ok(Bytes::new());
        };
        if matches!(length, Length::Known(length) if length > most) {
            return Err(UploadError::TooLarge);
        }
        if line.expects && line.input.is_empty() {
            let leave = b"HTTP/1.1 100 Continue\r\n\r\n";
            let told = line.pass(leave, UNWANTED_FOR).await;
            told.map_err(|cause| UploadError::Broken(cause.to_string()))?;
        }
        let body = match length {
            Length::Known(length) => {
                line.known(usize::try_from(length).unwrap_or(usize::MAX))
                    .await?
            }
            Length::Chunked => line.chunked(most).await?,
        };
        line.body = None;
        if line.input.is_empty() {
            // It would hold all that it was cut from.
            line.input = BytesMut::new();
        }
        Ok(body)
    }
}
