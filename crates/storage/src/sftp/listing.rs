//! Listing a folder.

use super::connection::Failure;
use super::packet::{Name, Packet, Reply, Status};
use super::server::{Handle, Line, Server, attributes, entry, follow, odd, open};
use crate::backend::{Listing, Page};
use crate::error::{ErrorKind, Result};
use crate::shown;
use crate::{BoxFuture, Entry, Folder, Kind};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;

/// Questions of a listing that are under way at once; a server answers each with about a hundred
/// names.
const AHEAD: usize = 8;
/// Most folders are small: all their names, and that there are no more.
const AT_FIRST: usize = 2;

pub(super) struct SftpListing {
    server: Arc<Server>,
    path: Vec<u8>,
    is_root: bool,
    handle: Option<Handle>,
    ahead: usize,
    ended: bool,
}

impl SftpListing {
    pub(super) fn new(server: Arc<Server>, folder: &Folder) -> Result<SftpListing> {
        Ok(SftpListing {
            path: server.path(folder, None)?,
            server,
            is_root: folder.is_root(),
            handle: None,
            ahead: AT_FIRST,
            ended: false,
        })
    }

    async fn open(&self) -> Result<Handle> {
        let (path, is_root) = (self.path.as_slice(), self.is_root);
        let work = |line, _| open_folder(line, path, is_root);
        self.server.attempt("list", path, work).await
    }

    async fn page(&mut self) -> Result<Option<Page>> {
        if self.ended {
            return Ok(None);
        }
        let handle = match self.handle.take() {
            Some(handle) => handle,
            None => self.open().await?,
        };
        let read = self.read(&handle).await;
        let (entries, ended) = read.map_err(|failure| {
            let path = self.path.as_slice();
            self.server.wrong("list", path, failure)
        })?;
        self.handle = Some(handle);
        self.ahead = AHEAD;
        self.ended = ended;
        let cursor = None;
        Ok(Some(Page { entries, cursor }))
    }

    async fn read(&self, handle: &Handle) -> std::result::Result<(Vec<Entry>, bool), Failure> {
        let mut asked = Vec::with_capacity(self.ahead);
        for _ in 0..self.ahead {
            asked.push(handle.line.send(Packet::read_folder(&handle.bytes)).await?);
        }
        let (mut names, mut ended) = (Vec::new(), false);
        for waiting in asked {
            match waiting.reply().await {
                Ok(Reply::Names(some)) => names.extend(some),
                Ok(_) => return Err(odd()),
                Err(failure) if failure.is(Status::END) => ended = true,
                Err(failure) => return Err(failure),
            }
        }
        names.retain(|name| !matches!(name.name.as_ref(), b"." | b".."));
        let found = stream::iter(names).map(|name| self.complete(&handle.line, name));
        let found: Vec<Option<Entry>> = found.buffered(AHEAD).try_collect().await?;
        Ok((found.into_iter().flatten().collect(), ended))
    }

    /// An entry from its name; `None` if it was removed since.
    async fn complete(
        &self,
        line: &Line,
        name: Name,
    ) -> std::result::Result<Option<Entry>, Failure> {
        let bytes = name.name.as_ref();
        if bytes.is_empty() || bytes.contains(&b'/') || bytes.contains(&0) {
            let words = format!("the server lists `{}`", shown(bytes));
            return Err(Failure::Wrong(ErrorKind::Other, words));
        }
        match fill(line, &self.path, &name).await {
            Err(failure) if failure.is(Status::NO_SUCH_FILE) => Ok(None),
            found => found.map(Some),
        }
    }
}

/// What was not listed is asked for.
async fn fill(line: &Line, folder: &[u8], name: &Name) -> std::result::Result<Entry, Failure> {
    let path = || match folder {
        b"/" => [folder, &name.name].concat(),
        _ => [folder, b"/", &name.name].concat(),
    };
    let mut found = match name.attributes.mode {
        Some(_) => entry(&name.name, &name.attributes)?,
        None => {
            let looked = attributes(line, Packet::lstat(&path())).await?;
            entry(&name.name, &looked)?
        }
    };
    if found.kind == Kind::Symlink {
        follow(line, &path(), &mut found).await?;
    }
    Ok(found)
}

/// Both questions go at once: no symlink is listed in place of a folder.
async fn open_folder(
    line: Arc<Line>,
    path: &[u8],
    is_root: bool,
) -> std::result::Result<Handle, Failure> {
    let look = match is_root {
        true => Packet::stat(path),
        false => Packet::lstat(path),
    };
    let looked = attributes(&line, look);
    let (looked, opened) =
        futures_util::join!(looked, open(line.clone(), Packet::open_folder(path)));
    match entry(b"", &looked?)?.kind {
        Kind::Folder => opened,
        _ => {
            let words = "it is not a folder".to_owned();
            Err(Failure::Wrong(ErrorKind::WrongKind, words))
        }
    }
}

impl Listing for SftpListing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(self.page())
    }
}
