//! Folders in object stores of any protocol: a folder is a common prefix of keys, and is looked up,
//! moved and removed by them.

use crate::backend::{CopyItem, CopyOutcome, Precondition};
use crate::error::{Error, ErrorKind, Result};
use crate::expected::is_own;
use crate::{Entry, Folder, Kind};
use futures_util::{StreamExt, TryStreamExt, stream};

/// Concurrent copies and removals.
const MAX_CONCURRENT: usize = 8;

/// A listed object.
pub(crate) struct ListedKey {
    pub(crate) key: Vec<u8>,
    /// Its size, if requested.
    pub(crate) size: Option<u64>,
}

/// A bucket or container, or a prefix in it.
pub(crate) trait ObjectStore: Sync {
    /// Returns the prefix of every key.
    fn root(&self) -> &[u8];

    /// Checks that the bucket exists.
    fn check(&self) -> impl Future<Output = Result<()>> + Send;

    /// Returns the entry of an object.
    fn entry(&self, key: &[u8], name: &[u8]) -> impl Future<Output = Result<Entry>> + Send;

    /// Returns whether any key has this prefix. `path` is its name in errors.
    fn any_below(&self, path: &[u8], prefix: &[u8]) -> impl Future<Output = Result<bool>> + Send;

    /// Returns some keys with this prefix; the list is empty only at the end.
    fn list_prefix(&self, prefix: &[u8]) -> impl Future<Output = Result<Vec<ListedKey>>> + Send;

    /// Copies an object within the store, with its metadata.
    fn copy(&self, from: &ListedKey, target: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Removes an object, if it exists.
    fn delete(&self, key: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Removes objects with a prefix.
    fn delete_all(
        &self,
        _prefix: &[u8],
        keys: &[ListedKey],
    ) -> impl Future<Output = Result<()>> + Send {
        let removals: Vec<_> = keys.iter().map(|key| Ok(self.delete(&key.key))).collect();
        stream::iter(removals)
            .try_buffer_unordered(MAX_CONCURRENT)
            .try_collect()
    }

    fn prefix(&self, folder: &Folder) -> Vec<u8> {
        [self.root(), folder.as_bytes()].concat()
    }

    /// Returns the key of an entry. A file next to a folder of the same name has a slash at the end
    /// of its name, as no other file.
    fn key(&self, folder: &Folder, name: &[u8]) -> Vec<u8> {
        let name = name.strip_suffix(b"/").unwrap_or(name);
        [self.root(), folder.as_bytes(), name].concat()
    }
}

/// Returns the entry of an object, or of a folder if objects exist below it.
pub(crate) async fn stat(
    store: &impl ObjectStore,
    folder: &Folder,
    name: Option<&[u8]>,
) -> Result<Entry> {
    let (child, called) = match name {
        None if folder.is_root() => {
            store.check().await?;
            return Ok(Entry::new(Vec::new(), Kind::Folder));
        }
        None => (folder.clone(), Vec::new()),
        Some(name) => {
            match store.entry(&store.key(folder, name), name).await {
                Err(error) if error.kind() == ErrorKind::NotFound && !name.ends_with(b"/") => {}
                found => return found,
            }
            (folder.child(name), name.to_vec())
        }
    };
    let prefix = store.prefix(&child);
    match store.any_below(child.as_bytes(), &prefix).await? {
        true => Ok(Entry::new(called, Kind::Folder)),
        false => {
            let path = folder.join(name.unwrap_or_default());
            let message = "no object has this key or prefix";
            Err(Error::new(ErrorKind::NotFound, "look at", &path, message))
        }
    }
}

/// Copies items, each with its own call.
pub(crate) async fn copy_all<F: Future<Output = Result<CopyOutcome>>>(
    items: &[CopyItem],
    copy: impl Fn(&CopyItem) -> F,
) -> Vec<Result<CopyOutcome>> {
    let copies: Vec<_> = items.iter().map(copy).collect();
    let copies = stream::iter(copies).buffered(MAX_CONCURRENT);
    copies.collect().await
}

/// Returns the outcome of a server-side copy whose only condition is the version of its source.
pub(crate) fn copied(result: Result<Entry>) -> Result<CopyOutcome> {
    match result {
        Ok(entry) => Ok(CopyOutcome::Done(entry)),
        Err(error) if error.kind() == ErrorKind::Changed => Ok(CopyOutcome::Changed),
        Err(error) => Err(error),
    }
}

/// Fails if the object that a server-side call is about to replace is not the expected one. Such
/// calls have no conditions of their own that all services support. `source` is the object to be
/// copied: an equal one at the target is our own, from a run that died before it was recorded.
pub(crate) async fn check_target(
    store: &impl ObjectStore,
    key: &[u8],
    name: &[u8],
    precondition: &Precondition,
    source: Option<&Entry>,
) -> Result<()> {
    if *precondition == Precondition::Any {
        return Ok(());
    }
    let existing = match store.entry(key, name).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        existing => existing?,
    };
    let is_copy = |source: &Entry| {
        let same_version = existing.etag().is_some() && existing.etag() == source.etag();
        let same_bytes = same_version && existing.size == source.size;
        same_bytes || is_own(&existing, source, source.modified)
    };
    match precondition.allows(&existing) || source.is_some_and(is_copy) {
        true => Ok(()),
        false => Err(Error::conflict("write", key)),
    }
}

/// Removes an object, or a folder with everything in it.
pub(crate) async fn remove(store: &impl ObjectStore, folder: &Folder, name: &[u8]) -> Result<()> {
    if !name.ends_with(b"/") && remove_below(store, &store.prefix(&folder.child(name))).await? {
        return Ok(());
    }
    store.delete(&store.key(folder, name)).await
}

/// Removes all keys with a prefix. Returns whether there were any.
async fn remove_below(store: &impl ObjectStore, prefix: &[u8]) -> Result<bool> {
    let mut any = false;
    loop {
        let some = store.list_prefix(prefix).await?;
        if some.is_empty() {
            return Ok(any);
        }
        any = true;
        store.delete_all(prefix, &some).await?;
    }
}

/// Moves an object, or everything in a folder. Never replaces another entry.
pub(crate) async fn rename(store: &impl ObjectStore, from: &[u8], target: &[u8]) -> Result<()> {
    let (below, target_prefix) = ([from, b"/"].concat(), [target, b"/"].concat());
    let taken = match store.entry(target, b"").await {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            store.any_below(&target_prefix, &target_prefix).await?
        }
        Err(error) => return Err(error),
    };
    if taken {
        let message = "an entry of that name exists";
        return Err(Error::new(ErrorKind::Exists, "move to", target, message));
    }
    let mut moved = false;
    loop {
        let some = store.list_prefix(&below).await?;
        if some.is_empty() {
            break;
        }
        moved = true;
        for from in &some {
            let to = [target_prefix.as_slice(), &from.key[below.len()..]].concat();
            move_one(store, from, &to).await?;
        }
    }
    if moved {
        return Ok(());
    }
    let (key, size) = (from.to_vec(), None);
    move_one(store, &ListedKey { key, size }, target).await
}

async fn move_one(store: &impl ObjectStore, from: &ListedKey, target: &[u8]) -> Result<()> {
    store.copy(from, target).await?;
    store.delete(&from.key).await
}
