//! Renaming a complete entry to its final name, unless another program took the name or changed the
//! entry that has it.

use super::root::entry_at;
use crate::Entry;
use crate::backend::Precondition;
use crate::expected::is_own;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, RenameFlags};
use rustix::io::Errno;
use unicode_normalization::UnicodeNormalization;

/// Renames `temp` to `name` in place of the expected entry. Returns `false` if another entry is
/// there, which stays. An entry like `new` is our own, from a run that died before it was recorded
/// ([`is_own`]).
///
/// A change between the check and the rename is not noticed; a name that is free at the check is
/// never overwritten.
pub(super) fn rename_expected(
    dir: &OwnedFd,
    temp: &[u8],
    name: &[u8],
    precondition: &Precondition,
    new: Option<&Entry>,
) -> rustix::io::Result<bool> {
    let overwrite = || rustix::fs::renameat(dir, temp, dir, name).map(|()| true);
    let stat_target = || match entry_at(dir, name) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    };
    let mut existing = match precondition {
        Precondition::Any => return overwrite(),
        // A check in advance would cost one call for every new file.
        Precondition::Absent => None,
        Precondition::Version(_) | Precondition::Unchanged(_) => stat_target()?,
    };
    loop {
        if let Some(existing) = &existing {
            let kept = || entry_at(dir, temp).ok().and_then(|temp| temp.modified);
            let is_own = || new.is_some_and(|new| is_own(existing, new, kept()));
            return match precondition.allows(existing) || is_own() && is_spelled(dir, name)? {
                true => overwrite(),
                false => Ok(false),
            };
        }
        match rename_absent((dir, temp), (dir, name)) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => existing = stat_target()?,
            Err(errno) => return Err(errno),
        }
    }
}

/// Renames an entry to a name that is free, and fails with `EXIST` if it is not.
pub(super) fn rename_absent(
    (from, name): (&OwnedFd, &[u8]),
    (into, new): (&OwnedFd, &[u8]),
) -> rustix::io::Result<()> {
    match rustix::fs::renameat_with(from, name, into, new, RenameFlags::NOREPLACE) {
        // NFS, 9p and many FUSE filesystems do not support the flag. Then a check in advance must
        // suffice.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match entry_at(into, new) {
            Err(Errno::NOENT) => rustix::fs::renameat(from, name, into, new),
            Ok(_) => Err(Errno::EXIST),
            Err(errno) => Err(errno),
        },
        other => other,
    }
}

/// Returns whether an existing entry has exactly this name. Where names are folded, the entry that
/// is found may be another file of the source, copied under another spelling.
fn is_spelled(dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<bool> {
    let Ok(text) = std::str::from_utf8(name) else {
        return Ok(true);
    };
    let inode = |name: &[u8]| {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
        stat.ok().map(|stat| (stat.st_dev, stat.st_ino))
    };
    let found = inode(name);
    let spellings = [
        text.to_uppercase(),
        text.to_lowercase(),
        text.nfc().collect(),
        text.nfd().collect(),
    ];
    let is_folded = spellings
        .iter()
        .any(|other| *other != text && inode(other.as_bytes()) == found);
    if !is_folded {
        return Ok(true);
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(dir, c".", flags, Mode::empty())?;
    let mut buffer = Vec::with_capacity(32 * 1024);
    let mut names = RawDir::new(&dir, buffer.spare_capacity_mut());
    while let Some(entry) = names.next() {
        if entry?.file_name().to_bytes() == name {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use std::time::{Duration, UNIX_EPOCH};

    struct TestDir {
        folder: tempfile::TempDir,
        dir: OwnedFd,
    }

    impl TestDir {
        fn new() -> TestDir {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let dir = std::fs::File::open(folder.path()).expect("the folder exists");
            let dir = dir.into();
            TestDir { folder, dir }
        }

        fn write(&self, name: &str, text: &str) -> Entry {
            std::fs::write(self.folder.path().join(name), text).expect("the file can be written");
            entry_at(&self.dir, name.as_bytes()).expect("the file exists")
        }

        /// Renames the file `temp`, and returns the result and the text of the target.
        fn name(&self, precondition: &Precondition, new: &Entry) -> (bool, String) {
            let done = rename_expected(&self.dir, b"temp", b"name", precondition, Some(new))
                .expect("the rename works");
            let text = std::fs::read_to_string(self.folder.path().join("name"));
            (done, text.expect("the target exists"))
        }
    }

    fn set_modified(dir: &TestDir, name: &str, modified: Option<i64>) {
        let at = UNIX_EPOCH + Duration::from_nanos(modified.expect("it has a time") as u64);
        let mut options = std::fs::File::options();
        let file = options.write(true).open(dir.folder.path().join(name));
        let set = file.and_then(|file| file.set_modified(at));
        set.expect("the time can be set");
    }

    #[test]
    fn only_expected_or_own_entries_are_overwritten() {
        let dir = TestDir::new();
        let new = dir.write("temp", "new");
        assert_eq!(dir.name(&Precondition::Absent, &new), (true, "new".into()));
        let old = dir.write("name", "by somebody else");
        let new = dir.write("temp", "newer");
        // A file with fewer bytes is not ours, whatever its time.
        let other = Entry {
            modified: Some(1),
            ..old.clone()
        };
        let kept = (false, "by somebody else".to_owned());
        assert_eq!(dir.name(&Precondition::Absent, &new), kept);
        assert_eq!(dir.name(&Precondition::Unchanged(other.into()), &new), kept);
        let done = (true, "newer".to_owned());
        assert_eq!(dir.name(&Precondition::Unchanged(old.into()), &new), done);
        // Again, as after a kill between the rename and its record.
        std::fs::rename(
            dir.folder.path().join("name"),
            dir.folder.path().join("temp"),
        )
        .unwrap();
        std::fs::hard_link(
            dir.folder.path().join("temp"),
            dir.folder.path().join("other"),
        )
        .unwrap();
        std::fs::rename(
            dir.folder.path().join("other"),
            dir.folder.path().join("name"),
        )
        .unwrap();
        assert_eq!(dir.name(&Precondition::Absent, &new), done);
        // After a power failure a file that was renamed may have lost bytes, but not its time.
        // (Both names are links to one file now.)
        std::fs::remove_file(dir.folder.path().join("name")).unwrap();
        dir.write("name", "");
        set_modified(&dir, "name", new.modified);
        assert_eq!(dir.name(&Precondition::Absent, &new), done);
        let gone = Entry::new("name", Kind::File);
        std::fs::remove_file(dir.folder.path().join("name")).unwrap();
        let new = dir.write("temp", "newest");
        assert_eq!(
            dir.name(&Precondition::Unchanged(gone.into()), &new),
            (true, "newest".to_owned())
        );
    }
}
