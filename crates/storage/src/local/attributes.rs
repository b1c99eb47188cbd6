//! Times, owners, permissions and extended attributes.

use super::root::{Root, entry_at, entry_in};
use crate::backend::{Extended, Precondition};
use crate::display;
use crate::error::{Error, Result};
use crate::expected::may_set_attributes;
use crate::{Entry, Folder, Kind};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

/// The names of access control lists.
const ACL: &[u8] = b"system.posix_acl_";

/// The attributes of an entry that the filesystem did not keep.
#[derive(Debug, Default)]
pub(super) struct Losses(Vec<String>);

impl Losses {
    /// Notes an attribute whose call was refused; other errors are those of the whole entry.
    fn note(
        &mut self,
        what: impl Into<String>,
        set: rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        match set {
            Err(errno) if is_refusal(errno) => self.0.push(what.into()),
            other => other?,
        }
        Ok(())
    }
}

impl Entry {
    pub(super) fn with_lost(mut self, lost: Losses) -> Entry {
        let Losses(lost) = lost;
        self.lost = (!lost.is_empty()).then(|| lost.join(", ").into());
        self
    }
}

/// Returns whether an error concerns one attribute: the filesystem does not keep it, or not of this
/// size, or not for this user. An owner without a number in a user namespace is invalid.
fn is_refusal(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::PERM
            | Errno::ACCESS
            | Errno::OPNOTSUPP
            | Errno::NOSYS
            | Errno::INVAL
            | Errno::RANGE
            | Errno::TOOBIG
            | Errno::DQUOT
    )
}

/// Returns whether the filesystem has room for more than an attribute.
fn has_space(fd: impl AsFd) -> bool {
    const ENOUGH: u64 = 1 << 20;
    let free = rustix::fs::fstatvfs(fd).map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    free.is_ok_and(|free| free >= ENOUGH)
}

impl Root {
    pub(super) fn set_attributes(
        &self,
        folder: &Folder,
        name: Option<&[u8]>,
        like: &Entry,
        extended: &Extended,
        precondition: &Precondition,
    ) -> Result<Entry> {
        let Some(name) = name else {
            let fail = |e| Error::from_errno("set attributes of", folder.as_bytes(), e);
            let dir = self.readable_folder(folder)?;
            let lost = self
                .apply_attributes(&dir, like, extended, true)
                .map_err(fail)?;
            return Ok(self.stat(folder, None)?.with_lost(lost));
        };
        let path = folder.join(name);
        let fail = |e| Error::from_errno("set attributes of", &path, e);
        let check = |existing: &Entry| match may_set_attributes(existing, precondition, like) {
            true => Ok(()),
            false => Err(Error::conflict("set attributes of", &path)),
        };
        let dir = self.folder(folder)?;
        let lost = if like.kind == Kind::File {
            let file = super::bytes::open_regular(&dir, name, &path)?;
            check(&entry_in(&file, name).map_err(fail)?)?;
            self.apply_attributes(&file, like, extended, true)
        } else {
            check(&entry_at(&dir, name).map_err(fail)?)?;
            self.apply_node_attributes(&dir, name, like, extended)
        };
        let lost = lost.map_err(fail)?;
        Ok(entry_at(&dir, name).map_err(fail)?.with_lost(lost))
    }

    /// Sets attributes: the owner first, because a change of it clears permission bits and
    /// capabilities; the time last, because everything else changes it. Returns those that the
    /// filesystem refuses to keep: no attribute is worth the file.
    pub(super) fn apply_attributes(
        &self,
        fd: &OwnedFd,
        like: &Entry,
        extended: &[(Vec<u8>, Vec<u8>)],
        exactly: bool,
    ) -> rustix::io::Result<Losses> {
        let mut lost = Losses::default();
        if let Some(posix) = like.posix
            && self.privileged
            && self.keeps(|probe| probe.owners)
        {
            let (uid, gid) = (Uid::from_raw(posix.uid), Gid::from_raw(posix.gid));
            lost.note("owner", rustix::fs::fchown(fd, Some(uid), Some(gid)))?;
        }
        if exactly && self.keeps(|probe| probe.extended) {
            self.remove_other_xattrs(fd, extended)?;
        }
        for (name, value) in extended.iter().filter(|(name, _)| self.sets(name)) {
            let set = rustix::fs::fsetxattr(fd, name.as_slice(), value, XattrFlags::empty());
            self.note_xattr(&mut lost, name, set, || has_space(fd))?;
        }
        if let Some(posix) = like.posix
            && self.sets_permissions()
        {
            let mode = Mode::from_raw_mode(posix.permissions());
            lost.note("permissions", rustix::fs::fchmod(fd, mode))?;
        }
        if let Some(modified) = like.modified
            && self.keeps(|probe| probe.time_step > 0)
        {
            lost.note("time", rustix::fs::futimens(fd, &times(modified)))?;
        }
        Ok(lost)
    }

    /// Sets attributes of entries that cannot be opened: symlinks and special files.
    pub(super) fn apply_node_attributes(
        &self,
        dir: impl AsFd,
        name: &[u8],
        like: &Entry,
        extended: &[(Vec<u8>, Vec<u8>)],
    ) -> rustix::io::Result<Losses> {
        let mut lost = Losses::default();
        let nofollow = AtFlags::SYMLINK_NOFOLLOW;
        if let Some(posix) = like.posix
            && self.privileged
            && self.keeps(|probe| probe.owners)
        {
            let (uid, gid) = (Uid::from_raw(posix.uid), Gid::from_raw(posix.gid));
            let given = rustix::fs::chownat(&dir, name, Some(uid), Some(gid), nofollow);
            lost.note("owner", given)?;
        }
        let path = proc_path(&dir, name);
        for (key, value) in extended.iter().filter(|(key, _)| self.sets(key)) {
            let flags = XattrFlags::empty();
            let set = rustix::fs::lsetxattr(path.as_slice(), key.as_slice(), value, flags);
            self.note_xattr(&mut lost, key, set, || has_space(&dir))?;
        }
        if let Some(posix) = like.posix
            && like.kind == Kind::Special
            && self.sets_permissions()
        {
            let mode = Mode::from_raw_mode(posix.permissions());
            lost.note("permissions", chmod_node(&dir, name, mode))?;
        }
        if let Some(at) = like.modified
            && self.keeps(|probe| probe.time_step > 0)
        {
            let set = rustix::fs::utimensat(&dir, name, &times(at), nofollow);
            lost.note("time", set)?;
        }
        Ok(lost)
    }

    /// Whether permissions are kept and asked for.
    pub(super) fn sets_permissions(&self) -> bool {
        self.keeps(|probe| probe.permissions && probe.sets_permissions)
    }

    /// Returns the permissions of a new entry until its attributes are set: nobody else may look
    /// into it before, unless permissions are left to the umask.
    pub(super) fn new_mode(&self, with_umask: u32, private: u32) -> Mode {
        let mode = match self.keeps(|probe| probe.sets_permissions) {
            true => private,
            false => with_umask,
        };
        Mode::from_raw_mode(mode)
    }

    /// Whether an extended attribute is asked for.
    fn sets(&self, name: &[u8]) -> bool {
        match name.starts_with(ACL) {
            true => self.keeps(|probe| probe.sets_acls),
            false => self.keeps(|probe| probe.sets_xattrs),
        }
    }

    /// Removes attributes that the source does not have.
    fn remove_other_xattrs(
        &self,
        fd: &OwnedFd,
        keep: &[(Vec<u8>, Vec<u8>)],
    ) -> rustix::io::Result<()> {
        for (name, _) in extended_of(fd)? {
            let is_kept = keep.iter().any(|(kept, _)| *kept == name);
            if !is_kept && self.sets(&name) && !name.starts_with(b"security.selinux") {
                match rustix::fs::fremovexattr(fd, name.as_slice()) {
                    Ok(()) | Err(Errno::NODATA) => {}
                    Err(errno) if is_refusal(errno) => {}
                    Err(errno) => return Err(errno),
                }
            }
        }
        Ok(())
    }

    /// Notes an extended attribute that was not kept. Those that the filesystem was found to refuse
    /// are in the plan; ACLs may be kept all the same. A value may be too large for its place in
    /// the inode while the disk has space, which is no reason to end the run.
    fn note_xattr(
        &self,
        lost: &mut Losses,
        name: &[u8],
        set: rustix::io::Result<()>,
        has_space: impl FnOnce() -> bool,
    ) -> rustix::io::Result<()> {
        // The policy of the destination's machine assigns these.
        let is_announced = !self.keeps(|probe| probe.extended) && !name.starts_with(ACL)
            || name == b"security.selinux";
        let set = match set {
            Err(Errno::NOSPC) if has_space() => Err(Errno::TOOBIG),
            Err(errno) if is_announced && is_refusal(errno) => Ok(()),
            set => set,
        };
        lost.note(format!("xattr {}", display(name)), set)
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
        let any = Precondition::Any;
        let set = root.set_attributes(&Folder::root(), Some(b"pipe"), &like, &vec![], &any);
        assert!(set.is_err());
        let mode = std::fs::metadata(&outside).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
}
