//! S3 buckets, at Amazon or a compatible service.
//!
//! Slashes in keys separate folders; keys are otherwise opaque bytes. A folder is a common prefix
//! of keys, or an empty object whose key ends with a slash. Such an object is the entry with an
//! empty name in its folder. A key `a` next to keys `a/…` is a file named `a/`: no other file has a
//! slash in its name.

mod bucket;
mod caller_identity;
mod copy;
mod credentials;
mod folders;
mod listing;
mod multipart;
mod object;
mod redirect;
mod sign;
mod upload;

#[cfg(test)]
mod expiry_tests;
#[cfg(test)]
mod signing_tests;

use crate::backend::{Backend, Chunks, Cursor, Extended, Listing, Requests, Upload, UploadPlan};
use crate::cloud::object_backend::{self, ObjectBackend};
use crate::cloud::read_ahead;
use crate::error::Result;
use crate::{Capabilities, Entry, Folder};
use bucket::Bucket;
pub(crate) use caller_identity::CallerIdentity;
pub(crate) use credentials::metadata_token;
pub(crate) use listing::fuzz_listing;
use std::sync::Arc;

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

impl ObjectBackend for S3 {
    type Store = Bucket;

    fn store(&self) -> &Bucket {
        &self.bucket
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            listed_times: false,
            // The service needs time for every small file, and handles many at once.
            workers: (64, 128),
            ..object_backend::capabilities(self.bucket.longest_name())
        }
    }

    fn list(&self, folder: &Folder, from: Option<&Cursor>) -> Box<dyn Listing> {
        let kept = self.prefix_listing.as_ref().filter(|_| from.is_none());
        let known = kept.and_then(|below| below.take_cached(folder));
        known.unwrap_or_else(|| {
            let listing = listing::S3Listing::new(self.bucket.clone(), folder, from);
            match &self.prefix_listing {
                Some(below) => Box::new(listing.with_prefix_listing(below)),
                None => Box::new(listing),
            }
        })
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

    async fn read(
        &self,
        key: Vec<u8>,
        name: &[u8],
        offset: u64,
        length: u64,
    ) -> Result<Box<dyn Chunks>> {
        let object = object::Object {
            bucket: self.bucket.clone(),
            key,
            name: name.to_vec(),
        };
        read_ahead::read(object, offset, length, &self.bucket.part_memory).await
    }

    async fn extended(&self, key: &[u8]) -> Result<Extended> {
        Ok(object::HEADERS.extended_of(&self.bucket.head(key).await?))
    }

    async fn upload(&self, key: Vec<u8>, name: &[u8], plan: UploadPlan) -> Result<Box<dyn Upload>> {
        let upload = upload::S3Upload::open(self.bucket.clone(), key, name, plan).await?;
        Ok(Box::new(upload))
    }

    async fn discard(&self, key: &[u8], plan: &UploadPlan) -> Result<()> {
        if plan.size <= upload::MAX_SINGLE_PUT {
            return Ok(());
        }
        let resume = plan.resume.as_deref();
        match resume.and_then(|id| std::str::from_utf8(id).ok()) {
            Some(id) => multipart::abort(&self.bucket, key, id).await,
            None => multipart::abort_others(&self.bucket, key, None).await,
        }
    }

    fn can_copy_from(&self, source: &Bucket) -> bool {
        self.bucket.can_copy_from(source)
    }

    async fn copy(
        &self,
        source: &Bucket,
        key: &[u8],
        target_key: &[u8],
        listed: &Entry,
    ) -> Result<Entry> {
        copy::copy(source, key, &self.bucket, target_key, listed).await
    }

    async fn make_bucket(&self) -> Result<()> {
        self.bucket.make().await
    }

    async fn put_folder(&self, key: Vec<u8>) -> Result<()> {
        self.bucket.put_empty(&key).await
    }

    async fn set_attributes(
        &self,
        key: &[u8],
        name: &[u8],
        like: &Entry,
        extended: &Extended,
    ) -> Result<Entry> {
        copy::set_object_headers(&self.bucket, key, name, like, extended).await
    }

    fn requests(&self) -> Requests {
        self.bucket.requests()
    }

    fn notices(&self) -> Vec<String> {
        self.bucket.notices()
    }

    fn requests_to_write(&self, size: u64) -> u64 {
        match size > upload::MAX_SINGLE_PUT {
            true => 2 + size.div_ceil(upload::part_size(size)),
            false => 1,
        }
    }

    fn requests_to_read(&self, size: u64) -> u64 {
        match size > upload::MAX_SINGLE_PUT {
            // One more request for the metadata, which an upload in parts needs at its start.
            true => 1 + read_ahead::requests(size),
            false => 1,
        }
    }
}
