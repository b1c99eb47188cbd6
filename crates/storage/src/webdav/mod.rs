//! Folders of a WebDAV server.
//!
//! A file is written under a temporary name and moved. The protocol cannot set times, so a
//! destination has none of its own: a later plan recognises by the version (etag) that a file is
//! still what was copied.

mod client;
mod properties;
mod upload;

use crate::backend::{
    Backend, Chunks, Cursor, Extended, Listing, Page, Precondition, Requests, Upload, UploadPlan,
};
use crate::cloud::StreamedResponse;
use crate::cloud::ranged_read::{RangeSource, RangedRead};
use crate::display;
use crate::error::{Error, ErrorKind, Result};
use crate::{BoxFuture, Capabilities, Entry, Folder, Kind};
use client::Client;
use http::HeaderMap;
use sha2::{Digest, Sha256};
use std::any::Any;
use std::sync::Arc;

/// Parses the bytes as a server's description of a folder.
pub(crate) fn fuzz_multistatus(bytes: &[u8]) {
    let _ = properties::read(bytes);
}

/// A folder of a WebDAV server. See the [crate](crate).
///
/// ```
/// use headworks_storage::{Backend, WebDav};
///
/// let dav = WebDav::open(b"webdavs://cloud.example.org/remote.php/dav/files/me").unwrap();
/// assert!(dav.capabilities().modified.is_none(), "the protocol sets no times");
/// ```
#[derive(Clone)]
pub struct WebDav {
    client: Arc<Client>,
}

impl std::fmt::Debug for WebDav {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebDav").finish_non_exhaustive()
    }
}

impl WebDav {
    /// Opens `webdav://host/path`, or `webdavs://host/path` with TLS. Credentials come from
    /// `WEBDAV_USER` and `WEBDAV_PASSWORD`, or `WEBDAV_TOKEN`.
    ///
    /// # Errors
    /// When the location is invalid or contains credentials.
    pub fn open(location: &[u8]) -> Result<WebDav> {
        let environment = crate::cloud::environment();
        Ok(WebDav {
            client: Arc::new(Client::open(location, &environment)?),
        })
    }
}

struct DavListing {
    client: Arc<Client>,
    path: Vec<u8>,
    ended: bool,
}

impl Listing for DavListing {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Page>>> {
        Box::pin(async {
            if std::mem::replace(&mut self.ended, true) {
                return Ok(None);
            }
            let found = self.client.propfind("list", &self.path, "1").await?;
            let entries = direct_children(&self.path, found);
            let fail = |message: String| {
                let call = self
                    .client
                    .call("propfind", "list", &self.path, b"PROPFIND");
                call.failure(ErrorKind::Other, &message)
            };
            let (entries, cursor) = (entries.map_err(fail)?, None);
            Ok(Some(Page { entries, cursor }))
        })
    }
}

/// Returns the direct children of a folder. The folder itself must be in the response, and nothing
/// else: otherwise the server described something that was not requested.
fn direct_children(
    folder: &[u8],
    found: Vec<(Vec<u8>, Entry)>,
) -> std::result::Result<Vec<Entry>, String> {
    let folder = folder.strip_suffix(b"/").unwrap_or(folder);
    let mut itself = false;
    let mut entries = Vec::with_capacity(found.len());
    for (path, entry) in found {
        let child = path
            .strip_prefix(folder)
            .and_then(|rest| rest.strip_prefix(b"/"));
        match child {
            _ if path == folder => itself = true,
            Some(name) if !name.is_empty() && !name.contains(&b'/') => entries.push(entry),
            _ => {
                return Err(format!(
                    "the response contains `{}`, which was not requested",
                    display(&path)
                ));
            }
        }
    }
    match itself {
        true => Ok(entries),
        false => Err("the response does not contain the folder itself".to_owned()),
    }
}

struct Resource {
    client: Arc<Client>,
    path: Vec<u8>,
    name: Vec<u8>,
}

impl RangeSource for Resource {
    fn request_range<'a>(
        &'a self,
        range: Option<&'a str>,
        _version: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<StreamedResponse>> {
        Box::pin(async move {
            let mut call = self.client.call("get", "read", &self.path, b"GET");
            if let Some(range) = range {
                call = call.header("range", range);
            }
            self.client.endpoint.open(&*self.client, &call).await
        })
    }

    fn info(&self, headers: &HeaderMap) -> (Entry, Extended) {
        let text = |name| crate::cloud::header_text(headers, name);
        let total = text("content-range").and_then(|range| range.rsplit_once('/')?.1.parse().ok());
        let length = text("content-length").and_then(|length| length.parse().ok());
        let entry = Entry {
            size: total.or(length).unwrap_or(0),
            ..Entry::new(self.name.clone(), Kind::File)
        };
        (entry, Extended::new())
    }

    fn failure(&self, kind: ErrorKind, message: &str) -> Error {
        self.client
            .call("get", "read", &self.path, b"GET")
            .failure(kind, message)
    }
}

/// Returns the SHA-256 of a file.
async fn hash_of(client: &Arc<Client>, path: &[u8], size: u64) -> Result<Vec<u8>> {
    let resource = Resource {
        client: client.clone(),
        path: path.to_vec(),
        name: Vec::new(),
    };
    let mut reading = RangedRead::open(Arc::new(resource), 0, size).await?;
    let mut hasher = Sha256::new();
    while let Some(bytes) = reading.next().await? {
        hasher.update(&bytes);
    }
    Ok(hasher.finalize().to_vec())
}

impl Backend for WebDav {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: true,
            unicode_names: true,
            workers: (8, 128),
            ..Capabilities::read_only()
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn list<'a>(
        &'a self,
        folder: &'a Folder,
        _from: Option<&'a Cursor>,
    ) -> BoxFuture<'a, Result<Box<dyn Listing>>> {
        let listing = DavListing {
            client: self.client.clone(),
            path: self.client.path(folder, None),
            ended: false,
        };
        Box::pin(std::future::ready(
            Ok(Box::new(listing) as Box<dyn Listing>),
        ))
    }

    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async move {
            let path = self.client.path(folder, name);
            self.client.stat(&path, name.unwrap_or_default()).await
        })
    }

    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
        Box::pin(async move {
            let resource = Resource {
                client: self.client.clone(),
                path: self.client.path(folder, Some(name)),
                name: name.to_vec(),
            };
            let reading = RangedRead::open(Arc::new(resource), offset, length).await?;
            Ok(Box::new(reading) as Box<dyn Chunks>)
        })
    }

    fn upload<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: UploadPlan,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>>> {
        Box::pin(async move {
            let client = self.client.clone();
            let path = client.path(folder, Some(name));
            let temp = client.path(folder, Some(&plan.temp));
            let upload = upload::DavUpload::open(client, path, temp, name, plan).await?;
            Ok(Box::new(upload) as Box<dyn Upload>)
        })
    }

    fn discard<'a>(
        &'a self,
        folder: &'a Folder,
        _name: &'a [u8],
        plan: &'a UploadPlan,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.client
                .delete(&self.client.path(folder, Some(&plan.temp)))
                .await
        })
    }

    fn make_folder<'a>(&'a self, folder: &'a Folder) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let path = self.client.path(folder, None);
            let call = self.client.call("make folder", "make", &path, b"MKCOL");
            match self.client.fetch(&call).await {
                Err(error) if error.kind() == ErrorKind::Exists => Ok(()),
                made => made.map(drop),
            }
        })
    }

    fn set_attributes<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
        like: &'a Entry,
        _extended: Extended,
        _precondition: &'a Precondition,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(async move {
            match name {
                // The protocol sets no attributes of folders.
                None => Ok(Entry::new(like.name.clone(), Kind::Folder)),
                Some(_) => self.stat(folder, name).await,
            }
        })
    }

    fn remove<'a>(&'a self, folder: &'a Folder, name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.client
                .delete(&self.client.path(folder, Some(name)))
                .await
        })
    }

    fn rename<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        to: (&'a Folder, &'a [u8]),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let from = self.client.path(folder, Some(name));
            let target = self.client.path(to.0, Some(to.1));
            self.client.rename(&from, &target, false).await
        })
    }

    fn requests(&self) -> Requests {
        self.client.endpoint.requests()
    }

    fn requests_to_write(&self, _size: u64) -> u64 {
        3
    }

    fn writable(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let root = self.client.path(&Folder::root(), None);
            self.client.stat(&root, b"").await.map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(paths: &[&str]) -> Vec<(Vec<u8>, Entry)> {
        let entry = |path: &&str| (path.as_bytes().to_vec(), Entry::new(*b"x", Kind::File));
        paths.iter().map(entry).collect()
    }

    #[test]
    fn only_requested_entries_are_accepted() {
        let count = |paths: &[&str]| {
            direct_children(b"/root/a/", found(paths)).map(|entries| entries.len())
        };
        assert_eq!(count(&["/root/a", "/root/a/f", "/root/a/g"]), Ok(2));
        assert!(count(&[]).is_err(), "the folder itself is missing");
        for foreign in ["/root/a/b/c", "/etc/passwd", "/root/ab", "/root/A"] {
            assert!(count(&["/root/a", foreign]).is_err(), "{foreign}");
        }
        assert_eq!(
            direct_children(b"/", found(&["", "/f"])).map(|all| all.len()),
            Ok(1)
        );
    }
}
