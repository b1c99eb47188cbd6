//! The tasks of the pool's workers.

use super::overlap;
use super::record::{
    Record, failure, mark_touched, without_losses, write_failed_folder, write_loss, write_made,
    write_posix, write_record,
};
use super::transfer::{Revealed, TransferOutcome};
use crate::names;
use crate::progress::Progress;
use crate::status::{Difference, Status};
use crate::store::{CommitMode, FolderId, Pair, Writer, put_destination, put_failure};
use headworks_core::{Backoff, Cost, Job as PoolJob};
use headworks_pool::{Handler, Health, Permits, Report, Run};
use headworks_storage::{
    Backend, CopyItem, CopyOutcome, Entry, Error, ErrorKind, Fault, Folder, Kind, Posix,
    Precondition, failpoint, on_this_thread,
};
use parking_lot::Mutex;
use rusqlite::Transaction;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;

/// Larger files are transferred alone, in parts.
pub(super) const LARGE_FILE: u64 = 8 << 20;

/// Maximum number of entries per batch call of a storage. A pause or a bandwidth limit takes effect
/// between calls.
const BATCH_CALL_ENTRIES: usize = 16;

/// A unit of work for one worker.
pub(super) struct Task {
    pub(super) kind: TaskKind,
    pub(super) attempt: u32,
    pub(super) _slot: OwnedSemaphorePermit,
}

pub(super) enum TaskKind {
    /// Entries of one folder, or of several between local disks.
    Files(Vec<(Pair, Status)>),
    /// Folders to make. Their parents exist.
    Make(Vec<FolderWork>),
    /// Folders whose attributes are to be set.
    SetAttributes(Vec<FolderWork>),
}

/// A folder, and the key of its own entry.
#[derive(Clone, Debug)]
pub(super) struct FolderWork {
    pub(super) id: FolderId,
    pub(super) parent: FolderId,
    pub(super) path: Folder,
    pub(super) entry: Entry,
    /// Whether it need not be made, because an entry in it creates it.
    pub(super) implied: bool,
}

pub(super) struct Copier {
    /// Whether both sides are local disks.
    pub(super) local: bool,
    /// Whether the destination is a local disk.
    pub(super) destination_is_local: bool,
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
    /// Cancelled when the plan is finished; `None` if the copy runs after the plan.
    pub(super) plan_done: Option<CancellationToken>,
}

/// The job was stopped while a transfer waited.
#[derive(Debug)]
pub(super) struct Stopped;

/// The error that ended the whole run, and its side.
pub(super) type Fatal = Arc<Mutex<Option<(&'static str, Error)>>>;

/// The pool's handler. The copier is shared with the blocking threads that serve local disks.
pub(super) struct CopyHandler(pub(super) Arc<Copier>);

impl Handler<Task> for CopyHandler {
    async fn run(&self, run: &mut Run<'_, Task>) -> Report {
        if self.0.is_cancelled() {
            return Report::done(); // the work is still in the state file
        }
        let task = &mut run.payload;
        task.attempt += 1;
        let kind = std::mem::replace(&mut task.kind, TaskKind::Files(Vec::new()));
        let (to_retry, fault) = self.attempt(kind, task.attempt).await;
        task.kind = to_retry;
        match fault {
            None => Report::done(),
            Some(Fault::Overload(wait)) => {
                task.attempt -= 1;
                Report::retry_in(wait).target(Health::Overloaded(wait))
            }
            Some(_) => {
                let pause = self.0.backoff.delay(task.attempt, fastrand::u64(..));
                Report::retry_in(pause)
            }
        }
    }
}

impl CopyHandler {
    /// Attempts a task. Calls to a local disk run on one blocking thread per task: waking another
    /// thread for every call costs more than the calls.
    async fn attempt(&self, kind: TaskKind, attempt: u32) -> (TaskKind, Option<Fault>) {
        let is_folder_work = !matches!(kind, TaskKind::Files(_));
        if !(self.0.local || self.0.destination_is_local && is_folder_work) {
            return self.0.attempt(kind, attempt).await;
        }
        let (copier, runtime) = (self.0.clone(), tokio::runtime::Handle::current());
        let copy = move || on_this_thread(|| runtime.block_on(copier.attempt(kind, attempt)));
        match tokio::task::spawn_blocking(copy).await {
            Ok(done) => done,
            Err(failed) => std::panic::resume_unwind(failed.into_panic()),
        }
    }
}

impl Copier {
    /// Attempts a task. Returns the part to be retried, and why.
    async fn attempt(&self, mut kind: TaskKind, attempt: u32) -> (TaskKind, Option<Fault>) {
        let fault = match &mut kind {
            TaskKind::Files(files) => self.copy_files(files, attempt).await,
            TaskKind::Make(folders) => self.make_folders(folders, attempt).await,
            TaskKind::SetAttributes(folders) => self.set_folder_attributes(folders, attempt).await,
        };
        (kind, fault)
    }

    fn is_cancelled(&self) -> bool {
        let over = self.plan_done.as_ref();
        self.stop.is_cancelled()
            || over.is_some_and(CancellationToken::is_cancelled)
            || self.fatal.lock().is_some()
    }

    /// Decides what an error means: abort the run, retry, or record a failure.
    pub(super) fn classify(&self, error: &Error, attempt: u32) -> ErrorAction {
        match error.fault() {
            Fault::Fatal => {
                self.abort("destination", error);
                ErrorAction::Abort
            }
            Fault::Overload(wait) => ErrorAction::Retry(Fault::Overload(wait)),
            Fault::Temporary if attempt < self.attempts => ErrorAction::Retry(Fault::Temporary),
            _ => ErrorAction::Record,
        }
    }

    fn abort(&self, side: &'static str, error: &Error) {
        let mut fatal = self.fatal.lock();
        fatal.get_or_insert_with(|| (side, error.clone()));
    }

    /// Awaits a call to the source. The source is recorded as the culprit of a fatal error; without
    /// that the destination would be blamed.
    pub(super) async fn on_source<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let result = call.await;
        if let Err(error) = &result
            && error.fault() == Fault::Fatal
        {
            self.abort("source", error);
        }
        result
    }

    /// Returns a new entry as a listing records it: where times are not kept, that of the write
    /// says nothing about the source.
    pub(super) fn as_listed(&self, entry: Entry) -> Entry {
        match self.destination.capabilities().modified {
            Some(_) => entry,
            None => Entry {
                modified: None,
                ..entry
            },
        }
    }

    /// Waits while the job is paused. Called before every entry, and every piece of a large one.
    pub(super) async fn wait_while_paused(&self) {
        self.progress
            .wait_while_paused(|| self.is_cancelled())
            .await;
    }

    /// Waits until this many bytes may be sent. Fails if the job is stopped meanwhile: with a low
    /// limit that can take minutes.
    pub(super) async fn throttle(&self, bytes: u64) -> Result<(), Stopped> {
        self.wait_while_paused().await;
        if let Some(bandwidth) = &self.bandwidth {
            let permit = bandwidth.acquire(PoolJob::new(()).cost(Cost(bytes)));
            let permit = self.stop.run_until_cancelled(permit).await;
            if let Ok(permit) = permit.ok_or(Stopped)? {
                permit.finish(Report::done());
            }
        }
        self.progress.add_sent(bytes);
        Ok(())
    }

    /// Copies the files in the list, and leaves those to be retried in it.
    async fn copy_files(&self, files: &mut Vec<(Pair, Status)>, attempt: u32) -> Option<Fault> {
        let mut to_retry = Vec::new();
        let mut fault = None;
        let mut records = Vec::new();
        let mut results = Vec::new();
        for folder in files.chunk_by(|(a, _), (b, _)| a.parent == b.parent) {
            for batch in folder.chunks(BATCH_CALL_ENTRIES) {
                match self.copy_batch(batch).await {
                    Some(done) => {
                        self.progress.add_worked(done.len());
                        results.extend(done);
                    }
                    None => {
                        for (pair, status) in batch {
                            results.push(self.copy_unless_stopped(pair, *status).await);
                            self.progress.add_worked(1);
                        }
                    }
                }
            }
        }
        for ((mut pair, status), result) in files.drain(..).zip(results) {
            let record = match result.and_then(|done| check_size(&pair, done)) {
                Ok(TransferOutcome::Done(entry, hash, revealed)) => {
                    revealed.apply(&mut pair.entry);
                    Record::Done(self.as_listed(*entry), hash, revealed.posix)
                }
                Ok(TransferOutcome::Changed) => Record::Changed,
                Ok(TransferOutcome::Stopped) => continue,
                Err(error) => match self.classify(&error, attempt) {
                    ErrorAction::Abort => continue,
                    ErrorAction::Record => {
                        self.discard_upload(&pair).await;
                        Record::Failed(error)
                    }
                    ErrorAction::Retry(retry) => {
                        fault = Some(retry);
                        to_retry.push((pair, status));
                        continue;
                    }
                },
            };
            records.push((pair, record));
        }
        self.record(records, attempt);
        *files = to_retry;
        fault
    }

    async fn copy_unless_stopped(
        &self,
        pair: &Pair,
        status: Status,
    ) -> Result<TransferOutcome, Error> {
        self.wait_while_paused().await;
        match self.is_cancelled() {
            true => Ok(TransferOutcome::Stopped),
            false => self.copy_entry(pair, status).await,
        }
    }

    /// Copies files with one call to the storage, if both storages support that.
    async fn copy_batch(
        &self,
        files: &[(Pair, Status)],
    ) -> Option<Vec<Result<TransferOutcome, Error>>> {
        let direct = self.destination.capabilities().max_batch_copy;
        let whole = |(pair, status): &(Pair, Status)| {
            pair.entry.size <= direct && *status != Status::Different(Difference::Metadata)
        };
        if self.checksum || !files.iter().all(whole) {
            return None;
        }
        let items: Vec<CopyItem> = files.iter().map(|(pair, _)| self.copy_item(pair)).collect();
        let folder = &files.first()?.0.folder;
        // Asked first: files that are sent one by one are charged for then.
        let copy = self.destination.copy_batch(&*self.source, folder, &items)?;
        let bytes = items.iter().map(|item| item.entry.size).sum();
        if self.is_cancelled() || self.throttle(bytes).await.is_err() {
            let stopped = files.iter().map(|_| Ok(TransferOutcome::Stopped));
            return Some(stopped.collect());
        }
        failpoint::hit("before-batch");
        let results = copy.await;
        failpoint::hit("after-batch");
        let transferred = |result: Result<CopyOutcome, Error>| {
            result.map(|copied| match copied {
                CopyOutcome::Done(entry) => {
                    TransferOutcome::Done(entry.into(), None, Revealed::default())
                }
                CopyOutcome::DoneWith(entry, posix) => {
                    let posix = Some(posix);
                    let modified = None;
                    TransferOutcome::Done(entry.into(), None, Revealed { modified, posix })
                }
                CopyOutcome::Changed => TransferOutcome::Changed,
            })
        };
        Some(results.into_iter().map(transferred).collect())
    }

    pub(super) fn copy_item(&self, pair: &Pair) -> CopyItem {
        CopyItem {
            entry: pair.entry.clone(),
            temp: names::temp(&self.job, &pair.entry.name),
            precondition: precondition(pair),
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
        self.progress.add_done(records.len() as u64, bytes);
        let (pass, rows) = (self.pass, records.len());
        let overlapping = self.plan_done.is_some();
        let write = move |transaction: &Transaction<'_>| {
            for (pair, record) in &records {
                write_record(transaction, pair, record, pass, attempt)?;
                if overlapping {
                    overlap::clear_released(transaction, pair)?;
                }
            }
            for folder in records.chunk_by(|(a, _), (b, _)| a.parent == b.parent) {
                mark_touched(transaction, folder[0].0.parent)?;
            }
            Ok(())
        };
        self.writer
            .post_rows(CommitMode::AfterSync, rows, write, || {});
    }

    async fn make_folders(&self, folders: &mut Vec<FolderWork>, attempt: u32) -> Option<Fault> {
        let mut made = Vec::new();
        let mut failed = Vec::new();
        let mut to_retry = Vec::new();
        let mut fault = None;
        for folder in folders.drain(..) {
            self.wait_while_paused().await;
            let is_implied = folder.implied && !folder.path.is_root();
            let done = match is_implied {
                true => Ok(()),
                false => self.destination.make_folder(&folder.path).await,
            };
            self.progress.add_worked(1);
            match done {
                Ok(()) => made.push(folder),
                Err(error) => match self.classify(&error, attempt) {
                    ErrorAction::Abort => {}
                    ErrorAction::Record => failed.push((folder, error)),
                    ErrorAction::Retry(retry) => {
                        fault = Some(retry);
                        to_retry.push(folder);
                    }
                },
            }
        }
        self.progress.add_done(made.len() as u64, 0);
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
        self.writer.post(CommitMode::AfterSync, write, || {});
        *folders = to_retry;
        fault
    }

    async fn set_folder_attributes(
        &self,
        folders: &mut Vec<FolderWork>,
        attempt: u32,
    ) -> Option<Fault> {
        let mut settled = Vec::new();
        let mut failed = Vec::new();
        let mut to_retry = Vec::new();
        let mut fault = None;
        for mut folder in folders.drain(..) {
            self.wait_while_paused().await;
            let set = self.set_attributes(&mut folder).await;
            self.progress.add_worked(1);
            match set {
                Ok((entry, posix)) => {
                    failpoint::hit("after-settle");
                    settled.push((folder, self.as_listed(entry), posix));
                }
                Err(error) => match self.classify(&error, attempt) {
                    ErrorAction::Abort => {}
                    ErrorAction::Record => failed.push((folder, error)),
                    ErrorAction::Retry(retry) => {
                        fault = Some(retry);
                        to_retry.push(folder);
                    }
                },
            }
        }
        self.progress.add_done(settled.len() as u64, 0);
        self.progress.failed.fetch_add(failed.len() as u64, Relaxed);
        let pass = self.pass;
        let write = move |transaction: &Transaction<'_>| {
            for (folder, entry, posix) in &settled {
                let name = &folder.entry.name;
                if let Some(posix) = posix {
                    write_posix(transaction, folder.parent, name, *posix)?;
                }
                let entry = Entry {
                    name: name.clone(),
                    ..entry.clone()
                };
                let recorded = without_losses(&entry, &folder.entry);
                put_destination(transaction, folder.parent, &recorded, pass)?;
                write_loss(transaction, folder.parent, &entry)?;
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
        self.writer.post(CommitMode::AfterSync, write, || {});
        *folders = to_retry;
        fault
    }

    /// Sets the attributes of a folder. Returns its entry, and its owner and permissions if they
    /// are others than listed.
    async fn set_attributes(
        &self,
        folder: &mut FolderWork,
    ) -> Result<(Entry, Option<Posix>), Error> {
        let posix = self.new_posix(folder).await?;
        let mut wanted = folder.entry.clone();
        wanted.posix = posix.or(wanted.posix);
        let both_support =
            self.source.capabilities().extended && self.destination.capabilities().extended;
        let extended = match both_support {
            true => {
                self.on_source(self.source.extended(&folder.path, None))
                    .await?
            }
            false => Vec::new(),
        };
        let entry = self
            .destination
            .set_attributes(&folder.path, None, &wanted, extended, &Precondition::Any)
            .await?;
        // Only now: a retry has to find again that they are others than listed.
        folder.entry = wanted;
        Ok((entry, posix))
    }

    /// Returns the owner and permissions of a source folder if they are others than listed.
    async fn new_posix(&self, folder: &FolderWork) -> Result<Option<Posix>, Error> {
        if !self.source.capabilities().posix || !self.destination.capabilities().posix {
            return Ok(None);
        }
        let current = self.on_source(self.source.stat(&folder.path, None)).await;
        match current {
            Ok(current) => Ok(current
                .posix
                .filter(|_| current.posix != folder.entry.posix)),
            // Removed since it was listed: the next plan notices.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the condition for an overwrite: only what the plan found may be replaced.
pub(super) fn precondition(pair: &Pair) -> Precondition {
    match &pair.existing {
        None => Precondition::Absent,
        Some(existing) => match existing.etag() {
            Some(version) => Precondition::Version(version.clone()),
            None => Precondition::Unchanged(existing.clone().into()),
        },
    }
}

/// Checks the size of a copied file. A backend's success alone is not trusted.
fn check_size(pair: &Pair, done: TransferOutcome) -> Result<TransferOutcome, Error> {
    match &done {
        TransferOutcome::Done(written, ..)
            if pair.entry.kind == Kind::File && written.size != pair.entry.size =>
        {
            let cause = format!("only {} of {} bytes arrived", written.size, pair.entry.size);
            let path = pair.path();
            Err(Error::new(ErrorKind::Temporary, "write", &path, cause))
        }
        _ => Ok(done),
    }
}

pub(super) enum ErrorAction {
    Abort,
    Record,
    Retry(Fault),
}
