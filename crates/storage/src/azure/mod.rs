//! Azure Blob Storage.
//!
//! Names work as in the other object stores (see [`S3`](crate::S3)): slashes separate folders, a
//! folder is a common prefix or an empty blob whose name ends with a slash, and a blob `a` next to
//! blobs `a/…` is a file named `a/`.

mod account;
mod blob;
mod blocks;
mod container;
mod copy;
mod folders;
mod listing;
mod metadata;
mod sign;
mod upload;

use crate::backend::{
    Backend, Chunks, CopyItem, CopyOutcome, Cursor, Extended, Listing, Requests, Upload, UploadPlan,
};
use crate::cloud::object_store::{self, ObjectStore};
use crate::cloud::paged_listing::PagedListing;
use crate::cloud::read_ahead;
use crate::error::Result;
use crate::{BoxFuture, Capabilities, Entry, Folder, Kind};
pub(crate) use blocks::fuzz_block_list;
use container::Container;
pub(crate) use listing::fuzz_listing;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// A container of blobs, or a prefix in it. See the [crate](crate).
///
/// ```
/// use headworks_storage::{Azure, Backend};
///
/// let azure = Azure::open(b"azblob://account/container/some/prefix?anonymous").unwrap();
/// assert!(azure.capabilities().resumable_listing);
/// assert!(azure.capabilities().name_problem(b"ends with a dot.").is_some());
/// ```
#[derive(Clone)]
pub struct Azure {
    container: Arc<Container>,
}

impl std::fmt::Debug for Azure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Azure").finish_non_exhaustive()
    }
}

impl Azure {
    /// Opens `azblob://account/container/prefix?…`. Settings are `endpoint`, `anonymous`, and
    /// `page` (names per page). Credentials come from `AZURE_STORAGE_CONNECTION_STRING`,
    /// `AZURE_STORAGE_KEY`, `AZURE_STORAGE_SAS_TOKEN` or `AZURE_STORAGE_TOKEN`.
    ///
    /// # Errors
    /// When the location is invalid or contains credentials, or the environment has none for the
    /// account.
    pub fn open(location: &[u8]) -> Result<Azure> {
        let container = Container::open(location, &crate::cloud::environment())?;
        Ok(Azure {
            container: Arc::new(container),
        })
    }
}

impl Backend for Azure {
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
            longest_name: Some(self.container.longest_name()),
            posix_names: false,
            unicode_names: true,
            name_rule: Some(container::name_problem),
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
        let below = listing::FolderPages::new(self.container.clone(), folder);
        let listing = Box::new(PagedListing::new(below, from)) as Box<dyn Listing>;
        Box::pin(std::future::ready(Ok(listing)))
    }

    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(object_store::stat(&*self.container, folder, name))
    }

    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
        Box::pin(async move {
            let blob = blob::Blob {
                container: self.container.clone(),
                key: self.container.key(folder, name),
                name: name.to_vec(),
            };
            read_ahead::read(blob, offset, length, &self.container.part_memory).await
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
            let key = self.container.key(folder, name);
            Ok(blob::extended_of(&self.container.head(&key).await?))
        })
    }

    fn upload<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: UploadPlan,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>>> {
        Box::pin(async move {
            let key = self.container.key(folder, name);
            let upload = upload::AzureUpload::open(self.container.clone(), key, name, plan).await?;
            Ok(Box::new(upload) as Box<dyn Upload>)
        })
    }

    fn discard<'a>(
        &'a self,
        _folder: &'a Folder,
        _name: &'a [u8],
        _plan: &'a UploadPlan,
    ) -> BoxFuture<'a, Result<()>> {
        // Uncommitted blocks cannot be removed; the service discards them.
        Box::pin(std::future::ready(Ok(())))
    }

    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Backend,
        folder: &'a Folder,
        items: &'a [CopyItem],
    ) -> Option<BoxFuture<'a, Vec<Result<CopyOutcome>>>> {
        let source = &source.as_any().downcast_ref::<Azure>()?.container;
        if !self.container.can_copy_from(source) {
            return None;
        }
        Some(Box::pin(copy::copy_batch(
            source,
            &self.container,
            folder,
            items,
        )))
    }

    fn make_folder<'a>(&'a self, folder: &'a Folder) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match folder.is_root() {
                true => self.container.make().await,
                false => {
                    let key = self.container.prefix(folder);
                    self.container.put_folder(&key).await
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
            let key = self.container.key(folder, name);
            copy::set_object_headers(&self.container, &key, name, like, &extended).await
        })
    }

    fn remove<'a>(&'a self, folder: &'a Folder, name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        Box::pin(object_store::remove(&*self.container, folder, name))
    }

    fn rename<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        to: (&'a Folder, &'a [u8]),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let from = self.container.key(folder, name);
            let target_key = self.container.key(to.0, to.1);
            object_store::rename(&*self.container, &from, &target_key).await
        })
    }

    fn requests(&self) -> Requests {
        self.container.endpoint.requests()
    }

    fn requests_to_write(&self, size: u64) -> u64 {
        match size > upload::MAX_SINGLE_PUT {
            true => 1 + size.div_ceil(upload::block_size(size)),
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
        Box::pin(self.container.check())
    }
}
