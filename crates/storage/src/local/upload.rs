//! Writing a file under a temporary name until it is complete.

use super::Local;
use super::blocking;
use super::bytes::{copy_range, open_regular};
use super::copy::create;
use super::rename;
use super::root::{Root, entry_at};
use super::sink::{HOLE_SIZE, Sink};
use crate::backend::{Backend, Extended, Precondition, Upload, UploadPlan, incomplete_upload};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint;
use crate::{BoxFuture, Entry, Folder};
use bytes::Bytes;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use std::sync::Arc;
use tokio::task::JoinHandle;

pub(super) struct LocalUpload {
    root: Arc<Root>,
    folder: Folder,
    name: Vec<u8>,
    temp: Vec<u8>,
    dir: OwnedFd,
    sink: Arc<Sink>,
    /// The write in progress, while the caller prepares the next bytes.
    writing: Option<JoinHandle<rustix::io::Result<()>>>,
    size: u64,
    offset: u64,
    precondition: Precondition,
}

impl LocalUpload {
    pub(super) fn open(
        root: &Arc<Root>,
        folder: Folder,
        name: Vec<u8>,
        plan: UploadPlan,
    ) -> Result<Self> {
        let path = folder.join(&name);
        let fail = |e| Error::from_errno("write", &path, e);
        let dir = root.folder(&folder)?;
        let resumed = plan
            .resume
            .as_deref()
            .and_then(|resume| reopen(&dir, &plan.temp, resume));
        let (file, offset) = match resumed {
            Some(resumed) => resumed,
            None => {
                let mode = root.new_mode(0o666, 0o600);
                (create(&dir, &plan.temp, mode).map_err(fail)?, 0)
            }
        };
        let sink = Sink::new(file, &dir, &plan.temp, plan.size);
        Ok(LocalUpload {
            root: root.clone(),
            folder,
            name,
            temp: plan.temp,
            dir,
            sink: Arc::new(sink),
            writing: None,
            size: plan.size,
            offset,
            precondition: plan.precondition,
        })
    }

    fn failure(&self, operation: &'static str, errno: rustix::io::Errno) -> Error {
        Error::from_errno(operation, &self.folder.join(&self.name), errno)
    }

    /// Waits for the write in progress.
    async fn wait_for_write(&mut self) -> Result<()> {
        let Some(writing) = &mut self.writing else {
            return Ok(());
        };
        let written = match writing.await {
            Ok(written) => written,
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        };
        self.writing = None;
        written.map_err(|e| self.failure("write", e))
    }

    /// Writes the remaining bytes and renames the file. If that fails, nothing is left behind.
    pub(super) fn complete(
        &self,
        left: &[Bytes],
        like: &Entry,
        extended: &Extended,
    ) -> Result<Entry> {
        let mut offset = self.offset;
        let mut each = left.iter();
        let written = each.try_for_each(|bytes| {
            self.sink.write(bytes, offset)?;
            offset += bytes.len() as u64;
            Ok(())
        });
        let named = match written {
            Ok(()) if offset != self.size => {
                let path = self.folder.join(&self.name);
                Err(incomplete_upload(&path, offset, self.size))
            }
            Ok(()) => match self.commit(like, extended) {
                Ok(Some(entry)) => Ok(entry),
                Ok(None) => Err(Error::conflict("write", &self.folder.join(&self.name))),
                Err(errno) => Err(self.failure("write", errno)),
            },
            Err(errno) => Err(self.failure("write", errno)),
        };
        if named.is_err() {
            self.remove();
        }
        named
    }

    fn remove(&self) {
        let _ = rustix::fs::unlinkat(&self.dir, self.temp.as_slice(), AtFlags::empty());
    }

    /// Sets the attributes and renames the file; `None` if another program wrote the file to be
    /// replaced.
    fn commit(&self, like: &Entry, extended: &Extended) -> rustix::io::Result<Option<Entry>> {
        // Only a file that can contain a hole may end in one, which the system does not know yet.
        if self.size >= HOLE_SIZE as u64 {
            rustix::fs::ftruncate(&self.sink.file, self.size)?;
        }
        let lost = self
            .root
            .apply_attributes(&self.sink.file, like, extended, true)?;
        failpoint::hit("before-upload-rename");
        let new = Entry {
            size: self.size,
            ..like.clone()
        };
        let named = rename::rename_expected(
            &self.dir,
            &self.temp,
            &self.name,
            &self.precondition,
            Some(&new),
        )?;
        failpoint::hit("after-upload-rename");
        match named {
            true => Ok(Some(entry_at(&self.dir, &self.name)?.with_lost(lost))),
            false => Ok(None),
        }
    }
}

impl Drop for LocalUpload {
    fn drop(&mut self) {
        if self.writing.is_some() {
            self.sink.close();
        }
    }
}

/// Reopens a file at its durable offset; `None` if it is gone or another file.
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
            self.wait_for_write().await?;
            let (sink, offset, length) = (self.sink.clone(), self.offset, bytes.len() as u64);
            let write = move || sink.write(&bytes, offset);
            if self.sink.is_direct() {
                self.writing = Some(tokio::task::spawn_blocking(write));
            } else {
                blocking(write)
                    .await
                    .map_err(|e| self.failure("write", e))?;
            }
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
        let (folder, name, sink, from) = (
            folder.clone(),
            name.to_vec(),
            self.sink.clone(),
            self.offset,
        );
        let to = from + length;
        Some(Box::pin(async move {
            self.wait_for_write().await?;
            let moved = blocking(move || {
                let dir = source.folder(&folder)?;
                let fail = |e| Error::from_errno("copy", &folder.join(&name), e);
                let input = open_regular(&dir, &name, &folder.join(&name))?;
                let stat = rustix::fs::fstat(&input).map_err(fail)?;
                let holes = (stat.st_blocks as u64).saturating_mul(512) < stat.st_size as u64;
                let end = copy_range(&input, &sink.file, from, to, holes).map_err(fail)?;
                if end < to {
                    // Missing bytes must not be treated as a hole.
                    let message = format!("the source ended after {end} of at least {to} bytes");
                    let path = folder.join(&name);
                    return Err(Error::new(ErrorKind::Changed, "read", &path, message));
                }
                // A hole at the end of the part counts as written.
                let end = rustix::fs::fstat(&sink.file).map_err(fail)?.st_size as u64;
                if end < to {
                    rustix::fs::ftruncate(&sink.file, to).map_err(fail)?;
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
            self.wait_for_write().await?;
            let (sink, offset) = (self.sink.clone(), self.offset);
            let synced = blocking(move || {
                let stat = rustix::fs::fstat(&sink.file)?;
                // A hole at the end counts as written.
                if (stat.st_size as u64) < offset {
                    rustix::fs::ftruncate(&sink.file, offset)?;
                }
                rustix::fs::fdatasync(&sink.file)?;
                Ok(stat.st_ino)
            })
            .await;
            let inode = synced.map_err(|e| self.failure("sync", e))?;
            let resume = [self.offset.to_le_bytes(), inode.to_le_bytes()].concat();
            Ok(Some(resume))
        })
    }

    fn finish(
        mut self: Box<Self>,
        like: Entry,
        extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>> {
        Box::pin(async move {
            let written = self.wait_for_write().await;
            blocking(move || match written {
                Ok(()) => self.complete(&[], &like, &extended),
                Err(error) => {
                    self.remove();
                    Err(error)
                }
            })
            .await
        })
    }

    fn abort(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            // It is removed, whatever the result.
            let _ = self.wait_for_write().await;
            blocking(move || self.root.discard(&self.folder, &self.temp)).await
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Backend, DIRECT_IO_ALIGNMENT, Entry, Folder, Kind, Local, UploadPlan};
    use bytes::Bytes;

    /// Large enough for direct I/O, except its last bytes.
    const SIZE: usize = (65 << 20) + 7;
    const BLOCK: usize = 1 << 20;
    const DURABLE: usize = 33 * BLOCK;

    /// Returns a block at an aligned address, like the blocks of large objects.
    fn even(block: &[u8]) -> Bytes {
        let mut room = vec![0; block.len() + DIRECT_IO_ALIGNMENT];
        let begin = room.as_ptr().align_offset(DIRECT_IO_ALIGNMENT);
        room[begin..begin + block.len()].copy_from_slice(block);
        Bytes::from(room).slice(begin..begin + block.len())
    }

    #[tokio::test]
    async fn a_large_file_is_resumed_where_it_was_durable() {
        let dir = tempfile::tempdir().expect("a folder");
        let local = Local::new(dir.path());
        let (root, bytes) = (Folder::root(), (0..SIZE).map(|at| (at % 251) as u8));
        let bytes: Vec<u8> = bytes.collect();
        let mut plan = UploadPlan {
            temp: b".part".to_vec(),
            size: SIZE as u64,
            ..UploadPlan::default()
        };
        let mut upload = local.upload(&root, b"big", plan.clone()).await.unwrap();
        for block in bytes[..DURABLE].chunks(BLOCK) {
            upload.write(even(block)).await.unwrap();
        }
        plan.resume = upload.checkpoint(u64::MAX).await.unwrap();
        // These writes are not durable, and must not count.
        upload.write(even(&[0xff; BLOCK])).await.unwrap();
        upload.write(even(&[0xff; BLOCK])).await.unwrap();
        drop(upload);

        let mut upload = local.upload(&root, b"big", plan).await.unwrap();
        assert_eq!(upload.offset(), DURABLE as u64);
        for block in bytes[DURABLE..].chunks(BLOCK) {
            upload.write(even(block)).await.unwrap();
        }
        let like = Entry::new(b"big".to_vec(), Kind::File);
        let entry = upload.finish(like, Vec::new()).await.unwrap();
        assert_eq!(entry.size, SIZE as u64);
        let written = std::fs::read(dir.path().join("big")).unwrap();
        assert!(written == bytes, "other bytes than were written");
    }

    #[tokio::test]
    async fn a_source_that_ends_early_is_not_extended_with_zeros() {
        let dir = tempfile::tempdir().expect("a folder");
        let local = Local::new(dir.path());
        let root = Folder::root();
        let half = vec![b'x'; 10 << 20];
        std::fs::write(dir.path().join("from"), &half).unwrap();
        std::fs::write(dir.path().join("to"), "the good copy").unwrap();
        let plan = UploadPlan {
            temp: b".part".to_vec(),
            size: 20 << 20,
            ..UploadPlan::default()
        };
        let mut upload = local.upload(&root, b"to", plan).await.unwrap();
        let step = upload.copy_from(&local, &root, b"from", 8 << 20);
        step.expect("both are disks").await.unwrap();
        let step = upload.copy_from(&local, &root, b"from", 8 << 20);
        let refused = step.expect("both are disks").await.unwrap_err();
        assert_eq!(refused.kind(), crate::ErrorKind::Changed, "{refused}");
        let like = Entry::new(b"to".to_vec(), Kind::File);
        let refused = upload.finish(like, Vec::new()).await.unwrap_err();
        assert!(
            refused.to_string().contains("8388608 of 20971520 bytes"),
            "{refused}"
        );
        let kept = std::fs::read(dir.path().join("to")).unwrap();
        assert_eq!(kept, b"the good copy");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
