//! A client: its connections, made on demand and again when they break, and retries of calls.

use super::address::Address;
use super::connection::{Connection, Counts, Failure};
use super::packet::{self, Attributes, Packet, Reply, Status};
use super::ssh::Ssh;
use crate::backend::Requests;
use crate::cloud::RetryPolicy;
use crate::error::{Error, ErrorKind, Result};
use crate::{Entry, Folder, Kind, Posix, Space};
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

/// Concurrent syncs of folders.
const MAX_CONCURRENT_SYNCS: usize = 16;
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const KINDS: u32 = 0o170_000;

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Connection>>>>;

pub(super) struct Client {
    pub(super) ssh: Ssh,
    root: Vec<u8>,
    slots: Vec<Slot>,
    /// Number of users per slot.
    users: Arc<Mutex<Vec<usize>>>,
    /// A refused login is not tried again: servers lock out clients that try too often.
    refused: Mutex<Option<(ErrorKind, String)>>,
    retries: RetryPolicy,
    counts: Arc<Counts>,
    /// Folders in which names changed since the last sync.
    changed_folders: Mutex<BTreeSet<Vec<u8>>>,
}

/// A connection in use.
pub(super) struct PooledConnection {
    connection: Arc<Connection>,
    _slot_use: SlotUse,
}

/// A use of a connection slot.
struct SlotUse {
    slot: usize,
    users: Arc<Mutex<Vec<usize>>>,
}

impl Deref for PooledConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for SlotUse {
    fn drop(&mut self) {
        self.users.lock()[self.slot] -= 1;
    }
}

/// An open file or folder, closed when it is dropped.
pub(super) struct Handle {
    pub(super) connection: Arc<PooledConnection>,
    pub(super) bytes: Bytes,
    closed: bool,
}

impl Handle {
    fn new(
        connection: Arc<PooledConnection>,
        reply: Reply,
    ) -> std::result::Result<Handle, Failure> {
        match reply {
            Reply::Handle(bytes) => Ok(Handle {
                connection,
                bytes,
                closed: false,
            }),
            _ => Err(unexpected_reply()),
        }
    }

    /// Returns the packet that closes it, where the result matters.
    pub(super) fn close(&mut self) -> Packet {
        self.closed = true;
        Packet::close(&self.bytes)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.closed {
            let packet = Packet::close(&self.bytes);
            self.connection.send_ignoring_reply(packet);
        }
    }
}

/// Returns the failure for a reply of the wrong kind.
pub(super) fn unexpected_reply() -> Failure {
    let message = "the server sent an unexpected reply".to_owned();
    Failure::Wrong(ErrorKind::Temporary, message)
}

pub(super) async fn open(
    connection: Arc<PooledConnection>,
    packet: Packet,
) -> std::result::Result<Handle, Failure> {
    let reply = connection.request(packet).await?;
    Handle::new(connection, reply)
}

pub(super) async fn attributes(
    connection: &PooledConnection,
    packet: Packet,
) -> std::result::Result<Attributes, Failure> {
    match connection.request(packet).await? {
        Reply::Attributes(attributes) => Ok(attributes),
        _ => Err(unexpected_reply()),
    }
}

/// Reads the target of a symlink.
pub(super) async fn read_target(
    connection: &PooledConnection,
    path: &[u8],
    entry: &mut Entry,
) -> std::result::Result<(), Failure> {
    // A time that cannot be set is not compared.
    entry.modified = entry.modified.filter(|_| connection.extensions.lsetstat);
    match connection.request(Packet::read_link(path)).await? {
        Reply::Names(names) if names.len() == 1 => {
            entry.target = Some(names[0].name.to_vec());
            Ok(())
        }
        _ => Err(unexpected_reply()),
    }
}

/// Returns the entry for attributes, without the target of a symlink.
pub(super) fn entry(name: &[u8], found: &Attributes) -> std::result::Result<Entry, Failure> {
    let Some(mode) = found.mode else {
        let message = "the server does not report the type".to_owned();
        return Err(Failure::Wrong(ErrorKind::Unsupported, message));
    };
    let kind = match mode & KINDS {
        FOLDER => Kind::Folder,
        FILE => Kind::File,
        SYMLINK => Kind::Symlink,
        _ => Kind::Special,
    };
    let (uid, gid) = found.owner.unwrap_or_default();
    Ok(Entry {
        size: match kind {
            Kind::File => found.size.unwrap_or(0),
            _ => 0,
        },
        modified: found.modified.map(|at| i64::from(at) * 1_000_000_000),
        posix: Some(Posix {
            mode,
            uid,
            gid,
            device: 0,
        }),
        ..Entry::new(name, kind)
    })
}

/// Returns the entry of a path, with the target of a symlink.
pub(super) async fn stat_entry(
    connection: &PooledConnection,
    path: &[u8],
    name: &[u8],
) -> std::result::Result<Entry, Failure> {
    let found = attributes(connection, Packet::lstat(path)).await?;
    let mut entry = entry(name, &found)?;
    if entry.kind == Kind::Symlink {
        read_target(connection, path, &mut entry).await?;
    }
    Ok(entry)
}

impl Client {
    /// `get` reads an environment variable.
    pub(super) fn open(
        location: &[u8],
        get: &dyn Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Client> {
        let address = Address::parse(location)?;
        let (root, connections) = (address.root.clone(), address.connections);
        let ssh = Ssh::new(address, get).map_err(|error| {
            let message = format!("cannot create the askpass program: {error}");
            Error::new(ErrorKind::Other, "open", location, message)
        })?;
        Ok(Client {
            ssh,
            root,
            slots: (0..connections).map(|_| Slot::default()).collect(),
            users: Arc::new(Mutex::new(vec![0; connections])),
            refused: Mutex::default(),
            retries: RetryPolicy::default(),
            counts: Arc::default(),
            changed_folders: Mutex::default(),
        })
    }

    pub(super) fn requests(&self) -> Requests {
        self.counts.lock().iter().map(|(k, n)| (*k, *n)).collect()
    }

    /// Returns the path on the server.
    pub(super) fn path(&self, folder: &Folder, name: Option<&[u8]>) -> Result<Vec<u8>> {
        let is_unexpected_reply =
            |name: &[u8]| matches!(name, b"" | b"." | b"..") || name.contains(&0);
        if folder.names().chain(name).any(is_unexpected_reply) {
            let message = "a name in the path cannot exist on the server";
            let below = folder.join(name.unwrap_or_default());
            return Err(Error::new(ErrorKind::BadName, "open", &below, message));
        }
        let mut path = [self.root.as_slice(), &folder.join(name.unwrap_or_default())].concat();
        if path.len() > 1 && path.ends_with(b"/") {
            path.pop();
        }
        match path.is_empty() {
            true => Ok(b".".to_vec()),
            false => Ok(path),
        }
    }

    /// Returns a path for errors: relative to the root, if it is below it.
    fn display_path<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        match path.strip_prefix(self.root.as_slice()) {
            Some(below) if !below.is_empty() => below,
            _ => path,
        }
    }

    pub(super) fn failure(&self, operation: &'static str, path: &[u8], failure: Failure) -> Error {
        failure.error(operation, self.display_path(path))
    }

    /// Returns the connection with the fewest users.
    async fn connection(&self) -> std::result::Result<Arc<PooledConnection>, Failure> {
        let slot = {
            let mut users = self.users.lock();
            let fewest = (0..users.len()).min_by_key(|&slot| users[slot]);
            let slot = fewest.unwrap_or_default();
            users[slot] += 1;
            slot
        };
        let slot_use = SlotUse {
            slot,
            users: self.users.clone(),
        };
        // Others that want this slot wait for the same connection.
        let mut slot = self.slots[slot].lock().await;
        let connection = match slot.as_ref().filter(|open| !open.is_broken()) {
            Some(open) => open.clone(),
            None => {
                let opened = Arc::new(self.connect().await?);
                slot.insert(opened).clone()
            }
        };
        Ok(Arc::new(PooledConnection {
            connection,
            _slot_use: slot_use,
        }))
    }

    async fn connect(&self) -> std::result::Result<Connection, Failure> {
        if let Some((kind, message)) = self.refused.lock().clone() {
            return Err(Failure::Lost(kind, message));
        }
        let opened = Connection::open(&self.ssh, self.counts.clone()).await;
        if let Err(Failure::Lost(kind, message)) = &opened
            && *kind != ErrorKind::Temporary
        {
            *self.refused.lock() = Some((*kind, message.clone()));
        }
        opened
    }

    /// Runs an operation on a connection, and again if it breaks. `work` receives the number of the
    /// attempt, because an operation whose reply was lost may have been executed.
    pub(super) async fn with_retries<T, F>(
        &self,
        operation: &'static str,
        path: &[u8],
        work: impl Fn(Arc<PooledConnection>, u32) -> F,
    ) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, Failure>>,
    {
        let work = &work;
        self.retries
            .run(|attempt| async move {
                let done = match self.connection().await {
                    Ok(connection) => work(connection, attempt).await,
                    Err(failure) => Err(failure),
                };
                done.map_err(|failure| self.failure(operation, path, failure))
            })
            .await
    }

    pub(super) async fn stat_entry(&self, path: &[u8], name: &[u8]) -> Result<Entry> {
        self.with_retries("look at", path, |connection, _| async move {
            stat_entry(&connection, path, name).await
        })
        .await
    }

    /// Returns the entry of the root, which alone may be a symlink to a folder.
    pub(super) async fn root(&self) -> Result<Entry> {
        let path = self.path(&Folder::root(), None)?;
        let path = path.as_slice();
        self.with_retries("look at", path, |connection, _| async move {
            entry(b"", &attributes(&connection, Packet::stat(path)).await?)
        })
        .await
    }

    pub(super) async fn space(&self) -> Result<Option<Space>> {
        let root = self.path(&Folder::root(), None)?;
        let root = root.as_slice();
        self.with_retries(
            "ask for the free space of",
            root,
            |connection, _| async move {
                if !connection.extensions.space {
                    return Ok(None);
                }
                match connection.request(Packet::space(root)).await? {
                    Reply::Extended(body) => Ok(packet::parse_space(body)),
                    _ => Err(unexpected_reply()),
                }
            },
        )
        .await
        .map(|free| free.map(|(bytes, entries)| Space { bytes, entries }))
    }

    /// Explains a failure without a cause: the protocol has no status for a full disk, so the free
    /// space is checked.
    pub(super) async fn explain_failure(&self, failure: Failure, wanted: u64) -> Failure {
        if !failure.is(Status::FAILURE) {
            return failure;
        }
        match self.space().await {
            Ok(Some(space)) if space.bytes < wanted || space.entries == Some(0) => {
                let message = "no space left on the server".to_owned();
                Failure::Wrong(ErrorKind::NoSpace, message)
            }
            _ => failure,
        }
    }

    /// Records that the parent of a path changed.
    pub(super) fn mark_changed(&self, path: &[u8]) {
        let cut = path.iter().rposition(|&byte| byte == b'/');
        let parent = match cut {
            None => &b"."[..],
            Some(0) => b"/",
            Some(cut) => &path[..cut],
        };
        let mut changed_folders = self.changed_folders.lock();
        if !changed_folders.contains(parent) {
            changed_folders.insert(parent.to_vec());
        }
    }

    /// Makes names durable. The contents of files were synced before they got their names.
    pub(super) async fn sync(&self) -> Result<()> {
        let folders = std::mem::take(&mut *self.changed_folders.lock());
        let sync = |folder| {
            self.with_retries("sync", folder, move |connection, _| {
                sync_folder(connection, folder)
            })
        };
        let all = stream::iter(folders.iter().map(Vec::as_slice).map(Ok));
        let synced = all
            .try_for_each_concurrent(MAX_CONCURRENT_SYNCS, sync)
            .await;
        if synced.is_err() {
            self.changed_folders.lock().extend(folders);
        }
        synced
    }
}

/// Syncs a folder. Most servers allow to open a folder like a file and sync it; others have no way
/// to do it.
async fn sync_folder(
    connection: Arc<PooledConnection>,
    folder: &[u8],
) -> std::result::Result<(), Failure> {
    if !connection.extensions.sync {
        return Ok(());
    }
    let handle = match open(connection, Packet::open(folder, packet::READ, None)).await {
        Err(Failure::Refused(_)) => return Ok(()),
        opened => opened?,
    };
    match handle.connection.request(Packet::sync(&handle.bytes)).await {
        Err(Failure::Refused(_)) => Ok(()),
        synced => synced.map(drop),
    }
}
