//! Opening folders to list them, one beside the other.
//!
//! Whoever lists a tree opens the folders of one parent one after the other. While a thread does
//! that ([`on_this_thread`](super::on_this_thread)), it keeps the parent open, and each of them is
//! one step away instead of the whole way from the root. It is only a shorter way: where it fails,
//! the whole way says what is wrong.

use super::root::{Root, open_beneath};
use crate::Folder;
use crate::error::{ErrorKind, Result};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A folder that is kept open.
struct CachedDir {
    root: Arc<Root>,
    folder: Folder,
    fd: OwnedFd,
}

thread_local! {
    /// Whether this thread may block, and keep something until it is told to forget it.
    static MAY_BLOCK: Cell<bool> = const { Cell::new(false) };
    static CACHED_DIR: RefCell<Option<CachedDir>> = const { RefCell::new(None) };
}

/// Whether this thread is one that may block.
pub(super) fn may_block() -> bool {
    MAY_BLOCK.get()
}

/// Until it is dropped, this thread may block; then it forgets what it kept.
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

/// A folder to be read. That does not count as a use of it, which filesystems note in the folder,
/// unless only its owner may ask for that.
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

/// The folder by way of its parent, if this thread may keep that.
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
