//! The descriptor of the root directory, and opening folders relative to it.

use super::blocking_pool::BlockingPool;
use super::mounts::mounts_below;
use crate::error::{Error, ErrorKind, Result};
use crate::{Entry, Folder, Inode, Kind, OwnerMap, Posix, Probe, Space};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, Statx, StatxFlags};
use rustix::io::Errno;
use rustix::path::Arg;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// Bytes of a path that one call accepts, with some margin.
const MAX_PATH_CHUNK: usize = 3800;

/// The root directory, and what is known about its filesystem.
#[derive(Debug)]
pub(crate) struct Root {
    path: PathBuf,
    /// Opened when first needed: a destination may not exist until something is copied.
    fd: OnceLock<OwnedFd>,
    /// Whether a reflink was refused; it is not tried again.
    pub(super) no_reflink: AtomicBool,
    /// Whether `O_NOATIME` was refused; it is not tried again.
    pub(super) no_noatime: AtomicBool,
    /// Whether we may change owners.
    pub(super) privileged: bool,
    /// The properties that the filesystem keeps, once it was tried out.
    pub(super) probe: OnceLock<Probe>,
    /// Other owners for the entries that are returned.
    pub(super) owner_map: OnceLock<OwnerMap>,
    /// Runs short and frequent operations.
    pub(super) blocking_pool: BlockingPool,
}

impl Root {
    pub(super) fn new(path: &Path) -> Root {
        Root {
            path: path.to_owned(),
            fd: OnceLock::new(),
            no_reflink: AtomicBool::new(false),
            no_noatime: AtomicBool::new(false),
            privileged: rustix::process::geteuid().is_root(),
            probe: OnceLock::new(),
            owner_map: OnceLock::new(),
            blocking_pool: BlockingPool::default(),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the filesystem keeps a property, as far as is known.
    pub(super) fn keeps(&self, property: impl Fn(&Probe) -> bool) -> bool {
        self.probe.get().is_none_or(property)
    }

    /// Returns an entry with the owner that it has for the caller.
    pub(super) fn with_mapped_owner(&self, entry: Entry) -> Entry {
        match self.owner_map.get() {
            Some(map) => map.apply_to(entry),
            None => entry,
        }
    }

    fn fd(&self) -> Result<&OwnedFd> {
        if let Some(fd) = self.fd.get() {
            return Ok(fd);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(&self.path, flags, Mode::empty())
            .map_err(|errno| self.failure("open the folder", errno))?;
        Ok(self.fd.get_or_init(|| fd))
    }

    /// Creates the root with its missing ancestors.
    pub(super) fn make(&self) -> Result<()> {
        std::fs::create_dir_all(&self.path).map_err(|error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            self.failure("make the folder", errno)
        })
    }

    fn failure(&self, operation: &'static str, errno: Errno) -> Error {
        Error::from_errno(operation, self.path.as_os_str().as_encoded_bytes(), errno)
    }

    /// Opens a folder as an `O_PATH` descriptor, which cannot be read.
    pub(super) fn folder(&self, folder: &Folder) -> Result<OwnedFd> {
        self.descend(folder, OFlags::PATH)
    }

    /// Opens a folder for listing.
    pub(super) fn readable_folder(&self, folder: &Folder) -> Result<OwnedFd> {
        self.descend(folder, OFlags::RDONLY)
    }

    /// Opens a folder with these flags.
    pub(super) fn descend(&self, folder: &Folder, last: OFlags) -> Result<OwnedFd> {
        let fail = |errno| Error::from_errno("open the folder", folder.as_bytes(), errno);
        let root = self.fd()?;
        let mut at: Option<OwnedFd> = None;
        let mut step: Vec<u8> = Vec::new();
        for name in folder.names() {
            if matches!(name, b"" | b"." | b"..") || name.contains(&0) {
                let message = "a name in the path cannot exist on a disk";
                return Err(Error::new(
                    ErrorKind::BadName,
                    "open the folder",
                    folder.as_bytes(),
                    message,
                ));
            }
            if step.len() + name.len() >= MAX_PATH_CHUNK {
                at = Some(
                    open_beneath(at.as_ref().unwrap_or(root), &step, OFlags::PATH).map_err(fail)?,
                );
                step.clear();
            }
            if !step.is_empty() {
                step.push(b'/');
            }
            step.extend_from_slice(name);
        }
        if step.is_empty() {
            step.push(b'.');
        }
        open_beneath(at.as_ref().unwrap_or(root), &step, last).map_err(fail)
    }

    pub(super) fn stat(&self, folder: &Folder, name: Option<&[u8]>) -> Result<Entry> {
        let dir = self.folder(folder)?;
        let entry = match name {
            Some(name) => entry_at(&dir, name)
                .map_err(|e| Error::from_errno("look at", &folder.join(name), e)),
            None => {
                let name = folder.split().map_or(&b""[..], |(_, name)| name);
                entry_in(&dir, name).map_err(|e| Error::from_errno("look at", folder.as_bytes(), e))
            }
        };
        entry.map(|entry| self.with_mapped_owner(entry))
    }

    /// Fails if the path no longer leads to the folder that is open: what is written goes into that
    /// folder, wherever it is now, and would be missing at the path.
    fn check_in_place(&self) -> Result<()> {
        let fail = |e| self.failure("look at", e);
        let open = rustix::fs::fstat(self.fd()?).map_err(fail)?;
        let is_same = match rustix::fs::stat(&self.path) {
            Ok(there) => (there.st_dev, there.st_ino) == (open.st_dev, open.st_ino),
            Err(Errno::NOENT | Errno::NOTDIR) => false,
            Err(errno) => return Err(fail(errno)),
        };
        if is_same {
            return Ok(());
        }
        let path = self.path.as_os_str().as_encoded_bytes();
        let message = "the folder was moved or replaced while files were written into it";
        Err(Error::new(ErrorKind::Gone, "use", path, message))
    }

    /// Syncs the root's filesystem and all that are mounted inside it: `syncfs` knows only one.
    /// Fails if the root was moved.
    pub(super) fn sync(&self) -> Result<()> {
        let fail = |e| self.failure("sync", e);
        self.check_in_place()?;
        rustix::fs::syncfs(self.fd()?).map_err(fail)?;
        let inside = std::fs::read("/proc/self/mountinfo")
            .and_then(|table| Ok(mounts_below(&self.path.canonicalize()?, &table)));
        let Ok(inside) = inside else {
            // Without a table of mounts everything is synced.
            rustix::fs::sync();
            return Ok(());
        };
        for point in inside {
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            match rustix::fs::open(&point, flags, Mode::empty()) {
                Ok(fd) => rustix::fs::syncfs(fd).map_err(fail)?,
                // It was unmounted meanwhile, which syncs it.
                Err(Errno::NOENT) => {}
                // Nothing can have been written below a mount that cannot be opened, such as
                // another user's. In doubt, everything is synced.
                Err(_) => rustix::fs::sync(),
            }
        }
        Ok(())
    }

    /// Returns the free space of the filesystem that the root is on, or will be. `None` if the
    /// filesystem does not tell: one without blocks has no free ones either.
    pub(super) fn space(&self) -> Result<Option<Space>> {
        let existing = self.path.ancestors().find(|path| path.is_dir());
        let stat = rustix::fs::statvfs(existing.unwrap_or(&self.path))
            .map_err(|e| self.failure("ask for the free space of", e))?;
        Ok((stat.f_blocks > 0).then(|| Space {
            bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
            entries: (stat.f_files > 0).then_some(stat.f_favail),
        }))
    }

    pub(super) fn writable(&self) -> Result<()> {
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        rustix::fs::accessat(self.fd()?, c".", access, AtFlags::EACCESS)
            .map_err(|e| self.failure("write into", e))
    }
}

/// Opens a folder below another one.
pub(super) fn open_beneath(
    from: &OwnedFd,
    path: &[u8],
    flags: OFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(from, path, flags, Mode::empty(), resolve) {
        // Kernels and sandboxes without openat2: opening one name at a time is equivalent.
        Err(Errno::NOSYS) => {
            let mut at: Option<OwnedFd> = None;
            for name in path.split(|&b| b == b'/') {
                let from = at.as_ref().unwrap_or(from);
                at = Some(rustix::fs::openat(from, name, flags, Mode::empty())?);
            }
            at.ok_or(Errno::NOENT)
        }
        other => other,
    }
}

/// Returns the entry of a name in an open folder.
pub(super) fn entry_at(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Entry> {
    name.into_with_c_str(|name| listed_entry(dir, name))
}

/// Returns the entry of a name as the system returned it, without copying the name.
pub(super) fn listed_entry(dir: impl AsFd, name: &CStr) -> rustix::io::Result<Entry> {
    let (flags, mask) = (AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS);
    let stat = rustix::fs::statx(&dir, name, flags, mask)?;
    let mut entry = entry_of(name.to_bytes().to_vec(), &stat);
    if entry.kind == Kind::Symlink {
        let target = rustix::fs::readlinkat(&dir, name, Vec::new())?;
        entry.target = Some(target.into_bytes());
    }
    Ok(entry)
}

/// Returns the entry of an open file.
pub(super) fn entry_in(file: impl AsFd, name: &[u8]) -> rustix::io::Result<Entry> {
    let stat = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    Ok(entry_of(name.to_vec(), &stat))
}

pub(super) fn entry_of(name: Vec<u8>, stat: &Statx) -> Entry {
    let kind = match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Directory => Kind::Folder,
        FileType::RegularFile => Kind::File,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Special,
    };
    let (modified, changed) = (stat.stx_mtime, stat.stx_ctime);
    let several = stat.stx_nlink > 1 && kind != Kind::Folder;
    Entry {
        name,
        kind,
        size: if kind == Kind::File { stat.stx_size } else { 0 },
        modified: Some(nanos(modified.tv_sec, i64::from(modified.tv_nsec))),
        changed: Some(nanos(changed.tv_sec, i64::from(changed.tv_nsec))),
        posix: Some(Posix {
            mode: stat.stx_mode.into(),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            device: match kind {
                Kind::Special => rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor),
                _ => 0,
            },
        }),
        target: None,
        inode: several.then(|| Inode {
            device: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor),
            number: stat.stx_ino,
        }),
        version: None,
        lost: None,
    }
}

/// Times before 1678 and after 2262 are clamped.
pub(super) fn nanos(seconds: i64, nanos: i64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}
