//! Folders of an SFTP server.
//!
//! The system's `ssh` transports the packets ([`ssh`]), which are built and parsed here
//! ([`packet`]); see `docs/adr/0011`. A file is written under a temporary name, synced and renamed
//! where the server supports that, as OpenSSH does.

mod address;
mod chunks;
mod client;
mod connection;
mod listing;
mod nodes;
mod packet;
mod ssh;
mod upload;

use crate::backend::{
    Backend, Chunks, CopyItem, Cursor, Extended, Listing, Precondition, Requests, Upload,
    UploadPlan,
};
use crate::error::Result;
use crate::{BoxFuture, Capabilities, Entry, Folder, Space};
use client::Client;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// Parses the bytes as packets of a server.
pub(crate) fn fuzz_packets(bytes: &[u8]) {
    let mut received = bytes::BytesMut::from(bytes);
    while let Ok(Some(packet)) = packet::split_packet(&mut received) {
        let _ = packet::parse_version(packet.clone());
        match packet::reply(packet) {
            Ok((_, packet::Reply::Extended(body))) => {
                let _ = (
                    packet::parse_limits(body.clone()),
                    packet::parse_space(body),
                );
            }
            Ok((_, packet::Reply::Names(names))) => {
                for name in names {
                    let _ = client::entry(&name.name, &name.attributes);
                }
            }
            _ => {}
        }
    }
    let _ = address::Address::parse(bytes);
}

/// A folder of an SFTP server. See the [crate](crate).
///
/// ```
/// use headworks_storage::{Backend, Sftp};
///
/// let sftp = Sftp::open(b"sftp://me@example.org/srv/data").unwrap();
/// let second = std::time::Duration::from_secs(1);
/// assert_eq!(sftp.capabilities().modified, Some(second));
/// ```
#[derive(Clone)]
pub struct Sftp {
    client: Arc<Client>,
}

impl std::fmt::Debug for Sftp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sftp").finish_non_exhaustive()
    }
}

impl Sftp {
    /// Opens `sftp://user@host:port/path`, or `/~/path` relative to the user's initial folder.
    /// Authentication is up to `ssh`; `SFTP_KEY` names a key file, `SFTP_PASSWORD` contains a
    /// password, `SFTP_CONFIG` names another configuration of `ssh`.
    ///
    /// # Errors
    /// When the location is invalid or contains a password.
    pub fn open(location: &[u8]) -> Result<Sftp> {
        let get = |name: &str| std::env::var_os(name);
        let client = Arc::new(Client::open(location, &get)?);
        Ok(Sftp { client })
    }
}

impl Backend for Sftp {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            write: true,
            resumable_upload: true,
            modified: Some(Duration::from_secs(1)),
            posix: true,
            owners: self.client.ssh.is_root(),
            symlinks: true,
            longest_name: Some(255),
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
        let listing = listing::SftpListing::new(self.client.clone(), folder);
        let listing = listing.map(|listing| Box::new(listing) as Box<dyn Listing>);
        Box::pin(std::future::ready(listing))
    }

    fn stat<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(self.client.stat(folder, name))
    }

    fn read<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        offset: u64,
        length: u64,
    ) -> BoxFuture<'a, Result<Box<dyn Chunks>>> {
        Box::pin(async move {
            let path = self.client.path(folder, Some(name))?;
            let chunks =
                chunks::SftpChunks::open(self.client.clone(), path, offset, length).await?;
            Ok(Box::new(chunks) as Box<dyn Chunks>)
        })
    }

    fn upload<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        plan: UploadPlan,
    ) -> BoxFuture<'a, Result<Box<dyn Upload>>> {
        Box::pin(async move {
            let path = self.client.path(folder, Some(name))?;
            let temp = self.client.path(folder, Some(&plan.temp))?;
            let client = self.client.clone();
            let upload = upload::SftpUpload::open(client, path, temp, name, &plan).await?;
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
            let temp = self.client.path(folder, Some(&plan.temp))?;
            upload::discard(&self.client, &temp).await
        })
    }

    fn make_folder<'a>(&'a self, folder: &'a Folder) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.client.make_folder(folder))
    }

    fn make_node<'a>(
        &'a self,
        folder: &'a Folder,
        item: &'a CopyItem,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(self.client.make_node(folder, item))
    }

    fn set_attributes<'a>(
        &'a self,
        folder: &'a Folder,
        name: Option<&'a [u8]>,
        like: &'a Entry,
        _extended: Extended,
        precondition: &'a Precondition,
    ) -> BoxFuture<'a, Result<Entry>> {
        Box::pin(self.client.set_attributes(folder, name, like, precondition))
    }

    fn remove<'a>(&'a self, folder: &'a Folder, name: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.client.remove(folder, name))
    }

    fn rename<'a>(
        &'a self,
        folder: &'a Folder,
        name: &'a [u8],
        to: (&'a Folder, &'a [u8]),
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let from = self.client.path(folder, Some(name))?;
            let to = self.client.path(to.0, Some(to.1))?;
            self.client.rename(&from, &to).await
        })
    }

    fn requests(&self) -> Requests {
        self.client.requests()
    }

    /// Open, attributes, sync, close, rename and stat, and the writes.
    fn requests_to_write(&self, size: u64) -> u64 {
        const WRITE: u64 = 255 << 10;
        6 + size.div_ceil(WRITE)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.client.sync())
    }

    fn space(&self) -> BoxFuture<'_, Result<Option<Space>>> {
        Box::pin(self.client.space())
    }

    fn clock(&self) -> BoxFuture<'_, Option<i64>> {
        Box::pin(self.client.clock())
    }

    fn writable(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.client.writable())
    }
}
