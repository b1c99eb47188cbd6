//! Listing a folder.

use super::root::{Root, listed_entry};
use super::{blocking, dirfd_cache};
use crate::backend::{Listing, Page};
use crate::error::{Error, Result};
use crate::{BoxFuture, Entry, Folder};
use rustix::fd::OwnedFd;
use rustix::fs::RawDir;
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Entries per page; it may have more, because the result of one `getdents` call is not split.
const PAGE: usize = 1024;
const BUFFER: usize = 32 * 1024;
/// Entries that most folders have at most.
const TYPICAL_ENTRIES: usize = 32;

pub(super) struct LocalListing {
    root: Arc<Root>,
    folder: Folder,
    dir: Option<OwnedFd>,
    ended: bool,
}

impl LocalListing {
    pub(super) fn new(root: Arc<Root>, folder: Folder) -> Self {
        LocalListing {
            root,
            folder,
            dir: None,
            ended: false,
        }
    }
}

impl Listing for LocalListing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(async {
            if self.ended {
                return Ok(None);
            }
            let (root, folder, dir) = (self.root.clone(), self.folder.clone(), self.dir.take());
            let (dir, entries, ended) = blocking(move || page(&root, &folder, dir)).await?;
            self.dir = Some(dir);
            self.ended = ended;
            let cursor = None;
            Ok(Some(Page { entries, cursor }))
        })
    }
}

fn page(
    root: &Arc<Root>,
    folder: &Folder,
    dir: Option<OwnedFd>,
) -> Result<(OwnedFd, Vec<Entry>, bool)> {
    let dir = match dir {
        Some(dir) => dir,
        None => dirfd_cache::open(root, folder)?,
    };
    let fail = |errno| Error::from_errno("list", folder.as_bytes(), errno);
    let mut entries = Vec::with_capacity(TYPICAL_ENTRIES);
    let mut buffer = [MaybeUninit::uninit(); BUFFER];
    let mut names = RawDir::new(&dir, &mut buffer);
    let mut ended = true;
    while let Some(name) = names.next() {
        let name = name.map_err(fail)?;
        let name = name.file_name();
        if name != c"." && name != c".." {
            match listed_entry(&dir, name) {
                Ok(entry) => entries.push(root.with_mapped_owner(entry)),
                Err(Errno::NOENT) => {} // removed since the folder was read
                Err(errno) => {
                    let path = folder.join(name.to_bytes());
                    return Err(Error::from_errno("look at", &path, errno));
                }
            }
        }
        if entries.len() >= PAGE && names.is_buffer_empty() {
            ended = false;
            break;
        }
    }
    Ok((dir, entries, ended))
}
