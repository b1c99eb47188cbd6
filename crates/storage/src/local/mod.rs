//! A directory of this machine.
//!
//! All calls are relative to file descriptors, so paths may be longer than `PATH_MAX`, and no
//! symlink in a path is followed. [`Root`] has the blocking calls; [`Local`] runs them on tokio's
//! blocking threads.

mod attributes;
mod blocking_pool;
mod bytes;
mod copy;
mod dirfd_cache;
mod listing;
mod mounts;
mod nodes;
mod probe;
mod rename;
mod root;
mod sink;
mod small;
mod upload;

use crate::backend::{
    Backend, Chunks, CopyItem, CopyOutcome, Cursor, Extended, Listing, Precondition, Upload,
    UploadPlan,
};
use crate::error::Result;
use crate::{BoxFuture, Capabilities, Entry, Folder, OwnerMap, Probe, Space};
use root::Root;
use std::any::Any;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A directory of this machine. See the [crate](crate).
#[derive(Clone, Debug)]
pub struct Local {
    root: Arc<Root>,
}

impl Local {
    /// Creates a backend for the directory at `path`. It is opened when first needed; if it does
    /// not exist, [`make_folder`](Backend::make_folder) of the root creates it.
    #[must_use]
    pub fn new(path: &Path) -> Local {
        let root = Arc::new(Root::new(path));
        Local { root }
    }

    /// Runs blocking work on a blocking thread.
    fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Arc<Root>) -> T + Send + 'static,
    ) -> BoxFuture<'static, T> {
        let root = self.root.clone();
        Box::pin(blocking(move || work(&root)))
    }
}

/// Runs `work` with calls to [`Local`] made on this thread, which may block, instead of each on
/// another thread. For callers with many sequential calls and a thread of their own.
///
/// ```
/// use headworks_storage::{Backend, Folder, Local, on_this_thread};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
/// let local = Local::new("/".as_ref());
/// let entry = on_this_thread(|| runtime.block_on(local.stat(&Folder::root(), None)));
/// assert_eq!(entry.unwrap().kind, headworks_storage::Kind::Folder);
/// ```
pub fn on_this_thread<T>(work: impl FnOnce() -> T) -> T {
    let _blocking = dirfd_cache::BlockingScope::enter();
    work()
}

pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    if dirfd_cache::may_block() {
        return work();
    }
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

impl Backend for Local {
    fn capabilities(&self) -> Capabilities {
        let privileged = self.root.privileged;
        let capabilities = Capabilities {
            write: true,
            resumable_listing: false,
            resumable_upload: true,
            modified: Some(Duration::from_nanos(1)),
            posix: true,
            owners: privileged,
            extended: true,
            symlinks: true,
            hard_links: true,
            specials: privileged,
            folders: true,
            longest_name: Some(255),
            posix_names: true,
            workers: (2, 64),
            ..Capabilities::read_only()
        };
        match self.root.probe.get() {
            Some(probe) => capabilities.restricted_to(probe),
            None => capabilities,
        }
    }

    fn probe(&self, known: Option<Probe>) -> Option<Probe> {
        match known {
            None => probe::probe(&self.root),
            Some(known) => Some(*self.root.probe.get_or_init(|| known)),
        }
    }

    fn map_owners(&self, map: &OwnerMap) -> bool {
        self.root.owner_map.set(map.clone()).is_ok()
    }

    fn clock(&self) -> BoxFuture<'_, Option<i64>> {
        self.run(|root| probe::clock(root))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn list<'a>(
        &'a self,
        folder: &'a Folder,
        _from: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Box<dyn Listing>>> {
        let listing = listing::LocalListing::new(self.root.clone(), folder.clone());
        Box::pin(std::future::ready(
            Ok(Box::new(listing) as Box<dyn Listing>),
        ))
    }

    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>> {
        let (folder, name) = (folder.clone(), name.map(<[u8]>::to_vec));
        self.run(move |root| root.stat(&folder, name.as_deref()))
    }

    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
        let (root, folder, name) = (self.root.clone(), folder.clone(), name.to_vec());
        Box::pin(self.root.blocking_pool.run(move || {
            let chunks = bytes::LocalChunks::open(&root, &folder, &name, offset, length)?;
            Ok(Box::new(chunks) as Box<dyn Chunks>)
        }))
    }

    fn extended<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Extended>> {
        let (folder, name) = (folder.clone(), name.map(<[u8]>::to_vec));
        self.run(move |root| root.extended(&folder, name.as_deref()))
    }

    fn upload<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: UploadPlan,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>>> {
        if small::SmallUpload::is_for(&plan) {
            let upload = small::SmallUpload::new(&self.root, folder, name, plan);
            return Box::pin(std::future::ready(Ok(Box::new(upload) as Box<dyn Upload>)));
        }
        let (folder, name) = (folder.clone(), name.to_vec());
        self.run(move |root| {
            let upload = upload::LocalUpload::open(root, folder, name, plan)?;
            Ok(Box::new(upload) as Box<dyn Upload>)
        })
    }

    fn discard<'a>(
        &'a self,
        folder: &'a Folder,
        _name: &'a [u8],
        plan: &'a UploadPlan,
    ) -> BoxFuture<'a, Result<()>> {
        let (folder, temp) = (folder.clone(), plan.temp.clone());
        self.run(move |root| root.discard(&folder, &temp))
    }

    fn copy_batch<'a>(
        &'a self,
        source: &'a dyn Backend,
        folder: &'a Folder,
        items: &'a [CopyItem],
    ) -> Option<BoxFuture<'a, Vec<Result<CopyOutcome>>>> {
        let source = source.as_any().downcast_ref::<Local>()?.root.clone();
        let (folder, items) = (folder.clone(), items.to_vec());
        Some(self.run(move |root| copy::copy_batch(&source, root, &folder, &items)))
    }

    fn make_folder<'a>(&'a self, folder: &'a Folder) -> BoxFuture<'a, Result<()>> {
        let folder = folder.clone();
        self.run(move |root| root.make_folder(&folder))
    }

    fn make_node<'a>(
        &'a self,
        folder: &'a Folder,
        item: &'a CopyItem,
    ) -> BoxFuture<'a, Result<Entry>> {
        let (folder, item) = (folder.clone(), item.clone());
        self.run(move |root| {
            let dir = root.folder(&folder)?;
            root.make_node(&dir, &folder, &item, &[])
        })
    }

    fn hard_link<'a>(
        &'a self,
        existing: (&'a Folder, &'a [u8]),
        folder: &'a Folder,
        name: &'a [u8],
        temp: &'a [u8],
        precondition: &'a Precondition,
    ) -> BoxFuture<'a, Result<Entry>> {
        let existing = (existing.0.clone(), existing.1.to_vec());
        let (folder, name, temp) = (folder.clone(), name.to_vec(), temp.to_vec());
        let precondition = precondition.clone();
        self.run(move |root| {
            let existing = (&existing.0, existing.1.as_slice());
            root.hard_link(existing, &folder, &name, &temp, &precondition)
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
        let (folder, name, like) = (folder.clone(), name.map(<[u8]>::to_vec), like.clone());
        let precondition = precondition.clone();
        self.run(move |root| {
            root.set_attributes(&folder, name.as_deref(), &like, &extended, &precondition)
        })
    }

    fn remove<'a>(&'a self, folder: &'a Folder, name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        let (folder, name) = (folder.clone(), name.to_vec());
        self.run(move |root| root.remove(&folder, &name))
    }

    fn rename<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        to: (&'a Folder, &'a [u8]),
    ) -> BoxFuture<'a, Result<()>> {
        let (folder, name) = (folder.clone(), name.to_vec());
        let to = (to.0.clone(), to.1.to_vec());
        self.run(move |root| root.rename(&folder, &name, &to.0, &to.1))
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.run(|root| root.sync())
    }

    fn space(&self) -> BoxFuture<'_, Result<Option<Space>>> {
        self.run(|root| root.space())
    }

    fn writable(&self) -> BoxFuture<'_, Result<()>> {
        self.run(|root| root.writable())
    }
}
