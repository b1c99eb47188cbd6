//! One entry, when the storages cannot move it by themselves.

use super::tasks::{Copier, precondition};
use crate::status::{Difference, Status};
use crate::store::Pair;
use headworks_storage::{
    Chunks, Entry, Error, ErrorKind, Extended, Kind, Precondition, Upload, UploadPlan, failpoint,
};
use rusqlite::params;
use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering::Relaxed;

/// How much of a large file is sent before that is made durable and noted.
pub(super) const PART_SIZE: u64 = 64 << 20;
/// What is asked of the bandwidth at once.
const BANDWIDTH_STEP: u64 = 4 << 20;

/// What became of an entry.
pub(super) enum TransferOutcome {
    /// What is there, the hash of its bytes, and the source's time if only reading told it.
    Done(Box<Entry>, Option<[u8; 32]>, Option<i64>),
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

/// What only looking at the source, or reading it, told.
struct SourceInfo {
    version: Option<Vec<u8>>,
    modified: Option<i64>,
    extended: Extended,
}

/// A place in a large file, and the hash up to there.
struct Checkpoint {
    offset: u64,
    hash: Option<Vec<u8>>,
}

impl Checkpoint {
    fn new(upload: &dyn Upload, hash: &RunningHash) -> Checkpoint {
        Checkpoint {
            offset: upload.offset(),
            hash: hash.state(),
        }
    }
}

/// The hash so far, as long as all bytes passed through us.
struct RunningHash(Option<Sha256>);

impl RunningHash {
    fn update(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.0 {
            hasher.update(bytes);
        }
    }

    fn state(&self) -> Option<Vec<u8>> {
        self.0.as_ref().map(|hasher| hasher.serialize().to_vec())
    }

    fn resume(state: Option<&[u8]>) -> RunningHash {
        let serialized = state.and_then(|state| state.try_into().ok());
        RunningHash(serialized.and_then(|state| Sha256::deserialize(state).ok()))
    }
}

impl Copier {
    pub(super) async fn copy_entry(
        &self,
        pair: &Pair,
        status: Status,
    ) -> Result<TransferOutcome, Error> {
        self.copy_entry_as(pair, status, &pair.entry.name).await
    }

    /// The same, under another name at the destination.
    pub(super) async fn copy_entry_as(
        &self,
        pair: &Pair,
        status: Status,
        target_name: &[u8],
    ) -> Result<TransferOutcome, Error> {
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        // A file is looked at when it was read: that says the same of all its bytes, for one call
        // less.
        if pair.entry.kind != Kind::File {
            let current = self.on_source(self.source.stat(folder, Some(name))).await?;
            if !is_unchanged(&current, &pair.entry) {
                return Ok(TransferOutcome::Changed);
            }
        }
        if status == Status::Different(Difference::Metadata) {
            let extended = self.extended_attributes(pair).await?;
            let entry = self
                .destination
                .set_attributes(folder, Some(name), &pair.entry, extended)
                .await?;
            return Ok(TransferOutcome::Done(entry.into(), None, None));
        }
        if pair.entry.kind == Kind::File {
            return self.copy_file(pair, target_name).await;
        }
        let mut item = self.copy_item(pair);
        if item.entry.name != target_name {
            // A name of ours.
            item.precondition = Precondition::Any;
            item.entry.name = target_name.to_vec();
        }
        let entry = self.destination.make_node(folder, &item).await?;
        Ok(TransferOutcome::Done(entry.into(), None, None))
    }

    async fn extended_attributes(&self, pair: &Pair) -> Result<Extended, Error> {
        let both_support =
            self.source.capabilities().extended && self.destination.capabilities().extended;
        match both_support {
            true => {
                let name = Some(pair.entry.name.as_slice());
                self.on_source(self.source.extended(&pair.folder, name))
                    .await
            }
            false => Ok(Vec::new()),
        }
    }

    async fn copy_file(&self, pair: &Pair, target_name: &[u8]) -> Result<TransferOutcome, Error> {
        let size = pair.entry.size;
        let is_large = size > super::tasks::LARGE_FILE;
        let part = match is_large {
            true => self.load_part(pair).await,
            false => None,
        };
        let Some(mut info) = self.stat_before_read(pair, is_large).await? else {
            return Ok(TransferOutcome::Changed);
        };
        let mut plan = self.upload_plan(pair, part.as_ref(), &info);
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        if target_name != name {
            plan.precondition = Precondition::Any;
        }
        let mut upload = self.destination.upload(folder, target_name, plan).await?;
        let mut hash = self
            .resume_hash(pair, upload.offset(), part.as_ref())
            .await?;
        let keeps_parts = is_large && self.destination.capabilities().keeps_parts;
        let mut checkpoint = Checkpoint::new(&*upload, &hash);
        if keeps_parts && part.is_none() {
            self.save_part(pair, &mut *upload, &checkpoint).await?;
        }
        let mut chunks = None;
        // An empty file is read as well where reading tells what it is.
        let mut unread = size == 0 && self.read_reveals_metadata();
        while upload.offset() < size || unread {
            unread = false;
            let end = size.min(upload.offset() + PART_SIZE);
            let sent = self.send_part(pair, &mut *upload, &mut hash, end, (&mut chunks, &mut info));
            match sent.await {
                Ok(true) => {}
                Ok(false) => {
                    upload.abort().await?;
                    return self.size_mismatch(pair).await;
                }
                Err(error) => {
                    // What is durable already is gone on with; anything else is removed.
                    if part.is_none() && end <= PART_SIZE && !keeps_parts {
                        let _ = upload.abort().await;
                    }
                    return Err(error);
                }
            }
            if end < size {
                let current = Checkpoint::new(&*upload, &hash);
                let before = std::mem::replace(&mut checkpoint, current);
                // Where parts that nobody noted are kept as well, what is under way need not be
                // waited for.
                let durable = if keeps_parts { &before } else { &checkpoint };
                self.save_part(pair, &mut *upload, durable).await?;
                failpoint::hit("after-part");
                if self.stop.is_cancelled() {
                    return Ok(TransferOutcome::Stopped);
                }
            }
        }
        // Where every read told what it reads, that is looked at already.
        if !self.read_reveals_metadata() {
            let is_same = match chunks.as_ref().and_then(|chunks| chunks.entry_at_end()) {
                Some(current) => is_unchanged(current, &pair.entry),
                None => {
                    let current = self.on_source(self.source.stat(folder, Some(name))).await?;
                    is_unchanged(&current, &pair.entry)
                }
            };
            if !is_same {
                upload.abort().await?;
                return Ok(TransferOutcome::Changed);
            }
        }
        let extended = match self.passes_metadata() {
            true => info.extended,
            false => self.extended_attributes(pair).await?,
        };
        let like = Entry {
            modified: info.modified,
            ..pair.entry.clone()
        };
        let entry = upload.finish(like, extended).await?;
        let digest = hash.0.map(|hasher| hasher.finalize().into());
        Ok(TransferOutcome::Done(entry.into(), digest, info.modified))
    }

    /// The source had fewer or more bytes than it should: it changed, unless it says that it did
    /// not. Then they were lost on the way, and the next attempt may get all of them.
    async fn size_mismatch(&self, pair: &Pair) -> Result<TransferOutcome, Error> {
        if self.read_reveals_metadata() {
            return Ok(TransferOutcome::Changed);
        }
        let stat = self.source.stat(&pair.folder, Some(&pair.entry.name));
        match is_unchanged(&self.on_source(stat).await?, &pair.entry) {
            false => Ok(TransferOutcome::Changed),
            true => {
                let (path, cause) = (pair.path(), "not as many bytes came as it says it has");
                Err(Error::new(ErrorKind::Temporary, "read", &path, cause))
            }
        }
    }

    /// Whether who reads a file learns what it is: when it was modified, if listings do not say, or
    /// its metadata.
    fn read_reveals_metadata(&self) -> bool {
        let source = self.source.capabilities();
        !source.listed_times || source.metadata
    }

    fn passes_metadata(&self) -> bool {
        self.source.capabilities().metadata && self.destination.capabilities().metadata
    }

    /// What has to be known of the source before its bytes come; `None` if it is not what was
    /// listed.
    async fn stat_before_read(
        &self,
        pair: &Pair,
        is_large: bool,
    ) -> Result<Option<SourceInfo>, Error> {
        let mut info = SourceInfo {
            version: pair.entry.etag().cloned(),
            modified: pair.entry.modified,
            extended: Extended::new(),
        };
        // A small file brings all that with its bytes, and one call less.
        if !is_large || !self.read_reveals_metadata() {
            return Ok(Some(info));
        }
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        let current = self.on_source(self.source.stat(folder, Some(name))).await?;
        if !is_unchanged(&current, &pair.entry) {
            return Ok(None);
        }
        info.version = current.version;
        info.modified = current.modified;
        if self.passes_metadata() {
            info.extended = self
                .on_source(self.source.extended(folder, Some(name)))
                .await?;
        }
        Ok(Some(info))
    }

    fn upload_plan(&self, pair: &Pair, part: Option<&Part>, info: &SourceInfo) -> UploadPlan {
        UploadPlan {
            temp: self.copy_item(pair).temp,
            size: pair.entry.size,
            resume: part.map(|part| part.resume.clone()),
            modified: info.modified,
            extended: info.extended.clone(),
            precondition: precondition(pair),
        }
    }

    /// The hash to go on with; counts what need not be sent again.
    async fn resume_hash(
        &self,
        pair: &Pair,
        offset: u64,
        part: Option<&Part>,
    ) -> Result<RunningHash, Error> {
        let Some(part) = part else {
            return Ok(RunningHash(Some(Sha256::new())));
        };
        self.progress
            .parts_kept
            .fetch_add(offset / PART_SIZE, Relaxed);
        if offset < part.done {
            let again = (part.done - offset).div_ceil(PART_SIZE);
            self.progress.parts_again.fetch_add(again, Relaxed);
        }
        let (mut hash, from) = match offset {
            0 => return Ok(RunningHash(Some(Sha256::new()))),
            offset if offset < part.done => (RunningHash(Some(Sha256::new())), 0),
            _ => (RunningHash::resume(part.hash.as_deref()), part.done),
        };
        if hash.0.is_none() || from == offset {
            return Ok(hash);
        }
        // More, or less, arrived than was noted: the bytes in between are read here again, and not
        // sent.
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        let read = self.source.read(folder, name, from, offset - from);
        let mut chunks = self.on_source(read).await?;
        let mut at = from;
        while let Some(chunk) = self.on_source(chunks.next()).await? {
            at += chunk.len() as u64;
            hash.update(&chunk);
        }
        match at == offset {
            true => Ok(hash),
            // A hash of fewer bytes than were sent would be wrong for ever.
            false => Err(Error::truncated(&pair.path(), at, pair.entry.size)),
        }
    }

    /// Sends up to `end`, or a little beyond; what is read is gone on with next time. Answers
    /// whether the source is what was listed, and had so many bytes.
    async fn send_part(
        &self,
        pair: &Pair,
        upload: &mut dyn Upload,
        hash: &mut RunningHash,
        end: u64,
        (chunks, info): (&mut Option<Box<dyn Chunks>>, &mut SourceInfo),
    ) -> Result<bool, Error> {
        while !self.checksum && upload.offset() < end {
            let step = BANDWIDTH_STEP.min(end - upload.offset());
            let direct = upload.copy_from(&*self.source, &pair.folder, &pair.entry.name, step);
            let Some(direct) = direct else { break };
            self.throttle(step).await;
            hash.0 = None;
            match direct.await {
                // The source has fewer bytes than were listed.
                Err(error) if error.kind() == ErrorKind::Changed => return Ok(false),
                copied => copied?,
            }
        }
        let from = upload.offset();
        if from == end && from > 0 {
            return Ok(true);
        }
        if chunks.is_none() {
            let Some(begun) = self.read(pair, from, info).await? else {
                return Ok(false);
            };
            *chunks = Some(begun);
        }
        // The last part ends when there is no more: only then it is known whether all of it was as
        // it should be.
        while let Some(reading) = chunks.as_mut()
            && (upload.offset() < end || end == pair.entry.size)
        {
            let chunk = match self.on_source(reading.next()).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(upload.offset() == pair.entry.size),
                Err(error) if error.kind() == ErrorKind::Changed => return Ok(false),
                Err(error) => return Err(error),
            };
            // A far side that does not stop is not listened to: a small file is kept in memory
            // until it is whole.
            if upload.offset() + chunk.len() as u64 > pair.entry.size {
                return Ok(false);
            }
            self.throttle(chunk.len() as u64).await;
            hash.update(&chunk);
            upload.write(chunk).await?;
        }
        Ok(true)
    }

    /// Begins to read from there to the end; `None` if it is not what was listed.
    async fn read(
        &self,
        pair: &Pair,
        from: u64,
        info: &mut SourceInfo,
    ) -> Result<Option<Box<dyn Chunks>>, Error> {
        let is_small = pair.entry.size <= super::tasks::LARGE_FILE;
        let length = pair.entry.size - from;
        let read = self
            .source
            .read(&pair.folder, &pair.entry.name, from, length);
        let chunks = self.on_source(read).await?;
        if let Some((current, extended)) = chunks.info()
            && self.read_reveals_metadata()
        {
            let is_listed = current.version.is_some() && current.version == pair.entry.version;
            if is_listed && current.size != pair.entry.size {
                let cause = "the answer has another length than the version that it names";
                let path = pair.path();
                return Err(Error::new(ErrorKind::Temporary, "read", &path, cause));
            }
            let other = info.version.is_some() && info.version != current.version;
            if other || !is_unchanged(current, &pair.entry) {
                return Ok(None);
            }
            info.version.clone_from(&current.version);
            if is_small {
                info.modified = current.modified;
                info.extended.clone_from(extended);
            }
        }
        Ok(Some(chunks))
    }

    /// Leaves nothing of a large file behind that will not be gone on with.
    pub(super) async fn discard_upload(&self, pair: &Pair) {
        if pair.entry.size <= super::tasks::LARGE_FILE {
            return;
        }
        let resume = self.load_part(pair).await.map(|part| part.resume);
        let plan = UploadPlan {
            temp: self.copy_item(pair).temp,
            size: pair.entry.size,
            resume,
            ..UploadPlan::default()
        };
        // If even that fails, plans of this job pass it over, and the failure that is recorded is
        // the one that matters.
        let discard = self
            .destination
            .discard(&pair.folder, &pair.entry.name, &plan);
        let _ = discard.await;
    }

    async fn load_part(&self, pair: &Pair) -> Option<Part> {
        let (parent, name) = (pair.parent, pair.entry.name.clone());
        let info = self.writer.write(move |transaction| {
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
        info.await.ok().flatten()
    }

    /// Makes a part durable at the destination, then in the state file.
    async fn save_part(
        &self,
        pair: &Pair,
        upload: &mut dyn Upload,
        checkpoint: &Checkpoint,
    ) -> Result<(), Error> {
        let Some(resume) = upload.checkpoint(checkpoint.offset).await? else {
            return Ok(());
        };
        failpoint::hit("before-part");
        let (parent, name) = (pair.parent, pair.entry.name.clone());
        let (done, hash) = (checkpoint.offset.cast_signed(), checkpoint.hash.clone());
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
fn is_unchanged(current: &Entry, listed: &Entry) -> bool {
    let same_time = listed.modified.is_none() || current.modified == listed.modified;
    let same_version = listed.etag().is_none() || current.version == listed.version;
    same_time
        && same_version
        && (current.kind, current.size, &current.target)
            == (listed.kind, listed.size, &listed.target)
}
