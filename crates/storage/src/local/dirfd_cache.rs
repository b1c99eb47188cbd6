//! A cache of the parent folder's descriptor, for listing sibling folders.
//!
//! A walk opens the folders of one parent one after the other. While a thread does that
//! ([`on_this_thread`](super::on_this_thread)), it keeps the parent open, and opens each folder
//! relative to it instead of from the root. It is only a shortcut: where it fails, the full path is
//! opened and reports the error.

use super::root::{Root, open_beneath};
use crate::Folder;
use crate::error::{ErrorKind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// The cached parent.
struct CachedDir {
    root: Arc<Root>,
    folder: Folder,
    fd: OwnedFd,
}

thread_local! {
    /// Whether this thread may block, and cache a folder until the scope ends.
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
    static CACHED_DIR: RefCell<Option<CachedDir>> = const { RefCell::new(None) };
}

/// Returns whether this thread may block.
pub(super) fn may_block() -> bool {
    MAY_BLOCK.get()
}

/// Until it is dropped, this thread may block; then the cached folder is closed.
pub(super) struct BlockingScope(bool);

impl BlockingScope {
    pub(super) fn enter() -> BlockingScope {
        BlockingScope(MAY_BLOCK.replace(true))
    }
}

impl Drop for BlockingScope {
    fn drop(&mut self) {
        MAY_BLOCK.set(self.0);
        CACHED_DIR.take();
    }
}

/// Opens a folder for reading, with `O_NOATIME` if possible: a plan must not change access times.
/// Only the owner of a folder may use that flag.
pub(super) fn open(root: &Arc<Root>, folder: &Folder) -> Result<OwnedFd> {
    if root.no_noatime.load(Relaxed) {
        return open_as(root, folder, OFlags::RDONLY);
    }
    match open_as(root, folder, OFlags::RDONLY | OFlags::NOATIME) {
        Err(error) if error.kind() == ErrorKind::Denied => {
            let opened = open_as(root, folder, OFlags::RDONLY)?;
            root.no_noatime.store(true, Relaxed);
            Ok(opened)
        }
        opened => opened,
    }
}

fn open_as(root: &Arc<Root>, folder: &Folder, flags: OFlags) -> Result<OwnedFd> {
    match open_from_parent(root, folder, flags) {
        Some(fd) => Ok(fd),
        None => root.descend(folder, flags),
    }
}

/// Opens a folder relative to its cached parent, if this thread may cache one.
fn open_from_parent(root: &Arc<Root>, folder: &Folder, flags: OFlags) -> Option<OwnedFd> {
    let (parent, name) = folder.split().filter(|_| may_block())?;
    if matches!(name, b"" | b"." | b"..") {
        return None;
    }
    CACHED_DIR.with_borrow_mut(|cached| {
        let is_parent =
            |cached: &CachedDir| cached.folder == parent && Arc::ptr_eq(&cached.root, root);
        if !cached.as_ref().is_some_and(is_parent) {
            *cached = None;
            let fd = root.folder(&parent).ok()?;
            *cached = Some(CachedDir {
                root: root.clone(),
                folder: parent,
                fd,
            });
        }
        open_beneath(&cached.as_ref()?.fd, name, flags).ok()
    })
}
