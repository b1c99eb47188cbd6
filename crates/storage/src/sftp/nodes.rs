//! Folders, symlinks, attributes, and moving and removing entries.

use super::client::{Client, PooledConnection, attributes, entry, stat_entry, unexpected_reply};
use super::connection::Failure;
use super::packet::{Attributes, Packet, Reply, Status};
use crate::backend::{CopyItem, Precondition};
use crate::error::{Error, ErrorKind, Result};
use crate::expected::{is_own, may_set_attributes};
use crate::{Entry, Folder, Kind};
use std::sync::Arc;

type Done<T> = std::result::Result<T, Failure>;

/// Returns the attributes of an entry in the order in which they must be set: a change of the owner
/// clears permission bits.
pub(super) fn attribute_steps(like: &Entry, owners: bool) -> Vec<Attributes> {
    let posix = like.posix;
    let owner = Attributes {
        owner: posix.filter(|_| owners).map(|posix| (posix.uid, posix.gid)),
        ..Attributes::default()
    };
    let rest = Attributes {
        mode: posix
            .filter(|_| like.kind != Kind::Symlink)
            .map(|posix| posix.permissions()),
        modified: like.modified.map(seconds),
        ..Attributes::default()
    };
    let all = [owner, rest].into_iter();
    all.filter(|set| *set != Attributes::default()).collect()
}

const SECOND: i64 = 1_000_000_000;

/// Times before 1970 and after 2106 are clamped.
fn seconds(modified: i64) -> u32 {
    let seconds = modified.div_euclid(SECOND);
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// Moves an entry, replacing an existing one.
pub(super) async fn replace(connection: &PooledConnection, from: &[u8], to: &[u8]) -> Done<()> {
    if connection.extensions.replace {
        return connection
            .request(Packet::replace(from, to))
            .await
            .map(drop);
    }
    // Without the extension, the old entry must be removed first.
    match connection.request(Packet::rename(from, to)).await {
        Err(failure) if failure.is(Status::FAILURE) => {
            connection.send(Packet::remove(to)).await?.done().await?;
            connection.request(Packet::rename(from, to)).await.map(drop)
        }
        renamed => renamed.map(drop),
    }
}

/// The entry that gets its final name.
pub(super) struct NewEntry<'a> {
    pub(super) temp: &'a [u8],
    pub(super) path: &'a [u8],
    /// The source entry.
    pub(super) like: &'a Entry,
    pub(super) precondition: &'a Precondition,
}

impl NewEntry<'_> {
    /// Renames it in place of the expected entry, and returns it. Another entry stays. The number
    /// of the attempt tells whether an earlier one may have been executed, with its reply lost.
    pub(super) async fn rename(&self, connection: &PooledConnection, attempt: u32) -> Done<Entry> {
        let NewEntry { temp, path, .. } = *self;
        if attempt > 1 && stat(connection, temp, b"").await?.is_none() {
            return self.renamed(connection).await;
        }
        // Only servers that also offer to replace are known never to replace with this request, and
        // only for files: for others OpenSSH looks at the target of a symlink that is in the way.
        let is_strict = connection.extensions.replace && self.like.kind == Kind::File;
        let existing = match self.precondition {
            Precondition::Any => {
                replace(connection, temp, path).await?;
                return self.renamed(connection).await;
            }
            Precondition::Absent if is_strict => None,
            _ => stat(connection, path, &self.like.name).await?,
        };
        let Some(existing) = existing else {
            return match connection.request(Packet::rename(temp, path)).await {
                Ok(_) => self.renamed(connection).await,
                Err(failure) => match stat(connection, path, &self.like.name).await? {
                    Some(existing) => self.replace_expected(connection, &existing).await,
                    None => Err(failure),
                },
            };
        };
        self.replace_expected(connection, &existing).await
    }

    async fn replace_expected(
        &self,
        connection: &PooledConnection,
        existing: &Entry,
    ) -> Done<Entry> {
        let kept = self.like.modified.map(|at| i64::from(seconds(at)) * SECOND);
        let like = Entry {
            modified: kept,
            ..self.like.clone()
        };
        // Where names are folded, a file of this size and time may be another one of the source,
        // copied under another spelling.
        let is_expected = self.precondition.allows(existing)
            || is_own(existing, &like, kept) && is_spelled(connection, self.path).await?;
        if !is_expected {
            let error = Error::conflict("write", self.path);
            return Err(Failure::Wrong(error.kind(), error.cause().to_owned()));
        }
        replace(connection, self.temp, self.path).await?;
        // A rename between two names of one file, which an interrupted rename leaves, does nothing.
        let _ = connection.request(Packet::remove(self.temp)).await;
        self.renamed(connection).await
    }

    async fn renamed(&self, connection: &PooledConnection) -> Done<Entry> {
        stat_entry(connection, self.path, &self.like.name).await
    }
}

/// Returns whether the folder of an existing entry lists it with exactly this name.
async fn is_spelled(connection: &PooledConnection, path: &[u8]) -> Done<bool> {
    let (folder, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at.max(1)], &path[at + 1..]),
        // Relative to the home folder.
        None => (&b"."[..], path),
    };
    let reply = connection.request(Packet::open_folder(folder)).await?;
    let Reply::Handle(handle) = reply else {
        return Err(unexpected_reply());
    };
    let found = loop {
        match connection.request(Packet::read_folder(&handle)).await {
            Ok(Reply::Names(names)) if names.iter().any(|found| found.name == name) => {
                break Ok(true);
            }
            Ok(Reply::Names(_)) => {}
            Ok(_) => break Err(unexpected_reply()),
            Err(failure) if failure.is(Status::END) => break Ok(false),
            Err(failure) => break Err(failure),
        }
    };
    connection.send_ignoring_reply(Packet::close(&handle));
    found
}

/// Returns the entry of a path, if it exists.
async fn stat(connection: &PooledConnection, path: &[u8], name: &[u8]) -> Done<Option<Entry>> {
    match stat_entry(connection, path, name).await {
        Err(failure) if failure.is(Status::NO_SUCH_FILE) => Ok(None),
        found => found.map(Some),
    }
}

async fn make_folder(connection: &PooledConnection, path: &[u8]) -> Done<()> {
    match connection.request(Packet::make_folder(path, 0o700)).await {
        Ok(_) => Ok(()),
        Err(failure) => match attributes(connection, Packet::lstat(path)).await {
            Ok(found) if entry(b"", &found)?.kind == Kind::Folder => Ok(()),
            Ok(_) => {
                let message = "an entry of that name is not a folder".to_owned();
                Err(Failure::Wrong(ErrorKind::Exists, message))
            }
            Err(_) => Err(failure),
        },
    }
}

async fn make_symlink(
    connection: &PooledConnection,
    item: &CopyItem,
    temp: &[u8],
    path: &[u8],
    (owners, attempt): (bool, u32),
) -> Done<Entry> {
    let entry = &item.entry;
    let (Kind::Symlink, Some(target)) = (entry.kind, &entry.target) else {
        let message = "SFTP cannot create devices, pipes or sockets".to_owned();
        return Err(Failure::Wrong(ErrorKind::Unsupported, message));
    };
    // Removes a leftover of an earlier attempt. The link is made again, so an attempt whose rename
    // was executed is recognised by its target.
    let _ = connection.request(Packet::remove(temp)).await;
    connection.request(Packet::symlink(target, temp)).await?;
    if connection.extensions.lsetstat {
        for attributes in attribute_steps(entry, owners) {
            connection
                .request(Packet::lsetstat(temp, &attributes))
                .await?;
        }
    }
    let new = NewEntry {
        temp,
        path,
        like: entry,
        precondition: &item.precondition,
    };
    new.rename(connection, attempt).await
}

impl Client {
    /// Makes a folder that only we can access until its attributes are set, after it is filled.
    pub(super) async fn make_folder(&self, folder: &Folder) -> Result<()> {
        let path = self.path(folder, None)?;
        if folder.is_root() {
            return self.make_root(&path).await;
        }
        let made = self.make_one(&path).await;
        self.mark_changed(&path);
        made
    }

    async fn make_one(&self, path: &[u8]) -> Result<()> {
        self.with_retries("make the folder", path, |connection, _| async move {
            match make_folder(&connection, path).await {
                Err(failure) => Err(self.explain_failure(failure, 1).await),
                made => made,
            }
        })
        .await
    }

    /// Makes the root with its missing ancestors.
    async fn make_root(&self, path: &[u8]) -> Result<()> {
        match self.root().await {
            Ok(root) if root.kind == Kind::Folder => return Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            // Existing ancestors may not be accessible; the last step decides.
            if at > 0 {
                let _ = self.make_one(&path[..at]).await;
            }
        }
        self.make_one(path).await
    }

    pub(super) async fn make_node(&self, folder: &Folder, item: &CopyItem) -> Result<Entry> {
        let path = self.path(folder, Some(&item.entry.name))?;
        let temp = self.path(folder, Some(&item.temp))?;
        let (target, temp, owners) = (path.as_slice(), temp.as_slice(), self.ssh.is_root());
        let make = |connection: Arc<PooledConnection>, attempt| async move {
            match make_symlink(&connection, item, temp, target, (owners, attempt)).await {
                Err(failure @ (Failure::Refused(_) | Failure::Wrong(..))) => {
                    let _ = connection.request(Packet::remove(temp)).await;
                    Err(self.explain_failure(failure, 1).await)
                }
                made => made,
            }
        };
        let made = self.with_retries("make", target, make).await;
        self.mark_changed(target);
        made
    }

    /// Sets time, owner and permissions.
    pub(super) async fn set_attributes(
        &self,
        folder: &Folder,
        name: Option<&[u8]>,
        like: &Entry,
        precondition: &Precondition,
    ) -> Result<Entry> {
        let path = self.path(folder, name)?;
        let (path, owners) = (path.as_slice(), self.ssh.is_root());
        let set = |connection: Arc<PooledConnection>, attempt| async move {
            // An attempt whose reply was lost may have changed the time.
            if attempt == 1 && *precondition != Precondition::Any {
                let existing = stat_entry(&connection, path, &like.name).await?;
                let modified = like.modified.map(|at| i64::from(seconds(at)) * SECOND);
                let like = Entry {
                    modified,
                    ..like.clone()
                };
                if !may_set_attributes(&existing, precondition, &like) {
                    let error = Error::conflict("set attributes of", path);
                    return Err(Failure::Wrong(error.kind(), error.cause().to_owned()));
                }
            }
            for attributes in attribute_steps(like, owners) {
                let packet = match like.kind {
                    Kind::Symlink if !connection.extensions.lsetstat => continue,
                    Kind::Symlink => Packet::lsetstat(path, &attributes),
                    _ => Packet::setstat(path, &attributes),
                };
                connection.request(packet).await?;
            }
            Ok(())
        };
        self.with_retries("set attributes of", path, set).await?;
        self.stat(folder, name).await
    }

    pub(super) async fn stat(&self, folder: &Folder, name: Option<&[u8]>) -> Result<Entry> {
        let path = self.path(folder, name)?;
        match (name, folder.split()) {
            (None, None) => self.root().await,
            (Some(name), _) => self.stat_entry(&path, name).await,
            (None, Some((_, name))) => self.stat_entry(&path, name).await,
        }
    }

    /// Moves an entry, never replacing another. Servers report that like any other failure, so the
    /// target is checked.
    pub(super) async fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let moved = self.with_retries("move", from, |connection, attempt| async move {
            let renamed = connection.request(Packet::rename(from, to)).await;
            let Err(failure) = renamed else {
                return Ok(());
            };
            let exists = attributes(&connection, Packet::lstat(to)).await.is_ok();
            match attempt > 1 && failure.is(Status::NO_SUCH_FILE) && exists {
                // It was moved already, and the reply was lost with the connection.
                true => Ok(()),
                false if exists => {
                    let message = "an entry of that name exists".to_owned();
                    Err(Failure::Wrong(ErrorKind::Exists, message))
                }
                false => Err(failure),
            }
        });
        moved.await?;
        self.mark_changed(from);
        self.mark_changed(to);
        Ok(())
    }

    /// Removes an entry depth first, with a list of folders instead of recursion.
    pub(super) async fn remove(self: &Arc<Self>, folder: &Folder, name: &[u8]) -> Result<()> {
        let path = self.path(folder, Some(name))?;
        match self.stat_entry(&path, name).await {
            Ok(entry) if entry.kind == Kind::Folder => {}
            Ok(_) => return self.remove_one(&path, Packet::remove).await,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut left = vec![folder.child(name)];
        while let Some(last) = left.last().cloned() {
            let below = self.remove_files_in(&last).await?;
            if below.is_empty() {
                let path = self.path(&last, None)?;
                self.remove_one(&path, Packet::remove_folder).await?;
                left.pop();
            }
            left.extend(below);
        }
        Ok(())
    }

    async fn remove_one(&self, path: &[u8], packet: fn(&[u8]) -> Packet) -> Result<()> {
        self.mark_changed(path);
        let remove = |connection: Arc<PooledConnection>, _| async move {
            match connection.request(packet(path)).await {
                Err(failure) if failure.is(Status::NO_SUCH_FILE) => Ok(()),
                removed => removed.map(drop),
            }
        };
        self.with_retries("remove", path, remove).await
    }

    /// Removes everything but folders from a folder, and returns those.
    async fn remove_files_in(self: &Arc<Self>, folder: &Folder) -> Result<Vec<Folder>> {
        use crate::backend::Listing;
        let mut listing = super::listing::SftpListing::new(self.clone(), folder)?;
        let mut folders = Vec::new();
        while let Some(page) = listing.next().await? {
            for entry in page.entries {
                match entry.kind {
                    Kind::Folder => folders.push(folder.child(&entry.name)),
                    _ => {
                        let path = self.path(folder, Some(&entry.name))?;
                        self.remove_one(&path, Packet::remove).await?;
                    }
                }
            }
        }
        Ok(folders)
    }

    /// Returns the time by the server's clock: that of a folder which is made and removed. The time
    /// of the root stays as it was.
    pub(super) async fn clock(&self) -> Option<i64> {
        let before = self.root().await.ok()?;
        let name = format!(".headworks-probe-{:016x}", fastrand::u64(..));
        let path = self.path(&Folder::root(), Some(name.as_bytes())).ok()?;
        self.make_one(&path).await.ok()?;
        let made = self.stat_entry(&path, name.as_bytes()).await;
        let _ = self.remove_one(&path, Packet::remove_folder).await;
        let like = Entry {
            posix: None,
            ..before
        };
        let any = Precondition::Any;
        let _ = self
            .set_attributes(&Folder::root(), None, &like, &any)
            .await;
        made.ok()?.modified
    }

    /// Checks that the root is a folder. Only an attempt would tell whether it is writable.
    pub(super) async fn writable(&self) -> Result<()> {
        match self.root().await?.kind {
            Kind::Folder => Ok(()),
            _ => {
                let path = self.path(&Folder::root(), None)?;
                let message = "not a folder";
                Err(Error::new(
                    ErrorKind::WrongKind,
                    "write into",
                    &path,
                    message,
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Posix;

    #[test]
    fn owners_are_set_before_permissions_and_times_fit() {
        let mut like = Entry::new(*b"x", Kind::File);
        assert!(attribute_steps(&like, true).is_empty());
        like.modified = Some(-1);
        like.posix = Some(Posix {
            mode: 0o104_755,
            uid: 7,
            gid: 8,
            device: 0,
        });
        let steps = attribute_steps(&like, true);
        assert_eq!((steps[0].owner, steps[0].mode), (Some((7, 8)), None));
        assert_eq!((steps[1].mode, steps[1].modified), (Some(0o4755), Some(0)));
        assert_eq!(attribute_steps(&like, false).len(), 1);
        assert_eq!(seconds(i64::MAX), u32::MAX);
        assert_eq!(seconds(1_999_999_999), 1);
    }
}
