//! Lists folders and hands the entries to the store.

use super::folders::{self, FolderOutcome};
use super::pages::{self, FoldedNames, ListedPage};
use super::side_state::PendingFolder;
use crate::filter::Filter;
use crate::names::{self, StateFileLocation};
use crate::progress::Progress;
use crate::side::Side;
use crate::status::{Comparison, DstState};
use crate::store::{
    CommitMode, EntryRow, FolderId, PackedFiles, Selection, Writer, is_plain, put_packed,
};
use headworks_core::rounds::LeaseId;
use headworks_pool::{Handler, Health, Notice, Report, Run};
use headworks_storage::{Backend, Entry, Error, ErrorKind, Fault, Kind, Page, on_this_thread};
use rusqlite::Transaction;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc::{OwnedPermit, Sender, UnboundedSender};
use tokio_util::sync::CancellationToken;

/// Rows of several folders that are written together.
const FLUSH_ROWS: usize = 1024;

/// A folder to list.
#[derive(Clone)]
pub(super) struct ListTask {
    /// `None` if it is listed ahead of its turn.
    pub(super) lease: Option<LeaseId>,
    pub(super) folder: Arc<PendingFolder>,
    pub(super) attempt: u32,
}

/// Folders that are listed one after the other.
pub(super) type Batch = Vec<ListTask>;

/// An event for the walk.
pub(super) enum WalkEvent {
    /// Listings that are durable: the leases of the folders, and the number of their subfolders.
    Settled(Side, Vec<(Option<LeaseId>, u64)>),
    /// A listing that failed.
    Failed(Side, ListTask, Error),
    /// A task that did not run, because the pool is shutting down.
    Returned,
}

pub(super) struct Lister {
    pub(super) side: Side,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) writer: Writer,
    pub(super) filter: Arc<Filter>,
    pub(super) events: UnboundedSender<WalkEvent>,
    pub(super) progress: Arc<Progress>,
    pub(super) job: String,
    pub(super) stop: CancellationToken,
    /// The location of the state file, if it is inside this tree.
    pub(super) state_file_in_tree: Option<StateFileLocation>,
    pub(super) compare: Comparison,
    /// Whether this is a destination that keeps no times.
    pub(super) timeless: bool,
    /// Whether the backend is a local disk. A batch then gets its own thread.
    pub(super) local: bool,
    /// The copier that runs during the plan, if there is one.
    pub(super) durable: Option<Sender<Vec<DurableNames>>>,
}

/// Names of a source folder that are durable.
pub(crate) struct DurableNames {
    pub(crate) folder: FolderId,
    pub(crate) names: Vec<Vec<u8>>,
}

/// The pool's handler. The lister is shared with the blocking threads that serve local disks.
pub(super) struct ListHandler(pub(super) Arc<Lister>);

impl Handler<Batch> for ListHandler {
    async fn run(&self, run: &mut Run<'_, Batch>) -> Report {
        let batch = std::mem::take(&mut run.payload);
        let left = if self.0.local {
            let lister = self.0.clone();
            let runtime = tokio::runtime::Handle::current();
            let list = move || on_this_thread(|| runtime.block_on(lister.list_batch(batch)));
            match tokio::task::spawn_blocking(list).await {
                Ok(left) => left,
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            }
        } else {
            self.0.list_batch(batch).await
        };
        let Some((overloaded, wait)) = left else {
            return Report::done();
        };
        run.payload = overloaded;
        Report::retry_in(wait).target(Health::Overloaded(wait))
    }

    fn notice(&self, notice: Notice<Batch>) {
        if let Notice::Ended { reason: how, .. } = notice
            && how != headworks_pool::EndReason::Failed
        {
            let _ = self.0.events.send(WalkEvent::Returned);
        }
    }
}

/// Pages to be written in one piece.
#[derive(Default)]
struct PendingPages {
    pages: Vec<(ListTask, ListedPage)>,
    missing: Vec<ListTask>,
    rows: usize,
}

impl Lister {
    /// Lists a batch. If the storage is overloaded, returns the rest and how long to wait.
    async fn list_batch(&self, batch: Batch) -> Option<(Batch, Duration)> {
        let mut pending = PendingPages::default();
        let mut left = batch.into_iter();
        let mut overloaded = None;
        for task in left.by_ref() {
            self.wait_while_paused(&mut pending).await;
            if self.stop.is_cancelled() {
                break; // the next run lists it
            }
            let Err(error) = self.list_folder(&task, &mut pending).await else {
                continue;
            };
            if let Fault::Overload(wait) = error.fault() {
                self.progress.overloaded(self.side);
                overloaded = Some((task, wait));
                break;
            }
            if self.side == Side::Destination && error.kind() == ErrorKind::NotFound {
                // Not an error: the whole folder is missing, which is normal for the root.
                pending.missing.push(task);
                continue;
            }
            // The rounds retry, with their own budget. To the pool the task is done.
            let _ = self.events.send(WalkEvent::Failed(self.side, task, error));
        }
        self.flush(&mut pending);
        let (task, wait) = overloaded?;
        Some((std::iter::once(task).chain(left).collect(), wait))
    }

    /// Waits while the job is paused. Listed pages are flushed first.
    async fn wait_while_paused(&self, pending: &mut PendingPages) {
        if self.progress.paused.load(Relaxed) {
            self.flush(pending);
            self.progress
                .wait_while_paused(|| self.stop.is_cancelled())
                .await;
        }
    }

    async fn list_folder(&self, task: &ListTask, pending: &mut PendingPages) -> Result<(), Error> {
        let folder = &task.folder.row;
        if folder.path.is_root() {
            let entry = self.backend.stat(&folder.path, None).await?;
            let side = self.side;
            self.writer.post(
                CommitMode::Prompt,
                move |tx| pages::write_root(tx, side, entry),
                || {},
            );
        }
        // A failed attempt is resumed like one of an earlier run.
        let progress = task.folder.progress.cursor();
        let staged = progress.as_ref().or(folder.cursor.as_ref());
        let resume = staged.filter(|cursor| !cursor.is_empty());
        if task.attempt == 1 {
            self.count_resumed(staged.is_some(), resume.is_some());
        }
        let mut pages = self.backend.list(&folder.path, resume).await?;
        let mut first = resume.is_none();
        let mut discard_previous = first && staged.is_some();
        let mut page = pages.next().await?;
        loop {
            let next = match &page {
                Some(_) => pages.next().await?,
                None => None,
            };
            let last = next.is_none();
            discard_previous |= first && !last;
            let page_now = page.take().unwrap_or_default();
            let staged = self.prepare_page(task, page_now, (first, last), discard_previous);
            pending.rows += staged.found + 1;
            pending.pages.push((task.clone(), staged));
            // A page that cost a request is written at once: losing it would cost the request
            // again.
            if pending.rows >= FLUSH_ROWS || !self.local {
                self.flush(pending);
            }
            if last {
                return Ok(());
            }
            (first, discard_previous) = (false, false);
            page = next;
            self.wait_while_paused(pending).await;
            if self.stop.is_cancelled() {
                return Ok(()); // the next run resumes at the last durable page
            }
        }
    }

    fn count_resumed(&self, staged: bool, resumed: bool) {
        let side = &self.progress.sides[self.side as usize];
        side.relisted
            .fetch_add(u64::from(staged && !resumed), Relaxed);
        side.resumed_listings.fetch_add(u64::from(resumed), Relaxed);
    }

    /// Prepares a page for the store.
    fn prepare_page(
        &self,
        task: &ListTask,
        page: Page,
        (first, last): (bool, bool),
        discard_previous: bool,
    ) -> ListedPage {
        let folder = &task.folder.row;
        let state_file_in_tree = self.state_file_in_tree.as_ref();
        let is_ours = |name: &[u8]| {
            names::is_ours(&self.job, &folder.path, name)
                || (self.side == Side::Destination && names::is_quarantine(&folder.path, name))
                || state_file_in_tree.is_some_and(|file| file.owns(&folder.path, name))
        };
        // The marker of a folder that is known already.
        let is_marker = |entry: &Entry| {
            !self.compare.markers
                && entry.name.is_empty()
                && entry.kind == Kind::File
                && entry.size == 0
        };
        // The time of the upload says nothing about the modification of the source.
        let timeless = self.timeless;
        let mut entries = page.entries;
        entries.retain(|entry| !is_ours(&entry.name) && !is_marker(entry));
        if timeless {
            entries.iter_mut().for_each(|entry| entry.modified = None);
        }
        // The order of the table, so that rows are inserted sequentially.
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.progress.listed(self.side, entries.len(), last);
        if !last {
            task.folder.progress.page_stored(page.cursor.clone());
        }
        // The quarantine of an earlier job into this tree is not migrated, but counted.
        let excludes = |entry: &Entry| {
            self.side == Side::Source
                && (self.filter.excludes(&folder.path, entry)
                    || names::is_quarantine(&folder.path, &entry.name))
        };
        // Packed at once, while the entries are in the cache, unless their names may still be
        // needed.
        let folds = self.compare.folds_names();
        let pack = first && last && self.durable.is_none() && !folds;
        let mut files = PackedFiles::default();
        let found = entries.len();
        let rest = entries.extract_if(.., |entry| {
            let plain = pack && is_plain(entry) && !excludes(entry);
            if plain {
                files.add(entry);
            }
            !plain
        });
        let rows = rest.map(|entry| EntryRow {
            selection: match excludes(&entry) {
                true => Selection::Excluded,
                false => Selection::Included,
            },
            entry,
        });
        let mut rows: Vec<EntryRow> = rows.collect();
        if folds && self.side == Side::Source {
            let mut taken = FoldedNames::new(self.compare.destination);
            rows.iter_mut().for_each(|row| taken.mark(row));
        }
        ListedPage {
            rows,
            found,
            files,
            cursor: page.cursor,
            discard_previous,
            first,
            last,
        }
    }

    fn flush(&self, pending: &mut PendingPages) {
        let PendingPages {
            mut pages,
            missing,
            rows,
        } = std::mem::take(pending);
        if pages.is_empty() && missing.is_empty() {
            return;
        }
        let ends = !missing.is_empty() || pages.iter().any(|(_, staged)| staged.last);
        let when = if ends {
            CommitMode::Prompt
        } else {
            CommitMode::Deferred
        };
        let (side, events, compare) = (self.side, self.events.clone(), self.compare);
        let durable = self.durable_names(&pages);
        if self.durable.is_some() {
            pages.iter_mut().for_each(|(_, staged)| pack(staged));
        }
        let settled = Arc::new(std::sync::OnceLock::new());
        let settled_in_write = settled.clone();
        let write = move |transaction: &Transaction<'_>| {
            let _ = settled_in_write.set(write_pages(
                transaction,
                (side, &compare),
                &pages,
                &missing,
            )?);
            Ok(())
        };
        self.writer.post_rows(when, rows, write, move || {
            let settled = settled.get().cloned().unwrap_or_default();
            if !settled.is_empty() {
                let _ = events.send(WalkEvent::Settled(side, settled));
            }
            if let Some((permit, names)) = durable {
                permit.send(names);
            }
        });
    }

    /// Returns the names that can be copied once they are durable, if the copier has room. Names
    /// that are skipped here are copied after the plan.
    fn durable_names(
        &self,
        pages: &[(ListTask, ListedPage)],
    ) -> Option<(OwnedPermit<Vec<DurableNames>>, Vec<DurableNames>)> {
        let permit = self.durable.clone()?.try_reserve_owned().ok()?;
        let resumable = self.backend.capabilities().resumable_listing;
        // A listing that cannot be resumed may be discarded, and its names arrive again.
        let lasting =
            |(_, staged): &&(ListTask, ListedPage)| resumable || staged.first && staged.last;
        let names = |(task, staged): &(ListTask, ListedPage)| DurableNames {
            folder: task.folder.row.id,
            names: staged
                .rows
                .iter()
                .filter(|row| row.entry.kind != Kind::Folder && row.is_included())
                .map(|row| row.entry.name.clone())
                .collect(),
        };
        let names = pages.iter().filter(lasting).map(names);
        let names: Vec<DurableNames> = names.filter(|some| !some.names.is_empty()).collect();
        (!names.is_empty()).then_some((permit, names))
    }
}

/// Packs the plain files of a folder, if the page is all of it.
fn pack(staged: &mut ListedPage) {
    if !(staged.first && staged.last) {
        return;
    }
    let files = &mut staged.files;
    staged.rows.retain(|row| {
        let plain = is_plain(&row.entry) && row.is_included();
        if plain {
            files.add(&row.entry);
        }
        !plain
    });
}

/// Writes pages. Returns the folders that are complete with them.
fn write_pages(
    transaction: &Transaction<'_>,
    (side, compare): (Side, &Comparison),
    pages: &[(ListTask, ListedPage)],
    missing: &[ListTask],
) -> rusqlite::Result<Vec<(Option<LeaseId>, u64)>> {
    let mut ended = Vec::new();
    let mut listed: Vec<(FolderId, u64)> = Vec::new();
    let mut settled: Vec<(FolderId, FolderOutcome)> = Vec::new();
    let mut mark = |task: &ListTask, state: FolderOutcome| match task.lease {
        Some(_) => {
            settled.push((task.folder.row.id, state));
            Ok(())
        }
        None => folders::mark_settled_early(transaction, task.folder.row.id, state),
    };
    for (task, staged) in pages {
        let row = &task.folder.row;
        let mut subfolders = row.subfolders;
        match side {
            Side::Source => {
                subfolders = pages::write_source_page(transaction, row, staged, compare)?;
            }
            Side::Destination => {
                let identical = pages::write_destination_page(transaction, row, staged, compare)?;
                if staged.last {
                    mark(task, (DstState::Successful, identical))?;
                }
            }
        }
        if staged.last {
            ended.push((task.lease, subfolders));
            listed.push((row.id, subfolders));
        }
    }
    for task in missing {
        mark(task, (DstState::Missing, false))?;
        ended.push((task.lease, task.folder.row.subfolders));
    }
    match side {
        Side::Source => {
            let files = pages.iter().filter(|(_, staged)| staged.files.len() > 0);
            let files = files.map(|(task, staged)| (task.folder.row.id, &staged.files));
            put_packed(transaction, &files.collect::<Vec<_>>())?;
            folders::mark_listed(transaction, &listed)?;
        }
        Side::Destination => folders::mark_settled(transaction, &settled)?,
    }
    Ok(ended)
}
