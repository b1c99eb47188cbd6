//! The check of one entry.

use super::{DAMAGED, MISSING, OTHER_XATTRS};
use crate::preserve::Preserve;
use crate::status::{Comparison, Status};
use crate::store::{FolderId, Pair};
use futures_util::FutureExt;
use headworks_storage::{Backend, Entry, ErrorKind, Folder, Kind, display};
use sha2::{Digest, Sha256};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

/// An entry to check.
pub(super) struct EntryCheck {
    pub(super) pair: Pair,
    pub(super) hash: Option<Vec<u8>>,
    pub(super) read: bool,
    /// The location of the first name of its file.
    pub(super) first: Option<(Folder, Vec<u8>)>,
    pub(super) source: Arc<dyn Backend>,
    pub(super) destination: Arc<dyn Backend>,
    pub(super) compare: Comparison,
    /// Which extended attributes to compare, if any.
    pub(super) xattrs: Option<Preserve>,
    /// The attributes that the destination refused to keep, as the copy reported.
    pub(super) lost: Vec<String>,
}

pub(super) struct CheckResult {
    pub(super) parent: FolderId,
    pub(super) name: Vec<u8>,
    pub(super) path: Vec<u8>,
    pub(super) reason: Option<String>,
    pub(super) hash: Option<(Vec<u8>, i64, Option<i64>)>,
    pub(super) bytes: u64,
}

impl EntryCheck {
    pub(super) async fn run(self) -> CheckResult {
        // A check that panics has checked nothing, and its entry must not count as verified.
        let compared = AssertUnwindSafe(self.compare()).catch_unwind().await;
        let (reason, hash) = match compared {
            Ok(Ok(result)) => result,
            Ok(Err(error)) => (Some(format!("cannot read: {}", error.cause())), None),
            Err(_panic) => (
                Some("cannot check: an internal error, see the log".to_owned()),
                None,
            ),
        };
        let hash = hash.map(|hash| {
            (
                hash,
                self.pair.entry.size.cast_signed(),
                self.pair.entry.modified,
            )
        });
        CheckResult {
            parent: self.pair.parent,
            path: self.pair.path(),
            reason,
            bytes: if hash.is_some() {
                self.pair.entry.size
            } else {
                0
            },
            hash,
            name: self.pair.entry.name,
        }
    }

    async fn compare(&self) -> headworks_storage::Result<(Option<String>, Option<Vec<u8>>)> {
        let (folder, entry) = (&*self.pair.folder, &self.pair.entry);
        // Where folders are common prefixes of keys, a lookup of a key of that name would be
        // wasted.
        let derived = entry.kind == Kind::Folder && !self.compare.destination.folders;
        let below = folder.child(&entry.name);
        let stat = match derived {
            true => self.destination.stat(&below, None).await,
            false => self.destination.stat(folder, Some(&entry.name)).await,
        };
        let existing = match stat {
            Ok(existing) => existing,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok((Some(MISSING.into()), None));
            }
            Err(error) => return Err(error),
        };
        let status = compare_entries(&self.compared_attributes(), entry, &existing);
        if status != Status::Same {
            return Ok((Some(status.word().into()), None));
        }
        if !self.xattrs_are_equal().await? {
            return Ok((Some(OTHER_XATTRS.into()), None));
        }
        if let Some((folder, name)) = &self.first {
            let first = self.destination.stat(folder, Some(name)).await?;
            if existing.inode.is_none() || first.inode != existing.inode {
                return Ok((Some("different (link)".into()), None));
            }
        }
        if !self.read || entry.kind != Kind::File {
            return Ok((None, None));
        }
        let found = self.hash_of(&*self.destination).await?;
        let wanted = match &self.hash {
            Some(hash) => hash.clone(),
            None => self.hash_of(&*self.source).await?,
        };
        match found == wanted {
            true => Ok((None, Some(found))),
            false => Ok((Some(DAMAGED.into()), Some(found))),
        }
    }

    /// Returns the comparison without the attributes that are known not to be kept.
    fn compared_attributes(&self) -> Comparison {
        let mut compare = self.compare;
        for lost in &self.lost {
            match lost.as_str() {
                "owner" => compare.owners = false,
                "permissions" => compare.posix = false,
                "time" => compare.precision = None,
                _ => {}
            }
        }
        compare
    }

    /// Compares extended attributes, which no listing contains.
    async fn xattrs_are_equal(&self) -> headworks_storage::Result<bool> {
        let Some(preserve) = self.xattrs else {
            return Ok(true);
        };
        let (folder, name) = (&*self.pair.folder, Some(self.pair.entry.name.as_slice()));
        let here = match self.source.extended(folder, name).await {
            // The source changed since the plan, which is no fault of the destination.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(true),
            here => here?,
        };
        let there = self.destination.extended(folder, name).await?;
        let is_compared = |(name, _): &&(Vec<u8>, Vec<u8>)| {
            let is_lost = self.lost.contains(&format!("xattr {}", display(name)));
            let is_asked = match name.starts_with(b"system.posix_acl_") {
                true => preserve.acls,
                false => preserve.xattrs,
            };
            is_asked && !is_lost && name != b"security.selinux"
        };
        let here = here.iter().filter(is_compared);
        Ok(here.eq(there.iter().filter(is_compared)))
    }

    async fn hash_of(&self, backend: &dyn Backend) -> headworks_storage::Result<Vec<u8>> {
        let (folder, entry) = (&*self.pair.folder, &self.pair.entry);
        let mut chunks = backend.read(folder, &entry.name, 0, entry.size).await?;
        let mut hasher = Sha256::new();
        let mut received = 0;
        while let Some(chunk) = chunks.next().await? {
            received += chunk.len() as u64;
            hasher.update(&chunk);
        }
        match received == entry.size {
            true => Ok(hasher.finalize().to_vec()),
            // Two sides that end at the same offset would look equal.
            false => Err(headworks_storage::Error::truncated(
                &self.pair.path(),
                received,
                entry.size,
            )),
        }
    }
}

/// Compares the entry that must exist with the one that does.
pub(super) fn compare_entries(compare: &Comparison, entry: &Entry, existing: &Entry) -> Status {
    // Times of a destination that keeps none are those of the upload.
    if compare.destination.modified.is_none() {
        let timeless = Entry {
            modified: None,
            ..existing.clone()
        };
        return compare.difference(entry, &timeless);
    }
    compare.difference(entry, existing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::DstState;
    use crate::store::{ROOT, Selection};
    use headworks_storage::{BoxFuture, Capabilities, Chunks, Cursor, Listing, Result};
    use std::any::Any;

    /// A storage with a bug.
    struct Panicking;

    fn fail() -> headworks_storage::Error {
        panic!("a bug in a storage")
    }

    impl Backend for Panicking {
        fn capabilities(&self) -> Capabilities {
            Capabilities::read_only()
        }

        fn as_any(&self) -> &dyn Any {
            self
        }

        fn list<'a>(
            &'a self,
            _: &'a Folder,
            _: Option<&'a Cursor>,
        ) -> BoxFuture<'a, Result<Box<dyn Listing>>> {
            unreachable!("nothing is listed")
        }

        fn stat<'a>(&'a self, _: &'a Folder, _: Option<&'a [u8]>) -> BoxFuture<'a, Result<Entry>> {
            Box::pin(async { Err(fail()) })
        }

        fn read<'a>(
            &'a self,
            _: &'a Folder,
            _: &'a [u8],
            _: u64,
            _: u64,
        ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
            unreachable!("nothing is read")
        }
    }

    #[tokio::test]
    async fn a_check_that_panics_is_a_difference() {
        let entry = Entry::new(*b"file", Kind::File);
        let pair = Pair {
            parent: ROOT,
            folder: Arc::new(Folder::root()),
            parent_dst: DstState::Successful,
            entry: entry.clone(),
            selection: Selection::Included,
            child: None,
            child_src: None,
            existing: Some(entry),
            copied: 0,
            failure: None,
        };
        let backend: Arc<dyn Backend> = Arc::new(Panicking);
        let capabilities = backend.capabilities();
        let check = EntryCheck {
            pair,
            hash: None,
            read: false,
            first: None,
            source: backend.clone(),
            destination: backend,
            compare: Comparison::new(capabilities, capabilities, false),
            xattrs: None,
            lost: Vec::new(),
        };
        let result = check.run().await;
        assert!(
            result
                .reason
                .is_some_and(|reason| reason.contains("internal error"))
        );
        assert_eq!(result.hash, None);
    }
}
