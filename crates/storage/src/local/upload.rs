//! Writing a file under a temporary name, which it keeps until it is whole.

use super::Local;
use super::blocking;
use super::bytes::{move_range, open_file, write_all};
use super::copy::create;
use super::root::{Root, entry_at};
use crate::backend::{Backend, Extended, Upload, UploadPlan};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::{BoxFuture, Entry, Folder};
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::sync::Arc;

pub(super) struct LocalUpload {
    root: Arc<Root>,
    folder: Folder,
    name: Vec<u8>,
    temp: Vec<u8>,
    dir: OwnedFd,
    file: Arc<OwnedFd>,
    inode: u64,
    size: u64,
    offset: u64,
}

impl LocalUpload {
    pub(super) fn open(
        root: &Arc<Root>,
        folder: Folder,
        name: Vec<u8>,
        plan: UploadPlan,
    ) -> Result<Self> {
        let path = folder.join(&name);
        let wrong = |e| Error::system("write", &path, e);
        let dir = root.folder(&folder)?;
        let resumed = plan
            .resume
            .as_deref()
            .and_then(|resume| reopen(&dir, &plan.temp, resume));
        let (file, offset) = match resumed {
            Some(resumed) => resumed,
            None => (create(&dir, &plan.temp).map_err(wrong)?, 0),
        };
        let inode = rustix::fs::fstat(&file).map_err(wrong)?.st_ino;
        Ok(LocalUpload {
            root: root.clone(),
            folder,
            name,
            temp: plan.temp,
            dir,
            file: Arc::new(file),
            inode,
            size: plan.size,
            offset,
        })
    }

    fn wrong(&self, operation: &'static str, errno: rustix::io::Errno) -> Error {
        Error::system(operation, &self.folder.join(&self.name), errno)
    }

    fn name_it(&self, like: &Entry, extended: &Extended) -> rustix::io::Result<Entry> {
        rustix::fs::ftruncate(&*self.file, self.size)?;
        self.root.dress(&self.file, like, extended, true)?;
        failpoint::hit("before-upload-rename");
        rustix::fs::renameat(
            &self.dir,
            self.temp.as_slice(),
            &self.dir,
            self.name.as_slice(),
        )?;
        failpoint::hit("after-upload-rename");
        entry_at(&self.dir, &self.name)
    }
}

/// What is a hole, or nothing but zeros, on the source need not take room here.
fn write_data(file: &OwnedFd, bytes: &[u8], mut offset: u64) -> rustix::io::Result<()> {
    const BLOCK: usize = 64 * 1024;
    for block in bytes.chunks(BLOCK) {
        if block.len() < BLOCK || block.iter().any(|&byte| byte != 0) {
            write_all(file, block, offset)?;
        }
        offset += block.len() as u64;
    }
    Ok(())
}

/// The same file, at the offset up to which it was durable; `None` if it is gone, or another.
fn reopen(dir: &OwnedFd, temp: &[u8], resume: &[u8]) -> Option<(OwnedFd, u64)> {
    let (offset, inode) = resume.split_at_checked(8)?;
    let offset = u64::from_le_bytes(offset.try_into().ok()?);
    let inode = u64::from_le_bytes(inode.try_into().ok()?);
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, temp, flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&file).ok()?;
    if stat.st_ino != inode || (stat.st_size as u64) < offset {
        return None;
    }
    rustix::fs::ftruncate(&file, offset).ok()?;
    Some((file, offset))
}

impl Upload for LocalUpload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let (file, offset, length) = (self.file.clone(), self.offset, bytes.len() as u64);
            let written = blocking(move || write_data(&file, &bytes, offset)).await;
            written.map_err(|e| self.wrong("write", e))?;
            self.offset += length;
            Ok(())
        })
    }

    fn copy_from<'a>(
        &'a mut self,
        source: &'a dyn Backend,
        folder: &'a Folder,
        name: &'a [u8],
        length: u64,
    ) -> Option<BoxFuture<'a, Result<()>>> {
        let source = source.as_any().downcast_ref::<Local>()?.root.clone();
        let (folder, name, file, from) = (
            folder.clone(),
            name.to_vec(),
            self.file.clone(),
            self.offset,
        );
        let to = from + length;
        Some(Box::pin(async move {
            let moved = blocking(move || {
                let dir = source.folder(&folder)?;
                let wrong = |e| Error::system("copy", &folder.join(&name), e);
                let input = open_file(&dir, &name).map_err(wrong)?;
                let stat = rustix::fs::fstat(&input).map_err(wrong)?;
                let holes = (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64;
                move_range(&input, &file, from, to, holes).map_err(wrong)?;
                // A hole at the end of the part must count as written.
                let end = rustix::fs::fstat(&*file).map_err(wrong)?.st_size as u64;
                if end < to {
                    rustix::fs::ftruncate(&*file, to).map_err(wrong)?;
                }
                Ok(())
            });
            moved.await?;
            self.offset = to;
            Ok(())
        }))
    }

    fn checkpoint(&mut self, _end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            let (file, offset) = (self.file.clone(), self.offset);
            let synced = blocking(move || {
                // A hole at the end must count as written.
                if (rustix::fs::fstat(&*file)?.st_size as u64) < offset {
                    rustix::fs::ftruncate(&*file, offset)?;
                }
                rustix::fs::fdatasync(&*file)
            })
            .await;
            synced.map_err(|e| self.wrong("sync", e))?;
            let resume = [self.offset.to_le_bytes(), self.inode.to_le_bytes()].concat();
            Ok(Some(resume))
        })
    }

    fn finish(
        self: Box<Self>,
        like: Entry,
        extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>> {
        Box::pin(blocking(move || {
            let named = self.name_it(&like, &extended);
            if named.is_err() {
                let _ = rustix::fs::unlinkat(&self.dir, self.temp.as_slice(), AtFlags::empty());
            }
            named.map_err(|e| self.wrong("write", e))
        }))
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(blocking(move || {
            self.root.discard(&self.folder, &self.temp)
        }))
    }
}
