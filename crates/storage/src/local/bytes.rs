//! Reading a file, and copying bytes between files.

use super::blocking;
use super::root::{Root, entry_in};
use crate::backend::Chunks;
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Entry, Folder};
use bytes::Bytes;
use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{FileType, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::sync::Arc;

const CHUNK: u64 = 1 << 20;
/// Maximum number of bytes per system call.
const MAX_COPY: u64 = 1 << 30;

pub(super) struct LocalChunks {
    file: Arc<OwnedFd>,
    path: Vec<u8>,
    offset: u64,
    end: u64,
    /// The first chunk, read when the file was opened: most files are not longer.
    first: Option<Bytes>,
    after: Option<Entry>,
}

impl LocalChunks {
    pub(super) fn open(
        root: &Root,
        folder: &Folder,
        name: &[u8],
        offset: u64,
        length: u64,
    ) -> Result<Self> {
        let path = folder.join(name);
        let dir = root.folder(folder)?;
        let fail = |errno| Error::from_errno("read", &path, errno);
        let file = open_regular(&dir, name, &path)?;
        let end = offset.saturating_add(length);
        let first = read_at(&file, offset, end).map_err(fail)?;
        let after = match first.len() as u64 == length {
            true => Some(root.with_mapped_owner(entry_in(&file, name).map_err(fail)?)),
            false => None,
        };
        Ok(LocalChunks {
            file: Arc::new(file),
            path,
            offset: offset + first.len() as u64,
            end,
            first: Some(first),
            after,
        })
    }
}

/// Reads the next chunk; empty at the end.
fn read_at(file: &OwnedFd, offset: u64, end: u64) -> rustix::io::Result<Bytes> {
    let wanted = end.saturating_sub(offset).min(CHUNK) as usize;
    if wanted == 0 {
        return Ok(Bytes::new());
    }
    let mut buffer = Vec::with_capacity(wanted);
    rustix::io::pread(file, spare_capacity(&mut buffer), offset)?;
    Ok(buffer.into())
}

impl Chunks for LocalChunks {
    fn is_checked(&self) -> bool {
        true
    }

    fn next(&mut self) -> BoxFuture<'_, Result<Option<Bytes>>> {
        Box::pin(async {
            if let Some(first) = self.first.take().filter(|first| !first.is_empty()) {
                return Ok(Some(first));
            }
            let (file, offset, end) = (self.file.clone(), self.offset, self.end);
            if offset >= end {
                return Ok(None);
            }
            let read = blocking(move || read_at(&file, offset, end)).await;
            let bytes = read.map_err(|e| Error::from_errno("read", &self.path, e))?;
            self.offset += bytes.len() as u64;
            Ok((!bytes.is_empty()).then_some(bytes))
        })
    }

    fn entry_at_end(&self) -> Option<&Entry> {
        self.after.as_ref()
    }
}

/// Opens a regular file. Does not follow links, and does not wait for the other end of a pipe.
pub(super) fn open_file(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::openat(dir, name, flags, Mode::empty())
}

/// Whether an error of [`open_file`] means that the name is not one of a regular file: a socket, a
/// device without a driver, a symlink.
pub(super) fn is_no_file(errno: Errno) -> bool {
    matches!(errno, Errno::NXIO | Errno::NODEV | Errno::LOOP)
}

/// Opens a regular file that was listed as one. Fails with [`ErrorKind::Changed`] if it is
/// something else by now.
pub(super) fn open_regular(dir: impl AsFd, name: &[u8], path: &[u8]) -> Result<OwnedFd> {
    let other = || Error::new(ErrorKind::Changed, "read", path, "it is no longer a file");
    let fail = |errno| Error::from_errno("read", path, errno);
    let file = match open_file(dir, name) {
        Err(errno) if is_no_file(errno) => return Err(other()),
        file => file.map_err(fail)?,
    };
    let mode = rustix::fs::fstat(&file).map_err(fail)?.st_mode;
    match FileType::from_raw_mode(mode) {
        FileType::RegularFile => Ok(file),
        _ => Err(other()),
    }
}

/// Copies `[from, to)` to the same offset of another file, preserving holes if the source has some.
/// Returns the offset at which it stopped: less than `to` if the source ends before it, whatever
/// size the source claims. The caller must not treat the rest as a hole.
pub(super) fn copy_range(
    source: &OwnedFd,
    sink: &OwnedFd,
    from: u64,
    to: u64,
    holes: bool,
) -> rustix::io::Result<u64> {
    if !holes {
        return copy_data(source, sink, from, to);
    }
    let mut at = from;
    while at < to {
        let data = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(data) => data.min(to),
            // Either a hole follows, or the file ends here: its size tells which.
            Err(Errno::NXIO) => {
                let size = rustix::fs::fstat(source)?.st_size as u64;
                return Ok(size.clamp(at, to));
            }
            Err(errno) => return Err(errno),
        };
        if data >= to {
            break;
        }
        let hole = rustix::fs::seek(source, SeekFrom::Hole(data))?.min(to);
        let end = copy_data(source, sink, data, hole)?;
        if end < hole {
            return Ok(end);
        }
        at = hole;
    }
    Ok(to)
}

fn copy_data(source: &OwnedFd, sink: &OwnedFd, from: u64, to: u64) -> rustix::io::Result<u64> {
    let (mut input, mut output) = (from, from);
    while input < to {
        let length = (to - input).min(MAX_COPY) as usize;
        match rustix::fs::copy_file_range(source, Some(&mut input), sink, Some(&mut output), length)
        {
            // Some filesystems (procfs, some FUSE ones) return 0 although they have bytes: reading
            // tells whether this is the end.
            Ok(0) => return copy_through_buffer(source, sink, input, to),
            Ok(_) | Err(Errno::INTR) => {}
            Err(
                Errno::XDEV
                | Errno::INVAL
                | Errno::OPNOTSUPP
                | Errno::NOSYS
                | Errno::PERM
                | Errno::BADF,
            ) => {
                return copy_through_buffer(source, sink, input, to);
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(to)
}

fn copy_through_buffer(
    source: &OwnedFd,
    sink: &OwnedFd,
    mut from: u64,
    to: u64,
) -> rustix::io::Result<u64> {
    let mut buffer = vec![0; (to - from).min(256 * 1024) as usize];
    while from < to {
        let wanted = (to - from).min(buffer.len() as u64) as usize;
        let count = match rustix::io::pread(source, &mut buffer[..wanted], from) {
            Ok(0) => return Ok(from),
            Err(Errno::INTR) => continue,
            other => other?,
        };
        write_all(sink, &buffer[..count], from)?;
        from += count as u64;
    }
    Ok(to)
}

pub(super) fn write_all(
    sink: &OwnedFd,
    mut bytes: &[u8],
    mut offset: u64,
) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(sink, bytes, offset) {
            Ok(count) => {
                bytes = &bytes[count..];
                offset += count as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    /// Returns a file of this size with data in a range and holes elsewhere.
    fn file(size: u64, data: std::ops::Range<u64>) -> OwnedFd {
        let file = tempfile::tempfile().expect("a temporary file");
        file.set_len(size).expect("it has room");
        let bytes = vec![b'x'; (data.end - data.start) as usize];
        file.write_all_at(&bytes, data.start).expect("bytes");
        file.into()
    }

    /// Returns the offset where the copy stopped, and the size of the target.
    fn moved(source: &OwnedFd, from: u64, to: u64, holes: bool) -> (u64, u64) {
        let sink = file(0, 0..0);
        let end = copy_range(source, &sink, from, to, holes).expect("it can be read");
        let size = rustix::fs::fstat(&sink).expect("it is there").st_size;
        (end, size as u64)
    }

    #[tokio::test]
    async fn an_empty_file_has_no_bytes() {
        use crate::{Backend, Folder, Local};
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("empty"), "").unwrap();
        let local = Local::new(dir.path());
        let mut chunks = local.read(&Folder::root(), b"empty", 0, 0).await.unwrap();
        assert_eq!(chunks.next().await.unwrap(), None);
    }

    #[test]
    fn a_source_that_ends_early_is_not_treated_as_sparse() {
        let dense = file(1 << 20, 0..1 << 20);
        for holes in [false, true] {
            assert_eq!(moved(&dense, 0, 1 << 20, holes), (1 << 20, 1 << 20));
            assert_eq!(moved(&dense, 0, 2 << 20, holes), (1 << 20, 1 << 20));
            assert_eq!(moved(&dense, 1 << 20, 2 << 20, holes).0, 1 << 20);
            assert_eq!(moved(&dense, 2 << 20, 3 << 20, holes).0, 2 << 20);
        }
        let sparse = file(3 << 20, 1 << 20..2 << 20);
        assert_eq!(moved(&sparse, 0, 3 << 20, true), (3 << 20, 2 << 20));
        assert_eq!(moved(&sparse, 0, 4 << 20, true), (3 << 20, 2 << 20));
        assert_eq!(moved(&sparse, 0, 1 << 20, true), (1 << 20, 0));
    }

    #[test]
    fn a_buffered_copy_ends_where_the_source_does() {
        let (source, sink) = (file(300 << 10, 0..300 << 10), file(0, 0..0));
        let end = copy_through_buffer(&source, &sink, 0, 400 << 10);
        assert_eq!(end, Ok(300 << 10));
        let end = copy_through_buffer(&source, &sink, 0, 200 << 10);
        assert_eq!(end, Ok(200 << 10));
    }
}
