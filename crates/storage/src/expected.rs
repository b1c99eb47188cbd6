//! The decision whether an entry at the destination may be replaced.

use crate::backend::Precondition;
use crate::{Entry, Kind};

impl Precondition {
    /// Returns whether an existing entry is the one that may be replaced.
    pub(crate) fn allows(&self, existing: &Entry) -> bool {
        match self {
            Precondition::Any => true,
            Precondition::Absent => false,
            Precondition::Version(version) => existing.etag() == Some(version),
            Precondition::Unchanged(listed) => {
                is_same(existing, listed) && !existing.was_changed_since(listed)
            }
        }
    }
}

/// Returns whether the attributes of an entry may be set: it is the expected one, or an earlier
/// attempt has set them already. An attempt that was interrupted is a change too, so the time of
/// the last change is not compared.
pub(crate) fn may_set_attributes(
    existing: &Entry,
    precondition: &Precondition,
    like: &Entry,
) -> bool {
    let is_set = || like.modified.is_some() && is_same(existing, like);
    let timeless = Entry {
        changed: None,
        ..existing.clone()
    };
    precondition.allows(&timeless) || is_set()
}

/// Returns whether two entries are the same as far as is compared. An unknown time matches any.
fn is_same(existing: &Entry, other: &Entry) -> bool {
    let same_time = other.modified.is_none() || existing.modified == other.modified;
    same_time
        && (existing.kind, existing.size, &existing.target)
            == (other.kind, other.size, &other.target)
}

/// Returns whether an entry is one that we made and did not record. `kept` is the time of the
/// temporary file, as the storage keeps it. A power failure may have taken the bytes, but not the
/// time, which was set before the rename; nothing is lost with an empty file. Without a time
/// nothing distinguishes our file from another program's of the same size.
pub(crate) fn is_own(existing: &Entry, new: &Entry, kept: Option<i64>) -> bool {
    if new.kind == Kind::Symlink && existing.kind == Kind::Symlink {
        return existing.target == new.target;
    }
    let mut expected = new.clone();
    expected.modified = expected.modified.and(kept);
    if expected.modified.is_none() {
        return false;
    }
    if existing.size == 0 {
        expected.size = 0;
    }
    is_same(existing, &expected)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64, modified: Option<i64>) -> Entry {
        Entry {
            size,
            modified,
            ..Entry::new(*b"x", Kind::File)
        }
    }

    #[test]
    fn only_the_listed_entry_is_allowed() {
        let listed = file(5, Some(7));
        let unchanged = Precondition::Unchanged(listed.clone().into());
        assert!(unchanged.allows(&listed));
        assert!(!unchanged.allows(&file(5, Some(8))));
        assert!(!unchanged.allows(&file(6, Some(7))));
        assert!(!Precondition::Absent.allows(&listed));
        let version = |of: &str| Some(of.as_bytes().to_vec());
        let known = Precondition::Version(b"a".to_vec());
        for (of, allowed) in [("a", true), ("b", false)] {
            let existing = Entry {
                version: version(of),
                ..listed.clone()
            };
            assert_eq!(known.allows(&existing), allowed, "{of}");
        }
        assert!(!known.allows(&listed));
    }

    #[test]
    fn a_rewritten_file_is_recognised_by_the_time_of_its_change() {
        let listed = Entry {
            changed: Some(100),
            ..file(5, Some(7))
        };
        let rewritten = Entry {
            changed: Some(101),
            ..listed.clone()
        };
        let unchanged = Precondition::Unchanged(listed.clone().into());
        assert!(unchanged.allows(&listed));
        assert!(unchanged.allows(&file(5, Some(7))), "a storage without it");
        assert!(!unchanged.allows(&rewritten));
        assert!(may_set_attributes(&rewritten, &unchanged, &file(5, None)));
        let inode = Some(crate::Inode {
            device: 1,
            number: 2,
        });
        let linked = Entry { inode, ..listed };
        assert!(Precondition::Unchanged(linked.into()).allows(&rewritten));
    }

    #[test]
    fn a_file_is_our_own_by_its_size_and_time_only() {
        let new = file(5, Some(7));
        assert!(is_own(&file(5, Some(7)), &new, Some(7)));
        assert!(is_own(&file(0, Some(7)), &new, Some(7)), "a power failure");
        assert!(!is_own(&file(5, Some(8)), &new, Some(7)));
        assert!(!is_own(&file(4, Some(7)), &new, Some(7)));
        // A source without times.
        assert!(!is_own(&file(5, Some(8)), &file(5, None), None));
    }
}
