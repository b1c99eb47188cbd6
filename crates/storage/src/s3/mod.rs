//! S3 buckets, at Amazon or a compatible service.
//!
//! Slashes in keys separate folders; keys are otherwise opaque bytes. A folder is a common prefix
//! of keys, or an empty object whose key ends with a slash. Such an object is the entry with an
//! empty name in its folder. A key `a` next to keys `a/…` is a file named `a/`: no other file has a
//! slash in its name.

mod bucket;
mod copy;
mod credentials;
mod folders;
mod listing;
mod multipart;
mod object;
mod sign;
mod upload;

use crate::backend::{
    Backend, Chunks, CopyItem, CopyOutcome, Cursor, Extended, Listing, Requests, Upload, UploadPlan,
};
use crate::cloud::object_store::{self, ObjectStore};
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
/// use headworks_storage::{Backend, S3};
///
/// let s3 = S3::open(b"s3://bucket/some/prefix?endpoint=http://127.0.0.1:9000&anonymous").unwrap();
/// assert!(s3.capabilities().resumable_listing);
/// assert!(S3::open(b"s3://key:secret@bucket").is_err());
/// ```
#[derive(Clone)]
pub struct S3 {
    bucket: Arc<Bucket>,
    /// The cache of a walk: folders that were listed before they were requested.
    prefix_listing: Option<Arc<listing::PrefixListing>>,
}

impl std::fmt::Debug for S3 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("S3").finish_non_exhaustive()
    }
}

impl S3 {
    /// Opens `s3://bucket/prefix?…`. Settings are `endpoint`, `region`, `profile`, `path_style`,
    /// `anonymous`, `checksums=false` or `conditional=false` for a service without them, `page`
    /// (keys per page), and `below` to list many small folders per request.
    ///
    /// # Errors
    /// When the location is invalid or contains credentials, or names a profile that does not
    /// exist.
    pub fn open(location: &[u8]) -> Result<S3> {
        let bucket = Bucket::open(location, &crate::cloud::environment())?;
        Ok(S3::new(Arc::new(bucket)))
    }

    fn new(bucket: Arc<Bucket>) -> S3 {
        S3 {
            bucket,
            prefix_listing: None,
        }
    }

    /// Returns the number of cached entries.
    #[cfg(test)]
    fn cached_entries(&self) -> usize {
        self.prefix_listing
            .as_ref()
            .map_or(0, |below| below.cached_entries())
    }
}

impl Backend for S3 {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: true,
            resumable_listing: true,
            resumable_upload: true,
            keeps_parts: true,
            modified: Some(Duration::from_nanos(1)),
            listed_times: false,
            metadata: true,
            max_batch_copy: u64::MAX,
            folders: false,
            longest_name: Some(self.bucket.longest_name()),
            posix_names: false,
            unicode_names: true,
            // The service needs time for every small file, and handles many at once.
            workers: (64, 128),
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
        let kept = self.prefix_listing.as_ref().filter(|_| from.is_none());
        let known = kept.and_then(|below| below.take_cached(folder));
        let listing = known.unwrap_or_else(|| {
            let listing = listing::S3Listing::new(self.bucket.clone(), folder, from);
            match &self.prefix_listing {
                Some(below) => Box::new(listing.with_prefix_listing(below)),
                None => Box::new(listing),
            }
        });
        Box::pin(std::future::ready(Ok(listing)))
    }

    fn for_walk(&self) -> Option<Arc<dyn Backend>> {
        let below = match self.bucket.list_below {
            Some(false) => return None,
            Some(true) => listing::PrefixListing::always(),
            None => listing::PrefixListing::when_cheaper(),
        };
        Some(Arc::new(S3 {
            bucket: self.bucket.clone(),
            prefix_listing: Some(Arc::new(below)),
        }))
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
            let headers = self.bucket.head(&self.bucket.key(folder, name)).await?;
            Ok(object::HEADERS.extended_of(&headers))
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
            let upload = upload::S3Upload::open(self.bucket.clone(), key, name, plan).await?;
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
            if plan.size <= upload::MAX_SINGLE_PUT {
                return Ok(());
            }
            let key = self.bucket.key(folder, name);
            let id = plan
                .resume
                .as_deref()
                .and_then(|id| std::str::from_utf8(id).ok());
            match id {
                Some(id) => multipart::abort(&self.bucket, &key, id).await,
                None => multipart::abort_others(&self.bucket, &key, None).await,
            }
        })
    }

    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Backend,
        folder: &'a Folder,
        items: &'a [CopyItem],
    ) -> Option<BoxFuture<'a, Vec<Result<CopyOutcome>>>> {
        let source = &source.as_any().downcast_ref::<S3>()?.bucket;
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
                false => self.bucket.put_empty(&self.bucket.prefix(folder)).await,
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
            copy::set_object_headers(&self.bucket, &key, name, like, &extended).await
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
            let (from, target_key) = (self.bucket.key(folder, name), self.bucket.key(to.0, to.1));
            object_store::rename(&*self.bucket, &from, &target_key).await
        })
    }

    fn requests(&self) -> Requests {
        self.bucket.requests()
    }

    fn requests_to_write(&self, size: u64) -> u64 {
        match size > upload::MAX_SINGLE_PUT {
            true => 2 + size.div_ceil(upload::part_size(size)),
            false => 1,
        }
    }

    fn requests_to_read(&self, size: u64) -> u64 {
        match size > upload::MAX_SINGLE_PUT {
            // The metadata must be known before the bytes arrive.
            true => 1 + read_ahead::requests(size),
            false => 1,
        }
    }

    fn writable(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.bucket.check())
    }
}
