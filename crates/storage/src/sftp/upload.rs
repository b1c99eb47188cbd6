//! Writing a file under a temporary name, which it keeps until it is whole.
//!
//! Bytes are held until the server has synced them, so that an upload whose connection breaks goes
//! on where it is sure of what is there: the server may have gone down with the connection.

use super::connection::{Failure, Waiting};
use super::nodes::{dress, replace};
use super::packet::{self, Attributes, Packet, Status};
use super::server::{Handle, Line, Server, attributes, look, open};
use crate::backend::{Extended, Upload, UploadPlan, incomplete};
use crate::error::{ErrorKind, Fault, Result};
use crate::failpoint;
use crate::{BoxFuture, Entry};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes that are under way and not yet said to have arrived.
const AHEAD: u64 = 2 << 20;
/// After so many bytes the server is told to sync, and they need not be held any longer.
const STRIDE: u64 = 4 << 20;
/// How often an upload goes on after a break without having come further.
const RESUMES: u32 = 8;

/// A request under way, and what it means when it is done.
enum Step {
    /// So many bytes arrived.
    Write(u64),
    /// All up to here is durable.
    Sync(u64),
}

type Done = std::result::Result<(), Failure>;

pub(super) struct SftpUpload {
    server: Arc<Server>,
    path: Vec<u8>,
    temp: Vec<u8>,
    name: Vec<u8>,
    handle: Handle,
    size: u64,
    offset: u64,
    /// Up to where it is durable; what was sent since, and what was not sent yet.
    safe: u64,
    held: VecDeque<Bytes>,
    unsent: VecDeque<Bytes>,
    /// Where the next bytes to be sent go.
    sent: u64,
    steps: VecDeque<(Waiting, Step)>,
    ahead: u64,
    unsynced: u64,
    /// Breaks since it last came further, and how far that was.
    breaks: (u32, u64),
    /// Whether some of it can be gone on with by another process.
    kept: bool,
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
            size: plan.size,
            offset,
            safe: offset,
            held: VecDeque::new(),
            unsent: VecDeque::new(),
            sent: offset,
            steps: VecDeque::new(),
            ahead: 0,
            unsynced: 0,
            breaks: (0, offset),
            kept: offset > 0,
        })
    }

    /// Sends what was not sent yet.
    async fn send(&mut self) -> Done {
        let longest = usize::try_from(self.handle.line.longest.1).unwrap_or(usize::MAX);
        while let Some(mut bytes) = self.unsent.pop_front() {
            if bytes.len() > longest {
                self.unsent.push_front(bytes.split_off(longest));
            }
            let length = bytes.len() as u64;
            let packet = Packet::write(&self.handle.bytes, self.sent, &bytes);
            self.held.push_back(bytes);
            let waiting = self.handle.line.send(packet).await?;
            self.steps.push_back((waiting, Step::Write(length)));
            self.sent += length;
            self.ahead += length;
            self.unsynced += length;
            if self.unsynced >= STRIDE {
                self.sync().await?;
            }
            self.arrived(AHEAD).await?;
        }
        Ok(())
    }

    async fn sync(&mut self) -> Done {
        self.unsynced = 0;
        if self.handle.line.offers.sync {
            let packet = Packet::sync(&self.handle.bytes);
            let waiting = self.handle.line.send(packet).await?;
            self.steps.push_back((waiting, Step::Sync(self.sent)));
        }
        Ok(())
    }

    /// Waits until no more than so many bytes are under way, and with none nothing else either.
    async fn arrived(&mut self, most: u64) -> Done {
        while self.ahead > most || (most == 0 && !self.steps.is_empty()) {
            let Some((waiting, step)) = self.steps.pop_front() else {
                break;
            };
            waiting.done().await?;
            match step {
                Step::Sync(to) => self.forget(to),
                Step::Write(length) => {
                    self.ahead -= length;
                    // Without a word for it, what arrived is as durable as it gets.
                    if !self.handle.line.offers.sync {
                        self.forget(self.safe + length);
                    }
                }
            }
        }
        Ok(())
    }

    /// All up to here need not be held any longer.
    fn forget(&mut self, to: u64) {
        while self.safe < to
            && let Some(bytes) = self.held.pop_front()
        {
            self.safe += bytes.len() as u64;
        }
    }

    /// Makes what was written durable, where the server can.
    async fn synced(&mut self) -> Done {
        self.send().await?;
        self.sync().await?;
        self.arrived(0).await
    }

    /// All of it goes out at once; the name is given only when all of it was done.
    async fn completed(&mut self, like: &Entry) -> Done {
        self.send().await?;
        let line = self.handle.line.clone();
        let mut set = Vec::new();
        for attributes in dress(like, self.server.ssh.is_root()) {
            let packet = Packet::fsetstat(&self.handle.bytes, &attributes);
            set.push(line.send(packet).await?);
        }
        self.sync().await?;
        set.push(line.send(self.handle.close()).await?);
        self.arrived(0).await?;
        for step in set {
            step.done().await?;
        }
        Ok(())
    }

    /// After a break: opens the file again, to send again what may be lost. Hands back what is no
    /// break.
    async fn go_on(&mut self, failure: Failure) -> Result<()> {
        let failure = self.server.explain(failure, AHEAD).await;
        let error = self.server.wrong("write", &self.path, failure);
        let (count, reached) = self.breaks;
        let count = if self.safe > reached { 1 } else { count + 1 };
        if error.fault() != Fault::Temporary || count > RESUMES {
            return Err(error);
        }
        self.breaks = (count, self.safe);
        let (temp, safe) = (self.temp.as_slice(), self.safe);
        let again = |line, _| reopen(line, temp, safe);
        let reopened = self.server.attempt("write", &self.path, again).await?;
        // What was durable is not there: only who has all the bytes can begin anew.
        self.handle = reopened.ok_or(error)?;
        self.steps.clear();
        while let Some(bytes) = self.held.pop_back() {
            self.unsent.push_front(bytes);
        }
        (self.sent, self.ahead, self.unsynced) = (self.safe, 0, 0);
        Ok(())
    }

    async fn finished(&mut self, like: &Entry) -> Result<Entry> {
        while let Err(failure) = self.completed(like).await {
            self.go_on(failure).await?;
        }
        failpoint::hit("before-upload-rename");
        let named = self.named().await;
        failpoint::hit("after-upload-rename");
        named
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
            self.offset += bytes.len() as u64;
            self.unsent.push_back(bytes);
            while let Err(failure) = self.send().await {
                self.go_on(failure).await?;
            }
            Ok(())
        })
    }

    fn checkpoint(&mut self, _end: u64) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        Box::pin(async move {
            while let Err(failure) = self.synced().await {
                self.go_on(failure).await?;
            }
            self.kept = true;
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
                let error = incomplete(&self.path, self.offset, self.size);
                let _ = self.discard().await;
                return Err(error);
            }
            match self.finished(&like).await {
                Ok(entry) => {
                    self.server.touch(&self.path);
                    Ok(entry)
                }
                // What is durable already is gone on with; anything else is removed.
                Err(error) if self.kept && error.fault() == Fault::Temporary => Err(error),
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
