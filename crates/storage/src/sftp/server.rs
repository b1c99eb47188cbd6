//! A server: its connections, made when they are needed and made again when they break, and calls
//! that are tried again.

use super::address::Address;
use super::connection::{Connection, Counts, Failure};
use super::packet::{self, Attributes, Packet, Reply, Status};
use super::ssh::Ssh;
use crate::backend::Requests;
use crate::cloud::Retries;
use crate::error::{Error, ErrorKind, Result};
use crate::{Entry, Folder, Kind, Posix, Space};
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::ops::Deref;
use std::sync::Arc;

/// Folders that are synced at once.
const TOGETHER: usize = 16;
const FOLDER: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const KINDS: u32 = 0o170_000;

type Lane = Arc<tokio::sync::Mutex<Option<Arc<Connection>>>>;

pub(super) struct Server {
    pub(super) ssh: Ssh,
    root: Vec<u8>,
    lanes: Vec<Lane>,
    /// How many use each lane.
    users: Arc<Mutex<Vec<usize>>>,
    /// Who was refused once is not tried again: hosts lock out those who knock too often.
    refused: Mutex<Option<(ErrorKind, String)>>,
    retries: Retries,
    counts: Arc<Counts>,
    /// Folders in which names were made since the last sync.
    touched: Mutex<BTreeSet<Vec<u8>>>,
}

/// A connection while somebody uses it.
pub(super) struct Line {
    connection: Arc<Connection>,
    _place: Place,
}

/// A use of a lane.
struct Place {
    lane: usize,
    users: Arc<Mutex<Vec<usize>>>,
}

impl Deref for Line {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.connection
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.users.lock()[self.lane] -= 1;
    }
}

/// An open file or folder; closed when it is dropped.
pub(super) struct Handle {
    pub(super) line: Arc<Line>,
    pub(super) bytes: Bytes,
    closed: bool,
}

impl Handle {
    fn new(line: Arc<Line>, reply: Reply) -> std::result::Result<Handle, Failure> {
        match reply {
            Reply::Handle(bytes) => Ok(Handle {
                line,
                bytes,
                closed: false,
            }),
            _ => Err(odd()),
        }
    }

    /// Closes it, where it matters whether that works.
    pub(super) fn close(&mut self) -> Packet {
        self.closed = true;
        Packet::close(&self.bytes)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.closed {
            let packet = Packet::close(&self.bytes);
            self.line.tell(packet);
        }
    }
}

/// The answer is of another kind than the question.
pub(super) fn odd() -> Failure {
    let words = "the server answers something else than was asked".to_owned();
    Failure::Wrong(ErrorKind::Temporary, words)
}

pub(super) async fn open(line: Arc<Line>, packet: Packet) -> std::result::Result<Handle, Failure> {
    let reply = line.ask(packet).await?;
    Handle::new(line, reply)
}

pub(super) async fn attributes(
    line: &Line,
    packet: Packet,
) -> std::result::Result<Attributes, Failure> {
    match line.ask(packet).await? {
        Reply::Attributes(attributes) => Ok(attributes),
        _ => Err(odd()),
    }
}

/// Where a symlink points.
pub(super) async fn follow(
    line: &Line,
    path: &[u8],
    entry: &mut Entry,
) -> std::result::Result<(), Failure> {
    // A time that cannot be set is not one to compare.
    entry.modified = entry.modified.filter(|_| line.offers.lsetstat);
    match line.ask(Packet::read_link(path)).await? {
        Reply::Names(names) if names.len() == 1 => {
            entry.target = Some(names[0].name.to_vec());
            Ok(())
        }
        _ => Err(odd()),
    }
}

/// What something is; of a symlink the target is still to be asked for.
pub(super) fn entry(name: &[u8], found: &Attributes) -> std::result::Result<Entry, Failure> {
    let Some(mode) = found.mode else {
        let words = "the server does not say what it is".to_owned();
        return Err(Failure::Wrong(ErrorKind::Unsupported, words));
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

/// What something is, with the target of a symlink.
pub(super) async fn look(
    line: &Line,
    path: &[u8],
    name: &[u8],
) -> std::result::Result<Entry, Failure> {
    let found = attributes(line, Packet::lstat(path)).await?;
    let mut entry = entry(name, &found)?;
    if entry.kind == Kind::Symlink {
        follow(line, path, &mut entry).await?;
    }
    Ok(entry)
}

impl Server {
    /// `get` reads a variable of the environment.
    pub(super) fn open(
        location: &[u8],
        get: &dyn Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Server> {
        let address = Address::parse(location)?;
        let (root, connections) = (address.root.clone(), address.connections);
        let ssh = Ssh::new(address, get).map_err(|error| {
            let words = format!("no place for what says the password: {error}");
            Error::new(ErrorKind::Other, "open", location, words)
        })?;
        Ok(Server {
            ssh,
            root,
            lanes: (0..connections).map(|_| Lane::default()).collect(),
            users: Arc::new(Mutex::new(vec![0; connections])),
            refused: Mutex::default(),
            retries: Retries::default(),
            counts: Arc::default(),
            touched: Mutex::default(),
        })
    }

    pub(super) fn requests(&self) -> Requests {
        self.counts.lock().iter().map(|(k, n)| (*k, *n)).collect()
    }

    /// The path of something, as the server has it.
    pub(super) fn path(&self, folder: &Folder, name: Option<&[u8]>) -> Result<Vec<u8>> {
        let is_odd = |name: &[u8]| matches!(name, b"" | b"." | b"..") || name.contains(&0);
        if folder.names().chain(name).any(is_odd) {
            let words = "a name on the way cannot be expressed there";
            let below = folder.join(name.unwrap_or_default());
            return Err(Error::new(ErrorKind::BadName, "open", &below, words));
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

    /// A path as errors show it: below the root, if it is.
    fn shown<'a>(&self, path: &'a [u8]) -> &'a [u8] {
        match path.strip_prefix(self.root.as_slice()) {
            Some(below) if !below.is_empty() => below,
            _ => path,
        }
    }

    pub(super) fn wrong(&self, operation: &'static str, path: &[u8], failure: Failure) -> Error {
        failure.error(operation, self.shown(path))
    }

    /// A connection: the one that fewest use.
    async fn line(&self) -> std::result::Result<Arc<Line>, Failure> {
        let lane = {
            let mut users = self.users.lock();
            let fewest = (0..users.len()).min_by_key(|&lane| users[lane]);
            let lane = fewest.unwrap_or_default();
            users[lane] += 1;
            lane
        };
        let place = Place {
            lane,
            users: self.users.clone(),
        };
        // Whoever wants this lane meanwhile waits for the same connection.
        let mut slot = self.lanes[lane].lock().await;
        let connection = match slot.as_ref().filter(|open| !open.is_broken()) {
            Some(open) => open.clone(),
            None => {
                let opened = Arc::new(self.connect().await?);
                slot.insert(opened).clone()
            }
        };
        Ok(Arc::new(Line {
            connection,
            _place: place,
        }))
    }

    async fn connect(&self) -> std::result::Result<Connection, Failure> {
        if let Some((kind, words)) = self.refused.lock().clone() {
            return Err(Failure::Lost(kind, words));
        }
        let opened = Connection::open(&self.ssh, self.counts.clone()).await;
        if let Err(Failure::Lost(kind, words)) = &opened
            && *kind != ErrorKind::Temporary
        {
            *self.refused.lock() = Some((*kind, words.clone()));
        }
        opened
    }

    /// Does something on a connection, and again if it breaks. `work` is told which attempt it is:
    /// what was lost with a connection may have been done.
    pub(super) async fn attempt<T, F>(
        &self,
        operation: &'static str,
        path: &[u8],
        work: impl Fn(Arc<Line>, u32) -> F,
    ) -> Result<T>
    where
        F: Future<Output = std::result::Result<T, Failure>>,
    {
        let work = &work;
        self.retries
            .run(|attempt| async move {
                let done = match self.line().await {
                    Ok(line) => work(line, attempt).await,
                    Err(failure) => Err(failure),
                };
                done.map_err(|failure| self.wrong(operation, path, failure))
            })
            .await
    }

    pub(super) async fn look(&self, path: &[u8], name: &[u8]) -> Result<Entry> {
        self.attempt("look at", path, |line, _| async move {
            look(&line, path, name).await
        })
        .await
    }

    /// What the root is: it alone may be a symlink to a folder.
    pub(super) async fn root(&self) -> Result<Entry> {
        let path = self.path(&Folder::root(), None)?;
        let path = path.as_slice();
        self.attempt("look at", path, |line, _| async move {
            entry(b"", &attributes(&line, Packet::stat(path)).await?)
        })
        .await
    }

    pub(super) async fn space(&self) -> Result<Option<Space>> {
        let root = self.path(&Folder::root(), None)?;
        let root = root.as_slice();
        self.attempt("ask for the free space of", root, |line, _| async move {
            if !line.offers.space {
                return Ok(None);
            }
            match line.ask(Packet::space(root)).await? {
                Reply::Extended(body) => Ok(packet::free(body)),
                _ => Err(odd()),
            }
        })
        .await
        .map(|free| free.map(|(bytes, entries)| Space { bytes, entries }))
    }

    /// The protocol has no word for a full disk: where a failure has no other cause, it is looked
    /// for.
    pub(super) async fn explain(&self, failure: Failure, wanted: u64) -> Failure {
        if !failure.is(Status::FAILURE) {
            return failure;
        }
        match self.space().await {
            Ok(Some(space)) if space.bytes < wanted || space.entries == Some(0) => {
                let words = "no room is left on the server".to_owned();
                Failure::Wrong(ErrorKind::NoSpace, words)
            }
            _ => failure,
        }
    }

    /// A name was made in the folder of this path.
    pub(super) fn touch(&self, path: &[u8]) {
        let cut = path.iter().rposition(|&byte| byte == b'/');
        let parent = match cut {
            None => &b"."[..],
            Some(0) => b"/",
            Some(cut) => &path[..cut],
        };
        let mut touched = self.touched.lock();
        if !touched.contains(parent) {
            touched.insert(parent.to_vec());
        }
    }

    /// Makes names durable. What is in the files was, before they got them.
    pub(super) async fn sync(&self) -> Result<()> {
        let folders = std::mem::take(&mut *self.touched.lock());
        let sync = |folder| self.attempt("sync", folder, move |line, _| sync_folder(line, folder));
        let all = stream::iter(folders.iter().map(Vec::as_slice).map(Ok));
        let synced = all.try_for_each_concurrent(TOGETHER, sync).await;
        if synced.is_err() {
            self.touched.lock().extend(folders);
        }
        synced
    }
}

/// Most servers let a folder be opened like a file, and then synced. One that does not has no way
/// to do it.
async fn sync_folder(line: Arc<Line>, folder: &[u8]) -> std::result::Result<(), Failure> {
    if !line.offers.sync {
        return Ok(());
    }
    let handle = match open(line, Packet::open(folder, packet::READ, None)).await {
        Err(Failure::Refused(_)) => return Ok(()),
        opened => opened?,
    };
    match handle.line.ask(Packet::sync(&handle.bytes)).await {
        Err(Failure::Refused(_)) => Ok(()),
        synced => synced.map(drop),
    }
}
