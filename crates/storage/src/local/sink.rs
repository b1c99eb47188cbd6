//! A file being written. Blocks of a large file are written with direct I/O: the page cache would
//! be filled with data that nobody reads again, at the cost of one more copy of every byte.

use super::bytes::write_all;
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Smaller files are written through the page cache.
const MIN_DIRECT_SIZE: u64 = 64 << 20;
/// A block of this many zeros becomes a hole.
pub(super) const HOLE_SIZE: usize = 64 * 1024;
/// Filesystems on which direct I/O sacrifices nothing, such as compression: ext4 and XFS.
const DIRECT_IO_FILESYSTEMS: [u32; 2] = [0xef53, 0x5846_5342];

pub(super) struct Sink {
    pub(super) file: OwnedFd,
    /// The same file, opened for direct I/O.
    direct: Option<OwnedFd>,
    /// Whether writing has ended. Locked during a write.
    closed: Mutex<bool>,
}

impl Sink {
    /// Wraps an open file that will have this size.
    pub(super) fn new(file: OwnedFd, dir: impl AsFd, name: &[u8], size: u64) -> Sink {
        let large = size >= MIN_DIRECT_SIZE;
        let direct = large.then(|| open_direct(&file, dir, name)).flatten();
        Sink {
            file,
            direct,
            closed: Mutex::new(false),
        }
    }

    /// Returns whether writes bypass the page cache, and so wait for the disk.
    pub(super) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Writes bytes at an offset. Blocks of zeros become holes.
    pub(super) fn write(&self, bytes: &[u8], offset: u64) -> rustix::io::Result<()> {
        let closed = self.closed.lock();
        if *closed {
            return Ok(());
        }
        let mut begin = 0;
        for (number, block) in bytes.chunks_exact(HOLE_SIZE).enumerate() {
            if block.iter().all(|&byte| byte == 0) {
                let hole = number * HOLE_SIZE;
                self.put(&bytes[begin..hole], offset + begin as u64)?;
                begin = hole + HOLE_SIZE;
            }
        }
        self.put(&bytes[begin..], offset + begin as u64)
    }

    /// Waits for the current write. Later ones do nothing, because another process may resume the
    /// file.
    pub(super) fn close(&self) {
        *self.closed.lock() = true;
    }

    fn put(&self, bytes: &[u8], offset: u64) -> rustix::io::Result<()> {
        const UNEVEN: usize = crate::DIRECT_IO_ALIGNMENT - 1;
        let uneven = (bytes.as_ptr().addr() | bytes.len() | offset as usize) & UNEVEN;
        if let Some(direct) = self.direct.as_ref().filter(|_| uneven == 0) {
            match write_all(direct, bytes, offset) {
                // This disk needs a larger alignment: fall back to the page cache.
                Err(Errno::INVAL) => {}
                written => return written,
            }
        }
        write_all(&self.file, bytes, offset)
    }
}

fn open_direct(file: &OwnedFd, dir: impl AsFd, name: &[u8]) -> Option<OwnedFd> {
    let system = rustix::fs::fstatfs(file).ok()?;
    if !DIRECT_IO_FILESYSTEMS.contains(&(system.f_type as u32)) {
        return None;
    }
    let flags = OFlags::WRONLY | OFlags::DIRECT | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let again = rustix::fs::openat(dir, name, flags, Mode::empty()).ok()?;
    let inode = |file: &OwnedFd| rustix::fs::fstat(file).ok().map(|stat| stat.st_ino);
    (inode(&again) == inode(file)).then_some(again)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DIRECT_IO_ALIGNMENT;

    /// Returns the bytes at an aligned and at an unaligned address.
    fn both(bytes: &[u8]) -> [(Vec<u8>, usize); 2] {
        let mut room = vec![0; bytes.len() + 2 * DIRECT_IO_ALIGNMENT];
        let even = room.as_ptr().align_offset(DIRECT_IO_ALIGNMENT);
        room[even..even + bytes.len()].copy_from_slice(bytes);
        let mut other = vec![0; bytes.len() + 2 * DIRECT_IO_ALIGNMENT];
        let uneven = other.as_ptr().align_offset(DIRECT_IO_ALIGNMENT) + 1;
        other[uneven..uneven + bytes.len()].copy_from_slice(bytes);
        [(room, even), (other, uneven)]
    }

    #[test]
    fn a_file_written_with_direct_io_has_the_same_bytes() {
        let folder = tempfile::tempdir().expect("a folder");
        let dir = std::fs::File::open(folder.path()).expect("it is there");
        let mut bytes: Vec<u8> = (0..20 * HOLE_SIZE).map(|at| (at % 251) as u8).collect();
        bytes[3 * HOLE_SIZE..5 * HOLE_SIZE].fill(0);
        bytes[19 * HOLE_SIZE..].fill(0);
        for (case, (room, begin)) in both(&bytes).into_iter().enumerate() {
            let name = format!("file {case}");
            let path = folder.path().join(&name);
            let file = std::fs::File::create(&path).expect("it can be made");
            file.set_len(bytes.len() as u64 + 7).expect("it has room");
            let sink = Sink::new(file.into(), &dir, name.as_bytes(), MIN_DIRECT_SIZE);
            let system = rustix::fs::fstatfs(&sink.file).expect("it is on one");
            let can = DIRECT_IO_FILESYSTEMS.contains(&(system.f_type as u32));
            assert_eq!(sink.is_direct(), can, "{name}");
            let slice = &room[begin..begin + bytes.len()];
            sink.write(slice, 0).expect("it is written");
            sink.write(b"the end", bytes.len() as u64)
                .expect("it is written");
            let expected = [&bytes[..], b"the end"].concat();
            assert!(
                std::fs::read(&path).expect("it can be read") == expected,
                "{name}"
            );
        }
    }
}
