//! Google Cloud Storage.
//!
//! Names work as in the other object stores (see [`S3`](crate::S3)): slashes separate folders, a
//! folder is a common prefix or an empty object whose name ends with a slash, and an object `a`
//! next to objects `a/…` is a file named `a/`.

mod bucket;
mod copy;
mod credentials;
mod folders;
mod listing;
mod object;
mod session;
mod upload;

use crate::backend::{
    Backend, Chunks, CopyItem, CopyOutcome, Cursor, Extended, Listing, Requests, Upload, UploadPlan,
};
use crate::cloud::object_store::{self, ObjectStore};
use crate::cloud::paged_listing::PagedListing;
use crate::cloud::read_ahead;
use crate::error::Result;
use crate::{BoxFuture, Capabilities, Entry, Folder, Kind};
use bucket::Bucket;
pub(crate) use listing::fuzz_listing;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// A bucket, or a prefix in it. See the [crate](crate).
///
/// ```
/// use headworks_storage::{Backend, Gcs};
///
/// let gcs = Gcs::open(b"gs://bucket/some/prefix?anonymous").unwrap();
/// assert!(gcs.capabilities().resumable_listing);
/// ```
#[derive(Clone)]
pub struct Gcs {
    bucket: Arc<Bucket>,
}

impl std::fmt::Debug for Gcs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gcs").finish_non_exhaustive()
    }
}

impl Gcs {
    /// Opens `gs://bucket/prefix?…`. Settings are `endpoint`, `anonymous`, `project` (in which a
    /// missing bucket is created), and `page` (names per page). Credentials come from
    /// `GOOGLE_APPLICATION_CREDENTIALS`, `GOOGLE_OAUTH_ACCESS_TOKEN` or the machine's account.
    ///
    /// # Errors
    /// When the location is invalid or contains credentials, or the credentials file cannot be
    /// used.
    pub fn open(location: &[u8]) -> Result<Gcs> {
        let bucket = Bucket::open(location, &crate::cloud::environment())?;
        Ok(Gcs {
            bucket: Arc::new(bucket),
        })
    }
}

impl Backend for Gcs {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: true,
            resumable_listing: true,
            resumable_upload: true,
            keeps_parts: true,
            modified: Some(Duration::from_nanos(1)),
            listed_times: true,
            metadata: true,
            max_batch_copy: u64::MAX,
            folders: false,
            longest_name: Some(self.bucket.longest_name()),
            posix_names: false,
            unicode_names: true,
            name_rule: Some(bucket::name_problem),
            workers: (16, 32),
            ..Capabilities::read_only()
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn list<'a>(
        &'a self,
        folder: &'a Folder,
        from: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Box<dyn Listing>>> {
        let below = listing::FolderPages::new(self.bucket.clone(), folder);
        let listing = Box::new(PagedListing::new(below, from)) as Box<dyn Listing>;
        Box::pin(std::future::ready(Ok(listing)))
    }

    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(object_store::stat(&*self.bucket, folder, name))
    }

    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
        Box::pin(async move {
            let key = self.bucket.key(folder, name);
            let object = object::Object {
                bucket: self.bucket.clone(),
                resource: self.bucket.head(&key).await?,
                key,
                name: name.to_vec(),
            };
            read_ahead::read(object, offset, length, &self.bucket.part_memory).await
        })
    }

    fn extended<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Extended>> {
        Box::pin(async move {
            let Some(name) = name else {
                return Ok(Extended::new());
            };
            let key = self.bucket.key(folder, name);
            Ok(self.bucket.head(&key).await?.extended())
        })
    }

    fn upload<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: UploadPlan,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>>> {
        Box::pin(async move {
            let key = self.bucket.key(folder, name);
            let upload = upload::GcsUpload::open(self.bucket.clone(), key, name, plan).await?;
            Ok(Box::new(upload) as Box<dyn Upload>)
        })
    }

    fn discard<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: &'a UploadPlan,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let key = self.bucket.key(folder, name);
            let resume = plan.resume.as_deref();
            let session = resume.and_then(session::Session::from_token);
            match session {
                Some(session) => session.abort(&self.bucket, &key).await,
                None => Ok(()),
            }
        })
    }

    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Backend,
        folder: &'a Folder,
        items: &'a [CopyItem],
    ) -> Option<BoxFuture<'a, Vec<Result<CopyOutcome>>>> {
        let source = &source.as_any().downcast_ref::<Gcs>()?.bucket;
        if !self.bucket.can_copy_from(source) {
            return None;
        }
        Some(Box::pin(copy::copy_batch(
            source,
            &self.bucket,
            folder,
            items,
        )))
    }

    fn make_folder<'a>(&'a self, folder: &'a Folder) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match folder.is_root() {
                true => self.bucket.make().await,
                false => {
                    let key = self.bucket.prefix(folder);
                    upload::put_folder(self.bucket.clone(), key).await
                }
            }
        })
    }

    fn set_attributes<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
        like: &'a Entry,
        extended: Extended,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async move {
            let Some(name) = name else {
                // A folder has no attributes.
                return Ok(Entry::new(like.name.clone(), Kind::Folder));
            };
            let key = self.bucket.key(folder, name);
            let mut with = object::Resource::from_extended(&extended);
            if let Some(modified) = like.modified {
                with.set_modified(modified);
            }
            Ok(self.bucket.patch(&key, &with).await?.entry(name))
        })
    }

    fn remove<'a>(&'a self, folder: &'a Folder, name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        Box::pin(object_store::remove(&*self.bucket, folder, name))
    }

    fn rename<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        to: (&'a Folder, &'a [u8]),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let from = self.bucket.key(folder, name);
            let target_key = self.bucket.key(to.0, to.1);
            object_store::rename(&*self.bucket, &from, &target_key).await
        })
    }

    fn requests(&self) -> Requests {
        self.bucket.endpoint.requests()
    }

    fn requests_to_write(&self, size: u64) -> u64 {
        match size > upload::MAX_SINGLE_PUT {
            true => 1 + size.div_ceil(upload::CHUNK),
            false => 1,
        }
    }

    fn requests_to_read(&self, size: u64) -> u64 {
        // The metadata must be known before the bytes arrive; of a large file even before the
        // upload starts.
        1 + u64::from(size > upload::MAX_SINGLE_PUT) + read_ahead::requests(size)
    }

    fn writable(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.bucket.check())
    }
}
