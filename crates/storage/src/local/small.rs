//! Writing a small file: its bytes are buffered, and then it is created, written and renamed in one
//! job. Waking a thread for each of these calls would cost more than they do.

use super::blocking;
use super::root::Root;
use super::upload::LocalUpload;
use crate::backend::{Extended, Upload, UploadPlan};
use crate::error::Result;
use crate::{BoxFuture, Entry, Folder};
use bytes::Bytes;
use std::sync::Arc;

/// Larger files are written as their bytes arrive.
const MAX_SMALL: u64 = 64 << 10;

pub(super) enum SmallUpload {
    /// Nothing of it is on the disk.
    Buffered(Buffered),
    /// A checkpoint was requested: from then on it is written like any other file.
    Started(Box<LocalUpload>),
}

#[derive(Clone)]
pub(super) struct Buffered {
    root: Arc<Root>,
    folder: Folder,
    name: Vec<u8>,
    plan: UploadPlan,
    bytes: Vec<Bytes>,
    offset: u64,
}

impl Buffered {
    fn begin(self) -> Result<(LocalUpload, Vec<Bytes>)> {
        let upload = LocalUpload::open(&self.root, self.folder, self.name, self.plan)?;
        Ok((upload, self.bytes))
    }
}

impl SmallUpload {
    /// Returns whether a file is small.
    pub(super) fn is_for(plan: &UploadPlan) -> bool {
        plan.size <= MAX_SMALL && plan.resume.is_none()
    }

    pub(super) fn new(root: &Arc<Root>, folder: &Folder, name: &[u8], plan: UploadPlan) -> Self {
        SmallUpload::Buffered(Buffered {
            root: root.clone(),
            folder: folder.clone(),
            name: name.to_vec(),
            plan,
            bytes: Vec::new(),
            offset: 0,
        })
    }
}

impl Upload for SmallUpload {
    fn offset(&self) -> u64 {
        match self {
            SmallUpload::Buffered(buffered) => buffered.offset,
            SmallUpload::Started(upload) => upload.offset(),
        }
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        match self {
            SmallUpload::Buffered(buffered) => {
                buffered.offset += bytes.len() as u64;
                buffered.bytes.push(bytes);
                Box::pin(std::future::ready(Ok(())))
            }
            SmallUpload::Started(upload) => upload.write(bytes),
        }
    }

    fn checkpoint(&mut self, end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            if let SmallUpload::Buffered(buffered) = self {
                let buffered = buffered.clone();
                let (mut upload, bytes) = blocking(move || buffered.begin()).await?;
                for bytes in bytes {
                    upload.write(bytes).await?;
                }
                *self = SmallUpload::Started(Box::new(upload));
            }
            match self {
                SmallUpload::Buffered(_) => Ok(None),
                SmallUpload::Started(upload) => upload.checkpoint(end).await,
            }
        })
    }

    fn finish(
        self: Box<Self>,
        like: Entry,
        extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>> {
        match *self {
            SmallUpload::Buffered(buffered) => Box::pin(async move {
                let steps = buffered.root.blocking_pool.clone();
                let step = move || {
                    let (upload, bytes) = buffered.begin()?;
                    upload.complete(&bytes, &like, &extended)
                };
                steps.run(step).await
            }),
            SmallUpload::Started(upload) => upload.finish(like, extended),
        }
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        match *self {
            SmallUpload::Buffered(_) => Box::pin(std::future::ready(Ok(()))),
            SmallUpload::Started(upload) => upload.abort(),
        }
    }
}
