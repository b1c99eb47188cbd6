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

use crate::backend::{Chunks, Cursor, Extended, Listing, Requests, Upload, UploadPlan};
use crate::cloud::object_backend::{self, ObjectBackend};
use crate::cloud::paged_listing::PagedListing;
use crate::cloud::read_ahead;
use crate::error::Result;
use crate::{Capabilities, Entry, Folder};
use bucket::Bucket;
pub(crate) use listing::fuzz_listing;
use std::sync::Arc;

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

impl ObjectBackend for Gcs {
    type Store = Bucket;

    fn store(&self) -> &Bucket {
        &self.bucket
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name_rule: Some(bucket::name_problem),
            ..object_backend::capabilities(self.bucket.longest_name())
        }
    }

    fn list(&self, folder: &Folder, from: Option<&Cursor>) -> Box<dyn Listing> {
        let pages = listing::FolderPages::new(self.bucket.clone(), folder);
        Box::new(PagedListing::new(pages, from))
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
            resource: self.bucket.head(&key).await?,
            key,
            name: name.to_vec(),
        };
        read_ahead::read(object, offset, length, &self.bucket.part_memory).await
    }

    async fn extended(&self, key: &[u8]) -> Result<Extended> {
        Ok(self.bucket.head(key).await?.extended())
    }

    async fn upload(&self, key: Vec<u8>, name: &[u8], plan: UploadPlan) -> Result<Box<dyn Upload>> {
        let upload = upload::GcsUpload::open(self.bucket.clone(), key, name, plan).await?;
        Ok(Box::new(upload))
    }

    async fn discard(&self, key: &[u8], plan: &UploadPlan) -> Result<()> {
        let resume = plan.resume.as_deref();
        match resume.and_then(session::Session::from_token) {
            Some(session) => session.abort(&self.bucket, key).await,
            None => Ok(()),
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
        let made = copy::copy(source, key, &self.bucket, target_key, Some(listed)).await?;
        Ok(Entry {
            modified: listed.modified,
            ..made.entry(&listed.name)
        })
    }

    async fn make_bucket(&self) -> Result<()> {
        self.bucket.make().await
    }

    async fn put_folder(&self, key: Vec<u8>) -> Result<()> {
        upload::put_folder(self.bucket.clone(), key).await
    }

    async fn set_attributes(
        &self,
        key: &[u8],
        name: &[u8],
        like: &Entry,
        extended: &Extended,
    ) -> Result<Entry> {
        let mut with = object::Resource::from_extended(extended);
        if let Some(modified) = like.modified {
            with.set_modified(modified);
        }
        Ok(self.bucket.patch(key, &with).await?.entry(name))
    }

    fn notices(&self) -> Vec<String> {
        self.bucket.notices()
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
        // One request for the metadata, and one more before a large upload, which needs it at its
        // start.
        1 + u64::from(size > upload::MAX_SINGLE_PUT) + read_ahead::requests(size)
    }
}
