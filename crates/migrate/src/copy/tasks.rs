//! What the pool's workers do.

use super::early;
use super::record::{Record, failure, touch, write_failed_folder, write_made, write_record};
use super::transfer::Transferred;
use crate::names;
use crate::progress::Progress;
use crate::status::{Difference, Status};
use crate::store::{FolderId, Pair, When, Writer, put_destination, put_failure};
use headworks_core::{Backoff, Cost, Job as PoolJob};
use headworks_pool::{Handler, Health, Permits, Report, Run};
use headworks_storage::{
    Backend, Copied, Entry, Error, ErrorKind, Expect, Fault, Folder, Kind, Order, failpoint,
    on_this_thread,
};
use rusqlite::Transaction;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// Larger files go alone, in parts.
pub(super) const LARGE: u64 = 8 << 20;

/// Entries that the storage copies in one call. A pause or a limit takes effect between calls.
const TOGETHER: usize = 16;

/// Work for one worker.
pub(super) struct Task {
    pub(super) what: What,
    pub(super) attempt: u32,
    pub(super) _room: OwnedSemaphorePermit,
}

pub(super) enum What {
    /// Entries of one folder.
    Files(Vec<(Pair, Status)>),
    /// Folders to make, whose parents exist.
    Make(Vec<FolderWork>),
    /// Folders whose attributes are to be set.
    Settle(Vec<FolderWork>),
}

/// A folder, and the place of its own entry.
#[derive(Clone, Debug)]
pub(super) struct FolderWork {
    pub(super) id: FolderId,
    pub(super) parent: FolderId,
    pub(super) path: Folder,
    pub(super) entry: Entry,
    /// Whether it need not be made, because what is in it makes it.
    pub(super) full: bool,
}

pub(super) struct Copier {
    /// Whether both sides are disks of this machine.
    pub(super) local: bool,
    /// Whether the destination is one.
    pub(super) onto_disk: bool,
    pub(super) source: Arc<dyn Backend>,
    pub(super) destination: Arc<dyn Backend>,
    pub(super) writer: Writer,
    pub(super) progress: Arc<Progress>,
    pub(super) bandwidth: Option<Permits>,
    pub(super) checksum: bool,
    pub(super) attempts: u32,
    pub(super) backoff: Backoff,
    pub(super) stop: CancellationToken,
    pub(super) fatal: Fatal,
    pub(super) job: String,
    pub(super) pass: i64,
    /// While the plan goes on: until when.
    pub(super) early: Option<CancellationToken>,
}

/// What ended the whole run, and at which side.
pub(super) type Fatal = Arc<Mutex<Option<(&'static str, Error)>>>;

/// Shared with the threads on which disks are written.
pub(super) struct Copiers(pub(super) Arc<Copier>);

impl Handler<Task> for Copiers {
    async fn run(&self, run: &mut Run<'_, Task>) -> Report {
        if self.0.is_over() {
            return Report::done(); // it stays where it is: in the state file
        }
        let task = &mut run.payload;
        task.attempt += 1;
        let what = std::mem::replace(&mut task.what, What::Files(Vec::new()));
        let (left, again) = self.attempt(what, task.attempt).await;
        task.what = left;
        match again {
            None => Report::done(),
            Some(Fault::Overload(wait)) => {
                task.attempt -= 1;
                Report::retry_in(wait).target(Health::Overloaded(wait))
            }
            Some(_) => {
                let pause = self.0.backoff.delay(task.attempt, crate::random());
                Report::retry_in(pause)
            }
        }
    }
}

impl Copiers {
    /// Between disks all of it on one thread, and folders of a disk always: waking another for
    /// every call costs more than the calls.
    async fn attempt(&self, what: What, attempt: u32) -> (What, Option<Fault>) {
        let of_folders = !matches!(what, What::Files(_));
        if !(self.0.local || self.0.onto_disk && of_folders) {
            return self.0.attempt(what, attempt).await;
        }
        let (copier, runtime) = (self.0.clone(), tokio::runtime::Handle::current());
        let copy = move || on_this_thread(|| runtime.block_on(copier.attempt(what, attempt)));
        match tokio::task::spawn_blocking(copy).await {
            Ok(done) => done,
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
}

impl Copier {
    /// Does what it can; what is left to be tried again, and why.
    async fn attempt(&self, mut what: What, attempt: u32) -> (What, Option<Fault>) {
        let again = match &mut what {
            What::Files(files) => self.files(files, attempt).await,
            What::Make(folders) => self.make(folders, attempt).await,
            What::Settle(folders) => self.settle(folders, attempt).await,
        };
        (what, again)
    }

    fn is_over(&self) -> bool {
        let over = self.early.as_ref();
        self.stop.is_cancelled()
            || over.is_some_and(CancellationToken::is_cancelled)
            || self
                .fatal
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .is_some()
    }

    /// Whether an error ends the whole run, or is worth another attempt. `None`: it is to be
    /// recorded.
    pub(super) fn judge(&self, error: &Error, attempt: u32) -> Judgement {
        match error.fault() {
            Fault::Fatal => {
                self.end_by("destination", error);
                Judgement::Over
            }
            Fault::Overload(wait) => Judgement::Again(Fault::Overload(wait)),
            Fault::Temporary if attempt < self.attempts => Judgement::Again(Fault::Temporary),
            _ => Judgement::Record,
        }
    }

    fn end_by(&self, side: &'static str, error: &Error) {
        let mut fatal = self.fatal.lock().unwrap_or_else(PoisonError::into_inner);
        fatal.get_or_insert_with(|| (side, error.clone()));
    }

    /// What the source answers. If that ends the run, it is noted that it was the source: otherwise
    /// the destination is named.
    pub(super) async fn of_source<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let answer = call.await;
        if let Err(error) = &answer
            && error.fault() == Fault::Fatal
        {
            self.end_by("source", error);
        }
        answer
    }

    /// Waits while the job is paused: before every entry, and every piece of a large one.
    pub(super) async fn hold(&self) {
        self.progress.hold(|| self.is_over()).await;
    }

    pub(super) async fn pass_bytes(&self, bytes: u64) {
        self.hold().await;
        if let Some(bandwidth) = &self.bandwidth {
            let permit = bandwidth.acquire(PoolJob::new(()).cost(Cost(bytes))).await;
            if let Ok(permit) = permit {
                permit.finish(Report::done());
            }
        }
    }

    /// Copies what is in the list, and leaves in it what is to be tried again.
    async fn files(&self, files: &mut Vec<(Pair, Status)>, attempt: u32) -> Option<Fault> {
        let mut left = Vec::new();
        let mut fault = None;
        let mut records = Vec::new();
        let mut results = Vec::new();
        for folder in files.chunk_by(|(a, _), (b, _)| a.parent == b.parent) {
            for some in folder.chunks(TOGETHER) {
                match self.directly(some).await {
                    Some(done) => results.extend(done),
                    None => {
                        for (pair, status) in some {
                            self.hold().await;
                            results.push(self.one(pair, *status).await);
                        }
                    }
                }
            }
        }
        for ((mut pair, status), result) in files.drain(..).zip(results) {
            let record = match result.and_then(|done| expect_size(&pair, done)) {
                Ok(Transferred::Done(entry, hash, modified)) => {
                    pair.entry.modified = pair.entry.modified.or(modified);
                    Record::Done(*entry, hash)
                }
                Ok(Transferred::Changed) => Record::Changed,
                Ok(Transferred::Stopped) => continue,
                Err(error) => match self.judge(&error, attempt) {
                    Judgement::Over => continue,
                    Judgement::Record => {
                        self.give_up(&pair).await;
                        Record::Failed(error)
                    }
                    Judgement::Again(again) => {
                        fault = Some(again);
                        left.push((pair, status));
                        continue;
                    }
                },
            };
            records.push((pair, record));
        }
        self.record(records, attempt);
        *files = left;
        fault
    }

    /// All of them in one call, where the storages can.
    async fn directly(&self, files: &[(Pair, Status)]) -> Option<Vec<Result<Transferred, Error>>> {
        let direct = self.destination.capabilities().direct;
        let whole = |(pair, status): &(Pair, Status)| {
            pair.entry.size <= direct && *status != Status::Different(Difference::Metadata)
        };
        if self.checksum || !files.iter().all(whole) {
            return None;
        }
        let orders: Vec<Order> = files.iter().map(|(pair, _)| self.order(pair)).collect();
        let folder = &files.first()?.0.folder;
        self.pass_bytes(orders.iter().map(|order| order.entry.size).sum())
            .await;
        failpoint::hit("before-batch");
        let results = self
            .destination
            .copy_batch(&*self.source, folder, &orders)?
            .await;
        failpoint::hit("after-batch");
        let transferred = |result: Result<Copied, Error>| {
            result.map(|copied| match copied {
                Copied::Done(entry) => Transferred::Done(entry.into(), None, None),
                Copied::Changed => Transferred::Changed,
            })
        };
        Some(results.into_iter().map(transferred).collect())
    }

    pub(super) fn order(&self, pair: &Pair) -> Order {
        Order {
            entry: pair.entry.clone(),
            temp: names::temp(&self.job, &pair.entry.name),
            expect: expect(pair),
        }
    }

    fn record(&self, records: Vec<(Pair, Record)>, attempt: u32) {
        if records.is_empty() {
            return;
        }
        let failed = records
            .iter()
            .filter(|(_, record)| !matches!(record, Record::Done(..)));
        self.progress
            .failed
            .fetch_add(failed.count() as u64, Relaxed);
        let bytes = records.iter().map(|(pair, _)| pair.entry.size).sum();
        self.progress.did(records.len() as u64, bytes);
        let (pass, rows) = (self.pass, records.len());
        let early = self.early.is_some();
        let write = move |transaction: &Transaction<'_>| {
            for (pair, record) in &records {
                write_record(transaction, pair, record, pass, attempt)?;
                if early {
                    early::let_go(transaction, pair)?;
                }
            }
            for folder in records.chunk_by(|(a, _), (b, _)| a.parent == b.parent) {
                touch(transaction, folder[0].0.parent)?;
            }
            Ok(())
        };
        self.writer.post_rows(When::Synced, rows, write, || {});
    }

    async fn make(&self, folders: &mut Vec<FolderWork>, attempt: u32) -> Option<Fault> {
        let mut made = Vec::new();
        let mut failed = Vec::new();
        let mut left = Vec::new();
        let mut fault = None;
        for folder in folders.drain(..) {
            self.hold().await;
            let made_by_itself = folder.full && !folder.path.is_root();
            let done = match made_by_itself {
                true => Ok(()),
                false => self.destination.make_folder(&folder.path).await,
            };
            match done {
                Ok(()) => made.push(folder),
                Err(error) => match self.judge(&error, attempt) {
                    Judgement::Over => {}
                    Judgement::Record => failed.push((folder, error)),
                    Judgement::Again(again) => {
                        fault = Some(again);
                        left.push(folder);
                    }
                },
            }
        }
        self.progress.did(made.len() as u64, 0);
        self.progress.failed.fetch_add(failed.len() as u64, Relaxed);
        let pass = self.pass;
        let write = move |transaction: &Transaction<'_>| {
            for folder in &made {
                write_made(transaction, folder, pass)?;
            }
            for (folder, error) in &failed {
                write_failed_folder(transaction, folder, error, attempt)?;
            }
            Ok(())
        };
        self.writer.post(When::Synced, write, || {});
        *folders = left;
        fault
    }

    async fn settle(&self, folders: &mut Vec<FolderWork>, attempt: u32) -> Option<Fault> {
        let mut settled = Vec::new();
        let mut failed = Vec::new();
        let mut left = Vec::new();
        let mut fault = None;
        for folder in folders.drain(..) {
            self.hold().await;
            match self.settle_one(&folder).await {
                Ok(entry) => {
                    failpoint::hit("after-settle");
                    settled.push((folder, entry));
                }
                Err(error) => match self.judge(&error, attempt) {
                    Judgement::Over => {}
                    Judgement::Record => failed.push((folder, error)),
                    Judgement::Again(again) => {
                        fault = Some(again);
                        left.push(folder);
                    }
                },
            }
        }
        self.progress.did(settled.len() as u64, 0);
        self.progress.failed.fetch_add(failed.len() as u64, Relaxed);
        let pass = self.pass;
        let write = move |transaction: &Transaction<'_>| {
            for (folder, entry) in &settled {
                let name = &folder.entry.name;
                let entry = Entry {
                    name: name.clone(),
                    ..entry.clone()
                };
                put_destination(transaction, folder.parent, &entry, pass)?;
                let mut update =
                    transaction.prepare_cached("UPDATE folder SET touched = 0 WHERE id = ?")?;
                update.execute([folder.id])?;
            }
            for (folder, error) in &failed {
                let failure = failure("copy", error, attempt);
                put_failure(
                    transaction,
                    folder.parent,
                    &folder.entry.name,
                    &failure.as_ref(),
                )?;
            }
            Ok(())
        };
        self.writer.post(When::Synced, write, || {});
        *folders = left;
        fault
    }

    async fn settle_one(&self, folder: &FolderWork) -> Result<Entry, Error> {
        let both = self.source.capabilities().extended && self.destination.capabilities().extended;
        let extended = match both {
            true => {
                self.of_source(self.source.extended(&folder.path, None))
                    .await?
            }
            false => Vec::new(),
        };
        self.destination
            .settle(&folder.path, None, &folder.entry, extended)
            .await
    }
}

/// What may be overwritten: what the plan found, and nothing that came since.
pub(super) fn expect(pair: &Pair) -> Expect {
    match &pair.there {
        None => Expect::Nothing,
        Some(there) => match there.etag() {
            Some(version) => Expect::Version(version.clone()),
            None => Expect::Listed(there.clone().into()),
        },
    }
}

/// Whatever a backend says: a file of another size than was listed is not a copy of it.
fn expect_size(pair: &Pair, done: Transferred) -> Result<Transferred, Error> {
    match &done {
        Transferred::Done(there, ..)
            if pair.entry.kind == Kind::File && there.size != pair.entry.size =>
        {
            let words = format!("{} of {} bytes arrived", there.size, pair.entry.size);
            let path = pair.path();
            Err(Error::new(ErrorKind::Temporary, "write", &path, words))
        }
        _ => Ok(done),
    }
}

pub(super) enum Judgement {
    Over,
    Record,
    Again(Fault),
}
