//! Writing a file under a temporary name until it is complete.
//!
//! Bytes are kept until the server has synced them, so an upload whose connection breaks resumes at
//! an offset that is certainly durable: the server may have crashed with the connection.

use super::client::{Client, Handle, PooledConnection, attributes, open};
use super::connection::{Failure, PendingReply};
use super::nodes::{NewEntry, attribute_steps};
use super::packet::{self, Attributes, Packet, Status};
use crate::backend::{Extended, Precondition, Upload, UploadPlan, incomplete_upload};
use crate::error::{ErrorKind, Fault, Result};
use crate::failpoint;
use crate::{BoxFuture, Entry};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes in flight without a reply.
const MAX_IN_FLIGHT: u64 = 2 << 20;
/// Bytes between two syncs, after which they need not be kept.
const SYNC_INTERVAL: u64 = 4 << 20;
/// Maximum number of resumptions without progress.
const MAX_RESUMES: u32 = 8;

/// A request in flight, and what its completion means.
enum PendingStep {
    /// This many bytes were written.
    Write(u64),
    /// Everything up to this offset is durable.
    Sync(u64),
}

type Done = std::result::Result<(), Failure>;

pub(super) struct SftpUpload {
    client: Arc<Client>,
    path: Vec<u8>,
    temp: Vec<u8>,
    name: Vec<u8>,
    precondition: Precondition,
    handle: Handle,
    size: u64,
    offset: u64,
    /// The durable offset; the bytes sent since then, and those not sent yet.
    durable: u64,
    unconfirmed: VecDeque<Bytes>,
    unsent: VecDeque<Bytes>,
    /// The offset of the next bytes to send.
    sent: u64,
    pending: VecDeque<(PendingReply, PendingStep)>,
    in_flight: u64,
    unsynced: u64,
    /// Interruptions since the last progress, and the offset at that time.
    interruptions: (u32, u64),
    /// Whether another process can resume the upload.
    resumable: bool,
}

/// Creates a new file, removing a leftover of that name.
async fn create(
    connection: Arc<PooledConnection>,
    temp: &[u8],
) -> std::result::Result<Handle, Failure> {
    let flags = packet::WRITE | packet::CREATE | packet::EXCLUSIVE;
    let create = |connection| open(connection, Packet::open(temp, flags, Some(0o600)));
    match create(connection.clone()).await {
        Err(failure) if failure.is(Status::FAILURE) => {
            // If there was none, the first failure had another cause, and the second has it too.
            let _ = connection.request(Packet::remove(temp)).await;
            create(connection).await
        }
        created => created,
    }
}

/// Reopens a file at its durable offset; `None` if it is gone or shorter.
async fn reopen(
    connection: Arc<PooledConnection>,
    temp: &[u8],
    offset: u64,
) -> std::result::Result<Option<Handle>, Failure> {
    let handle = match open(connection, Packet::open(temp, packet::WRITE, None)).await {
        Err(Failure::Refused(_)) => return Ok(None),
        opened => opened?,
    };
    let found = attributes(&handle.connection, Packet::fstat(&handle.bytes)).await?;
    if found.size.is_none_or(|size| size < offset) {
        return Ok(None);
    }
    let cut = Attributes {
        size: Some(offset),
        ..Attributes::default()
    };
    let cut = Packet::fsetstat(&handle.bytes, &cut);
    match handle.connection.request(cut).await {
        Err(Failure::Refused(_)) => Ok(None),
        done => done.map(|_| Some(handle)),
    }
}

impl SftpUpload {
    pub(super) async fn open(
        client: Arc<Client>,
        path: Vec<u8>,
        temp: Vec<u8>,
        name: &[u8],
        plan: &UploadPlan,
    ) -> Result<SftpUpload> {
        let resume = plan.resume.as_deref().and_then(|r| r.try_into().ok());
        let resume = resume.map(u64::from_le_bytes).filter(|&at| at <= plan.size);
        let (this, temp_path) = (&client, temp.as_slice());
        let opened = client.with_retries("write", &path, |connection, _| async move {
            if let Some(offset) = resume
                && let Some(handle) = reopen(connection.clone(), temp_path, offset).await?
            {
                return Ok((handle, offset));
            }
            match create(connection, temp_path).await {
                Err(failure) => Err(this.explain_failure(failure, 1).await),
                Ok(handle) => Ok((handle, 0)),
            }
        });
        let (handle, offset) = opened.await?;
        Ok(SftpUpload {
            client,
            path,
            temp,
            name: name.to_vec(),
            precondition: plan.precondition.clone(),
            handle,
            size: plan.size,
            offset,
            durable: offset,
            unconfirmed: VecDeque::new(),
            unsent: VecDeque::new(),
            sent: offset,
            pending: VecDeque::new(),
            in_flight: 0,
            unsynced: 0,
            interruptions: (0, offset),
            resumable: offset > 0,
        })
    }

    /// Sends the unsent bytes.
    async fn send(&mut self) -> Done {
        let longest = usize::try_from(self.handle.connection.max_io.1).unwrap_or(usize::MAX);
        while let Some(mut bytes) = self.unsent.pop_front() {
            if bytes.len() > longest {
                self.unsent.push_front(bytes.split_off(longest));
            }
            let length = bytes.len() as u64;
            let packet = Packet::write(&self.handle.bytes, self.sent, &bytes);
            self.unconfirmed.push_back(bytes);
            let waiting = self.handle.connection.send(packet).await?;
            self.pending
                .push_back((waiting, PendingStep::Write(length)));
            self.sent += length;
            self.in_flight += length;
            self.unsynced += length;
            if self.unsynced >= SYNC_INTERVAL {
                self.sync().await?;
            }
            self.wait_for_writes(MAX_IN_FLIGHT).await?;
        }
        Ok(())
    }

    async fn sync(&mut self) -> Done {
        self.unsynced = 0;
        if self.handle.connection.extensions.sync {
            let packet = Packet::sync(&self.handle.bytes);
            let waiting = self.handle.connection.send(packet).await?;
            self.pending
                .push_back((waiting, PendingStep::Sync(self.sent)));
        }
        Ok(())
    }

    /// Waits until at most this many bytes are in flight; with 0, also for all other requests.
    async fn wait_for_writes(&mut self, most: u64) -> Done {
        while self.in_flight > most || (most == 0 && !self.pending.is_empty()) {
            let Some((waiting, step)) = self.pending.pop_front() else {
                break;
            };
            waiting.done().await?;
            match step {
                PendingStep::Sync(to) => self.release(to),
                PendingStep::Write(length) => {
                    self.in_flight -= length;
                    // Without the sync extension, written bytes are as durable as they get.
                    if !self.handle.connection.extensions.sync {
                        self.release(self.durable + length);
                    }
                }
            }
        }
        Ok(())
    }

    /// Drops the bytes up to a durable offset.
    fn release(&mut self, to: u64) {
        while self.durable < to
            && let Some(bytes) = self.unconfirmed.pop_front()
        {
            self.durable += bytes.len() as u64;
        }
    }

    /// Makes the written bytes durable, where the server supports that.
    async fn sync_all(&mut self) -> Done {
        self.send().await?;
        self.sync().await?;
        self.wait_for_writes(0).await
    }

    /// Sends the rest, the attributes, a sync and a close at once. The file is renamed only after
    /// all of them succeeded.
    async fn close_file(&mut self, like: &Entry) -> Done {
        self.send().await?;
        let connection = self.handle.connection.clone();
        let mut set = Vec::new();
        for attributes in attribute_steps(like, self.client.ssh.is_root()) {
            let packet = Packet::fsetstat(&self.handle.bytes, &attributes);
            set.push(connection.send(packet).await?);
        }
        self.sync().await?;
        set.push(connection.send(self.handle.close()).await?);
        self.wait_for_writes(0).await?;
        for step in set {
            step.done().await?;
        }
        Ok(())
    }

    /// Reopens the file after an interruption, to send the bytes again that may be lost. Returns
    /// other failures.
    async fn reconnect(&mut self, failure: Failure) -> Result<()> {
        let failure = self.client.explain_failure(failure, MAX_IN_FLIGHT).await;
        let error = self.client.failure("write", &self.path, failure);
        let (count, reached) = self.interruptions;
        let count = if self.durable > reached { 1 } else { count + 1 };
        if error.fault() != Fault::Temporary || count > MAX_RESUMES {
            return Err(error);
        }
        self.interruptions = (count, self.durable);
        let (temp, durable) = (self.temp.as_slice(), self.durable);
        let again = |connection, _| reopen(connection, temp, durable);
        let reopened = self.client.with_retries("write", &self.path, again).await?;
        // Durable bytes are gone: only a caller with all bytes can start over.
        self.handle = reopened.ok_or(error)?;
        self.pending.clear();
        while let Some(bytes) = self.unconfirmed.pop_back() {
            self.unsent.push_front(bytes);
        }
        (self.sent, self.in_flight, self.unsynced) = (self.durable, 0, 0);
        Ok(())
    }

    async fn commit(&mut self, like: &Entry) -> Result<Entry> {
        while let Err(failure) = self.close_file(like).await {
            self.reconnect(failure).await?;
        }
        failpoint::hit("before-upload-rename");
        let named = self.rename_into_place(like).await;
        failpoint::hit("after-upload-rename");
        named
    }

    async fn rename_into_place(&self, like: &Entry) -> Result<Entry> {
        let path = &self.path;
        let like = Entry {
            name: self.name.clone(),
            size: self.size,
            ..like.clone()
        };
        let new = &NewEntry {
            temp: &self.temp,
            path,
            like: &like,
            precondition: &self.precondition,
        };
        let rename = |connection: Arc<PooledConnection>, attempt| async move {
            new.rename(&connection, attempt).await
        };
        let entry = self.client.with_retries("write", path, rename).await?;
        match entry.size == self.offset {
            true => Ok(entry),
            false => {
                let message = format!("only {} of {} bytes arrived", entry.size, self.offset);
                let failure = Failure::Wrong(ErrorKind::Temporary, message);
                Err(self.client.failure("write", path, failure))
            }
        }
    }

    async fn discard(&self) -> Result<()> {
        discard(&self.client, &self.temp).await
    }
}

/// Removes a leftover.
pub(super) async fn discard(client: &Client, temp: &[u8]) -> Result<()> {
    let remove = |connection: Arc<PooledConnection>, _| async move {
        match connection.request(Packet::remove(temp)).await {
            Err(failure) if failure.is(Status::NO_SUCH_FILE) => Ok(()),
            removed => removed.map(drop),
        }
    };
    client.with_retries("remove", temp, remove).await
}

impl Upload for SftpUpload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.offset += bytes.len() as u64;
            self.unsent.push_back(bytes);
            while let Err(failure) = self.send().await {
                self.reconnect(failure).await?;
            }
            Ok(())
        })
    }

    fn checkpoint(&mut self, _end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            while let Err(failure) = self.sync_all().await {
                self.reconnect(failure).await?;
            }
            self.resumable = true;
            Ok(Some(self.offset.to_le_bytes().to_vec()))
        })
    }

    fn finish(
        mut self: Box<Self>,
        like: Entry,
        _extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>> {
        Box::pin(async move {
            if self.offset != self.size {
                let error = incomplete_upload(&self.path, self.offset, self.size);
                let _ = self.discard().await;
                return Err(error);
            }
            match self.commit(&like).await {
                Ok(entry) => {
                    self.client.mark_changed(&self.path);
                    Ok(entry)
                }
                // A durable part can be resumed; anything else is removed.
                Err(error) if self.resumable && error.fault() == Fault::Temporary => Err(error),
                Err(error) => {
                    let _ = self.discard().await;
                    Err(error)
                }
            }
        })
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move { self.discard().await })
    }
}
