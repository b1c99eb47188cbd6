//! Writing an object: in one request, or in a session that another process can resume.

use super::bucket::{Bucket, with_precondition};
use super::object::Resource;
use super::session::{Session, SessionProgress};
use crate::backend::{Extended, Precondition, Upload, UploadPlan, incomplete_upload};
use crate::cloud::SegmentedBytes;
use crate::cloud::object_store::ObjectStore;
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use md5::{Digest, Md5};
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Files up to this size are sent in one request.
pub(super) const MAX_SINGLE_PUT: u64 = 8 << 20;
/// Bytes per request of a session.
pub(super) const CHUNK: u64 = 8 << 20;

/// An object being written.
pub(super) struct GcsUpload {
    bucket: Arc<Bucket>,
    key: Vec<u8>,
    name: Vec<u8>,
    plan: UploadPlan,
    offset: u64,
    /// Bytes that are not sent yet.
    piece: SegmentedBytes,
    /// The MD5 of all bytes, if all of them passed through this process.
    md5: Option<Md5>,
    session: Option<Session>,
    /// The memory permit for the bytes of a session.
    room: Option<OwnedSemaphorePermit>,
    done: Option<Box<Resource>>,
}

impl GcsUpload {
    pub(super) async fn open(
        bucket: Arc<Bucket>,
        key: Vec<u8>,
        name: &[u8],
        plan: UploadPlan,
    ) -> Result<GcsUpload> {
        let mut upload = GcsUpload {
            bucket,
            key,
            name: name.to_vec(),
            plan,
            offset: 0,
            piece: SegmentedBytes::default(),
            md5: None,
            session: None,
            room: None,
            done: None,
        };
        if upload.plan.size > MAX_SINGLE_PUT {
            upload.begin().await?;
        }
        if upload.offset == 0 {
            upload.md5 = Some(Md5::new());
        }
        Ok(upload)
    }

    async fn begin(&mut self) -> Result<()> {
        let (size, modified) = (self.plan.size, self.plan.modified);
        let resume = self.plan.resume.as_deref();
        if let Some(session) = resume.and_then(|resume| Session::read(resume, size, modified)) {
            let progress = session.status(&self.bucket, &self.key).await?;
            if let Some(SessionProgress::At(stored)) = progress {
                self.offset = stored;
                self.session = Some(session);
                return Ok(());
            }
        }
        let resource = Resource::new(&self.key, modified, &self.plan.extended);
        let begin = async |precondition: &Precondition| {
            Session::begin(&self.bucket, &self.key, &resource, size, precondition).await
        };
        let mut session = begin(&self.plan.precondition).await;
        if session
            .as_ref()
            .is_err_and(|error| error.kind() == ErrorKind::Changed)
            && let Some(own) = self.find_own_write(size, modified).await
        {
            // The upload was complete, and that was not recorded.
            let version = own.entry(b"").version.unwrap_or_default();
            session = begin(&Precondition::Version(version)).await;
        }
        self.session = Some(session.map_err(|error| self.conflict_error(error))?);
        Ok(())
    }

    /// Turns a failed precondition into a helpful error.
    fn conflict_error(&self, error: crate::Error) -> crate::Error {
        match (error.kind(), self.bucket.upload_call("put", &self.key, "")) {
            (ErrorKind::Changed, Ok(call)) => call.conflict(),
            _ => error,
        }
    }

    async fn push(&mut self, mut bytes: Bytes) -> Result<()> {
        self.offset += bytes.len() as u64;
        if let Some(md5) = &mut self.md5 {
            md5.update(&bytes);
        }
        if self.session.is_none() {
            self.piece.push(bytes);
            return Ok(());
        }
        while !bytes.is_empty() {
            if self.room.is_none() {
                let room = self.bucket.part_memory.clone().acquire_owned().await;
                self.room = Some(room.expect("the semaphore is never closed"));
            }
            let wanted = CHUNK - self.piece.len();
            let taken = usize::try_from(wanted)
                .unwrap_or(usize::MAX)
                .min(bytes.len());
            self.piece.push(bytes.split_to(taken));
            if self.piece.len() == CHUNK {
                self.send(bytes.len() as u64).await?;
            }
        }
        Ok(())
    }

    /// Sends the buffered bytes; `after` bytes follow them.
    async fn send(&mut self, after: u64) -> Result<()> {
        let Some(session) = &self.session else {
            return Ok(());
        };
        let piece = std::mem::take(&mut self.piece);
        let at = self.offset - after - piece.len();
        let sent = session.send(&self.bucket, &self.key, at, piece).await;
        self.room = None;
        let (size, modified) = (self.plan.size, self.plan.modified);
        match sent {
            Ok(SessionProgress::At(_)) => {}
            Ok(SessionProgress::Done(resource)) => self.done = Some(resource),
            // The service may have discarded a session that succeeded but whose response was lost.
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match self.find_own_write(size, modified).await {
                    Some(own) if self.offset - after == size => self.done = Some(own.into()),
                    _ => {
                        let call = self.bucket.upload_call("put", &self.key, "")?;
                        return Err(call.failure(ErrorKind::Temporary, error.cause()));
                    }
                }
            }
            Err(error) => return Err(self.conflict_error(error)),
        }
        Ok(())
    }

    /// Sends metadata and bytes in one request.
    async fn put(&mut self, mut resource: Resource) -> Result<Box<Resource>> {
        resource.md5_hash = self.md5.take().map(encode_md5);
        let call = self.bucket.upload_call("put", &self.key, "multipart")?;
        let boundary = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let mut body = SegmentedBytes::default();
        let head = format!(
            "--{boundary}\r\ncontent-type: application/json; charset=utf-8\r\n\r\n{}\r\n--{boundary}\r\ncontent-type: application/octet-stream\r\n\r\n",
            resource.json()
        );
        body.push(head.into());
        std::mem::take(&mut self.piece)
            .iter()
            .for_each(|piece| body.push(piece.clone()));
        body.push(format!("\r\n--{boundary}--\r\n").into());
        let kind = format!("multipart/related; boundary={boundary}");
        let call = with_precondition(call, &self.plan.precondition).header("content-type", &kind);
        let call = call.body(body).expect_json();
        let response = self.bucket.fetch(&call).await?;
        serde_json::from_slice(&response.body)
            .map_err(|error| call.failure(ErrorKind::Temporary, error.to_string()))
    }

    /// Finishes a session. The service has no hash to compare with, so it is compared here.
    async fn finish_session(&mut self) -> Result<Box<Resource>> {
        if self.piece.len() > 0 {
            self.send(0).await?;
        }
        let call = self.bucket.upload_call("put", &self.key, "")?;
        let Some(done) = self.done.take() else {
            let message = "the service expects more bytes than the file has";
            return Err(call.failure(ErrorKind::Temporary, message));
        };
        let own = self.md5.take().map(encode_md5);
        if own.is_some() && done.md5_hash.is_some() && own != done.md5_hash {
            self.bucket.delete(&self.key).await?;
            let message = "the bytes do not match their checksum";
            return Err(call.failure(ErrorKind::Temporary, message));
        }
        Ok(done)
    }

    async fn finish_upload(&mut self, like: &Entry, extended: &Extended) -> Result<Entry> {
        let made = match self.session {
            Some(_) => self.finish_session().await,
            None => {
                self.put(Resource::new(&self.key, like.modified, extended))
                    .await
            }
        };
        match made {
            Ok(made) => Ok(Entry {
                size: self.offset,
                modified: like.modified,
                ..made.entry(&self.name)
            }),
            // Our own earlier request, whose response was lost, may have succeeded.
            Err(error) if error.kind() == ErrorKind::Changed => {
                let own = self.find_own_write(self.offset, like.modified).await;
                let own = own.map(|own| own.entry(&self.name));
                own.ok_or_else(|| self.conflict_error(error))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the current object if it has the size and time of the one we write.
    async fn find_own_write(&self, size: u64, modified: Option<i64>) -> Option<Resource> {
        let existing = self.bucket.head(&self.key).await.ok()?;
        let entry = existing.entry(b"");
        let same = entry.size == size && entry.modified == modified;
        (existing.has_mtime() && same).then_some(existing)
    }
}

/// Creates the empty object that represents an empty folder.
pub(super) async fn put_folder(bucket: Arc<Bucket>, key: Vec<u8>) -> Result<()> {
    let resource = Resource::new(&key, None, &Extended::new());
    let plan = UploadPlan::default();
    let mut upload = GcsUpload::open(bucket, key, b"", plan).await?;
    upload.put(resource).await.map(drop)
}

fn encode_md5(md5: Md5) -> String {
    BASE64_STANDARD.encode(md5.finalize())
}

impl Upload for GcsUpload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.push(bytes))
    }

    fn checkpoint(&mut self, _end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        let session = self.session.as_ref();
        let resume = session.map(|session| session.write(self.plan.modified));
        Box::pin(std::future::ready(Ok(resume)))
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
            self.finish_upload(&like, &extended).await
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            match &self.session {
                Some(session) => session.abort(&self.bucket, &self.key).await,
                None => Ok(()),
            }
        })
    }
}
