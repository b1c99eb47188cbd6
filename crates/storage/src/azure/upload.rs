//! Writing a blob: in one request, or in blocks that another process can resume.

use super::blob::{HEADERS, with_object_headers};
use super::blocks::{self, BlockId, UploadId, UploadedBlock};
use super::container::Container;
use crate::backend::{Extended, Upload, UploadPlan, incomplete_upload};
use crate::cloud::object_headers::version;
use crate::cloud::parts::{self, Part, PartPipeline};
use crate::cloud::{Call, SegmentedBytes, header_text};
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry, Kind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Files up to this size are sent in one request.
pub(super) const MAX_SINGLE_PUT: u64 = 8 << 20;
/// The minimum size of a block.
const MIN_BLOCK_SIZE: u64 = 8 << 20;

pub(super) fn block_size(size: u64) -> u64 {
    parts::part_size(size, MIN_BLOCK_SIZE, blocks::MAX_BLOCKS)
}

/// A blob being written.
pub(super) struct AzureUpload {
    container: Arc<Container>,
    key: Vec<u8>,
    name: Vec<u8>,
    plan: UploadPlan,
    offset: u64,
    /// The bytes so far, if they are sent in one request.
    buffered: SegmentedBytes,
    blocks: Option<BlockUpload>,
}

struct BlockUpload {
    upload_id: UploadId,
    uploaded: BTreeMap<u32, UploadedBlock>,
    parts: PartPipeline<UploadedBlock>,
    /// The MD5 of all bytes, if all of them passed through this process.
    md5: Option<Md5>,
}

impl AzureUpload {
    pub(super) async fn open(
        container: Arc<Container>,
        key: Vec<u8>,
        name: &[u8],
        plan: UploadPlan,
    ) -> Result<AzureUpload> {
        let mut upload = AzureUpload {
            container,
            key,
            name: name.to_vec(),
            plan,
            offset: 0,
            buffered: SegmentedBytes::default(),
            blocks: None,
        };
        if upload.plan.size > MAX_SINGLE_PUT {
            let blocks = upload.begin().await?;
            upload.offset = blocks.parts.offset();
            upload.blocks = Some(blocks);
        }
        Ok(upload)
    }

    async fn begin(&self) -> Result<BlockUpload> {
        let (total, modified) = (self.plan.size, self.plan.modified);
        let resume = self.plan.resume.as_deref();
        let resumed = resume.and_then(|resume| UploadId::read(resume, total, modified));
        let uploaded = match resumed {
            Some(upload_id) => {
                blocks::uploaded_blocks(&self.container, &self.key, upload_id).await?
            }
            None => BTreeMap::new(),
        };
        let size = block_size(total);
        // Blocks after a gap are checked when they are due.
        let full = |number| uploaded.get(&number).is_some_and(|sent| sent.size == size);
        let parts = PartPipeline::begin(total, size, full, self.container.part_memory.clone());
        let md5 = (parts.offset() == 0).then(Md5::new);
        Ok(BlockUpload {
            upload_id: resumed.unwrap_or_else(UploadId::new),
            uploaded,
            parts,
            md5,
        })
    }

    async fn push(&mut self, mut bytes: Bytes) -> Result<()> {
        self.offset += bytes.len() as u64;
        let Some(blocks) = &mut self.blocks else {
            self.buffered.push(bytes);
            return Ok(());
        };
        if let Some(md5) = &mut blocks.md5 {
            md5.update(&bytes);
        }
        while !bytes.is_empty() {
            if let Some(part) = blocks.parts.fill(&mut bytes).await {
                blocks.dispatch(&self.container, &self.key, part).await?;
            }
        }
        Ok(())
    }

    async fn put(&mut self, like: &Entry, extended: &Extended) -> Result<Entry> {
        let call = self
            .container
            .object_call("put", "write", &self.key, Method::PUT)?;
        let call = with_object_headers(call, &self.key, like.modified, extended)?;
        let call = call.header("x-ms-blob-type", "BlockBlob");
        let body = std::mem::take(&mut self.buffered);
        let md5 = blocks::md5(&body);
        self.send_conditional(blocks::with_checksum(call, body, &md5), like)
            .await
    }

    async fn commit(
        &self,
        blocks: &mut BlockUpload,
        like: &Entry,
        extended: &Extended,
    ) -> Result<Entry> {
        if let Some(part) = blocks.parts.take_rest() {
            blocks.dispatch(&self.container, &self.key, part).await?;
        }
        blocks.parts.wait_all(&mut blocks.uploaded).await?;
        let last = blocks.parts.last();
        let call = blocks::commit_call(&self.container, &self.key, &blocks.uploaded, last)?;
        let mut call = with_object_headers(call, &self.key, like.modified, extended)?;
        if let Some(md5) = blocks.md5.take() {
            let md5 = BASE64_STANDARD.encode(md5.finalize());
            call = call.header("x-ms-blob-content-md5", &md5);
        }
        self.send_conditional(call, like).await
    }

    /// Sends the call that creates the blob, under the precondition of the plan.
    async fn send_conditional(&self, call: Call, like: &Entry) -> Result<Entry> {
        let call = call.with_precondition(&self.plan.precondition);
        let error = match self.container.fetch(&call).await {
            Ok(response) => {
                return Ok(Entry {
                    size: self.offset,
                    modified: like.modified,
                    version: header_text(&response.headers, "etag").map(version),
                    ..Entry::new(self.name.clone(), Kind::File)
                });
            }
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Changed {
            return Err(error);
        }
        // Our own earlier request, whose response was lost, may have succeeded.
        self.find_own_write(like)
            .await
            .ok_or_else(|| call.conflict())
    }

    /// Returns the current blob if it has the size and time of the one we write.
    async fn find_own_write(&self, like: &Entry) -> Option<Entry> {
        let headers = self.container.head(&self.key).await.ok()?;
        let entry = HEADERS.entry_of(&self.name, &headers);
        let dated = headers.contains_key(HEADERS.mtime_header);
        (dated && entry.size == self.offset && entry.modified == like.modified).then_some(entry)
    }
}

impl BlockUpload {
    /// Sends a block, unless it is uploaded already.
    async fn dispatch(&mut self, container: &Arc<Container>, key: &[u8], part: Part) -> Result<()> {
        let Part {
            number,
            bytes: piece,
            permit: room,
        } = part;
        let (upload_id, size) = (self.upload_id, piece.len());
        let named = move |piece: &SegmentedBytes| {
            let md5 = blocks::md5(piece);
            let id = BlockId::new(upload_id, number, &md5);
            (UploadedBlock { id, size }, md5)
        };
        let uploaded = self.uploaded.get(&number);
        if uploaded.is_some_and(|sent| *sent == named(&piece).0) {
            return Ok(());
        }
        let (container, key) = (container.clone(), key.to_vec());
        let sending = async move {
            let (sent, md5) = named(&piece);
            let call = blocks::put_call(&container, &key, sent.id)?;
            container
                .fetch(&blocks::with_checksum(call, piece, &md5))
                .await?;
            drop(room);
            Ok((number, sent))
        };
        self.parts.send(number, &mut self.uploaded, sending).await
    }
}

impl Upload for AzureUpload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.push(bytes))
    }

    fn checkpoint(&mut self, end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            let Some(blocks) = &mut self.blocks else {
                return Ok(None);
            };
            blocks.parts.wait_up_to(end, &mut blocks.uploaded).await?;
            let (size, modified) = (self.plan.size, self.plan.modified);
            Ok(Some(blocks.upload_id.write(size, modified)))
        })
    }

    fn finish(
        mut self: Box<Self>,
        like: Entry,
        extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>> {
        Box::pin(async move {
            if self.offset != self.plan.size {
                let error = incomplete_upload(&self.key, self.offset, self.plan.size);
                let _ = self.abort().await;
                return Err(error);
            }
            match self.blocks.take() {
                None => self.put(&like, &extended).await,
                Some(mut blocks) => self.commit(&mut blocks, &like, &extended).await,
            }
        })
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            // Uncommitted blocks are invisible, and the service discards them.
            if let Some(blocks) = &mut self.blocks {
                blocks.parts.shutdown().await;
            }
            Ok(())
        })
    }
}
