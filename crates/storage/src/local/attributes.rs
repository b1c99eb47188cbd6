//! Times, owners, permissions and extended attributes.

use super::root::{Root, entry_at};
use crate::backend::Extended;
use crate::error::{Error, Result};
use crate::{Entry, Folder, Kind};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

impl Root {
    pub(super) fn set_attributes(
        &self,
        folder: &Folder,
        name: Option<&[u8]>,
        like: &Entry,
        extended: &Extended,
    ) -> Result<Entry> {
        let Some(name) = name else {
            let fail = |e| Error::from_errno("set attributes of", folder.as_bytes(), e);
            let dir = self.readable_folder(folder)?;
            self.apply_attributes(&dir, like, extended, true)
                .map_err(fail)?;
            return self.stat(folder, None);
        };
        let fail = |e| Error::from_errno("set attributes of", &folder.join(name), e);
        let dir = self.folder(folder)?;
        if like.kind == Kind::File {
            let file = super::bytes::open_file(&dir, name).map_err(fail)?;
            self.apply_attributes(&file, like, extended, true)
                .map_err(fail)?;
        } else {
            self.apply_node_attributes(&dir, name, like, extended)
                .map_err(fail)?;
        }
        entry_at(&dir, name).map_err(fail)
    }

    /// Sets attributes: the owner first, because a change of it clears permission bits and
    /// capabilities; the time last, because everything else changes it.
    pub(super) fn apply_attributes(
        &self,
        fd: &OwnedFd,
        like: &Entry,
        extended: &[(Vec<u8>, Vec<u8>)],
        exactly: bool,
    ) -> rustix::io::Result<()> {
        if let Some(posix) = like.posix
            && self.privileged
            && self.keeps(|probe| probe.owners)
        {
            rustix::fs::fchown(
                fd,
                Some(Uid::from_raw(posix.uid)),
                Some(Gid::from_raw(posix.gid)),
            )?;
        }
        if exactly && self.keeps(|probe| probe.extended) {
            remove_other_xattrs(fd, extended)?;
        }
        for (name, value) in extended {
            self.tolerate(rustix::fs::fsetxattr(
                fd,
                name.as_slice(),
                value,
                XattrFlags::empty(),
            ))?;
        }
        if let Some(posix) = like.posix
            && self.keeps(|probe| probe.permissions)
        {
            rustix::fs::fchmod(fd, Mode::from_raw_mode(posix.permissions()))?;
        }
        match like.modified {
            Some(modified) if self.keeps(|probe| probe.time_step > 0) => {
                rustix::fs::futimens(fd, &times(modified))
            }
            _ => Ok(()),
        }
    }

    /// Sets attributes of entries that cannot be opened: symlinks and special files.
    pub(super) fn apply_node_attributes(
        &self,
        dir: impl AsFd,
        name: &[u8],
        like: &Entry,
        extended: &[(Vec<u8>, Vec<u8>)],
    ) -> rustix::io::Result<()> {
        if let Some(posix) = like.posix
            && self.privileged
            && self.keeps(|probe| probe.owners)
        {
            let (uid, gid) = (Uid::from_raw(posix.uid), Gid::from_raw(posix.gid));
            rustix::fs::chownat(&dir, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        let path = proc_path(&dir, name);
        for (key, value) in extended {
            self.tolerate(rustix::fs::lsetxattr(
                path.as_slice(),
                key.as_slice(),
                value,
                XattrFlags::empty(),
            ))?;
        }
        if let Some(posix) = like.posix
            && like.kind == Kind::Special
            && self.keeps(|probe| probe.permissions)
        {
            chmod_node(&dir, name, Mode::from_raw_mode(posix.permissions()))?;
        }
        match like.modified {
            Some(at) if self.keeps(|probe| probe.time_step > 0) => {
                rustix::fs::utimensat(&dir, name, &times(at), AtFlags::SYMLINK_NOFOLLOW)
            }
            _ => Ok(()),
        }
    }

    /// Ignores failures to set attributes in namespaces that need privileges, and all where the
    /// filesystem was found to refuse them: ACLs may be kept all the same.
    fn tolerate(&self, set: rustix::io::Result<()>) -> rustix::io::Result<()> {
        match set {
            Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP)
                if !self.privileged || !self.keeps(|probe| probe.extended) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    pub(super) fn extended(&self, folder: &Folder, name: Option<&[u8]>) -> Result<Extended> {
        let path = name.map_or_else(|| folder.as_bytes().to_vec(), |name| folder.join(name));
        let fail = |e| Error::from_errno("read the attributes of", &path, e);
        let Some(name) = name else {
            return extended_of(&self.readable_folder(folder)?).map_err(fail);
        };
        let dir = self.folder(folder)?;
        node_extended(&dir, name).map_err(fail)
    }
}

/// Changes the permissions of a special file. `chmodat` would follow a symlink that took its place
/// meanwhile, out of the tree; a descriptor stays with the file that was looked at.
fn chmod_node(dir: impl AsFd, name: &[u8], mode: Mode) -> rustix::io::Result<()> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let node = rustix::fs::openat(dir, name, flags, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&node)?.st_mode);
    if kind == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    rustix::fs::chmod(format!("/proc/self/fd/{}", node.as_raw_fd()), mode)
}

/// Returns a path to a name in an open folder, for system calls without a descriptor variant.
fn proc_path(dir: impl AsFd, name: &[u8]) -> Vec<u8> {
    let mut path = format!("/proc/self/fd/{}/", dir.as_fd().as_raw_fd()).into_bytes();
    path.extend_from_slice(name);
    path
}

fn times(modified: i64) -> Timestamps {
    let omit = Timespec {
        tv_sec: 0,
        tv_nsec: rustix::fs::UTIME_OMIT as _,
    };
    let at = Timespec {
        tv_sec: modified.div_euclid(1_000_000_000),
        tv_nsec: modified.rem_euclid(1_000_000_000) as _,
    };
    Timestamps {
        last_access: omit,
        last_modification: at,
    }
}

fn remove_other_xattrs(fd: &OwnedFd, keep: &[(Vec<u8>, Vec<u8>)]) -> rustix::io::Result<()> {
    for (name, _) in extended_of(fd)? {
        let is_kept = keep.iter().any(|(kept, _)| *kept == name);
        if !is_kept && !name.starts_with(b"security.selinux") {
            match rustix::fs::fremovexattr(fd, name.as_slice()) {
                Ok(()) | Err(Errno::NODATA | Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

pub(super) fn extended_of(fd: &OwnedFd) -> rustix::io::Result<Extended> {
    // Most files have none, and this one call suffices.
    let size = match rustix::fs::flistxattr_query(fd) {
        Ok(size) => size,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    if size == 0 {
        return Ok(Vec::new());
    }
    let mut list = vec![0; size];
    let size = rustix::fs::flistxattr(fd, &mut list[..])?;
    list.truncate(size);
    let query = |name: &[u8]| rustix::fs::fgetxattr_query(fd, name);
    values(&list, query, |name, room| {
        rustix::fs::fgetxattr(fd, name, room)
    })
}

pub(super) fn node_extended(dir: impl AsFd, name: &[u8]) -> rustix::io::Result<Extended> {
    let path = proc_path(&dir, name);
    let size = match rustix::fs::llistxattr_query(path.as_slice()) {
        Ok(size) => size,
        Err(Errno::OPNOTSUPP) => 0,
        Err(errno) => return Err(errno),
    };
    if size == 0 {
        return Ok(Vec::new());
    }
    let mut list = vec![0; size];
    let size = rustix::fs::llistxattr(path.as_slice(), &mut list[..])?;
    list.truncate(size);
    let query = |name: &[u8]| rustix::fs::lgetxattr_query(path.as_slice(), name);
    values(&list, query, |name, room| {
        rustix::fs::lgetxattr(path.as_slice(), name, room)
    })
}

fn values(
    list: &[u8],
    query: impl Fn(&[u8]) -> rustix::io::Result<usize>,
    get: impl Fn(&[u8], &mut [u8]) -> rustix::io::Result<usize>,
) -> rustix::io::Result<Extended> {
    let mut extended = Vec::new();
    for name in list.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let size = match query(name) {
            Ok(size) => size,
            Err(Errno::NODATA) => continue, // removed in the meantime
            Err(errno) => return Err(errno),
        };
        let mut value = vec![0; size];
        let size = get(name, &mut value)?;
        value.truncate(size);
        extended.push((name.to_vec(), value));
    }
    extended.sort();
    Ok(extended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Posix;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn permissions_never_reach_through_a_symlink() {
        let dir = tempfile::tempdir().unwrap();
        let (outside, inside) = (dir.path().join("outside"), dir.path().join("inside"));
        std::fs::write(&outside, "secret").unwrap();
        std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::create_dir(&inside).unwrap();
        // Listed as a special file, it is a symlink by now.
        symlink(&outside, inside.join("pipe")).unwrap();
        let owner = rustix::process::getuid().as_raw();
        let posix = Posix {
            mode: 0o010_666,
            uid: owner,
            gid: rustix::process::getgid().as_raw(),
            device: 0,
        };
        let like = Entry {
            posix: Some(posix),
            ..Entry::new(b"pipe".to_vec(), Kind::Special)
        };
        let root = Root::new(&inside);
        let set = root.set_attributes(&Folder::root(), Some(b"pipe"), &like, &Extended::new());
        assert!(set.is_err());
        let mode = std::fs::metadata(&outside).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
}
