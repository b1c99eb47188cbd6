//! Folders, symlinks, hard links, and removal.

use super::rename;
use super::root::{Root, entry_at};
use crate::backend::CopyItem;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint;
use crate::{Entry, Folder, Kind};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, FileType, Mode, RawDir, RenameFlags};
use rustix::io::Errno;

impl Root {
    /// Makes a folder that only we can access until its attributes are set, after it is filled.
    pub(super) fn make_folder(&self, folder: &Folder) -> Result<()> {
        let Some((parent, name)) = folder.split() else {
            return self.make();
        };
        let fail = |e| Error::from_errno("make the folder", folder.as_bytes(), e);
        let dir = self.folder(&parent)?;
        match rustix::fs::mkdirat(&dir, name, Mode::RWXU) {
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
        let named = made
            .and_then(|()| self.apply_node_attributes(dir, temp, entry, extended))
            .inspect(|()| failpoint::hit("before-node-rename"))
            .and_then(|()| {
                rename::rename_expected(dir, temp, &entry.name, &item.precondition, entry)
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
        entry_at(dir, &entry.name).map_err(|e| Error::from_errno("look at", &path, e))
    }

    pub(super) fn hard_link(
        &self,
        existing: (&Folder, &[u8]),
        folder: &Folder,
        name: &[u8],
        temp: &[u8],
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
        let named = rustix::fs::renameat(&dir, temp, &dir, name);
        failpoint::hit("after-link-rename");
        // A rename between two names of the same file does nothing, and leaves both.
        let _ = rustix::fs::unlinkat(&dir, temp, AtFlags::empty());
        named.map_err(fail)?;
        entry_at(&dir, name).map_err(fail)
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
        rustix::fs::renameat_with(&from, name, &into, new, RenameFlags::NOREPLACE)
            .map_err(|e| Error::from_errno("move", &folder.join(name), e))
    }

    /// Removes an entry depth first, with a list of folders instead of recursion: neither the stack
    /// nor the number of open files grows with the depth.
    pub(super) fn remove(&self, folder: &Folder, name: &[u8]) -> Result<()> {
        let dir = self.folder(folder)?;
        let fail = |path: &[u8], e| Error::from_errno("remove", path, e);
        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
            Ok(()) => return Ok(()),
            Err(Errno::ISDIR | Errno::PERM) => {}
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
