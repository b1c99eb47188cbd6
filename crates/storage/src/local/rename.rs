//! Giving a complete entry its name, unless somebody else took the name or changed what has it.

use super::root::entry_at;
use crate::Entry;
use crate::backend::Expect;
use rustix::fd::OwnedFd;
use rustix::fs::RenameFlags;
use rustix::io::Errno;

/// Renames `temp` to the name of `new`, in place of what is expected there. Returns whether it did:
/// what nobody expected stays. An entry that is as `new` is ours, from a run that died before it
/// could note that.
///
/// A change between the look and the rename is not seen; a name that is free when it is looked at
/// is never overwritten.
pub(super) fn name(
    dir: &OwnedFd,
    temp: &[u8],
    name: &[u8],
    expect: &Expect,
    new: &Entry,
) -> rustix::io::Result<bool> {
    let overwrite = || rustix::fs::renameat(dir, temp, dir, name).map(|()| true);
    let listed = match expect {
        Expect::Anything | Expect::Version(_) => return overwrite(),
        Expect::Nothing => None,
        Expect::Listed(listed) => Some(&**listed),
    };
    let look = || match entry_at(dir, name) {
        Err(Errno::NOENT) => Ok(None),
        found => found.map(Some),
    };
    // Looking first would be one call more for every new file.
    let mut there = match listed {
        None => None,
        Some(_) => look()?,
    };
    loop {
        if let Some(there) = &there {
            let is_listed = listed.is_some_and(|listed| is_same(there, listed));
            return match is_listed || is_same(there, new) {
                true => overwrite(),
                false => Ok(false),
            };
        }
        match rustix::fs::renameat_with(dir, temp, dir, name, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => there = look()?,
            // Not every filesystem knows this. Then the look has to do.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                there = look()?;
                if there.is_none() {
                    return overwrite();
                }
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Whether an entry is what another was, as far as is compared. A time that is not known is any.
fn is_same(there: &Entry, other: &Entry) -> bool {
    let same_time = other.modified.is_none() || there.modified == other.modified;
    same_time && (there.kind, there.size, &there.target) == (other.kind, other.size, &other.target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    struct Place {
        folder: tempfile::TempDir,
        dir: OwnedFd,
    }

    impl Place {
        fn new() -> Place {
            let folder = tempfile::tempdir().expect("a folder");
            let dir = std::fs::File::open(folder.path()).expect("it is there");
            let dir = dir.into();
            Place { folder, dir }
        }

        fn write(&self, name: &str, text: &str) -> Entry {
            std::fs::write(self.folder.path().join(name), text).expect("it is written");
            entry_at(&self.dir, name.as_bytes()).expect("it is there")
        }

        /// Names the file `temp`, and reads what is there then.
        fn name(&self, expect: &Expect, new: &Entry) -> (bool, String) {
            let done = name(&self.dir, b"temp", b"name", expect, new).expect("a rename");
            let text = std::fs::read_to_string(self.folder.path().join("name"));
            (done, text.expect("something is there"))
        }
    }

    #[test]
    fn only_what_is_expected_or_ours_is_overwritten() {
        let place = Place::new();
        let new = place.write("temp", "new");
        assert_eq!(place.name(&Expect::Nothing, &new), (true, "new".into()));
        let old = place.write("name", "by somebody else");
        let new = place.write("temp", "newer");
        let other = Entry {
            modified: Some(1),
            ..old.clone()
        };
        let kept = (false, "by somebody else".to_owned());
        assert_eq!(place.name(&Expect::Nothing, &new), kept);
        assert_eq!(place.name(&Expect::Listed(other.into()), &new), kept);
        let done = (true, "newer".to_owned());
        assert_eq!(place.name(&Expect::Listed(old.into()), &new), done);
        // The same again, as after a kill between the rename and the note of it.
        std::fs::rename(
            place.folder.path().join("name"),
            place.folder.path().join("temp"),
        )
        .unwrap();
        std::fs::hard_link(
            place.folder.path().join("temp"),
            place.folder.path().join("other"),
        )
        .unwrap();
        std::fs::rename(
            place.folder.path().join("other"),
            place.folder.path().join("name"),
        )
        .unwrap();
        assert_eq!(place.name(&Expect::Nothing, &new), done);
        let gone = Entry::new("name", Kind::File);
        std::fs::remove_file(place.folder.path().join("name")).unwrap();
        let new = place.write("temp", "newest");
        assert_eq!(
            place.name(&Expect::Listed(gone.into()), &new),
            (true, "newest".to_owned())
        );
    }
}
