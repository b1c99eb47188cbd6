//! What storages of objects make of keys, whatever they speak: a folder is what keys have in
//! common, and is looked at, moved and removed by them.

use crate::backend::{CopyItem, CopyOutcome};
use crate::error::{Error, ErrorKind, Result};
use crate::{Entry, Folder, Kind};
use futures_util::{StreamExt, TryStreamExt, stream};

/// Copies and removals at once.
const MAX_CONCURRENT: usize = 8;

/// An object that was listed.
pub(crate) struct ListedKey {
    pub(crate) key: Vec<u8>,
    /// `None`: nobody asked.
    pub(crate) size: Option<u64>,
}

/// A bucket, a container, or what is below a prefix in it.
pub(crate) trait ObjectStore: Sync {
    /// What every key begins with.
    fn root(&self) -> &[u8];

    /// Whether the bucket itself is there.
    fn check(&self) -> impl Future<Output = Result<()>> + Send;

    /// What the object of a key is.
    fn entry(&self, key: &[u8], name: &[u8]) -> impl Future<Output = Result<Entry>> + Send;

    /// Whether any key begins with this. `path` is how errors call it.
    fn any_below(&self, path: &[u8], prefix: &[u8]) -> impl Future<Output = Result<bool>> + Send;

    /// Some of the keys that begin with this; none only if there are none.
    fn list_prefix(&self, prefix: &[u8]) -> impl Future<Output = Result<Vec<ListedKey>>> + Send;

    /// Copies an object inside, with all that belongs to it.
    fn copy(&self, from: &ListedKey, target: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Removes an object, if it is there.
    fn delete(&self, key: &[u8]) -> impl Future<Output = Result<()>> + Send;

    /// Removes objects below a prefix.
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

    /// The key of an entry. A file beside a folder of the same name has a slash at the end of its
    /// name, which no key's name has otherwise.
    fn key(&self, folder: &Folder, name: &[u8]) -> Vec<u8> {
        let name = name.strip_suffix(b"/").unwrap_or(name);
        [self.root(), folder.as_bytes(), name].concat()
    }
}

/// What something is: an object, or a folder if there are objects below it.
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
                looked => return looked,
            }
            (folder.child(name), name.to_vec())
        }
    };
    let prefix = store.prefix(&child);
    match store.any_below(child.as_bytes(), &prefix).await? {
        true => Ok(Entry::new(called, Kind::Folder)),
        false => {
            let path = folder.join(name.unwrap_or_default());
            let message = "there is no such object, and none below it";
            Err(Error::new(ErrorKind::NotFound, "look at", &path, message))
        }
    }
}

/// Copies what was ordered, each by itself.
pub(crate) async fn copy_all<F: Future<Output = Result<Entry>>>(
    items: &[CopyItem],
    copy: impl Fn(&CopyItem) -> F,
) -> Vec<Result<CopyOutcome>> {
    let copies: Vec<_> = items.iter().map(copy).collect();
    let copies = stream::iter(copies).buffered(MAX_CONCURRENT);
    let copied = copies.map(|copied| match copied {
        Ok(entry) => Ok(CopyOutcome::Done(entry)),
        Err(error) if error.kind() == ErrorKind::Changed => Ok(CopyOutcome::Changed),
        Err(error) => Err(error),
    });
    copied.collect().await
}

/// Removes a folder with all that is in it, or an object.
pub(crate) async fn remove(store: &impl ObjectStore, folder: &Folder, name: &[u8]) -> Result<()> {
    if !name.ends_with(b"/") && remove_below(store, &store.prefix(&folder.child(name))).await? {
        return Ok(());
    }
    store.delete(&store.key(folder, name)).await
}

/// Removes every key that begins with a prefix. Answers whether there was any.
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

/// Moves an object, or all that is in a folder, never onto something else.
pub(crate) async fn rename(store: &impl ObjectStore, from: &[u8], target: &[u8]) -> Result<()> {
    let (below, whole) = ([from, b"/"].concat(), [target, b"/"].concat());
    let taken = match store.entry(target, b"").await {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            store.any_below(&whole, &whole).await?
        }
        Err(error) => return Err(error),
    };
    if taken {
        let message = "there is something of that name";
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
            let to = [whole.as_slice(), &from.key[below.len()..]].concat();
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
