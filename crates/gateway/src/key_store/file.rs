//! The key file as a store.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use jiff::Timestamp;

use super::KeyStore;
use super::audit::{AuditEntry, AuditFile};
use super::change::{Changed, KeyChange};
use super::table::KeyTable;
use crate::error::Error;
use crate::keys::{KeyFile, lock_beside};

/// A key file, with its audit log beside it.
pub struct FileKeyStore {
    file: Arc<Located>,
}

struct Located {
    path: PathBuf,
    levels: u8,
}

impl FileKeyStore {
    /// The store in the key file `path`, which need not exist. `levels` is the number of classes.
    #[must_use]
    pub fn new(path: &Path, levels: u8) -> FileKeyStore {
        FileKeyStore {
            file: Arc::new(Located {
                path: path.to_path_buf(),
                levels,
            }),
        }
    }

    /// Runs `work` where blocking is allowed.
    fn blocking<'a, R: Send + 'static>(
        &self,
        work: impl FnOnce(&Located) -> Result<R, Error> + Send + 'static,
    ) -> BoxFuture<'a, Result<R, Error>> {
        let file = self.file.clone();
        async move {
            let done = tokio::task::spawn_blocking(move || work(&file)).await;
            done.unwrap_or_else(|cause| Err(Error::KeyInvalid(cause.to_string())))
        }
        .boxed()
    }
}

impl KeyStore for FileKeyStore {
    fn name(&self) -> String {
        format!("`{}`", self.file.path.display())
    }

    fn load(&self) -> BoxFuture<'_, Result<KeyTable, Error>> {
        self.blocking(|file| Ok(KeyFile::read_or_new(&file.path, file.levels)?.into()))
    }

    fn change<'a>(
        &'a self,
        change: &'a KeyChange,
        actor: &'a str,
    ) -> BoxFuture<'a, Result<Changed, Error>> {
        let (change, actor) = (change.clone(), actor.to_owned());
        self.blocking(move |file| file.change(&change, &actor))
    }

    fn audit_log(&self, limit: usize) -> BoxFuture<'_, Result<Vec<AuditEntry>, Error>> {
        self.blocking(move |file| {
            let mut latest = std::collections::VecDeque::new();
            AuditFile::beside(&file.path).read(|entry| {
                if latest.len() == limit {
                    latest.pop_front();
                }
                latest.push_back(entry);
            })?;
            Ok(latest.into_iter().take(limit).collect())
        })
    }
}

impl Located {
    fn change(&self, change: &KeyChange, actor: &str) -> Result<Changed, Error> {
        // Of two processes that read the same file, the second would restore the key that the first
        // revokes.
        let _lock = lock_beside(&self.path)?;
        let audit = AuditFile::beside(&self.path);
        let mut removed = HashSet::new();
        if matches!(change, KeyChange::Import { .. }) {
            audit.read(|entry| {
                if KeyChange::REMOVING.contains(&entry.action.as_str()) {
                    removed.insert(entry.subject);
                }
            })?;
        }
        let mut table: KeyTable = KeyFile::read_or_new(&self.path, self.levels)?.into();
        let changed = table.apply(change, self.levels, &removed)?;
        // Recorded first: after a crash in between the log may have a change that was not made, but
        // no change is missing from it.
        let before = audit.append(&AuditEntry::new(change, actor, Timestamp::now()))?;
        KeyFile::from(table)
            .write(&self.path)
            .inspect_err(|_| audit.truncate(before))?;
        Ok(changed)
    }
}

impl From<KeyFile> for KeyTable {
    fn from(file: KeyFile) -> KeyTable {
        KeyTable {
            keys: file.key,
            tenants: file.tenant,
        }
    }
}

impl From<KeyTable> for KeyFile {
    fn from(table: KeyTable) -> KeyFile {
        KeyFile {
            key: table.keys,
            tenant: table.tenants,
        }
    }
}
