//! Trying out what the filesystem of a directory can keep.
//!
//! No call tells this: network and foreign filesystems fold case, round times, and refuse owners or
//! attributes, each in their own way. So a few files are made in a folder that is removed again,
//! and looked at.

use super::root::{Root, entry_at};
use crate::Probe;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

/// An odd second and nanosecond, so that every rounding shows.
const TIME: Timespec = Timespec {
    tv_sec: 1_600_000_001,
    tv_nsec: 123_456_789,
};

/// Steps in which filesystems keep times, in nanoseconds.
const STEPS: [u64; 7] = [
    1,
    100,
    1_000,
    1_000_000,
    10_000_000,
    1_000_000_000,
    2_000_000_000,
];

const FILE: &[u8] = b"Probe";
const FOLDED: &[u8] = b"pROBE";
const COMPOSED: &[u8] = "caf\u{e9}".as_bytes();
const DECOMPOSED: &[u8] = "cafe\u{301}".as_bytes();
/// The length of names on most filesystems.
const LONGEST_NAME: usize = 255;

/// Tries out the filesystem of a directory, or of the first ancestor that exists. Returns `None` if
/// nothing can be made there.
pub(super) fn probe(root: &Root) -> Option<Probe> {
    in_new_folder(root, |dir| try_out(dir, root.privileged).ok())
}

/// Returns the time by the filesystem's own clock.
pub(super) fn clock(root: &Root) -> Option<i64> {
    in_new_folder(root, |dir| entry_at(dir, b".").ok()?.modified)
}

/// Makes a folder in the root, or in the first ancestor that exists, and removes it again. No trace
/// is left, not even in the time of the parent.
fn in_new_folder<T>(root: &Root, use_it: impl FnOnce(&OwnedFd) -> Option<T>) -> Option<T> {
    let folder = root.path().ancestors().find(|path| path.is_dir())?;
    let before = std::fs::metadata(folder).ok()?.modified().ok();
    let name = format!(".headworks-probe-{:016x}", fastrand::u64(..));
    let path = folder.join(name);
    std::fs::create_dir(&path).ok()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(&path, flags, Mode::empty());
    let found = opened.ok().and_then(|dir| use_it(&dir));
    let _ = std::fs::remove_dir_all(&path);
    if let (Some(before), Ok(folder)) = (before, std::fs::File::open(folder)) {
        let _ = folder.set_modified(before);
    }
    found
}

fn try_out(dir: &OwnedFd, privileged: bool) -> rustix::io::Result<Probe> {
    let file = create(dir, FILE)?;
    let _ = create(dir, COMPOSED);
    let exists = |name: &[u8]| entry_at(dir, name).is_ok();
    let xattr = rustix::fs::fsetxattr(&file, "user.probe", b"1", XattrFlags::empty());
    let probe = Probe {
        // Only root can find out; a later run may be root's.
        owners: !privileged || owner_is_kept(dir, &file)?,
        permissions: permissions_are_kept(dir, &file)?,
        extended: is_supported(xattr)?,
        symlinks: is_supported(rustix::fs::symlinkat("nowhere", dir, "symlink"))?,
        hard_links: is_supported(rustix::fs::linkat(dir, FILE, dir, "link", AtFlags::empty()))?,
        folds_case: exists(FOLDED),
        folds_unicode: exists(DECOMPOSED),
        longest_name: Some(longest_name(dir)?),
        sets_xattrs: true,
        sets_acls: true,
        sets_permissions: true,
        // Last, because everything else changes the time.
        time_step: time_step(dir, &file)?,
    };
    Ok(probe)
}

/// Whether a call was possible. Other errors, such as a full disk, say nothing about the
/// filesystem.
fn is_supported(tried: rustix::io::Result<()>) -> rustix::io::Result<bool> {
    match tried {
        Ok(()) => Ok(true),
        Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Ok(false)
        }
        Err(errno) => Err(errno),
    }
}

fn create(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)
}

/// Finds the length of the longest name by trying.
fn longest_name(dir: &OwnedFd) -> rustix::io::Result<usize> {
    let (mut fits, mut least_refused) = (1, LONGEST_NAME + 1);
    let mut length = LONGEST_NAME;
    while fits + 1 < least_refused {
        match create(dir, &vec![b'n'; length]) {
            Ok(_) => fits = length,
            Err(Errno::NAMETOOLONG | Errno::INVAL) => least_refused = length,
            Err(errno) => return Err(errno),
        }
        length = fits.midpoint(least_refused);
    }
    Ok(fits)
}

fn owner_is_kept(dir: &OwnedFd, file: &OwnedFd) -> rustix::io::Result<bool> {
    let (uid, gid) = (12_345, 23_456);
    let given = rustix::fs::fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    let posix = entry_at(dir, FILE)?.posix;
    let kept = posix.is_some_and(|posix| (posix.uid, posix.gid) == (uid, gid));
    Ok(is_supported(given)? && kept)
}

fn permissions_are_kept(dir: &OwnedFd, file: &OwnedFd) -> rustix::io::Result<bool> {
    for mode in [0o640, 0o711] {
        let set = rustix::fs::fchmod(file, Mode::from_raw_mode(mode));
        let posix = entry_at(dir, FILE)?.posix;
        let kept = posix.is_some_and(|posix| posix.permissions() == mode);
        if !is_supported(set)? || !kept {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The step in which times are kept, in nanoseconds; 0 if they cannot be set.
fn time_step(dir: impl AsFd, file: &OwnedFd) -> rustix::io::Result<u64> {
    let times = Timestamps {
        last_access: TIME,
        last_modification: TIME,
    };
    if !is_supported(rustix::fs::futimens(file, &times))? {
        return Ok(0);
    }
    let kept = entry_at(dir, FILE)?.modified.unwrap_or(0);
    let off = kept.abs_diff(super::root::nanos(TIME.tv_sec, TIME.tv_nsec));
    let step = STEPS.into_iter().find(|step| off < *step);
    Ok(step.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let time = || {
            let metadata = std::fs::metadata(dir.path()).expect("it exists");
            metadata.modified().expect("it has a time")
        };
        let before = time();
        let found = probe(&Root::new(&dir.path().join("not/there"))).expect("it can be written");
        assert_eq!(found.time_step, 1);
        assert!(found.permissions && found.symlinks && found.hard_links);
        assert!(!found.folds_case && !found.folds_unicode);
        assert_eq!(found.longest_name, Some(255));
        assert!(clock(&Root::new(dir.path())).is_some());
        assert_eq!(time(), before);
        assert_eq!(std::fs::read_dir(dir.path()).expect("it exists").count(), 0);
    }

    #[test]
    fn nothing_is_known_of_a_filesystem_that_cannot_be_written() {
        assert_eq!(probe(&Root::new("/proc".as_ref())), None);
    }
}
