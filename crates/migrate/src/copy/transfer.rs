//! Transfer of one entry through this process.

use super::tasks::{Copier, precondition};
use crate::progress::Progress;
use crate::status::{Difference, Status};
use crate::store::Pair;
use headworks_storage::{
    Chunks, Entry, Error, ErrorKind, Extended, Kind, Posix, Precondition, Upload, UploadPlan,
    failpoint,
};
use rusqlite::params;
use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a large file between two checkpoints.
pub(super) const PART_SIZE: u64 = 64 << 20;
/// Bytes requested from the bandwidth limiter at once.
const BANDWIDTH_STEP: u64 = 4 << 20;

/// The result of a transfer.
pub(super) enum TransferOutcome {
    /// The entry at the destination, the hash of its bytes, and what was learned about the source.
    Done(Box<Entry>, Option<[u8; 32]>, Revealed),
    Changed,
    /// The job was stopped. Checkpoints are saved.
    Stopped,
}

/// Attributes of a source entry that copying revealed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Revealed {
    /// Its time, if the listing did not contain it.
    pub(super) modified: Option<i64>,
    /// Its owner and permissions, if they are others than listed.
    pub(super) posix: Option<Posix>,
}

impl Revealed {
    /// Returns the owner and permissions of an entry if they are others than listed.
    fn new_posix(current: Option<Posix>, listed: &Entry) -> Option<Posix> {
        current.filter(|_| current != listed.posix)
    }

    /// Completes the row of the source.
    pub(super) fn apply(self, entry: &mut Entry) {
        entry.modified = entry.modified.or(self.modified);
        entry.posix = self.posix.or(entry.posix);
    }
}

/// The saved progress of a large file.
struct Part {
    done: u64,
    resume: Vec<u8>,
    hash: Option<Vec<u8>>,
    checksum: Option<Vec<u8>>,
}

/// Properties of the source file that a stat or its first bytes reveal.
struct SourceInfo {
    version: Option<Vec<u8>>,
    modified: Option<i64>,
    extended: Extended,
}

/// An offset in a large file, and the hashes up to it.
struct Checkpoint {
    offset: u64,
    hash: Option<Vec<u8>>,
    checksum: Option<Vec<u8>>,
}

impl Checkpoint {
    fn new(upload: &dyn Upload, hash: &RunningHash) -> Checkpoint {
        Checkpoint {
            offset: upload.offset(),
            hash: hash.state(),
            checksum: hash.checksum.clone(),
        }
    }
}

/// The result of sending a part.
enum Sent {
    All,
    /// The source is not as listed, or has another number of bytes.
    Mismatch,
    /// The job was stopped.
    Stopped,
}

/// Shows the bytes of a large file while it is being sent. When the file has ended, whatever the
/// result, its size is counted with the others.
struct LiveBytes<'p> {
    progress: Option<&'p Progress>,
    shown: u64,
}

impl<'p> LiveBytes<'p> {
    fn new(progress: &'p Progress, is_large: bool) -> LiveBytes<'p> {
        let progress = is_large.then_some(progress);
        LiveBytes { progress, shown: 0 }
    }

    fn set(&mut self, offset: u64) {
        if let Some(progress) = self.progress {
            progress.add_done(0, offset.saturating_sub(self.shown));
            self.shown = self.shown.max(offset);
        }
    }
}

impl Drop for LiveBytes<'_> {
    fn drop(&mut self) {
        if let Some(progress) = self.progress {
            progress.bytes.fetch_sub(self.shown, Relaxed);
        }
    }
}

/// The hashes so far.
struct RunningHash {
    /// `None` once bytes bypassed this process.
    sha256: Option<Sha256>,
    /// The state of the checksum that the source states, at the last checkpoint.
    checksum: Option<Vec<u8>>,
}

impl RunningHash {
    fn new() -> RunningHash {
        RunningHash {
            sha256: Some(Sha256::new()),
            checksum: None,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.sha256 {
            hasher.update(bytes);
        }
    }

    fn state(&self) -> Option<Vec<u8>> {
        let hasher = self.sha256.as_ref();
        hasher.map(|hasher| hasher.serialize().to_vec())
    }

    fn resume(part: &Part) -> RunningHash {
        let state = part.hash.as_deref();
        let serialized = state.and_then(|state| state.try_into().ok());
        RunningHash {
            sha256: serialized.and_then(|state| Sha256::deserialize(state).ok()),
            checksum: part.checksum.clone(),
        }
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

    /// Transfers an entry under another name at the destination.
    pub(super) async fn copy_entry_as(
        &self,
        pair: &Pair,
        status: Status,
        target_name: &[u8],
    ) -> Result<TransferOutcome, Error> {
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        let is_metadata = status == Status::Different(Difference::Metadata);
        // A file is checked after it was read instead: that covers all of its bytes with one call
        // less.
        if pair.entry.kind == Kind::File && !is_metadata {
            return self.copy_file(pair, target_name).await;
        }
        let current = self.on_source(self.source.stat(folder, Some(name))).await?;
        if !is_unchanged(&current, &pair.entry) {
            return Ok(TransferOutcome::Changed);
        }
        let revealed = Revealed {
            modified: None,
            posix: Revealed::new_posix(current.posix, &pair.entry),
        };
        let mut item = self.copy_item(pair);
        revealed.apply(&mut item.entry);
        if is_metadata {
            let extended = self.extended_attributes(pair).await?;
            let entry = self
                .destination
                .set_attributes(
                    folder,
                    Some(name),
                    &item.entry,
                    extended,
                    &item.precondition,
                )
                .await?;
            return Ok(TransferOutcome::Done(entry.into(), None, revealed));
        }
        if item.entry.name != target_name {
            // A temporary name of this job.
            item.precondition = Precondition::Any;
            item.entry.name = target_name.to_vec();
        }
        let entry = self.destination.make_node(folder, &item).await?;
        Ok(TransferOutcome::Done(entry.into(), None, revealed))
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
        // A durable part can be resumed; anything else is removed.
        let is_resumable = |end| part.is_some() || end > PART_SIZE || keeps_parts;
        let mut live = LiveBytes::new(&self.progress, is_large);
        live.set(upload.offset());
        let mut chunks = None;
        // An empty file must be read too where reading reveals its metadata.
        let mut unread = size == 0 && self.read_reveals_metadata();
        while upload.offset() < size || unread {
            unread = false;
            let end = size.min(upload.offset() + PART_SIZE);
            let reading = (&mut chunks, &mut info, &mut live);
            let sent = self.send_part(pair, &mut *upload, &mut hash, end, reading);
            match sent.await {
                Ok(Sent::All) => {}
                Ok(Sent::Mismatch) => {
                    upload.abort().await?;
                    return self.size_mismatch(pair).await;
                }
                Ok(Sent::Stopped) => {
                    if !is_resumable(end) {
                        let _ = upload.abort().await;
                    }
                    return Ok(TransferOutcome::Stopped);
                }
                Err(error) if error.kind() == ErrorKind::Corrupt => {
                    // Which of the bytes are wrong is not known, so no part of them is resumed.
                    // Forgotten first: an upload that cannot be aborted must not be resumed either.
                    self.forget_part(pair).await?;
                    let _ = upload.abort().await;
                    return Err(error);
                }
                Err(error) => {
                    if !is_resumable(end) {
                        let _ = upload.abort().await;
                    }
                    return Err(error);
                }
            }
            if end < size {
                hash.checksum = chunks.as_ref().and_then(|chunks| chunks.checksum_state());
                let current = Checkpoint::new(&*upload, &hash);
                let before = std::mem::replace(&mut checkpoint, current);
                // Where the storage keeps parts that were never noted, the transfers in flight need
                // not be awaited.
                let durable = if keeps_parts { &before } else { &checkpoint };
                self.save_part(pair, &mut *upload, durable).await?;
                failpoint::hit("after-part");
                if self.stop.is_cancelled() {
                    return Ok(TransferOutcome::Stopped);
                }
            }
        }
        // Where every read reveals the source's metadata, it has been checked already.
        let mut revealed = Revealed::default();
        if !self.read_reveals_metadata() {
            let at_end = chunks.as_ref().and_then(|chunks| chunks.entry_at_end());
            let current = match at_end {
                Some(current) => current.clone(),
                None => self.on_source(self.source.stat(folder, Some(name))).await?,
            };
            if !is_unchanged(&current, &pair.entry) {
                upload.abort().await?;
                return Ok(TransferOutcome::Changed);
            }
            revealed.posix = Revealed::new_posix(current.posix, &pair.entry);
        }
        let extended = match self.passes_metadata() {
            true => info.extended,
            false => self.extended_attributes(pair).await?,
        };
        revealed.modified = info.modified;
        // Permissions that were taken away since the listing must not be given to the copy.
        let like = Entry {
            modified: info.modified,
            posix: revealed.posix.or(pair.entry.posix),
            ..pair.entry.clone()
        };
        let entry = upload.finish(like, extended).await?;
        // The hash of bytes that the storage says nothing about proves nothing about its file: a
        // verification by hash reads both sides then.
        let is_checked = chunks.is_none_or(|chunks| chunks.is_checked());
        let hash = hash.sha256.filter(|_| is_checked);
        let digest = hash.map(|hasher| hasher.finalize().into());
        Ok(TransferOutcome::Done(entry.into(), digest, revealed))
    }

    /// Decides between a changed source and lost bytes. If the source claims not to have changed,
    /// the bytes were lost in transit, and the next attempt may succeed.
    async fn size_mismatch(&self, pair: &Pair) -> Result<TransferOutcome, Error> {
        if self.read_reveals_metadata() {
            return Ok(TransferOutcome::Changed);
        }
        let stat = self.source.stat(&pair.folder, Some(&pair.entry.name));
        match is_unchanged(&self.on_source(stat).await?, &pair.entry) {
            false => Ok(TransferOutcome::Changed),
            true => {
                let (path, cause) = (
                    pair.path(),
                    "the source sent another number of bytes than its size",
                );
                Err(Error::new(ErrorKind::Temporary, "read", &path, cause))
            }
        }
    }

    /// Returns whether reading a file reveals its time, if listings do not contain it, or its
    /// metadata.
    fn read_reveals_metadata(&self) -> bool {
        let source = self.source.capabilities();
        !source.listed_times || source.metadata
    }

    fn passes_metadata(&self) -> bool {
        self.source.capabilities().metadata && self.destination.capabilities().metadata
    }

    /// Returns what must be known about the source before its bytes arrive; `None` if it changed
    /// since it was listed.
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
        // A small file reveals it with its bytes, which saves a call.
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

    /// Returns the hash to continue with, and counts the parts that need not be sent again.
    async fn resume_hash(
        &self,
        pair: &Pair,
        offset: u64,
        part: Option<&Part>,
    ) -> Result<RunningHash, Error> {
        let Some(part) = part else {
            return Ok(RunningHash::new());
        };
        self.progress
            .parts_kept
            .fetch_add(offset / PART_SIZE, Relaxed);
        if offset < part.done {
            let again = (part.done - offset).div_ceil(PART_SIZE);
            self.progress.parts_again.fetch_add(again, Relaxed);
        }
        let (mut hash, from) = match offset {
            0 => return Ok(RunningHash::new()),
            offset if offset < part.done => (RunningHash::new(), 0),
            _ => (RunningHash::resume(part), part.done),
        };
        let is_hashed = hash.sha256.is_some() || hash.checksum.is_some();
        if from == offset || !is_hashed {
            return Ok(hash);
        }
        // More or less arrived than was recorded: the bytes in between are read again to update the
        // hash, and not sent.
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        let read = self.source.read(folder, name, from, offset - from);
        let mut chunks = self.on_source(read).await?;
        if let Some(state) = &hash.checksum {
            chunks.resume_checksum(state);
        }
        let mut at = from;
        while let Some(chunk) = self.on_source(chunks.next()).await? {
            at += chunk.len() as u64;
            hash.update(&chunk);
        }
        hash.checksum = chunks.checksum_state();
        match at == offset {
            true => Ok(hash),
            // A hash over fewer bytes than were sent would be wrong forever.
            false => Err(Error::truncated(&pair.path(), at, pair.entry.size)),
        }
    }

    /// Sends bytes up to `end`, or a little beyond.
    async fn send_part(
        &self,
        pair: &Pair,
        upload: &mut dyn Upload,
        hash: &mut RunningHash,
        end: u64,
        (chunks, info, live): (
            &mut Option<Box<dyn Chunks>>,
            &mut SourceInfo,
            &mut LiveBytes<'_>,
        ),
    ) -> Result<Sent, Error> {
        while !self.checksum && upload.offset() < end {
            let step = BANDWIDTH_STEP.min(end - upload.offset());
            let Some(direct) =
                upload.copy_from(&*self.source, &pair.folder, &pair.entry.name, step)
            else {
                break;
            };
            if self.throttle(step).await.is_err() {
                return Ok(Sent::Stopped);
            }
            hash.sha256 = None;
            match direct.await {
                // The source has fewer bytes than were listed.
                Err(error) if error.kind() == ErrorKind::Changed => return Ok(Sent::Mismatch),
                copied => copied?,
            }
            live.set(upload.offset());
        }
        let from = upload.offset();
        if from == end && from > 0 {
            return Ok(Sent::All);
        }
        if chunks.is_none() {
            let Some(mut begun) = self.read(pair, from, info).await? else {
                return Ok(Sent::Mismatch);
            };
            if let Some(state) = hash.checksum.take() {
                begun.resume_checksum(&state);
            }
            *chunks = Some(begun);
        }
        // The last part is read to the end of the stream: only then is its checksum verified.
        while let Some(reading) = chunks.as_mut()
            && (upload.offset() < end || end == pair.entry.size)
        {
            let chunk = match self.on_source(reading.next()).await {
                Ok(Some(chunk)) => chunk,
                Ok(None) if upload.offset() == pair.entry.size => return Ok(Sent::All),
                Ok(None) => return Ok(Sent::Mismatch),
                Err(error) if error.kind() == ErrorKind::Changed => return Ok(Sent::Mismatch),
                Err(error) => return Err(error),
            };
            // A server that sends more than it announced must not fill the memory: a small file is
            // buffered until it is complete.
            if upload.offset() + chunk.len() as u64 > pair.entry.size {
                return Ok(Sent::Mismatch);
            }
            if self.throttle(chunk.len() as u64).await.is_err() {
                return Ok(Sent::Stopped);
            }
            hash.update(&chunk);
            upload.write(chunk).await?;
            live.set(upload.offset());
        }
        Ok(Sent::All)
    }

    /// Starts reading at `from`; `None` if the file changed since it was listed.
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
                let cause = "the response has another length than the version it names";
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

    /// Discards the upload of a large file that will not be resumed.
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
        // If this fails too, later plans skip the leftovers, and the recorded failure is the one
        // that matters.
        let discard = self
            .destination
            .discard(&pair.folder, &pair.entry.name, &plan);
        let _ = discard.await;
    }

    async fn forget_part(&self, pair: &Pair) -> Result<(), Error> {
        let (parent, name) = (pair.parent, pair.entry.name.clone());
        let forgotten = self.writer.write(move |transaction| {
            let delete = "DELETE FROM part WHERE parent = ? AND name = ?";
            transaction.execute(delete, params![parent, name]).map(drop)
        });
        let failed = |error: crate::Error| {
            Error::new(
                ErrorKind::Other,
                "forget the parts of",
                &pair.path(),
                error.to_string(),
            )
        };
        forgotten.await.map_err(failed)
    }

    async fn load_part(&self, pair: &Pair) -> Option<Part> {
        let (parent, name) = (pair.parent, pair.entry.name.clone());
        let info = self.writer.write(move |transaction| {
            use rusqlite::OptionalExtension;
            let query =
                "SELECT done, resume, hash, checksum FROM part WHERE parent = ? AND name = ?";
            transaction
                .query_row(query, params![parent, name], |row| {
                    Ok(Part {
                        done: row.get::<_, i64>(0)?.cast_unsigned(),
                        resume: row.get(1)?,
                        hash: row.get(2)?,
                        checksum: row.get(3)?,
                    })
                })
                .optional()
        });
        info.await.ok().flatten()
    }

    /// Makes a part durable at the destination, then records it in the state file.
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
        let checksum = checkpoint.checksum.clone();
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            let mut insert =
                transaction.prepare_cached("INSERT OR REPLACE INTO part VALUES (?,?,?,?,?,?)")?;
            insert
                .execute(params![parent, name, done, resume, hash, checksum])
                .map(drop)
        };
        // If the state file cannot be written, the run ends by itself.
        let _ = self.writer.write(write).await;
        Ok(())
    }
}

/// Returns whether the source is still what was listed.
fn is_unchanged(current: &Entry, listed: &Entry) -> bool {
    let same_time = listed.modified.is_none() || current.modified == listed.modified;
    let same_version = listed.etag().is_none() || current.version == listed.version;
    same_time
        && same_version
        && (current.kind, current.size, &current.target)
            == (listed.kind, listed.size, &listed.target)
}
