//! Renaming a complete entry to its final name, unless another program took the name or changed the
//! entry that has it.

use super::root::entry_at;
use crate::Entry;
use crate::backend::Precondition;
use rustix::fd::OwnedFd;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

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
    new: &Entry,
) -> rustix::io::Result<bool> {
    let overwrite = || rustix::fs::renameat(dir, temp, dir, name).map(|()| true);
    let listed = match precondition {
        Precondition::Any | Precondition::Version(_) => return overwrite(),
        Precondition::Absent => None,
        Precondition::Unchanged(listed) => Some(&**listed),
    };
    let stat_target = || match entry_at(dir, name) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    };
    // A check in advance would cost one call for every new file.
    let mut existing = match listed {
        None => None,
        Some(_) => stat_target()?,
    };
    loop {
        if let Some(existing) = &existing {
            let is_listed = listed.is_some_and(|listed| is_same(existing, listed));
            let kept = || entry_at(dir, temp).ok().and_then(|temp| temp.modified);
            return match is_listed || is_own(existing, new, kept()) {
                true => overwrite(),
                false => Ok(false),
            };
        }
        match rustix::fs::renameat_with(dir, temp, dir, name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => existing = stat_target()?,
            // Not every filesystem supports this flag. Then the check must suffice.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                existing = stat_target()?;
                if existing.is_none() {
                    return overwrite();
                }
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Returns whether two entries are the same as far as is compared. An unknown time matches any.
fn is_same(existing: &Entry, other: &Entry) -> bool {
    let same_time = other.modified.is_none() || existing.modified == other.modified;
    same_time
        && (existing.kind, existing.size, &existing.target)
            == (other.kind, other.size, &other.target)
}

/// Returns whether an entry is one that we made and did not record. `kept` is the time of the
/// temporary file, as the filesystem keeps it. A power failure may have taken the bytes, but not
/// the time, which was set before the rename; nothing is lost with an empty file.
fn is_own(existing: &Entry, new: &Entry, kept: Option<i64>) -> bool {
    let mut expected = new.clone();
    expected.modified = expected.modified.and(kept);
    let empty = existing.size == 0 && expected.modified.is_some();
    if empty {
        expected.size = 0;
    }
    is_same(existing, &expected)
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
            let done = rename_expected(&self.dir, b"temp", b"name", precondition, new)
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
