//! Copying from disk to disk without the bytes passing through us.

use super::attributes::{extended_of, node_extended};
use super::bytes::{move_range, open_file};
use super::rename;
use super::root::{Root, entry_of, nanos};
use crate::backend::{Copied, Order};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::{Entry, Folder, Kind};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// The orders of one folder; both folders are opened once.
pub(super) fn batch(
    source: &Root,
    sink: &Root,
    folder: &Folder,
    orders: &[Order],
) -> Vec<Result<Copied>> {
    let open = || Ok((source.folder(folder)?, sink.folder(folder)?));
    let (from, to) = match open() {
        Ok(both) => both,
        Err(error) => return orders.iter().map(|_| Err(Error::clone(&error))).collect(),
    };
    let one = |order: &Order| match order.entry.kind {
        Kind::File => {
            let copied = file(&from, &to, sink, order);
            copied.map_err(|failure| failure.into_error(&folder.join(&order.entry.name)))
        }
        _ => node(source, &from, &to, sink, folder, order),
    };
    orders.iter().map(one).collect()
}

fn node(
    source: &Root,
    from: &OwnedFd,
    to: &OwnedFd,
    sink: &Root,
    folder: &Folder,
    order: &Order,
) -> Result<Copied> {
    let name = &order.entry.name;
    let now = source.stat(folder, Some(name))?;
    if now.kind != order.entry.kind || now.target != order.entry.target {
        return Ok(Copied::Changed);
    }
    let extended = node_extended(from, name)
        .map_err(|e| Error::system("read the attributes of", &folder.join(name), e))?;
    sink.make_node(to, folder, order, &extended)
        .map(Copied::Done)
}

/// Why a file was not copied.
enum Failure {
    System(&'static str, Errno),
    /// It ended after so many bytes of so many, although it claims not to have changed.
    Short(u64, u64),
    /// Somebody else wrote what it would replace.
    Overtaken,
}

impl Failure {
    fn into_error(self, path: &[u8]) -> Error {
        match self {
            Failure::System(operation, errno) => Error::system(operation, path, errno),
            Failure::Short(came, size) => Error::short(path, came, size),
            Failure::Overtaken => Error::overtaken("write", path),
        }
    }
}

impl From<(&'static str, Errno)> for Failure {
    fn from((operation, errno): (&'static str, Errno)) -> Failure {
        Failure::System(operation, errno)
    }
}

type Step<T> = std::result::Result<T, Failure>;

fn file(from: &OwnedFd, to: &OwnedFd, sink: &Root, order: &Order) -> Step<Copied> {
    let Order { entry, temp, .. } = order;
    let input = open_file(from, &entry.name).map_err(|e| ("read", e))?;
    let before = rustix::fs::fstat(&input).map_err(|e| ("read", e))?;
    if !is_as_listed(&before, entry) {
        return Ok(Copied::Changed);
    }
    let output = create(to, temp).map_err(|e| ("write", e))?;
    failpoint::hit("temp-made");
    match fill(&input, &output, sink, &before, order) {
        Ok(true) => {}
        Ok(false) => {
            let _ = rustix::fs::unlinkat(to, temp.as_slice(), AtFlags::empty());
            return Ok(Copied::Changed);
        }
        Err(error) => {
            let _ = rustix::fs::unlinkat(to, temp.as_slice(), AtFlags::empty());
            return Err(error);
        }
    }
    let named = name(&output, to, order);
    if named.is_err() {
        let _ = rustix::fs::unlinkat(to, temp.as_slice(), AtFlags::empty());
    }
    named.map(Copied::Done)
}

/// Gives a complete file its name.
fn name(output: &OwnedFd, to: &OwnedFd, order: &Order) -> Step<Entry> {
    let Order {
        entry,
        temp,
        expect,
    } = order;
    let stat = rustix::fs::statx(output, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .map_err(|e| ("look at", e))?;
    // However it was filled: what has another size than was listed replaces nothing.
    if stat.stx_size != entry.size {
        return Err(Failure::Short(stat.stx_size, entry.size));
    }
    failpoint::hit("before-rename");
    let named = rename::name(to, temp, &entry.name, expect, entry).map_err(|e| ("name", e))?;
    failpoint::hit("after-rename");
    match named {
        true => Ok(entry_of(entry.name.clone(), &stat)),
        false => Err(Failure::Overtaken),
    }
}

/// Bytes and attributes. Answers whether the source stayed the same meanwhile.
fn fill(
    input: &OwnedFd,
    output: &OwnedFd,
    sink: &Root,
    before: &Stat,
    order: &Order,
) -> Step<bool> {
    let size = order.entry.size;
    if size > 0 && !reflink(input, output, sink) {
        let holes = (before.st_blocks as u64).saturating_mul(512) < size;
        let end = move_range(input, output, 0, size, holes).map_err(|e| ("copy", e))?;
        if end < size {
            let now = rustix::fs::fstat(input).map_err(|e| ("read", e))?;
            return match is_as_listed(&now, &order.entry) {
                true => Err(Failure::Short(end, size)),
                false => Ok(false),
            };
        }
        if holes {
            rustix::fs::ftruncate(output, size).map_err(|e| ("copy", e))?;
        }
    }
    let extended = extended_of(input).map_err(|e| ("read the attributes of", e))?;
    let like = Entry {
        posix: order.entry.posix,
        modified: order.entry.modified,
        ..Entry::new("", Kind::File)
    };
    sink.dress(output, &like, &extended, false)
        .map_err(|e| ("set attributes of", e))?;
    let after = rustix::fs::fstat(input).map_err(|e| ("read", e))?;
    let stayed = is_as_listed(&after, &order.entry) && changed_at(&after) == changed_at(before);
    Ok(stayed)
}

fn changed_at(stat: &Stat) -> (i64, u64) {
    (stat.st_ctime, stat.st_ctime_nsec)
}

fn is_as_listed(stat: &Stat, entry: &Entry) -> bool {
    let modified = nanos(stat.st_mtime, stat.st_mtime_nsec as i64);
    stat.st_size as u64 == entry.size && entry.modified == Some(modified)
}

fn reflink(input: &OwnedFd, output: &OwnedFd, sink: &Root) -> bool {
    if sink.no_reflink.load(Ordering::Relaxed) {
        return false;
    }
    let cloned = rustix::fs::ioctl_ficlone(output, input).is_ok();
    if !cloned {
        sink.no_reflink.store(true, Ordering::Relaxed);
    }
    cloned
}

/// A new file. What an earlier process left under this name is not gone on with.
pub(super) fn create(dir: &OwnedFd, temp: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(dir, temp, flags, mode) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(dir, temp, AtFlags::empty())?;
            rustix::fs::openat(dir, temp, flags, mode)
        }
        other => other,
    }
}
