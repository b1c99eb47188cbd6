//! Folders, symlinks, hard links, and removal.

use super::attributes::Losses;
use super::rename;
use super::root::{Root, entry_at};
use crate::backend::{CopyItem, Precondition};
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint;
use crate::{Entry, Folder, Kind};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, RawDir};
use rustix::io::Errno;

impl Root {
    /// Makes a folder that only we can access until its attributes are set, after it is filled.
    pub(super) fn make_folder(&self, folder: &Folder) -> Result<()> {
        let Some((parent, name)) = folder.split() else {
            return self.make();
        };
        let fail = |e| Error::from_errno("make the folder", folder.as_bytes(), e);
        let dir = self.folder(&parent)?;
        match rustix::fs::mkdirat(&dir, name, self.new_mode(0o777, 0o700)) {
            Ok(()) => {
                failpoint::hit("after-mkdir");
                Ok(())
            }
            Err(Errno::EXIST) => match entry_at(&dir, name).map_err(fail)?.kind {
                Kind::Folder => Ok(()),
                _ => Err(fail(Errno::EXIST)),
            },
            Err(errno) => Err(fail(errno)),
        }
    }

    pub(super) fn make_node(
        &self,
        dir: &OwnedFd,
        folder: &Folder,
        item: &CopyItem,
        extended: &[(Vec<u8>, Vec<u8>)],
    ) -> Result<Entry> {
        let (entry, temp) = (&item.entry, item.temp.as_slice());
        let path = folder.join(&entry.name);
        let made = match rustix::fs::unlinkat(dir, temp, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => make(dir, temp, entry),
            Err(errno) => Err(errno),
        };
        let mut lost = Losses::default();
        let named = made
            .and_then(|()| self.apply_node_attributes(dir, temp, entry, extended))
            .map(|refused| lost = refused)
            .inspect(|()| failpoint::hit("before-node-rename"))
            .and_then(|()| {
                rename::rename_expected(dir, temp, &entry.name, &item.precondition, Some(entry))
            })
            .inspect(|_| failpoint::hit("after-node-rename"));
        let refused = match named {
            Ok(true) => None,
            Ok(false) => Some(Error::conflict("make", &path)),
            Err(errno) => Some(Error::from_errno("make", &path, errno)),
        };
        if let Some(error) = refused {
            let _ = rustix::fs::unlinkat(dir, temp, AtFlags::empty());
            return Err(error);
        }
        let made = entry_at(dir, &entry.name);
        made.map(|made| made.with_lost(lost))
            .map_err(|e| Error::from_errno("look at", &path, e))
    }

    pub(super) fn hard_link(
        &self,
        existing: (&Folder, &[u8]),
        folder: &Folder,
        name: &[u8],
        temp: &[u8],
        precondition: &Precondition,
    ) -> Result<Entry> {
        let fail = |e| Error::from_errno("link", &folder.join(name), e);
        let from = self.folder(existing.0)?;
        let dir = self.folder(folder)?;
        match rustix::fs::unlinkat(&dir, temp, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(fail(errno)),
        }
        rustix::fs::linkat(&from, existing.1, &dir, temp, AtFlags::empty()).map_err(fail)?;
        failpoint::hit("before-link-rename");
        let named = match is_linked(&dir, temp, name) {
            // A run that died made it.
            true => Ok(true),
            // An entry with other bytes may have the same size and time, so only the inode tells
            // that it is our own.
            false => rename::rename_expected(&dir, temp, name, precondition, None),
        };
        failpoint::hit("after-link-rename");
        if !matches!(named, Ok(true)) || is_linked(&dir, temp, name) {
            let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::empty());
        }
        match named {
            Ok(true) => entry_at(&dir, name).map_err(fail),
            Ok(false) => Err(Error::conflict("link", &folder.join(name))),
            Err(errno) => Err(fail(errno)),
        }
    }

    pub(super) fn discard(&self, folder: &Folder, temp: &[u8]) -> Result<()> {
        let dir = match self.folder(folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        match rustix::fs::unlinkat(&dir, temp, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::from_errno("remove", &folder.join(temp), errno)),
        }
    }

    pub(super) fn rename(
        &self,
        folder: &Folder,
        name: &[u8],
        to: &Folder,
        new: &[u8],
    ) -> Result<()> {
        let (from, into) = (self.folder(folder)?, self.folder(to)?);
        rename::rename_absent((&from, name), (&into, new))
            .map_err(|e| Error::from_errno("move", &folder.join(name), e))
    }

    /// Removes an entry depth first, with a list of folders instead of recursion: neither the stack
    /// nor the number of open files grows with the depth.
    pub(super) fn remove(&self, folder: &Folder, name: &[u8]) -> Result<()> {
        let dir = self.folder(folder)?;
        let fail = |path: &[u8], e| Error::from_errno("remove", path, e);
        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(Errno::ISDIR) => {}
            // Some systems say so of folders, all of them say so of immutable files.
            Err(Errno::PERM) if is_folder(&dir, name) => {}
            Err(errno) => return Err(fail(&folder.join(name), errno)),
        }
        let mut left = vec![folder.child(name)];
        while let Some(last) = left.last().cloned() {
            let below = self.remove_files_in(&last)?;
            if below.is_empty() {
                let (parent, name) = last.split().expect("the folder is not the root");
                let dir = self.folder(&parent)?;
                rustix::fs::unlinkat(&dir, name, AtFlags::REMOVEDIR)
                    .map_err(|e| fail(last.as_bytes(), e))?;
                left.pop();
            }
            left.extend(below);
        }
        Ok(())
    }

    /// Removes everything but folders from a folder, and returns those.
    fn remove_files_in(&self, folder: &Folder) -> Result<Vec<Folder>> {
        let fail = |e| Error::from_errno("remove what is in", folder.as_bytes(), e);
        let dir = self.readable_folder(folder)?;
        let mut folders = Vec::new();
        let mut buffer = Vec::with_capacity(32 * 1024);
        let mut names = RawDir::new(&dir, buffer.spare_capacity_mut());
        while let Some(name) = names.next() {
            let entry = name.map_err(fail)?;
            let (name, kind) = (entry.file_name().to_bytes(), entry.file_type());
            if name == b"." || name == b".." {
                continue;
            }
            let is_folder = match kind {
                FileType::Unknown => entry_at(&dir, name).map_err(fail)?.kind == Kind::Folder,
                known => known == FileType::Directory,
            };
            if is_folder {
                folders.push(folder.child(name));
            } else {
                rustix::fs::unlinkat(&dir, name, AtFlags::empty()).map_err(fail)?;
            }
        }
        Ok(folders)
    }
}

/// Returns whether two names of a folder are the same file.
fn is_linked(dir: &OwnedFd, one: &[u8], other: &[u8]) -> bool {
    let inode = |name: &[u8]| {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.map(|stat| (stat.st_dev, stat.st_ino)).ok()
    };
    let found = inode(one);
    found.is_some() && found == inode(other)
}

fn is_folder(dir: &OwnedFd, name: &[u8]) -> bool {
    entry_at(dir, name).is_ok_and(|entry| entry.kind == Kind::Folder)
}

fn make(dir: &OwnedFd, temp: &[u8], entry: &Entry) -> rustix::io::Result<()> {
    match (entry.kind, &entry.target, entry.posix) {
        (Kind::Symlink, Some(target), _) => rustix::fs::symlinkat(target.as_slice(), dir, temp),
        (Kind::Special, _, Some(posix)) => {
            let kind = FileType::from_raw_mode(posix.mode);
            let mode = Mode::from_raw_mode(posix.permissions());
            rustix::fs::mknodat(dir, temp, kind, mode, posix.device)
        }
        _ => Err(Errno::INVAL),
    }
}
