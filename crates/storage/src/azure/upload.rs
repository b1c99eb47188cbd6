//! Writing a blob: in one request, or in blocks that another process can go on with.

use super::blob::{DRESS, dressed};
use super::blocks::{self, Id, Mark, Sent};
use super::container::Container;
use crate::backend::{Extended, Upload, UploadPlan, incomplete};
use crate::cloud::dress::version;
use crate::cloud::parts::{self, Part, Parts};
use crate::cloud::{Call, Pieces, text};
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry, Kind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;
use md5::{Digest, Md5};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Files up to this size go in one request.
pub(super) const WHOLE: u64 = 8 << 20;
/// The least size of a block.
const BLOCK: u64 = 8 << 20;

pub(super) fn block_size(size: u64) -> u64 {
    parts::part_size(size, BLOCK, blocks::MOST)
}

/// A blob being written.
pub(super) struct AzureUpload {
    container: Arc<Container>,
    key: Vec<u8>,
    name: Vec<u8>,
    plan: UploadPlan,
    offset: u64,
    /// All of it, where it goes in one request.
    whole: Pieces,
    blocks: Option<InBlocks>,
}

struct InBlocks {
    mark: Mark,
    there: BTreeMap<u32, Sent>,
    parts: Parts<Sent>,
    /// Of all bytes, if all of them passed here.
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
            whole: Pieces::default(),
            blocks: None,
        };
        if upload.plan.size > WHOLE {
            let blocks = upload.begin().await?;
            upload.offset = blocks.parts.offset();
            upload.blocks = Some(blocks);
        }
        Ok(upload)
    }

    async fn begin(&self) -> Result<InBlocks> {
        let (whole, modified) = (self.plan.size, self.plan.modified);
        let resume = self.plan.resume.as_deref();
        let resumed = resume.and_then(|resume| Mark::read(resume, whole, modified));
        let there = match resumed {
            Some(mark) => blocks::arrived(&self.container, &self.key, mark).await?,
            None => BTreeMap::new(),
        };
        let size = block_size(whole);
        // Blocks after a gap are looked at when it is their turn.
        let full = |number| there.get(&number).is_some_and(|sent| sent.size == size);
        let parts = Parts::begin(whole, size, full, self.container.room.clone());
        let md5 = (parts.offset() == 0).then(Md5::new);
        Ok(InBlocks {
            mark: resumed.unwrap_or_else(Mark::new),
            there,
            parts,
            md5,
        })
    }

    async fn take(&mut self, mut bytes: Bytes) -> Result<()> {
        self.offset += bytes.len() as u64;
        let Some(blocks) = &mut self.blocks else {
            self.whole.push(bytes);
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
        let call = self.container.at("put", "write", &self.key, Method::PUT)?;
        let call = dressed(call, &self.key, like.modified, extended)?;
        let call = call.header("x-ms-blob-type", "BlockBlob");
        let body = std::mem::take(&mut self.whole);
        let md5 = blocks::md5(&body);
        self.conditionally(blocks::sealed(call, body, &md5), like)
            .await
    }

    async fn commit(
        &self,
        blocks: &mut InBlocks,
        like: &Entry,
        extended: &Extended,
    ) -> Result<Entry> {
        if let Some(part) = blocks.parts.rest() {
            blocks.dispatch(&self.container, &self.key, part).await?;
        }
        blocks.parts.settle(&mut blocks.there).await?;
        let last = blocks.parts.last();
        let call = blocks::commit_call(&self.container, &self.key, &blocks.there, last)?;
        let mut call = dressed(call, &self.key, like.modified, extended)?;
        if let Some(md5) = blocks.md5.take() {
            let told = BASE64_STANDARD.encode(md5.finalize());
            call = call.header("x-ms-blob-content-md5", &told);
        }
        self.conditionally(call, like).await
    }

    /// Sends the call that makes the blob appear, provided that what is expected is there.
    async fn conditionally(&self, call: Call, like: &Entry) -> Result<Entry> {
        let call = call.expecting(&self.plan.expect);
        let error = match self.container.fetch(&call).await {
            Ok(whole) => {
                return Ok(Entry {
                    size: self.offset,
                    modified: like.modified,
                    version: text(&whole.headers, "etag").map(version),
                    ..Entry::new(self.name.clone(), Kind::File)
                });
            }
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Changed {
            return Err(error);
        }
        // Our own earlier request, whose answer was lost, may have done it.
        self.is_ours(like).await.ok_or_else(|| call.overtaken())
    }

    /// What is there, if it is as large and as old as what we write.
    async fn is_ours(&self, like: &Entry) -> Option<Entry> {
        let headers = self.container.head(&self.key).await.ok()?;
        let entry = DRESS.entry_of(&self.name, &headers);
        let dated = headers.contains_key(DRESS.mtime);
        (dated && entry.size == self.offset && entry.modified == like.modified).then_some(entry)
    }
}

impl InBlocks {
    /// Sends a block, unless it is there already.
    async fn dispatch(&mut self, container: &Arc<Container>, key: &[u8], part: Part) -> Result<()> {
        let Part {
            number,
            piece,
            room,
        } = part;
        let (mark, size) = (self.mark, piece.len());
        let named = move |piece: &Pieces| {
            let md5 = blocks::md5(piece);
            let id = Id::new(mark, number, &md5);
            (Sent { id, size }, md5)
        };
        let there = self.there.get(&number);
        if there.is_some_and(|sent| *sent == named(&piece).0) {
            return Ok(());
        }
        let (container, key) = (container.clone(), key.to_vec());
        let sending = async move {
            let (sent, md5) = named(&piece);
            let call = blocks::put_call(&container, &key, sent.id)?;
            container.fetch(&blocks::sealed(call, piece, &md5)).await?;
            drop(room);
            Ok((number, sent))
        };
        self.parts.send(number, &mut self.there, sending).await
    }
}

impl Upload for AzureUpload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.take(bytes))
    }

    fn checkpoint(&mut self, end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            let Some(blocks) = &mut self.blocks else {
                return Ok(None);
            };
            blocks.parts.settle_to(end, &mut blocks.there).await?;
            let (size, modified) = (self.plan.size, self.plan.modified);
            Ok(Some(blocks.mark.write(size, modified)))
        })
    }

    fn finish(
        mut self: Box<Self>,
        like: Entry,
        extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>> {
        Box::pin(async move {
            if self.offset != self.plan.size {
                let error = incomplete(&self.key, self.offset, self.plan.size);
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
            // What arrived is seen by nobody, and forgotten by the far side.
            if let Some(blocks) = &mut self.blocks {
                blocks.parts.shutdown().await;
            }
            Ok(())
        })
    }
}
