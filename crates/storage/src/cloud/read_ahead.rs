//! Reading large files over HTTP: several ranges are fetched concurrently and returned in order.
//!
//! One response is as fast as one connection; a large file is worth several. A range that is
//! fetched early waits in memory, which is bounded over all files. Without memory for it, ranges
//! are read one after the other as they arrive.

use super::checksum::Verification;
use super::ranged_read::{MAX_SINGLE_READ, RangeSource, RangedRead, verify};
use crate::backend::{Chunks, Extended};
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, DIRECT_IO_ALIGNMENT, Entry};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinHandle;

/// The size of a range: that of an upload part, for which the memory is reserved.
const PIECE_SIZE: u64 = 8 << 20;
/// Ranges fetched ahead. A server that is slow with each is fast with many.
const MAX_PENDING: usize = 12;
/// Bytes returned at once: every write has a fixed cost.
const BLOCK_SIZE: usize = 1 << 20;

/// Returns the number of requests to read a file of this size.
pub(crate) fn requests(size: u64) -> u64 {
    match size <= MAX_SINGLE_READ {
        true => 1,
        false => size.div_ceil(PIECE_SIZE),
    }
}

/// Reads a file. `memory` has a permit for every range in memory.
pub(crate) async fn read<R: RangeSource + 'static>(
    file: R,
    offset: u64,
    length: u64,
    memory: &Arc<Semaphore>,
) -> Result<Box<dyn Chunks>> {
    let file = Arc::new(file);
    if length <= MAX_SINGLE_READ || length == u64::MAX {
        let mut reading = RangedRead::open(file.clone(), offset, length).await?;
        // The rest of a large file.
        if offset > 0 && !reading.verification.is_possible() {
            let stated = file.ask_checksum(&reading.found).await;
            reading.verification = Verification::new(stated, offset);
        }
        return Ok(Box::new(reading));
    }
    let mut current = RangedRead::open_at(file.clone(), offset, PIECE_SIZE, None).await?;
    let (entry, extended) = (current.found.clone(), current.extended.clone());
    let end = offset.saturating_add(length).min(entry.size);
    let mut verification = std::mem::take(&mut current.verification);
    if !verification.is_possible() {
        verification = Verification::new(file.ask_checksum(&entry).await, offset);
    }
    Ok(Box::new(ReadAhead {
        verification,
        end,
        at: offset.saturating_add(PIECE_SIZE),
        file,
        entry,
        extended,
        current,
        pending: VecDeque::new(),
        ready: None,
        memory: memory.clone(),
    }))
}

/// A range in memory, with its permit.
struct Piece {
    blocks: VecDeque<Bytes>,
    _permit: OwnedSemaphorePermit,
}

/// A range being fetched. Dropping it cancels the fetch.
struct PendingPiece(JoinHandle<Result<Piece>>);

impl Drop for PendingPiece {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct ReadAhead<R> {
    file: Arc<R>,
    entry: Entry,
    extended: Extended,
    /// The range that is read as it arrives.
    current: RangedRead<R>,
    /// The following ranges, in order.
    pending: VecDeque<PendingPiece>,
    ready: Option<Piece>,
    /// The checksum of the whole file, computed as its bytes are handed out in order.
    verification: Verification,
    /// The start of the next range to request.
    at: u64,
    end: u64,
    memory: Arc<Semaphore>,
}

impl<R: RangeSource + 'static> ReadAhead<R> {
    fn fetch_more(&mut self) {
        while self.pending.len() < MAX_PENDING
            && let Some((at, length)) = self.next_piece()
            && let Ok(permit) = self.memory.clone().try_acquire_owned()
        {
            self.at += length;
            let (file, entry) = (self.file.clone(), self.entry.clone());
            self.pending
                .push_back(PendingPiece(tokio::spawn(async move {
                    let mut reading = open(file, at, length, &entry).await?;
                    let blocks = collect(&mut reading, length).await?;
                    Ok(Piece {
                        blocks,
                        _permit: permit,
                    })
                })));
        }
    }

    fn next_piece(&self) -> Option<(u64, u64)> {
        (self.at < self.end).then(|| (self.at, PIECE_SIZE.min(self.end - self.at)))
    }

    async fn bytes(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(block) = self
                .ready
                .as_mut()
                .and_then(|piece| piece.blocks.pop_front())
            {
                return Ok(Some(block));
            }
            self.ready = None;
            self.fetch_more();
            if let Some(bytes) = self.current.bytes().await? {
                return Ok(Some(bytes));
            }
            if let Some(pending) = self.pending.front_mut() {
                let piece = match (&mut pending.0).await {
                    Ok(piece) => piece,
                    Err(failed) => std::panic::resume_unwind(failed.into_panic()),
                };
                self.pending.pop_front();
                self.ready = Some(piece?);
            } else if let Some((at, length)) = self.next_piece() {
                self.at += length;
                self.current = open(self.file.clone(), at, length, &self.entry).await?;
            } else {
                return Ok(None);
            }
        }
    }
}

/// Opens a range of the version that was read first.
async fn open<R: RangeSource>(
    file: Arc<R>,
    at: u64,
    length: u64,
    entry: &Entry,
) -> Result<RangedRead<R>> {
    let reading = RangedRead::open_at(file.clone(), at, length, entry.version.as_deref()).await?;
    match (reading.found.size, &reading.found.version) == (entry.size, &entry.version) {
        true => Ok(reading),
        false => Err(file.failure(ErrorKind::Changed, "the file changed while it was read")),
    }
}

/// Returns a buffer whose address allows direct I/O.
fn aligned_buffer() -> BytesMut {
    let mut block = BytesMut::with_capacity(BLOCK_SIZE + DIRECT_IO_ALIGNMENT);
    let before = block.as_ptr().align_offset(DIRECT_IO_ALIGNMENT);
    block.put_bytes(0, before);
    block.advance(before);
    block
}

async fn collect<R: RangeSource>(
    reading: &mut RangedRead<R>,
    length: u64,
) -> Result<VecDeque<Bytes>> {
    let mut blocks = VecDeque::with_capacity((length as usize).div_ceil(BLOCK_SIZE) + 1);
    let mut block = aligned_buffer();
    while let Some(mut bytes) = reading.bytes().await? {
        while !bytes.is_empty() {
            let fits = bytes.len().min(BLOCK_SIZE - block.len());
            block.extend_from_slice(&bytes.split_to(fits));
            if block.len() == BLOCK_SIZE {
                let full = std::mem::replace(&mut block, aligned_buffer());
                blocks.push_back(full.freeze());
            }
        }
    }
    blocks.extend((!block.is_empty()).then(|| block.freeze()));
    Ok(blocks)
}

impl<R: RangeSource + 'static> Chunks for ReadAhead<R> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async move {
            let bytes = self.bytes().await?;
            match &bytes {
                Some(bytes) => self.verification.update(bytes),
                None if self.end == self.entry.size => {
                    verify(&*self.file, &self.entry, &mut self.verification).await?;
                }
                None => {}
            }
            Ok(bytes)
        })
    }

    fn info(&self) -> Option<(&Entry, &Extended)> {
        Some((&self.entry, &self.extended))
    }

    fn is_checked(&self) -> bool {
        self.verification.is_verified()
    }

    fn checksum_state(&self) -> Option<Vec<u8>> {
        self.verification.state()
    }

    fn resume_checksum(&mut self, state: &[u8]) {
        self.verification.resume(state);
    }
}
