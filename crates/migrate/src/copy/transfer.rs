//! One entry, when the storages cannot move it by themselves.

use super::tasks::{Copier, expect};
use crate::status::{Difference, Status};
use crate::store::Pair;
use headworks_storage::{
    Chunks, Entry, Error, ErrorKind, Expect, Extended, Kind, Upload, UploadPlan, failpoint,
};
use rusqlite::params;
use sha2::digest::common::hazmat::SerializableState;
use sha2::{Digest, Sha256};
use std::sync::atomic::Ordering::Relaxed;

/// How much of a large file is sent before that is made durable and noted.
pub(super) const PART: u64 = 64 << 20;
/// What is asked of the bandwidth at once.
const STEP: u64 = 4 << 20;

/// What became of an entry.
pub(super) enum Transferred {
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
struct Found {
    version: Option<Vec<u8>>,
    modified: Option<i64>,
    extended: Extended,
}

/// A place in a large file, and the hash up to there.
struct Reached {
    offset: u64,
    hash: Option<Vec<u8>>,
}

impl Reached {
    fn new(upload: &dyn Upload, hash: &Hash) -> Reached {
        Reached {
            offset: upload.offset(),
            hash: hash.state(),
        }
    }
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

impl Copier {
    pub(super) async fn one(&self, pair: &Pair, status: Status) -> Result<Transferred, Error> {
        self.onto(pair, status, &pair.entry.name).await
    }

    /// The same, under another name at the destination.
    pub(super) async fn onto(
        &self,
        pair: &Pair,
        status: Status,
        onto: &[u8],
    ) -> Result<Transferred, Error> {
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        // A file is looked at when it was read: that says the same of all its bytes, for one call
        // less.
        if pair.entry.kind != Kind::File {
            let now = self.of_source(self.source.stat(folder, Some(name))).await?;
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
            return Ok(Transferred::Done(entry.into(), None, None));
        }
        if pair.entry.kind == Kind::File {
            return self.file(pair, onto).await;
        }
        let mut order = self.order(pair);
        if order.entry.name != onto {
            // A name of ours.
            order.expect = Expect::Anything;
            order.entry.name = onto.to_vec();
        }
        let entry = self.destination.make_node(folder, &order).await?;
        Ok(Transferred::Done(entry.into(), None, None))
    }

    async fn attributes(&self, pair: &Pair) -> Result<Extended, Error> {
        let both = self.source.capabilities().extended && self.destination.capabilities().extended;
        match both {
            true => {
                let name = Some(pair.entry.name.as_slice());
                self.of_source(self.source.extended(&pair.folder, name))
                    .await
            }
            false => Ok(Vec::new()),
        }
    }

    async fn file(&self, pair: &Pair, onto: &[u8]) -> Result<Transferred, Error> {
        let size = pair.entry.size;
        let is_large = size > super::tasks::LARGE;
        let part = match is_large {
            true => self.part(pair).await,
            false => None,
        };
        let Some(mut found) = self.beforehand(pair, is_large).await? else {
            return Ok(Transferred::Changed);
        };
        let mut plan = self.upload_plan(pair, part.as_ref(), &found);
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        if onto != name {
            plan.expect = Expect::Anything;
        }
        let mut upload = self.destination.upload(folder, onto, plan).await?;
        let mut hash = self.take_up(pair, upload.offset(), part.as_ref()).await?;
        let keeps_parts = is_large && self.destination.capabilities().keeps_parts;
        let mut reached = Reached::new(&*upload, &hash);
        if keeps_parts && part.is_none() {
            self.note(pair, &mut *upload, &reached).await?;
        }
        let mut chunks = None;
        // An empty file is read as well where reading tells what it is.
        let mut unread = size == 0 && self.is_told_by_reading();
        while upload.offset() < size || unread {
            unread = false;
            let end = size.min(upload.offset() + PART);
            let sent = self.send(
                pair,
                &mut *upload,
                &mut hash,
                end,
                (&mut chunks, &mut found),
            );
            match sent.await {
                Ok(true) => {}
                Ok(false) => {
                    upload.abort().await?;
                    return self.unlike(pair).await;
                }
                Err(error) => {
                    // What is durable already is gone on with; anything else is removed.
                    if part.is_none() && end <= PART && !keeps_parts {
                        let _ = upload.abort().await;
                    }
                    return Err(error);
                }
            }
            if end < size {
                let now = Reached::new(&*upload, &hash);
                let before = std::mem::replace(&mut reached, now);
                // Where parts that nobody noted are kept as well, what is under way need not be
                // waited for.
                let durable = if keeps_parts { &before } else { &reached };
                self.note(pair, &mut *upload, durable).await?;
                failpoint::hit("after-part");
                if self.stop.is_cancelled() {
                    return Ok(Transferred::Stopped);
                }
            }
        }
        // Where every read told what it reads, that is looked at already.
        if !self.is_told_by_reading() {
            let is_same = match chunks.as_ref().and_then(|chunks| chunks.after()) {
                Some(now) => same(now, &pair.entry),
                None => {
                    let now = self.of_source(self.source.stat(folder, Some(name))).await?;
                    same(&now, &pair.entry)
                }
            };
            if !is_same {
                upload.abort().await?;
                return Ok(Transferred::Changed);
            }
        }
        let extended = match self.passes_metadata() {
            true => found.extended,
            false => self.attributes(pair).await?,
        };
        let like = Entry {
            modified: found.modified,
            ..pair.entry.clone()
        };
        let entry = upload.finish(like, extended).await?;
        let digest = hash.0.map(|hasher| hasher.finalize().into());
        Ok(Transferred::Done(entry.into(), digest, found.modified))
    }

    /// The source had fewer or more bytes than it should: it changed, unless it says that it did
    /// not. Then they were lost on the way, and the next attempt may get all of them.
    async fn unlike(&self, pair: &Pair) -> Result<Transferred, Error> {
        if self.is_told_by_reading() {
            return Ok(Transferred::Changed);
        }
        let stat = self.source.stat(&pair.folder, Some(&pair.entry.name));
        match same(&self.of_source(stat).await?, &pair.entry) {
            false => Ok(Transferred::Changed),
            true => {
                let (path, words) = (pair.path(), "not as many bytes came as it says it has");
                Err(Error::new(ErrorKind::Temporary, "read", &path, words))
            }
        }
    }

    /// Whether who reads a file learns what it is: when it was modified, if listings do not say, or
    /// its metadata.
    fn is_told_by_reading(&self) -> bool {
        let source = self.source.capabilities();
        !source.listed_times || source.metadata
    }

    fn passes_metadata(&self) -> bool {
        self.source.capabilities().metadata && self.destination.capabilities().metadata
    }

    /// What has to be known of the source before its bytes come; `None` if it is not what was
    /// listed.
    async fn beforehand(&self, pair: &Pair, is_large: bool) -> Result<Option<Found>, Error> {
        let mut found = Found {
            version: pair.entry.etag().cloned(),
            modified: pair.entry.modified,
            extended: Extended::new(),
        };
        // A small file brings all that with its bytes, and one call less.
        if !is_large || !self.is_told_by_reading() {
            return Ok(Some(found));
        }
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        let now = self.of_source(self.source.stat(folder, Some(name))).await?;
        if !same(&now, &pair.entry) {
            return Ok(None);
        }
        found.version = now.version;
        found.modified = now.modified;
        if self.passes_metadata() {
            found.extended = self
                .of_source(self.source.extended(folder, Some(name)))
                .await?;
        }
        Ok(Some(found))
    }

    fn upload_plan(&self, pair: &Pair, part: Option<&Part>, found: &Found) -> UploadPlan {
        UploadPlan {
            temp: self.order(pair).temp,
            size: pair.entry.size,
            resume: part.map(|part| part.resume.clone()),
            modified: found.modified,
            extended: found.extended.clone(),
            expect: expect(pair),
        }
    }

    /// The hash to go on with; counts what need not be sent again.
    async fn take_up(&self, pair: &Pair, offset: u64, part: Option<&Part>) -> Result<Hash, Error> {
        let Some(part) = part else {
            return Ok(Hash(Some(Sha256::new())));
        };
        self.progress.parts_kept.fetch_add(offset / PART, Relaxed);
        if offset < part.done {
            let again = (part.done - offset).div_ceil(PART);
            self.progress.parts_again.fetch_add(again, Relaxed);
        }
        let (mut hash, from) = match offset {
            0 => return Ok(Hash(Some(Sha256::new()))),
            offset if offset < part.done => (Hash(Some(Sha256::new())), 0),
            _ => (Hash::resume(part.hash.as_deref()), part.done),
        };
        if hash.0.is_none() || from == offset {
            return Ok(hash);
        }
        // More, or less, arrived than was noted: the bytes in between are read here again, and not
        // sent.
        let (folder, name) = (&*pair.folder, pair.entry.name.as_slice());
        let read = self.source.read(folder, name, from, offset - from);
        let mut chunks = self.of_source(read).await?;
        let mut at = from;
        while let Some(chunk) = self.of_source(chunks.next()).await? {
            at += chunk.len() as u64;
            hash.update(&chunk);
        }
        match at == offset {
            true => Ok(hash),
            // A hash of fewer bytes than were sent would be wrong for ever.
            false => Err(Error::short(&pair.path(), at, pair.entry.size)),
        }
    }

    /// Sends up to `end`, or a little beyond; what is read is gone on with next time. Answers
    /// whether the source is what was listed, and had so many bytes.
    async fn send(
        &self,
        pair: &Pair,
        upload: &mut dyn Upload,
        hash: &mut Hash,
        end: u64,
        (chunks, found): (&mut Option<Box<dyn Chunks>>, &mut Found),
    ) -> Result<bool, Error> {
        while !self.checksum && upload.offset() < end {
            let step = STEP.min(end - upload.offset());
            let direct = upload.copy_from(&*self.source, &pair.folder, &pair.entry.name, step);
            let Some(direct) = direct else { break };
            self.pass_bytes(step).await;
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
            let Some(begun) = self.read(pair, from, found).await? else {
                return Ok(false);
            };
            *chunks = Some(begun);
        }
        // The last part ends when there is no more: only then it is known whether all of it was as
        // it should be.
        while let Some(reading) = chunks.as_mut()
            && (upload.offset() < end || end == pair.entry.size)
        {
            let chunk = match self.of_source(reading.next()).await {
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
            self.pass_bytes(chunk.len() as u64).await;
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
        found: &mut Found,
    ) -> Result<Option<Box<dyn Chunks>>, Error> {
        let is_small = pair.entry.size <= super::tasks::LARGE;
        let length = pair.entry.size - from;
        let read = self
            .source
            .read(&pair.folder, &pair.entry.name, from, length);
        let chunks = self.of_source(read).await?;
        if let Some((now, extended)) = chunks.found()
            && self.is_told_by_reading()
        {
            let is_listed = now.version.is_some() && now.version == pair.entry.version;
            if is_listed && now.size != pair.entry.size {
                let words = "the answer has another length than the version that it names";
                let path = pair.path();
                return Err(Error::new(ErrorKind::Temporary, "read", &path, words));
            }
            let other = found.version.is_some() && found.version != now.version;
            if other || !same(now, &pair.entry) {
                return Ok(None);
            }
            found.version.clone_from(&now.version);
            if is_small {
                found.modified = now.modified;
                found.extended.clone_from(extended);
            }
        }
        Ok(Some(chunks))
    }

    /// Leaves nothing of a large file behind that will not be gone on with.
    pub(super) async fn give_up(&self, pair: &Pair) {
        if pair.entry.size <= super::tasks::LARGE {
            return;
        }
        let resume = self.part(pair).await.map(|part| part.resume);
        let plan = UploadPlan {
            temp: self.order(pair).temp,
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
    async fn note(
        &self,
        pair: &Pair,
        upload: &mut dyn Upload,
        reached: &Reached,
    ) -> Result<(), Error> {
        let Some(resume) = upload.checkpoint(reached.offset).await? else {
            return Ok(());
        };
        failpoint::hit("before-part");
        let (parent, name) = (pair.parent, pair.entry.name.clone());
        let (done, hash) = (reached.offset.cast_signed(), reached.hash.clone());
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
    let same_time = listed.modified.is_none() || now.modified == listed.modified;
    let same_version = listed.etag().is_none() || now.version == listed.version;
    same_time
        && same_version
        && (now.kind, now.size, &now.target) == (listed.kind, listed.size, &listed.target)
}
