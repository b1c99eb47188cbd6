//! [`Backend`] for every object store: paths become keys here, once.

use super::object_store::{self, ObjectStore};
use crate::backend::{
    Backend, Chunks, CopyItem, CopyOutcome, Cursor, Extended, Listing, Precondition, Requests,
    Upload, UploadPlan,
};
use crate::error::Result;
use crate::{BoxFuture, Capabilities, Entry, Folder, Kind};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// A view of an object store that is a [`Backend`]. Its methods speak of keys: the folder's prefix
/// and the root's are part of them.
pub(crate) trait ObjectBackend: Send + Sync + Sized + 'static {
    /// The bucket or container.
    type Store: ObjectStore + Send + 'static;

    /// The bucket or container.
    fn store(&self) -> &Self::Store;

    /// The abilities of the store: [`capabilities`] with its own differences.
    fn capabilities(&self) -> Capabilities;

    /// Starts listing a folder, or resumes at a cursor.
    fn list(&self, folder: &Folder, from: Option<&Cursor>) -> Box<dyn Listing>;

    /// A view for a walk that lists every folder once.
    fn for_walk(&self) -> Option<Arc<dyn Backend>> {
        None
    }

    /// Reads an object, starting at `offset`.
    fn read(
        &self,
        key: Vec<u8>,
        name: &[u8],
        offset: u64,
        length: u64,
    ) -> impl Future<Output = Result<Box<dyn Chunks>>> + Send;

    /// The metadata of an object.
    fn extended(&self, key: &[u8]) -> impl Future<Output = Result<Extended>> + Send;

    /// Starts writing an object, or resumes an upload.
    fn upload(
        &self,
        key: Vec<u8>,
        name: &[u8],
        plan: UploadPlan,
    ) -> impl Future<Output = Result<Box<dyn Upload>>> + Send;

    /// Removes what an upload of this plan left behind.
    fn discard(&self, key: &[u8], plan: &UploadPlan) -> impl Future<Output = Result<()>> + Send;

    /// Whether the service copies objects of the other store by itself.
    fn can_copy_from(&self, source: &Self::Store) -> bool;

    /// Copies an object inside the service, if it is still the listed version. Returns the copy.
    fn copy(
        &self,
        source: &Self::Store,
        key: &[u8],
        target_key: &[u8],
        listed: &Entry,
    ) -> impl Future<Output = Result<Entry>> + Send;

    /// Makes the bucket, unless it exists.
    fn make_bucket(&self) -> impl Future<Output = Result<()>> + Send;

    /// Makes the empty object that stands for a folder.
    fn put_folder(&self, key: Vec<u8>) -> impl Future<Output = Result<()>> + Send;

    /// Sets the time and metadata of an object.
    fn set_attributes(
        &self,
        key: &[u8],
        name: &[u8],
        like: &Entry,
        extended: &Extended,
    ) -> impl Future<Output = Result<Entry>> + Send;

    /// The requests made so far by kind.
    fn requests(&self) -> Requests;

    /// Notices for the user about the calls so far.
    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    /// Estimates the number of requests to write an object of this size.
    fn requests_to_write(&self, size: u64) -> u64;

    /// Estimates the number of requests to read an object of this size.
    fn requests_to_read(&self, size: u64) -> u64;
}

/// Abilities that object stores have in common.
pub(crate) fn capabilities(longest_name: usize) -> Capabilities {
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
        longest_name: Some(longest_name),
        posix_names: false,
        unicode_names: true,
        workers: (16, 128),
        ..Capabilities::read_only()
    }
}

impl<T: ObjectBackend> Backend for T {
    fn capabilities(&self) -> Capabilities {
        ObjectBackend::capabilities(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn list<'a>(
        &'a self,
        folder: &'a Folder,
        from: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Box<dyn Listing>>> {
        let listing = ObjectBackend::list(self, folder, from);
        Box::pin(std::future::ready(Ok(listing)))
    }

    fn for_walk(&self) -> Option<Arc<dyn Backend>> {
        ObjectBackend::for_walk(self)
    }

    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(object_store::stat(self.store(), folder, name))
    }

    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
        let key = self.store().key(folder, name);
        Box::pin(ObjectBackend::read(self, key, name, offset, length))
    }

    fn extended<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Extended>> {
        Box::pin(async move {
            match name {
                Some(name) => {
                    let key = self.store().key(folder, name);
                    ObjectBackend::extended(self, &key).await
                }
                // A folder has no attributes.
                None => Ok(Extended::new()),
            }
        })
    }

    fn upload<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: UploadPlan,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>>> {
        let key = self.store().key(folder, name);
        Box::pin(ObjectBackend::upload(self, key, name, plan))
    }

    fn discard<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: &'a UploadPlan,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let key = self.store().key(folder, name);
            ObjectBackend::discard(self, &key, plan).await
        })
    }

    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Backend,
        folder: &'a Folder,
        items: &'a [CopyItem],
    ) -> Option<BoxFuture<'a, Vec<Result<CopyOutcome>>>> {
        let source = source.as_any().downcast_ref::<T>()?.store();
        if !self.can_copy_from(source) {
            return None;
        }
        Some(Box::pin(object_store::copy_all(items, move |item| {
            let (entry, precondition) = (item.entry.clone(), item.precondition.clone());
            let key = source.key(folder, &entry.name);
            let target_key = self.store().key(folder, &entry.name);
            async move {
                let (store, name) = (self.store(), entry.name.as_slice());
                object_store::check_target(store, &target_key, name, &precondition, Some(&entry))
                    .await?;
                object_store::copied(self.copy(source, &key, &target_key, &entry).await)
            }
        })))
    }

    fn make_folder<'a>(&'a self, folder: &'a Folder) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            match folder.is_root() {
                true => self.make_bucket().await,
                false => self.put_folder(self.store().prefix(folder)).await,
            }
        })
    }

    fn set_attributes<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
        like: &'a Entry,
        extended: Extended,
        precondition: &'a Precondition,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async move {
            let Some(name) = name else {
                // A folder has no attributes.
                return Ok(Entry::new(like.name.clone(), Kind::Folder));
            };
            let key = self.store().key(folder, name);
            object_store::check_target(self.store(), &key, name, precondition, None).await?;
            ObjectBackend::set_attributes(self, &key, name, like, &extended).await
        })
    }

    fn remove<'a>(&'a self, folder: &'a Folder, name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        Box::pin(object_store::remove(self.store(), folder, name))
    }

    fn rename<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        to: (&'a Folder, &'a [u8]),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let store = self.store();
            let (from, target_key) = (store.key(folder, name), store.key(to.0, to.1));
            object_store::rename(store, &from, &target_key).await
        })
    }

    fn requests(&self) -> Requests {
        ObjectBackend::requests(self)
    }

    fn notices(&self) -> Vec<String> {
        ObjectBackend::notices(self)
    }

    fn requests_to_write(&self, size: u64) -> u64 {
        ObjectBackend::requests_to_write(self, size)
    }

    fn requests_to_read(&self, size: u64) -> u64 {
        ObjectBackend::requests_to_read(self, size)
    }

    fn writable(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.store().check())
    }
}
