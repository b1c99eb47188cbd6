//! Copying between local disks without passing the bytes through this process.

use super::attributes::{Losses, extended_of, node_extended};
use super::bytes::{copy_range, is_no_file, open_file};
use super::rename;
use super::root::{Root, entry_of, nanos};
use crate::backend::{CopyItem, CopyOutcome};
use crate::error::{Error, Result};
use crate::failpoint;
use crate::{Entry, Folder, Kind, Posix};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, StatxFlags};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Copies items of one folder. Both folders are opened once.
pub(super) fn copy_batch(
    source: &Root,
    sink: &Root,
    folder: &Folder,
    items: &[CopyItem],
) -> Vec<Result<CopyOutcome>> {
    let open = || Ok((source.folder(folder)?, sink.folder(folder)?));
    let (from, to) = match open() {
        Ok(both) => both,
        Err(error) => return items.iter().map(|_| Err(Error::clone(&error))).collect(),
    };
    let copy_one = |item: &CopyItem| match item.entry.kind {
        Kind::File => {
            let copied = copy_file(source, &from, &to, sink, item);
            copied.map_err(|failure| failure.into_error(&folder.join(&item.entry.name)))
        }
        _ => copy_node(source, &from, &to, sink, folder, item),
    };
    items.iter().map(copy_one).collect()
}

fn copy_node(
    source: &Root,
    from: &OwnedFd,
    to: &OwnedFd,
    sink: &Root,
    folder: &Folder,
    item: &CopyItem,
) -> Result<CopyOutcome> {
    let name = &item.entry.name;
    let current = source.stat(folder, Some(name))?;
    if current.kind != item.entry.kind || current.target != item.entry.target {
        return Ok(CopyOutcome::Changed);
    }
    let extended = node_extended(from, name)
        .map_err(|e| Error::from_errno("read the attributes of", &folder.join(name), e))?;
    let mut item = item.clone();
    let listed = std::mem::replace(&mut item.entry.posix, current.posix);
    let made = sink.make_node(to, folder, &item, &extended)?;
    Ok(copied(made, listed, current.posix))
}

/// Returns the outcome of a copy that gave an entry these attributes instead of the listed ones.
fn copied(entry: Entry, listed: Option<Posix>, current: Option<Posix>) -> CopyOutcome {
    match current.filter(|_| current != listed) {
        Some(posix) => CopyOutcome::DoneWith(entry, posix),
        None => CopyOutcome::Done(entry),
    }
}

/// Why a file was not copied.
enum Failure {
    System(&'static str, Errno),
    /// It ended early, although it claims not to have changed: received and expected bytes.
    Short(u64, u64),
    /// Another program wrote the file to be replaced.
    Conflict,
}

impl Failure {
    fn into_error(self, path: &[u8]) -> Error {
        match self {
            Failure::System(operation, errno) => Error::from_errno(operation, path, errno),
            Failure::Short(received, size) => Error::truncated(path, received, size),
            Failure::Conflict => Error::conflict("write", path),
        }
    }
}

impl From<(&'static str, Errno)> for Failure {
    fn from((operation, errno): (&'static str, Errno)) -> Failure {
        Failure::System(operation, errno)
    }
}

type StepResult<T> = std::result::Result<T, Failure>;

fn copy_file(
    source: &Root,
    from: &OwnedFd,
    to: &OwnedFd,
    sink: &Root,
    item: &CopyItem,
) -> StepResult<CopyOutcome> {
    let CopyItem { entry, temp, .. } = item;
    let input = match open_file(from, &entry.name) {
        Err(errno) if is_no_file(errno) => return Ok(CopyOutcome::Changed),
        input => input.map_err(|e| ("read", e))?,
    };
    let before = rustix::fs::fstat(&input).map_err(|e| ("read", e))?;
    if !matches_listing(&before, entry) {
        return Ok(CopyOutcome::Changed);
    }
    let mode = sink.new_mode(0o666, 0o600);
    let output = create(to, temp, mode).map_err(|e| ("write", e))?;
    failpoint::hit("temp-made");
    let current = posix_of(&before);
    let current = source
        .owner_map
        .get()
        .map_or(current, |map| map.apply(current));
    let lost = match fill(&input, &output, sink, (&before, current), item) {
        Ok(Some(lost)) => lost,
        Ok(None) => {
            let _ = rustix::fs::unlinkat(to, temp.as_slice(), AtFlags::empty());
            return Ok(CopyOutcome::Changed);
        }
        Err(error) => {
            let _ = rustix::fs::unlinkat(to, temp.as_slice(), AtFlags::empty());
            return Err(error);
        }
    };
    let named = rename_into_place(&output, to, item);
    if named.is_err() {
        let _ = rustix::fs::unlinkat(to, temp.as_slice(), AtFlags::empty());
    }
    named.map(|named| copied(named.with_lost(lost), entry.posix, Some(current)))
}

/// Returns the owner and permissions of a regular file.
fn posix_of(stat: &Stat) -> Posix {
    Posix {
        mode: stat.st_mode,
        uid: stat.st_uid,
        gid: stat.st_gid,
        device: 0,
    }
}

/// Renames a complete file to its final name.
fn rename_into_place(output: &OwnedFd, to: &OwnedFd, item: &CopyItem) -> StepResult<Entry> {
    let CopyItem {
        entry,
        temp,
        precondition,
    } = item;
    let stat = rustix::fs::statx(output, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
        .map_err(|e| ("look at", e))?;
    // A file of another size than listed replaces nothing, however it was filled.
    if stat.stx_size != entry.size {
        return Err(Failure::Short(stat.stx_size, entry.size));
    }
    failpoint::hit("before-rename");
    let named = rename::rename_expected(to, temp, &entry.name, precondition, Some(entry))
        .map_err(|e| ("name", e))?;
    failpoint::hit("after-rename");
    match named {
        true => Ok(entry_of(entry.name.clone(), &stat)),
        false => Err(Failure::Conflict),
    }
}

/// Copies bytes and attributes. Returns the attributes that were lost, or `None` if the source
/// changed meanwhile.
fn fill(
    input: &OwnedFd,
    output: &OwnedFd,
    sink: &Root,
    (before, posix): (&Stat, Posix),
    item: &CopyItem,
) -> StepResult<Option<Losses>> {
    let size = item.entry.size;
    if size > 0 && !reflink(input, output, sink) {
        let holes = (before.st_blocks as u64).saturating_mul(512) < size;
        let end = copy_range(input, output, 0, size, holes).map_err(|e| ("copy", e))?;
        if end < size {
            let current = rustix::fs::fstat(input).map_err(|e| ("read", e))?;
            return match matches_listing(&current, &item.entry) {
                true => Err(Failure::Short(end, size)),
                false => Ok(None),
            };
        }
        if holes {
            rustix::fs::ftruncate(output, size).map_err(|e| ("copy", e))?;
        }
    }
    let extended = extended_of(input).map_err(|e| ("read the attributes of", e))?;
    // Permissions that were taken away since the listing must not be given to the copy.
    let like = Entry {
        posix: Some(posix),
        modified: item.entry.modified,
        ..Entry::new("", Kind::File)
    };
    let lost = sink
        .apply_attributes(output, &like, &extended, false)
        .map_err(|e| ("set attributes of", e))?;
    let after = rustix::fs::fstat(input).map_err(|e| ("read", e))?;
    let unchanged =
        matches_listing(&after, &item.entry) && changed_at(&after) == changed_at(before);
    Ok(unchanged.then_some(lost))
}

fn changed_at(stat: &Stat) -> (i64, u64) {
    (stat.st_ctime, stat.st_ctime_nsec)
}

fn matches_listing(stat: &Stat, entry: &Entry) -> bool {
    let modified = nanos(stat.st_mtime, stat.st_mtime_nsec as i64);
    FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile
        && stat.st_size as u64 == entry.size
        && entry.modified == Some(modified)
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

/// Creates a new file. A leftover of an earlier process is not resumed.
pub(super) fn create(dir: &OwnedFd, temp: &[u8], mode: Mode) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, temp, flags, mode) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(dir, temp, AtFlags::empty())?;
            rustix::fs::openat(dir, temp, flags, mode)
        }
        other => other,
    }
}
