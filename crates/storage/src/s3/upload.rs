//! Writing an object: in one request, or in parts that another process can go on with.

use super::bucket::Bucket;
use super::multipart::{Multipart, Sent};
use super::object::DRESS;
use super::sign::sha256;
use crate::backend::{Expect, Extended, Upload, UploadPlan, incomplete};
use crate::cloud::dress::version;
use crate::cloud::parts::{self, Part, Parts};
use crate::cloud::{Call, Pieces, hex, text};
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry, Kind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::OwnedSemaphorePermit;

/// Files up to this size go in one request.
pub(super) const WHOLE: u64 = 8 << 20;
/// The least size of a part.
const PART: u64 = 8 << 20;
const MOST_PARTS: u64 = 10_000;

pub(super) fn part_size(size: u64) -> u64 {
    parts::part_size(size, PART, MOST_PARTS)
}

/// Adds the hash of what is sent, twice: as part of the signature, and to be kept beside the bytes.
pub(super) fn sealed(bucket: &Bucket, call: Call, body: Pieces) -> (Call, String) {
    let hash = sha256(&body);
    let told = BASE64_STANDARD.encode(hash);
    let call = call.header("x-amz-content-sha256", &hex(&hash));
    let call = match bucket.checksums {
        true => call.header("x-amz-checksum-sha256", &told),
        false => call,
    };
    (call.body(body), told)
}

/// An object being written.
pub(super) struct S3Upload {
    bucket: Arc<Bucket>,
    key: Vec<u8>,
    name: Vec<u8>,
    plan: UploadPlan,
    offset: u64,
    /// All of it, where it goes in one request.
    whole: Pieces,
    _room: Option<OwnedSemaphorePermit>,
    parts: Option<InParts>,
}

struct InParts {
    multipart: Multipart,
    parts: Parts<Sent>,
}

impl S3Upload {
    pub(super) async fn open(
        bucket: Arc<Bucket>,
        key: Vec<u8>,
        name: &[u8],
        plan: UploadPlan,
    ) -> Result<S3Upload> {
        let room = match plan.size > WHOLE {
            true => None,
            false => Some(bucket.room_for(plan.size).await),
        };
        let mut upload = S3Upload {
            _room: room,
            bucket,
            key,
            name: name.to_vec(),
            plan,
            offset: 0,
            whole: Pieces::default(),
            parts: None,
        };
        if upload.plan.size > WHOLE {
            let parts = upload.begin().await?;
            upload.offset = parts.parts.offset();
            upload.parts = Some(parts);
        }
        Ok(upload)
    }

    async fn begin(&self) -> Result<InParts> {
        let size = part_size(self.plan.size);
        let resume = self
            .plan
            .resume
            .as_deref()
            .and_then(|resume| std::str::from_utf8(resume).ok());
        let resumed = match resume {
            Some(id) => Multipart::resume(&self.bucket, &self.key, id).await?,
            None => None,
        };
        let multipart = match resumed {
            Some(multipart) => multipart,
            None => {
                let call = self
                    .bucket
                    .at("create upload", "write", &self.key, Method::POST)?;
                let call = DRESS.dress(call, &self.key, self.plan.modified, &self.plan.extended);
                Multipart::begin(&self.bucket, &self.key, call).await?
            }
        };
        // Parts after a gap are looked at when it is their turn.
        let full = |number| {
            let part = multipart.there.get(&number);
            part.is_some_and(|part| part.size == size)
        };
        let parts = Parts::begin(self.plan.size, size, full, self.bucket.room.clone());
        Ok(InParts { multipart, parts })
    }

    async fn take(&mut self, mut bytes: Bytes) -> Result<()> {
        self.offset += bytes.len() as u64;
        while !bytes.is_empty() {
            let Some(parts) = &mut self.parts else {
                self.whole.push(bytes);
                return Ok(());
            };
            if let Some(part) = parts.parts.fill(&mut bytes).await {
                parts.dispatch(&self.bucket, &self.key, part).await?;
            }
        }
        Ok(())
    }

    async fn put(&mut self, like: &Entry, extended: &Extended) -> Result<Entry> {
        let call = self.bucket.at("put", "write", &self.key, Method::PUT)?;
        let call = DRESS.dress(call, &self.key, like.modified, extended);
        let (call, _) = sealed(&self.bucket, call, std::mem::take(&mut self.whole));
        let found = self.conditionally(call, like).await?;
        Ok(found.entry(&self.name, self.offset, like.modified))
    }

    /// Sends the call that makes the object appear, provided that what is expected is there.
    ///
    /// Answers what was found when our own earlier request, whose answer was lost, had done it
    /// already.
    async fn conditionally(&self, call: Call, like: &Entry) -> Result<Found> {
        let expected = match self.bucket.conditional.load(Relaxed) {
            true => &self.plan.expect,
            false => &Expect::Anything,
        };
        let conditional = call.clone().expecting(expected);
        let error = match self.bucket.fetch_checked(&conditional).await {
            Ok(whole) => return Ok(Found::Answer(whole)),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Unsupported if *expected != Expect::Anything => {
                self.bucket.conditional.store(false, Relaxed);
                let whole = self.bucket.fetch_checked(&call).await?;
                Ok(Found::Answer(whole))
            }
            ErrorKind::Changed | ErrorKind::NotFound => match self.is_ours(like).await {
                Some(entry) => Ok(Found::There(entry)),
                None if error.kind() == ErrorKind::Changed => Err(call.overtaken()),
                None => Err(error),
            },
            _ => Err(error),
        }
    }

    /// What is there, if it is as large and as old as what we write.
    async fn is_ours(&self, like: &Entry) -> Option<Entry> {
        let headers = self.bucket.head(&self.key).await.ok()?;
        let entry = DRESS.entry_of(&self.name, &headers);
        let dated = headers.contains_key("x-amz-meta-mtime");
        (dated && entry.size == self.offset && entry.modified == like.modified).then_some(entry)
    }
}

impl InParts {
    /// Sends a part, unless it is there already.
    async fn dispatch(&mut self, bucket: &Arc<Bucket>, key: &[u8], part: Part) -> Result<()> {
        let Part {
            number,
            piece,
            room,
        } = part;
        let there = self.multipart.there.get(&number);
        if there.is_some_and(|sent| sent.holds(&piece)) {
            return Ok(());
        }
        let call = self.multipart.part_call(bucket, key, number)?;
        let bucket = bucket.clone();
        let sending = async move {
            let size = piece.len();
            let (call, sha256) = sealed(&bucket, call, piece);
            let whole = bucket.fetch(&call).await?;
            drop((call, room));
            let etag = text(&whole.headers, "etag")
                .map(version)
                .unwrap_or_default();
            let etag = String::from_utf8_lossy(&etag).into_owned();
            let sha256 = bucket.checksums.then_some(sha256);
            Ok((number, Sent { etag, sha256, size }))
        };
        self.parts
            .send(number, &mut self.multipart.there, sending)
            .await
    }

    async fn settle(&mut self) -> Result<()> {
        self.parts.settle(&mut self.multipart.there).await
    }
}

impl Upload for S3Upload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.take(bytes))
    }

    fn checkpoint(&mut self, end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            let Some(parts) = &mut self.parts else {
                return Ok(None);
            };
            parts
                .parts
                .settle_to(end, &mut parts.multipart.there)
                .await?;
            Ok(Some(parts.multipart.id.clone().into_bytes()))
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
            let Some(mut parts) = self.parts.take() else {
                return self.put(&like, &extended).await;
            };
            if let Some(part) = parts.parts.rest() {
                parts.dispatch(&self.bucket, &self.key, part).await?;
            }
            parts.settle().await?;
            let last = parts.parts.last();
            let call = parts
                .multipart
                .complete_call(&self.bucket, &self.key, last)?;
            let found = self.conditionally(call, &like).await;
            if found
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::Changed)
            {
                parts.multipart.abort(&self.bucket, &self.key).await?;
            }
            Ok(found?.entry(&self.name, self.offset, self.plan.modified))
        })
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            let Some(mut parts) = self.parts.take() else {
                return Ok(());
            };
            // A part that arrives after the end of its upload would stay.
            parts.parts.shutdown().await;
            parts.multipart.abort(&self.bucket, &self.key).await
        })
    }
}

/// What came of the call that makes an object appear.
enum Found {
    Answer(crate::cloud::Whole),
    There(Entry),
}

impl Found {
    fn entry(self, name: &[u8], size: u64, modified: Option<i64>) -> Entry {
        let whole = match self {
            Found::There(entry) => return entry,
            Found::Answer(whole) => whole,
        };
        let etag = text(&whole.headers, "etag").map(str::to_owned);
        let etag = etag.or_else(|| crate::cloud::xml::find(&whole.body, "ETag"));
        Entry {
            size,
            modified,
            version: etag.as_deref().map(version),
            ..Entry::new(name, Kind::File)
        }
    }
}
