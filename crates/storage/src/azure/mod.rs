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
mod managed_identity;
mod metadata;
mod sign;
mod tokens;
mod upload;

use crate::backend::{Chunks, Cursor, Extended, Listing, Requests, Upload, UploadPlan};
use crate::cloud::object_backend::{self, ObjectBackend};
use crate::cloud::paged_listing::PagedListing;
use crate::cloud::read_ahead;
use crate::error::Result;
use crate::{Capabilities, Entry, Folder};
pub(crate) use blocks::fuzz_block_list;
use container::Container;
pub(crate) use listing::fuzz_listing;
use std::sync::Arc;

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
    /// `AZURE_STORAGE_KEY`, `AZURE_STORAGE_SAS_TOKEN` or `AZURE_STORAGE_TOKEN`; otherwise tokens of
    /// a service principal, a workload identity, a managed identity or of `az` are used.
    ///
    /// # Errors
    /// When the location is invalid or contains credentials, or the environment has those of
    /// another account.
    pub fn open(location: &[u8]) -> Result<Azure> {
        let container = Container::open(location, &crate::cloud::environment())?;
        Ok(Azure {
            container: Arc::new(container),
        })
    }
}

impl ObjectBackend for Azure {
    type Store = Container;

    fn store(&self) -> &Container {
        &self.container
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name_rule: Some(container::name_problem),
            ..object_backend::capabilities(self.container.longest_name())
        }
    }

    fn list(&self, folder: &Folder, from: Option<&Cursor>) -> Box<dyn Listing> {
        let pages = listing::FolderPages::new(self.container.clone(), folder);
        Box::new(PagedListing::new(pages, from))
    }

    async fn read(
        &self,
        key: Vec<u8>,
        name: &[u8],
        offset: u64,
        length: u64,
    ) -> Result<Box<dyn Chunks>> {
        let blob = blob::Blob {
            container: self.container.clone(),
            key,
            name: name.to_vec(),
        };
        read_ahead::read(blob, offset, length, &self.container.part_memory).await
    }

    async fn extended(&self, key: &[u8]) -> Result<Extended> {
        Ok(blob::extended_of(&self.container.head(key).await?))
    }

    async fn upload(&self, key: Vec<u8>, name: &[u8], plan: UploadPlan) -> Result<Box<dyn Upload>> {
        let upload = upload::AzureUpload::open(self.container.clone(), key, name, plan).await?;
        Ok(Box::new(upload))
    }

    async fn discard(&self, _key: &[u8], _plan: &UploadPlan) -> Result<()> {
        // Uncommitted blocks cannot be removed; the service discards them.
        Ok(())
    }

    fn can_copy_from(&self, source: &Container) -> bool {
        self.container.can_copy_from(source)
    }

    async fn copy(
        &self,
        source: &Container,
        key: &[u8],
        target_key: &[u8],
        listed: &Entry,
    ) -> Result<Entry> {
        let version = copy::copy(source, key, &self.container, target_key, Some(listed)).await?;
        Ok(Entry {
            version,
            ..listed.clone()
        })
    }

    async fn make_bucket(&self) -> Result<()> {
        self.container.make().await
    }

    async fn put_folder(&self, key: Vec<u8>) -> Result<()> {
        self.container.put_folder(&key).await
    }

    async fn set_attributes(
        &self,
        key: &[u8],
        name: &[u8],
        like: &Entry,
        extended: &Extended,
    ) -> Result<Entry> {
        copy::set_object_headers(&self.container, key, name, like, extended).await
    }

    fn notices(&self) -> Vec<String> {
        self.container.notices()
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
            // One more request for the metadata, which an upload in parts needs at its start.
            true => 1 + read_ahead::requests(size),
            false => 1,
        }
    }
}
