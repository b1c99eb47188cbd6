//! Giving a complete entry its name, unless somebody else took the name or changed what has it.

use super::root::entry_at;
use crate::Entry;
use crate::backend::Precondition;
use rustix::fd::OwnedFd;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

/// Renames `temp` to the name of `new`, in place of what is expected there. Returns whether it did:
/// what nobody expected stays. An entry that is as `new` is ours, from a run that died before it
/// could note that.
///
/// A change between the look and the rename is not seen; a name that is free when it is looked at
/// is never overwritten.
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
    // Looking first would be one call more for every new file.
    let mut existing = match listed {
        None => None,
        Some(_) => stat_target()?,
    };
    loop {
        if let Some(existing) = &existing {
            let is_listed = listed.is_some_and(|listed| is_same(existing, listed));
            return match is_listed || is_same(existing, new) {
                true => overwrite(),
                false => Ok(false),
            };
        }
        match rustix::fs::renameat_with(dir, temp, dir, name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => existing = stat_target()?,
            // Not every filesystem knows this. Then the look has to do.
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

/// Whether an entry is what another was, as far as is compared. A time that is not known is any.
fn is_same(existing: &Entry, other: &Entry) -> bool {
    let same_time = other.modified.is_none() || existing.modified == other.modified;
    same_time
        && (existing.kind, existing.size, &existing.target)
            == (other.kind, other.size, &other.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    struct TestDir {
        folder: tempfile::TempDir,
        dir: OwnedFd,
    }

    impl TestDir {
        fn new() -> TestDir {
            let folder = tempfile::tempdir().expect("a folder");
            let dir = std::fs::File::open(folder.path()).expect("it is there");
            let dir = dir.into();
            TestDir { folder, dir }
        }

        fn write(&self, name: &str, text: &str) -> Entry {
            std::fs::write(self.folder.path().join(name), text).expect("it is written");
            entry_at(&self.dir, name.as_bytes()).expect("it is there")
        }

        /// Names the file `temp`, and reads what is there then.
        fn name(&self, precondition: &Precondition, new: &Entry) -> (bool, String) {
            let done =
                rename_expected(&self.dir, b"temp", b"name", precondition, new).expect("a rename");
            let text = std::fs::read_to_string(self.folder.path().join("name"));
            (done, text.expect("something is there"))
        }
    }

    #[test]
    fn only_what_is_expected_or_ours_is_overwritten() {
        let dir = TestDir::new();
        let new = dir.write("temp", "new");
        assert_eq!(dir.name(&Precondition::Absent, &new), (true, "new".into()));
        let old = dir.write("name", "by somebody else");
        let new = dir.write("temp", "newer");
        let other = Entry {
            modified: Some(1),
            ..old.clone()
        };
        let kept = (false, "by somebody else".to_owned());
        assert_eq!(dir.name(&Precondition::Absent, &new), kept);
        assert_eq!(dir.name(&Precondition::Unchanged(other.into()), &new), kept);
        let done = (true, "newer".to_owned());
        assert_eq!(dir.name(&Precondition::Unchanged(old.into()), &new), done);
        // The same again, as after a kill between the rename and the note of it.
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
        let gone = Entry::new("name", Kind::File);
        std::fs::remove_file(dir.folder.path().join("name")).unwrap();
        let new = dir.write("temp", "newest");
        assert_eq!(
            dir.name(&Precondition::Unchanged(gone.into()), &new),
            (true, "newest".to_owned())
        );
    }
}
