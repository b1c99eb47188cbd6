//! Folders, symlinks, attributes, and moving and removing things.

use super::connection::Failure;
use super::packet::{Attributes, Packet, Status};
use super::server::{Line, Server, attributes, entry, look};
use crate::backend::Order;
use crate::error::{Error, ErrorKind, Result};
use crate::{Entry, Folder, Kind};
use std::sync::Arc;

type Done<T> = std::result::Result<T, Failure>;

/// What makes a file like another, in the order in which it must be set: a change of the owner
/// takes permission bits away.
pub(super) fn dress(like: &Entry, owners: bool) -> Vec<Attributes> {
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

/// Times before 1970 and after 2106 are kept as the nearest that fits.
fn seconds(modified: i64) -> u32 {
    let seconds = modified.div_euclid(1_000_000_000);
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// Moves something in place of what may be there.
pub(super) async fn replace(line: &Line, from: &[u8], to: &[u8]) -> Done<()> {
    if line.offers.replace {
        return line.ask(Packet::replace(from, to)).await.map(drop);
    }
    // Without that, the old has to go before the new can come.
    match line.ask(Packet::rename(from, to)).await {
        Err(failure) if failure.is(Status::FAILURE) => {
            line.send(Packet::remove(to)).await?.done().await?;
            line.ask(Packet::rename(from, to)).await.map(drop)
        }
        renamed => renamed.map(drop),
    }
}

async fn make_folder(line: &Line, path: &[u8]) -> Done<()> {
    match line.ask(Packet::make_folder(path, 0o700)).await {
        Ok(_) => Ok(()),
        Err(failure) => match attributes(line, Packet::lstat(path)).await {
            Ok(found) if entry(b"", &found)?.kind == Kind::Folder => Ok(()),
            Ok(_) => {
                let words = "something of that name is no folder".to_owned();
                Err(Failure::Wrong(ErrorKind::Exists, words))
            }
            Err(_) => Err(failure),
        },
    }
}

async fn make_symlink(
    line: &Line,
    order: &Order,
    temp: &[u8],
    path: &[u8],
    owners: bool,
) -> Done<Entry> {
    let entry = &order.entry;
    let (Kind::Symlink, Some(target)) = (entry.kind, &entry.target) else {
        let words = "the protocol makes no devices, pipes or sockets".to_owned();
        return Err(Failure::Wrong(ErrorKind::Unsupported, words));
    };
    // What an earlier attempt left is in the way.
    let _ = line.ask(Packet::remove(temp)).await;
    line.ask(Packet::symlink(target, temp)).await?;
    if line.offers.lsetstat {
        for attributes in dress(entry, owners) {
            line.ask(Packet::lsetstat(temp, &attributes)).await?;
        }
    }
    replace(line, temp, path).await?;
    look(line, path, &entry.name).await
}

impl Server {
    /// Open for us alone until its attributes are set, when all that belongs in it is there.
    pub(super) async fn make_folder(&self, folder: &Folder) -> Result<()> {
        let path = self.path(folder, None)?;
        if folder.is_root() {
            return self.make_root(&path).await;
        }
        let made = self.make_one(&path).await;
        self.touch(&path);
        made
    }

    async fn make_one(&self, path: &[u8]) -> Result<()> {
        self.attempt("make the folder", path, |line, _| async move {
            match make_folder(&line, path).await {
                Err(failure) => Err(self.explain(failure, 1).await),
                made => made,
            }
        })
        .await
    }

    /// The root itself, with what lacks above it.
    async fn make_root(&self, path: &[u8]) -> Result<()> {
        match self.root().await {
            Ok(root) if root.kind == Kind::Folder => return Ok(()),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        for (at, _) in path.iter().enumerate().filter(|(_, byte)| **byte == b'/') {
            // Those that are there may not be ours to look at; the last step tells.
            if at > 0 {
                let _ = self.make_one(&path[..at]).await;
            }
        }
        self.make_one(path).await
    }

    pub(super) async fn make_node(&self, folder: &Folder, order: &Order) -> Result<Entry> {
        let path = self.path(folder, Some(&order.entry.name))?;
        let temp = self.path(folder, Some(&order.temp))?;
        let (place, temp, owners) = (path.as_slice(), temp.as_slice(), self.ssh.is_root());
        let make = |line: Arc<Line>, _| async move {
            match make_symlink(&line, order, temp, place, owners).await {
                Err(failure @ Failure::Refused(_)) => {
                    let _ = line.ask(Packet::remove(temp)).await;
                    Err(self.explain(failure, 1).await)
                }
                made => made,
            }
        };
        let made = self.attempt("make", place, make).await;
        self.touch(place);
        made
    }

    /// Sets time, owner and permissions.
    pub(super) async fn settle(
        &self,
        folder: &Folder,
        name: Option<&[u8]>,
        like: &Entry,
    ) -> Result<Entry> {
        let path = self.path(folder, name)?;
        let (path, owners) = (path.as_slice(), self.ssh.is_root());
        let set = |line: Arc<Line>, _| async move {
            for attributes in dress(like, owners) {
                let packet = match like.kind {
                    Kind::Symlink if !line.offers.lsetstat => continue,
                    Kind::Symlink => Packet::lsetstat(path, &attributes),
                    _ => Packet::setstat(path, &attributes),
                };
                line.ask(packet).await?;
            }
            Ok(())
        };
        self.attempt("set attributes of", path, set).await?;
        self.stat(folder, name).await
    }

    pub(super) async fn stat(&self, folder: &Folder, name: Option<&[u8]>) -> Result<Entry> {
        let path = self.path(folder, name)?;
        match (name, folder.split()) {
            (None, None) => self.root().await,
            (Some(name), _) => self.look(&path, name).await,
            (None, Some((_, name))) => self.look(&path, name).await,
        }
    }

    /// Never onto something else. Servers call that a failure like any other, so it is looked for.
    pub(super) async fn rename(&self, from: &[u8], to: &[u8]) -> Result<()> {
        let moved = self.attempt("move", from, |line, attempt| async move {
            let renamed = line.ask(Packet::rename(from, to)).await;
            let Err(failure) = renamed else {
                return Ok(());
            };
            let there = attributes(&line, Packet::lstat(to)).await.is_ok();
            match attempt > 1 && failure.is(Status::NO_SUCH_FILE) && there {
                // It was moved already, and the answer was lost with the connection.
                true => Ok(()),
                false if there => {
                    let words = "there is something of that name".to_owned();
                    Err(Failure::Wrong(ErrorKind::Exists, words))
                }
                false => Err(failure),
            }
        });
        moved.await?;
        self.touch(from);
        self.touch(to);
        Ok(())
    }

    /// Depth first, by a list of folders instead of recursion.
    pub(super) async fn remove(self: &Arc<Self>, folder: &Folder, name: &[u8]) -> Result<()> {
        let path = self.path(folder, Some(name))?;
        match self.look(&path, name).await {
            Ok(entry) if entry.kind == Kind::Folder => {}
            Ok(_) => return self.remove_one(&path, Packet::remove).await,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        }
        let mut left = vec![folder.child(name)];
        while let Some(last) = left.last().cloned() {
            let below = self.empty_of_files(&last).await?;
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
        self.touch(path);
        let remove = |line: Arc<Line>, _| async move {
            match line.ask(packet(path)).await {
                Err(failure) if failure.is(Status::NO_SUCH_FILE) => Ok(()),
                removed => removed.map(drop),
            }
        };
        self.attempt("remove", path, remove).await
    }

    /// Removes all but the folders in a folder, and returns those.
    async fn empty_of_files(self: &Arc<Self>, folder: &Folder) -> Result<Vec<Folder>> {
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

    /// Whether the root is a folder into which something could be written. Only who tries knows
    /// more.
    pub(super) async fn writable(&self) -> Result<()> {
        match self.root().await?.kind {
            Kind::Folder => Ok(()),
            _ => {
                let path = self.path(&Folder::root(), None)?;
                let words = "it is not a folder";
                Err(Error::new(ErrorKind::WrongKind, "write into", &path, words))
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
        assert!(dress(&like, true).is_empty());
        like.modified = Some(-1);
        like.posix = Some(Posix {
            mode: 0o104_755,
            uid: 7,
            gid: 8,
            device: 0,
        });
        let steps = dress(&like, true);
        assert_eq!((steps[0].owner, steps[0].mode), (Some((7, 8)), None));
        assert_eq!((steps[1].mode, steps[1].modified), (Some(0o4755), Some(0)));
        assert_eq!(dress(&like, false).len(), 1);
        assert_eq!(seconds(i64::MAX), u32::MAX);
        assert_eq!(seconds(1_999_999_999), 1);
    }
}
