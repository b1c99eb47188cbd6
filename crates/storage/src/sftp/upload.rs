//! Writing a file under a temporary name, which it keeps until it is whole.
//!
//! A connection that breaks ends the upload. What was synced at a checkpoint is gone on with; of the rest nobody knows
//! whether the server still has it.

use super::connection::{Failure, Waiting};
use super::nodes::{dress, replace};
use super::packet::{self, Attributes, Packet, Status};
use super::server::{Handle, Line, Server, attributes, look, open};
use crate::backend::{Extended, Upload, UploadPlan};
use crate::error::{ErrorKind, Result};
use crate::failpoint;
use crate::{BoxFuture, Entry};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that are under way and not yet said to have arrived.
const AHEAD: u64 = 2 << 20;

pub(super) struct SftpUpload {
    server: Arc<Server>,
    path: Vec<u8>,
    temp: Vec<u8>,
    name: Vec<u8>,
    handle: Handle,
    offset: u64,
    /// Writes under way, and the bytes of each.
    writes: VecDeque<(Waiting, u64)>,
    ahead: u64,
}

/// A new file of that name, whatever was left there.
async fn create(line: Arc<Line>, temp: &[u8]) -> std::result::Result<Handle, Failure> {
    let flags = packet::WRITE | packet::CREATE | packet::EXCLUSIVE;
    let create = |line| open(line, Packet::open(temp, flags, Some(0o600)));
    match create(line.clone()).await {
        Err(failure) if failure.is(Status::FAILURE) => {
            // If it is not there, the first failure had another cause, and the second has it too.
            let _ = line.ask(Packet::remove(temp)).await;
            create(line).await
        }
        created => created,
    }
}

/// The same file, at the offset up to which it was durable; `None` if it is gone, or shorter.
async fn reopen(
    line: Arc<Line>,
    temp: &[u8],
    offset: u64,
) -> std::result::Result<Option<Handle>, Failure> {
    let handle = match open(line, Packet::open(temp, packet::WRITE, None)).await {
        Err(Failure::Refused(_)) => return Ok(None),
        opened => opened?,
    };
    let found = attributes(&handle.line, Packet::fstat(&handle.bytes)).await?;
    if found.size.is_none_or(|size| size < offset) {
        return Ok(None);
    }
    let cut = Attributes {
        size: Some(offset),
        ..Attributes::default()
    };
    let cut = Packet::fsetstat(&handle.bytes, &cut);
    match handle.line.ask(cut).await {
        Err(Failure::Refused(_)) => Ok(None),
        done => done.map(|_| Some(handle)),
    }
}

impl SftpUpload {
    pub(super) async fn open(
        server: Arc<Server>,
        path: Vec<u8>,
        temp: Vec<u8>,
        name: &[u8],
        plan: &UploadPlan,
    ) -> Result<SftpUpload> {
        let resume = plan.resume.as_deref().and_then(|r| r.try_into().ok());
        let resume = resume.map(u64::from_le_bytes).filter(|&at| at <= plan.size);
        let (this, place) = (&server, temp.as_slice());
        let opened = server.attempt("write", &path, |line, _| async move {
            if let Some(offset) = resume
                && let Some(handle) = reopen(line.clone(), place, offset).await?
            {
                return Ok((handle, offset));
            }
            match create(line, place).await {
                Err(failure) => Err(this.explain(failure, 1).await),
                Ok(handle) => Ok((handle, 0)),
            }
        });
        let (handle, offset) = opened.await?;
        Ok(SftpUpload {
            server,
            path,
            temp,
            name: name.to_vec(),
            handle,
            offset,
            writes: VecDeque::new(),
            ahead: 0,
        })
    }

    async fn wrong<T>(&self, operation: &'static str, failure: Failure) -> Result<T> {
        let failure = self.server.explain(failure, AHEAD).await;
        Err(self.server.wrong(operation, &self.path, failure))
    }

    async fn send(&mut self, mut bytes: Bytes) -> std::result::Result<(), Failure> {
        let longest = usize::try_from(self.handle.line.longest.1).unwrap_or(usize::MAX);
        while !bytes.is_empty() {
            let piece = bytes.split_to(bytes.len().min(longest));
            let length = piece.len() as u64;
            let packet = Packet::write(&self.handle.bytes, self.offset, piece);
            let waiting = self.handle.line.send(packet).await?;
            self.writes.push_back((waiting, length));
            self.offset += length;
            self.ahead += length;
            self.arrived(AHEAD).await?;
        }
        Ok(())
    }

    /// Waits until no more than so many bytes are under way.
    async fn arrived(&mut self, most: u64) -> std::result::Result<(), Failure> {
        while self.ahead > most {
            let Some((waiting, length)) = self.writes.pop_front() else {
                break;
            };
            waiting.done().await?;
            self.ahead -= length;
        }
        Ok(())
    }

    /// Makes what was written durable, where the server can.
    async fn synced(&mut self) -> std::result::Result<(), Failure> {
        let line = self.handle.line.clone();
        let sync = match line.offers.sync {
            true => Some(line.send(Packet::sync(&self.handle.bytes)).await?),
            false => None,
        };
        self.arrived(0).await?;
        match sync {
            Some(sync) => sync.done().await,
            None => Ok(()),
        }
    }

    /// All of it goes out at once; the name is given only when all of it was done.
    async fn completed(&mut self, like: &Entry) -> std::result::Result<(), Failure> {
        let line = self.handle.line.clone();
        let mut steps = Vec::new();
        for attributes in dress(like, self.server.ssh.is_root()) {
            let packet = Packet::fsetstat(&self.handle.bytes, &attributes);
            steps.push(line.send(packet).await?);
        }
        if line.offers.sync {
            steps.push(line.send(Packet::sync(&self.handle.bytes)).await?);
        }
        steps.push(line.send(self.handle.close()).await?);
        self.arrived(0).await?;
        for step in steps {
            step.done().await?;
        }
        Ok(())
    }

    async fn named(&self) -> Result<Entry> {
        let (path, temp, name) = (&self.path, &self.temp, self.name.as_slice());
        let rename = |line: Arc<Line>, attempt| async move {
            match replace(&line, temp, path).await {
                // It got its name already, and the answer was lost with the connection.
                Err(failure) if attempt > 1 && failure.is(Status::NO_SUCH_FILE) => {}
                renamed => renamed?,
            }
            look(&line, path, name).await
        };
        let entry = self.server.attempt("write", path, rename).await?;
        match entry.size == self.offset {
            true => Ok(entry),
            false => {
                let words = format!("{} of {} bytes arrived", entry.size, self.offset);
                let failure = Failure::Wrong(ErrorKind::Temporary, words);
                Err(self.server.wrong("write", path, failure))
            }
        }
    }

    async fn discard(&self) -> Result<()> {
        discard(&self.server, &self.temp).await
    }
}

/// Removes what may have been left.
pub(super) async fn discard(server: &Server, temp: &[u8]) -> Result<()> {
    let remove = |line: Arc<Line>, _| async move {
        match line.ask(Packet::remove(temp)).await {
            Err(failure) if failure.is(Status::NO_SUCH_FILE) => Ok(()),
            removed => removed.map(drop),
        }
    };
    server.attempt("remove", temp, remove).await
}

impl Upload for SftpUpload {
    fn offset(&self) -> u64 {
        self.offset
    }

    fn write(&mut self, bytes: Bytes) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            match self.send(bytes).await {
                Ok(()) => Ok(()),
                Err(failure) => self.wrong("write", failure).await,
            }
        })
    }

    fn checkpoint(&mut self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            match self.synced().await {
                Ok(()) => Ok(Some(self.offset.to_le_bytes().to_vec())),
                Err(failure) => self.wrong("sync", failure).await,
            }
        })
    }

    fn finish(
        mut self: Box<Self>,
        like: Entry,
        _extended: Extended,
    ) -> BoxFuture<'static, Result<Entry>> {
        Box::pin(async move {
            let completed = match self.completed(&like).await {
                Ok(()) => {
                    failpoint::hit("before-upload-rename");
                    let named = self.named().await;
                    failpoint::hit("after-upload-rename");
                    named
                }
                Err(failure) => self.wrong("write", failure).await,
            };
            match completed {
                Ok(entry) => {
                    self.server.touch(&self.path);
                    Ok(entry)
                }
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
