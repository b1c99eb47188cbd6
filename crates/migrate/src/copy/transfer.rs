//! One entry, when the storages cannot move it by themselves.

use super::tasks::Copier;
use crate::status::{Difference, Status};
use crate::store::Pair;
use headworks_storage::{Entry, Error, Extended, Kind, Upload, UploadPlan, failpoint};
use rusqlite::params;
use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering::Relaxed;

/// How much of a large file is sent before that is made durable and noted.
const PART: u64 = 64 << 20;
/// What is asked of the bandwidth at once.
const STEP: u64 = 4 << 20;

/// What became of an entry.
pub(super) enum Transferred {
    Done(Entry, Option<[u8; 32]>),
    Changed,
    /// Somebody asked to stop; what was sent is noted.
    Stopped,
}

/// What an earlier run left of a large file.
struct Part {
    done: u64,
    resume: Vec<u8>,
    hash: Option<Vec<u8>>,
}

/// The hash so far, as long as all bytes passed through us.
struct Hash(Option<Sha256>);

impl Hash {
    fn update(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.0 {
            hasher.update(bytes);
        }
    }

    fn state(&self) -> Option<Vec<u8>> {
        self.0.as_ref().map(|hasher| hasher.serialize().to_vec())
    }

    fn resume(state: Option<&[u8]>) -> Hash {
        let serialized = state.and_then(|state| state.try_into().ok());
        Hash(serialized.and_then(|state| Sha256::deserialize(state).ok()))
    }
}

pub(super) fn place(pair: &Pair) -> Vec<u8> {
    pair.path()
}

impl Copier {
    pub(super) async fn one(&self, pair: &Pair, status: Status) -> Result<Transferred, Error> {
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        // A file is looked at when it was read: that says the same of all its bytes, for one call less.
        if pair.entry.kind != Kind::File {
            let now = self.source.stat(folder, Some(name)).await?;
            if !same(&now, &pair.entry) {
                return Ok(Transferred::Changed);
            }
        }
        if status == Status::Different(Difference::Metadata) {
            let extended = self.attributes(pair).await?;
            let entry = self
                .destination
                .settle(folder, Some(name), &pair.entry, extended)
                .await?;
            return Ok(Transferred::Done(entry, None));
        }
        if pair.entry.kind == Kind::File {
            return self.file(pair).await;
        }
        let entry = self
            .destination
            .make_node(folder, &self.order(pair))
            .await?;
        Ok(Transferred::Done(entry, None))
    }

    async fn attributes(&self, pair: &Pair) -> Result<Extended, Error> {
        let both = self.source.capabilities().extended && self.destination.capabilities().extended;
        match both {
            true => {
                self.source
                    .extended(&pair.folder, Some(&pair.entry.name))
                    .await
            }
            false => Ok(Vec::new()),
        }
    }

    async fn file(&self, pair: &Pair) -> Result<Transferred, Error> {
        let (folder, name, size) = (&*pair.folder, pair.entry.name.as_slice(), pair.entry.size);
        let part = match size > super::tasks::LARGE {
            true => self.part(pair).await,
            false => None,
        };
        let plan = UploadPlan {
            temp: self.order(pair).temp,
            size,
            resume: part.as_ref().map(|part| part.resume.clone()),
        };
        let mut upload = self.destination.upload(folder, name, plan).await?;
        let mut hash = self.take_up(&*upload, part.as_ref());
        while upload.offset() < size {
            let end = size.min(upload.offset() + PART);
            match self.send(pair, &mut *upload, &mut hash, end).await {
                Ok(true) => {}
                Ok(false) => {
                    upload.abort().await?;
                    return Ok(Transferred::Changed);
                }
                Err(error) => {
                    // What is durable already is gone on with; anything else is removed.
                    if part.is_none() && end <= PART {
                        let _ = upload.abort().await;
                    }
                    return Err(error);
                }
            }
            if end < size {
                self.note(pair, &mut *upload, &hash).await?;
                failpoint::hit("after-part");
                if self.stop.is_cancelled() {
                    return Ok(Transferred::Stopped);
                }
            }
        }
        let now = self.source.stat(folder, Some(name)).await?;
        if !same(&now, &pair.entry) {
            upload.abort().await?;
            return Ok(Transferred::Changed);
        }
        let extended = self.attributes(pair).await?;
        let entry = upload.finish(pair.entry.clone(), extended).await?;
        let digest = hash.0.map(|hasher| hasher.finalize().into());
        Ok(Transferred::Done(entry, digest))
    }

    /// The hash to go on with; counts what need not be sent again.
    fn take_up(&self, upload: &dyn Upload, part: Option<&Part>) -> Hash {
        match part {
            Some(part) if upload.offset() > 0 && upload.offset() == part.done => {
                self.progress
                    .parts_kept
                    .fetch_add(part.done / PART, Relaxed);
                Hash::resume(part.hash.as_deref())
            }
            Some(part) => {
                self.progress
                    .parts_again
                    .fetch_add(part.done.div_ceil(PART), Relaxed);
                Hash(Some(Sha256::new()))
            }
            None => Hash(Some(Sha256::new())),
        }
    }

    /// Sends up to `end`. Answers whether the source had so many bytes.
    async fn send(
        &self,
        pair: &Pair,
        upload: &mut dyn Upload,
        hash: &mut Hash,
        end: u64,
    ) -> Result<bool, Error> {
        while upload.offset() < end {
            let step = STEP.min(end - upload.offset());
            self.pass_bytes(step).await;
            if !self.checksum {
                let direct = upload.copy_from(&*self.source, &pair.folder, &pair.entry.name, step);
                if let Some(direct) = direct {
                    hash.0 = None;
                    direct.await?;
                    continue;
                }
            }
            let from = upload.offset();
            let mut chunks = self
                .source
                .read(&pair.folder, &pair.entry.name, from, step)
                .await?;
            while let Some(chunk) = chunks.next().await? {
                hash.update(&chunk);
                upload.write(chunk).await?;
            }
            if upload.offset() != from + step {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Leaves nothing of a large file behind that will not be gone on with.
    pub(super) async fn give_up(&self, pair: &Pair) {
        if pair.entry.size <= super::tasks::LARGE {
            return;
        }
        let resume = self.part(pair).await.map(|part| part.resume);
        let temp = self.order(pair).temp;
        // If even that fails, plans of this job pass it over, and the failure that is recorded is the one that matters.
        let discard = self
            .destination
            .discard(&pair.folder, &temp, resume.as_deref());
        let _ = discard.await;
    }

    async fn part(&self, pair: &Pair) -> Option<Part> {
        let (parent, name) = (pair.parent, pair.entry.name.clone());
        let found = self.writer.write(move |transaction| {
            use rusqlite::OptionalExtension;
            let query = "SELECT done, resume, hash FROM part WHERE parent = ? AND name = ?";
            transaction
                .query_row(query, params![parent, name], |row| {
                    Ok(Part {
                        done: row.get::<_, i64>(0)?.cast_unsigned(),
                        resume: row.get(1)?,
                        hash: row.get(2)?,
                    })
                })
                .optional()
        });
        found.await.ok().flatten()
    }

    /// Makes a part durable at the destination, then in the state file.
    async fn note(&self, pair: &Pair, upload: &mut dyn Upload, hash: &Hash) -> Result<(), Error> {
        let Some(resume) = upload.checkpoint().await? else {
            return Ok(());
        };
        failpoint::hit("before-part");
        let (parent, name) = (pair.parent, pair.entry.name.clone());
        let (done, hash) = (upload.offset().cast_signed(), hash.state());
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO part VALUES (?,?,?,?,?)")?;
            insert
                .execute(params![parent, name, done, resume, hash])
                .map(drop)
        };
        // If the state file cannot be written, the run ends by itself.
        let _ = self.writer.write(write).await;
        Ok(())
    }
}

/// Whether the source still is what was listed.
fn same(now: &Entry, listed: &Entry) -> bool {
    (now.kind, now.size, now.modified, &now.target)
        == (listed.kind, listed.size, listed.modified, &listed.target)
}
