//! Listing a folder.

use super::client::{
    Client, Handle, PooledConnection, attributes, entry, open, read_target, unexpected_reply,
};
use super::connection::Failure;
use super::packet::{Name, Packet, Reply, Status};
use crate::backend::{Listing, Page};
use crate::display;
use crate::error::{ErrorKind, Result};
use crate::{BoxFuture, Entry, Folder, Kind};
use futures_util::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;

/// Concurrent requests of a listing; a server returns about a hundred names per request.
const MAX_REQUESTS: usize = 8;
/// Most folders are small: one request for the names, and one for the end.
const FIRST_REQUESTS: usize = 2;

pub(super) struct SftpListing {
    client: Arc<Client>,
    path: Vec<u8>,
    is_root: bool,
    handle: Option<Handle>,
    requests: usize,
    ended: bool,
}

impl SftpListing {
    pub(super) fn new(client: Arc<Client>, folder: &Folder) -> Result<SftpListing> {
        Ok(SftpListing {
            path: client.path(folder, None)?,
            client,
            is_root: folder.is_root(),
            handle: None,
            requests: FIRST_REQUESTS,
            ended: false,
        })
    }

    async fn open(&self) -> Result<Handle> {
        let (path, is_root) = (self.path.as_slice(), self.is_root);
        let work = |connection, _| open_folder(connection, path, is_root);
        self.client.with_retries("list", path, work).await
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
            self.client.failure("list", path, failure)
        })?;
        self.handle = Some(handle);
        self.requests = MAX_REQUESTS;
        self.ended = ended;
        let cursor = None;
        Ok(Some(Page { entries, cursor }))
    }

    async fn read(&self, handle: &Handle) -> std::result::Result<(Vec<Entry>, bool), Failure> {
        let mut requested = Vec::with_capacity(self.requests);
        for _ in 0..self.requests {
            requested.push(
                handle
                    .connection
                    .send(Packet::read_folder(&handle.bytes))
                    .await?,
            );
        }
        let (mut names, mut ended) = (Vec::new(), false);
        for waiting in requested {
            match waiting.reply().await {
                Ok(Reply::Names(some)) => names.extend(some),
                Ok(_) => return Err(unexpected_reply()),
                Err(failure) if failure.is(Status::END) => ended = true,
                Err(failure) => return Err(failure),
            }
        }
        names.retain(|name| !matches!(name.name.as_ref(), b"." | b".."));
        let found = stream::iter(names).map(|name| self.complete(&handle.connection, name));
        let found: Vec<Option<Entry>> = found.buffered(MAX_REQUESTS).try_collect().await?;
        Ok((found.into_iter().flatten().collect(), ended))
    }

    /// Completes an entry; `None` if it was removed in the meantime.
    async fn complete(
        &self,
        connection: &PooledConnection,
        name: Name,
    ) -> std::result::Result<Option<Entry>, Failure> {
        let bytes = name.name.as_ref();
        if bytes.is_empty() || bytes.contains(&b'/') || bytes.contains(&0) {
            let message = format!("the server listed the invalid name `{}`", display(bytes));
            return Err(Failure::Wrong(ErrorKind::Other, message));
        }
        match fill(connection, &self.path, &name).await {
            Err(failure) if failure.is(Status::NO_SUCH_FILE) => Ok(None),
            found => found.map(Some),
        }
    }
}

/// Requests what the listing did not contain.
async fn fill(
    connection: &PooledConnection,
    folder: &[u8],
    name: &Name,
) -> std::result::Result<Entry, Failure> {
    let path = || match folder {
        b"/" => [folder, &name.name].concat(),
        _ => [folder, b"/", &name.name].concat(),
    };
    let mut found = match name.attributes.mode {
        Some(_) => entry(&name.name, &name.attributes)?,
        None => {
            let found_attributes = attributes(connection, Packet::lstat(&path())).await?;
            entry(&name.name, &found_attributes)?
        }
    };
    if found.kind == Kind::Symlink {
        read_target(connection, &path(), &mut found).await?;
    }
    Ok(found)
}

/// Opens a folder and checks its type at the same time, so that no symlink is listed as a folder.
async fn open_folder(
    connection: Arc<PooledConnection>,
    path: &[u8],
    is_root: bool,
) -> std::result::Result<Handle, Failure> {
    let stat_packet = match is_root {
        true => Packet::stat(path),
        false => Packet::lstat(path),
    };
    let found_attributes = attributes(&connection, stat_packet);
    let (found_attributes, opened) = tokio::join!(
        found_attributes,
        open(connection.clone(), Packet::open_folder(path))
    );
    match entry(b"", &found_attributes?)?.kind {
        Kind::Folder => opened,
        _ => {
            let message = "not a folder".to_owned();
            Err(Failure::Wrong(ErrorKind::WrongKind, message))
        }
    }
}

impl Listing for SftpListing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(self.page())
    }
}
