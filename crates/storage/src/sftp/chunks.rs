//! Reading a file: several ranges are requested at once, and a broken connection is resumed where
//! it was.

use super::client::{Client, Handle, open, unexpected_reply};
use super::connection::{Failure, PendingReply};
use super::packet::{self, Packet, Reply, Status};
use crate::BoxFuture;
use crate::backend::Chunks;
use crate::error::{Fault, Result};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes requested ahead: as many as the window of `ssh` allows.
const READ_AHEAD: u64 = 2 << 20;
/// Maximum number of resumptions without progress.
const MAX_RESUMES: u32 = 8;

struct Piece {
    offset: u64,
    length: u64,
    waiting: PendingReply,
}

pub(super) struct SftpChunks {
    client: Arc<Client>,
    path: Vec<u8>,
    handle: Handle,
    /// The offset of the next bytes to return, of the next to request, and the end.
    at: u64,
    requested: u64,
    end: u64,
    pieces: VecDeque<Piece>,
    /// Interruptions since the last progress, and the offset at that time.
    interruptions: (u32, u64),
}

impl SftpChunks {
    pub(super) async fn open(
        client: Arc<Client>,
        path: Vec<u8>,
        offset: u64,
        length: u64,
    ) -> Result<SftpChunks> {
        let handle = open_file(&client, &path).await?;
        Ok(SftpChunks {
            client,
            path,
            handle,
            at: offset,
            requested: offset,
            end: offset.saturating_add(length),
            pieces: VecDeque::new(),
            interruptions: (0, offset),
        })
    }

    async fn request(&mut self, offset: u64, length: u64) -> std::result::Result<Piece, Failure> {
        let packet = Packet::read(&self.handle.bytes, offset, length as u32);
        let waiting = self.handle.connection.send(packet).await?;
        Ok(Piece {
            offset,
            length,
            waiting,
        })
    }

    async fn fill(&mut self) -> std::result::Result<(), Failure> {
        let longest = self.handle.connection.max_io.0;
        while self.requested < self.end && self.requested - self.at < READ_AHEAD {
            let length = longest.min(self.end - self.requested);
            let piece = self.request(self.requested, length).await?;
            self.requested += length;
            self.pieces.push_back(piece);
        }
        Ok(())
    }

    async fn piece(&mut self) -> std::result::Result<Option<Bytes>, Failure> {
        self.fill().await?;
        let Some(piece) = self.pieces.pop_front() else {
            return Ok(None);
        };
        let bytes = match piece.waiting.reply().await {
            Ok(Reply::Data(bytes)) if !bytes.is_empty() => bytes,
            Ok(_) => return Err(unexpected_reply()),
            Err(failure) if failure.is(Status::END) => {
                self.end = self.at;
                self.pieces.clear();
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        };
        let length = bytes.len() as u64;
        if length > piece.length {
            return Err(unexpected_reply());
        }
        if length < piece.length {
            // A server may return less than requested.
            let rest = self.request(piece.offset + length, piece.length - length);
            let rest = rest.await?;
            self.pieces.push_front(rest);
        }
        self.at += length;
        Ok(Some(bytes))
    }

    async fn bytes(&mut self) -> Result<Option<Bytes>> {
        loop {
            let failure = match self.piece().await {
                Ok(piece) => return Ok(piece),
                Err(failure) => failure,
            };
            let error = self.client.failure("read", &self.path, failure);
            let (count, reached) = self.interruptions;
            let count = if self.at > reached { 1 } else { count + 1 };
            if error.fault() != Fault::Temporary || count > MAX_RESUMES {
                return Err(error);
            }
            self.interruptions = (count, self.at);
            self.pieces.clear();
            self.requested = self.at;
            self.handle = open_file(&self.client, &self.path).await?;
        }
    }
}

async fn open_file(client: &Client, path: &[u8]) -> Result<Handle> {
    let work = |connection, _| open(connection, Packet::open(path, packet::READ, None));
    client.with_retries("read", path, work).await
}

impl Chunks for SftpChunks {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(self.bytes())
    }
}
