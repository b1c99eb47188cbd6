//! Writing an object: in one request, or in parts that another process can resume.

use super::bucket::Bucket;
use super::multipart::{Multipart, UploadedPart};
use super::object::HEADERS;
use super::sign::sha256;
use crate::backend::{Extended, Precondition, Upload, UploadPlan, incomplete_upload};
use crate::cloud::object_headers::version;
use crate::cloud::parts::{self, Part, PartPipeline};
use crate::cloud::{Call, SegmentedBytes, header_text};
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry, Kind};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::Method;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::OwnedSemaphorePermit;

/// Files up to this size are sent in one request.
pub(super) const MAX_SINGLE_PUT: u64 = 8 << 20;
/// The minimum size of a part.
const MIN_PART_SIZE: u64 = 8 << 20;
const MAX_PARTS: u64 = 10_000;

pub(super) fn part_size(size: u64) -> u64 {
    parts::part_size(size, MIN_PART_SIZE, MAX_PARTS)
}

/// Adds a body and its hash, twice: for the signature, and to be stored with the object.
pub(super) fn with_checksum(bucket: &Bucket, call: Call, body: SegmentedBytes) -> (Call, String) {
    let hash = sha256(&body);
    let base64_hash = BASE64_STANDARD.encode(hash);
    let call = call.header("x-amz-content-sha256", &hex::encode(hash));
    let call = match bucket.checksums {
        true => call.header("x-amz-checksum-sha256", &base64_hash),
        false => call,
    };
    (call.body(body), base64_hash)
}

/// An object being written.
pub(super) struct S3Upload {
    bucket: Arc<Bucket>,
    key: Vec<u8>,
    name: Vec<u8>,
    plan: UploadPlan,
    offset: u64,
    /// The bytes so far, if they are sent in one request.
    buffered: SegmentedBytes,
    _memory_permit: Option<OwnedSemaphorePermit>,
    parts: Option<MultipartUpload>,
}

struct MultipartUpload {
    multipart: Multipart,
    parts: PartPipeline<UploadedPart>,
}

impl S3Upload {
    pub(super) async fn open(
        bucket: Arc<Bucket>,
        key: Vec<u8>,
        name: &[u8],
        plan: UploadPlan,
    ) -> Result<S3Upload> {
        let room = match plan.size > MAX_SINGLE_PUT {
            true => None,
            false => Some(bucket.reserve_memory(plan.size).await),
        };
        let mut upload = S3Upload {
            _memory_permit: room,
            bucket,
            key,
            name: name.to_vec(),
            plan,
            offset: 0,
            buffered: SegmentedBytes::default(),
            parts: None,
        };
        if upload.plan.size > MAX_SINGLE_PUT {
            let parts = upload.begin().await?;
            upload.offset = parts.parts.offset();
            upload.parts = Some(parts);
        }
        Ok(upload)
    }

    async fn begin(&self) -> Result<MultipartUpload> {
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
                let call =
                    self.bucket
                        .object_call("create upload", "write", &self.key, Method::POST)?;
                let call = HEADERS.apply(call, &self.key, self.plan.modified, &self.plan.extended);
                Multipart::begin(&self.bucket, &self.key, call).await?
            }
        };
        // Parts after a gap are checked when they are due.
        let full = |number| {
            let part = multipart.uploaded.get(&number);
            part.is_some_and(|part| part.size == size)
        };
        let parts =
            PartPipeline::begin(self.plan.size, size, full, self.bucket.part_memory.clone());
        Ok(MultipartUpload { multipart, parts })
    }

    async fn push(&mut self, mut bytes: Bytes) -> Result<()> {
        self.offset += bytes.len() as u64;
        while !bytes.is_empty() {
            let Some(parts) = &mut self.parts else {
                self.buffered.push(bytes);
                return Ok(());
            };
            if let Some(part) = parts.parts.fill(&mut bytes).await {
                parts.dispatch(&self.bucket, &self.key, part).await?;
            }
        }
        Ok(())
    }

    async fn put(&mut self, like: &Entry, extended: &Extended) -> Result<Entry> {
        let call = self
            .bucket
            .object_call("put", "write", &self.key, Method::PUT)?;
        let call = HEADERS.apply(call, &self.key, like.modified, extended);
        let (call, _) = with_checksum(&self.bucket, call, std::mem::take(&mut self.buffered));
        let found = self.send_conditional(call, like).await?;
        Ok(found.entry(&self.name, self.offset, like.modified))
    }

    /// Sends the call that creates the object, under the precondition of the plan.
    ///
    /// Returns the existing object if our own earlier request, whose response was lost, had
    /// succeeded.
    async fn send_conditional(&self, call: Call, like: &Entry) -> Result<Completion> {
        let expected = match self.bucket.conditional.load(Relaxed) {
            true => &self.plan.precondition,
            false => &Precondition::Any,
        };
        let conditional = call.clone().with_precondition(expected);
        let error = match self.bucket.fetch_checked(&conditional).await {
            Ok(response) => return Ok(Completion::Answer(response)),
            Err(error) => error,
        };
        match error.kind() {
            ErrorKind::Unsupported if *expected != Precondition::Any => {
                self.bucket.conditional.store(false, Relaxed);
                let response = self.bucket.fetch_checked(&call).await?;
                Ok(Completion::Answer(response))
            }
            ErrorKind::Changed | ErrorKind::NotFound => match self.find_own_write(like).await {
                Some(entry) => Ok(Completion::AlreadyThere(entry)),
                None if error.kind() == ErrorKind::Changed => Err(call.conflict()),
                None => Err(error),
            },
            _ => Err(error),
        }
    }

    /// Returns the current object if it has the size and time of the one we write.
    async fn find_own_write(&self, like: &Entry) -> Option<Entry> {
        let headers = self.bucket.head(&self.key).await.ok()?;
        let entry = HEADERS.entry_of(&self.name, &headers);
        let dated = headers.contains_key("x-amz-meta-mtime");
        (dated && entry.size == self.offset && entry.modified == like.modified).then_some(entry)
    }
}

impl MultipartUpload {
    /// Sends a part, unless it is uploaded already.
    async fn dispatch(&mut self, bucket: &Arc<Bucket>, key: &[u8], part: Part) -> Result<()> {
        let Part {
            number,
            bytes: piece,
            permit: room,
        } = part;
        let uploaded = self.multipart.uploaded.get(&number);
        if uploaded.is_some_and(|sent| sent.matches(&piece)) {
            return Ok(());
        }
        let call = self.multipart.part_call(bucket, key, number)?;
        let bucket = bucket.clone();
        let sending = async move {
            let size = piece.len();
            let (call, sha256) = with_checksum(&bucket, call, piece);
            let response = bucket.fetch(&call).await?;
            drop((call, room));
            let etag = header_text(&response.headers, "etag")
                .map(version)
                .unwrap_or_default();
            let etag = String::from_utf8_lossy(&etag).into_owned();
            let sha256 = bucket.checksums.then_some(sha256);
            Ok((number, UploadedPart { etag, sha256, size }))
        };
        self.parts
            .send(number, &mut self.multipart.uploaded, sending)
            .await
    }

    async fn wait_all(&mut self) -> Result<()> {
        self.parts.wait_all(&mut self.multipart.uploaded).await
    }
}

impl Upload for S3Upload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.push(bytes))
    }

    fn checkpoint(&mut self, end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            let Some(parts) = &mut self.parts else {
                return Ok(None);
            };
            parts
                .parts
                .wait_up_to(end, &mut parts.multipart.uploaded)
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
                let error = incomplete_upload(&self.key, self.offset, self.plan.size);
                let _ = self.abort().await;
                return Err(error);
            }
            let Some(mut parts) = self.parts.take() else {
                return self.put(&like, &extended).await;
            };
            if let Some(part) = parts.parts.take_rest() {
                parts.dispatch(&self.bucket, &self.key, part).await?;
            }
            parts.wait_all().await?;
            let last = parts.parts.last();
            let call = parts
                .multipart
                .complete_call(&self.bucket, &self.key, last)?;
            let found = self.send_conditional(call, &like).await;
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
            // A part that arrives after the upload was aborted would stay.
            parts.parts.shutdown().await;
            parts.multipart.abort(&self.bucket, &self.key).await
        })
    }
}

/// The result of the call that creates an object.
enum Completion {
    Answer(crate::cloud::FullResponse),
    AlreadyThere(Entry),
}

impl Completion {
    fn entry(self, name: &[u8], size: u64, modified: Option<i64>) -> Entry {
        let response = match self {
            Completion::AlreadyThere(entry) => return entry,
            Completion::Answer(response) => response,
        };
        let etag = header_text(&response.headers, "etag").map(str::to_owned);
        let etag = etag.or_else(|| crate::cloud::xml::find(&response.body, "ETag"));
        Entry {
            size,
            modified,
            version: etag.as_deref().map(version),
            ..Entry::new(name, Kind::File)
        }
    }
}
