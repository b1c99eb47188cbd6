//! Lists folders, and hands what is in them to the store.

use super::folders::{self, Settled};
use super::publish::{self, Staged};
use super::side::Work;
use crate::filter::Filter;
use crate::names::{self, Own};
use crate::progress::Progress;
use crate::status::{Compare, Dst};
use crate::store::{FolderId, Packed, Row, When, Writer, is_plain, put_files};
use headworks_core::Side;
use headworks_core::rounds::LeaseId;
use headworks_pool::{Handler, Health, Notice, Report, Run};
use headworks_storage::{Backend, Entry, Error, ErrorKind, Fault, Kind, Page, on_this_thread};
use rusqlite::Transaction;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::sync::mpsc::{OwnedPermit, Sender, UnboundedSender};
use tokio_util::sync::CancellationToken;

/// Rows of several folders that are handed over together.
const TOGETHER: usize = 1024;

/// A folder to list.
#[derive(Clone)]
pub(super) struct Listing {
    /// `None`: ahead of its turn.
    pub(super) lease: Option<LeaseId>,
    pub(super) work: Arc<Work>,
    pub(super) attempt: u32,
}

/// Folders that are listed one after the other.
pub(super) type Batch = Vec<Listing>;

/// What the driver hears.
pub(super) enum Word {
    /// Durable: the folders of these leases have ended, and have so many subfolders.
    Settled(Side, Vec<(Option<LeaseId>, u64)>),
    /// A listing failed.
    Failed(Side, Listing, Error),
    /// It did not run, because the pool is ending.
    Returned,
}

pub(super) struct Lister {
    pub(super) side: Side,
    pub(super) backend: Arc<dyn Backend>,
    pub(super) writer: Writer,
    pub(super) filter: Arc<Filter>,
    pub(super) words: UnboundedSender<Word>,
    pub(super) progress: Arc<Progress>,
    pub(super) job: String,
    pub(super) stop: CancellationToken,
    /// The state file, if it is inside this tree.
    pub(super) own: Option<Own>,
    pub(super) compare: Compare,
    /// Whether this is a destination that keeps no times.
    pub(super) timeless: bool,
    /// Whether the backend is a disk of this machine: a batch then has a thread to itself.
    pub(super) local: bool,
    /// Who copies while the plan goes on.
    pub(super) release: Option<Sender<Vec<Released>>>,
}

/// Names of a folder of the source, now durable.
pub(crate) struct Released {
    pub(crate) folder: FolderId,
    pub(crate) names: Vec<Vec<u8>>,
}

/// Shared with the threads on which disks are listed.
pub(super) struct Listers(pub(super) Arc<Lister>);

impl Handler<Batch> for Listers {
    async fn run(&self, run: &mut Run<'_, Batch>) -> Report {
        let batch = std::mem::take(&mut run.payload);
        let left = if self.0.local {
            let lister = self.0.clone();
            let runtime = tokio::runtime::Handle::current();
            let list = move || on_this_thread(|| runtime.block_on(lister.list_all(batch)));
            match tokio::task::spawn_blocking(list).await {
                Ok(left) => left,
                Err(failed) => std::panic::resume_unwind(failed.into_panic()),
            }
        } else {
            self.0.list_all(batch).await
        };
        let Some((again, wait)) = left else {
            return Report::done();
        };
        run.payload = again;
        Report::retry_in(wait).target(Health::Overloaded(wait))
    }

    fn notice(&self, notice: Notice<Batch>) {
        if let Notice::Ended { reason: how, .. } = notice
            && how != headworks_pool::EndReason::Failed
        {
            let _ = self.0.words.send(Word::Returned);
        }
    }
}

/// What is handed to the store in one piece.
#[derive(Default)]
struct Hand {
    pages: Vec<(Listing, Staged)>,
    missing: Vec<Listing>,
    rows: usize,
}

impl Lister {
    /// Lists a batch; what is left of it when the storage asked for patience, and for how long.
    async fn list_all(&self, batch: Batch) -> Option<(Batch, Duration)> {
        let mut hand = Hand::default();
        let mut left = batch.into_iter();
        let mut again = None;
        for listing in left.by_ref() {
            self.hold(&mut hand).await;
            if self.stop.is_cancelled() {
                break; // it is listed by the run that goes on with this one
            }
            let Err(error) = self.list(&listing, &mut hand).await else {
                continue;
            };
            if let Fault::Overload(wait) = error.fault() {
                self.progress.overloaded(self.side);
                again = Some((listing, wait));
                break;
            }
            if self.side == Side::Follower && error.kind() == ErrorKind::NotFound {
                // Not an error: the whole folder is missing. For the root that is the normal case.
                hand.missing.push(listing);
                continue;
            }
            // Rounds retry, with a budget of their own: to the pool the attempt is all there is.
            let _ = self.words.send(Word::Failed(self.side, listing, error));
        }
        self.hand_over(&mut hand);
        let (listing, wait) = again?;
        Some((std::iter::once(listing).chain(left).collect(), wait))
    }

    /// Waits while the job is paused. What was listed is handed over before.
    async fn hold(&self, hand: &mut Hand) {
        if self.progress.paused.load(Relaxed) {
            self.hand_over(hand);
            self.progress.hold(|| self.stop.is_cancelled()).await;
        }
    }

    async fn list(&self, listing: &Listing, hand: &mut Hand) -> Result<(), Error> {
        let folder = &listing.work.row;
        if folder.path.is_root() {
            let entry = self.backend.stat(&folder.path, None).await?;
            let side = self.side;
            self.writer
                .post(When::Apart, move |tx| publish::root(tx, side, entry), || {});
        }
        // A failed attempt is gone on with like one of an earlier run.
        let reached = listing.work.reached.cursor();
        let staged = reached.as_ref().or(folder.cursor.as_ref());
        let resume = staged.filter(|cursor| !cursor.is_empty());
        if listing.attempt == 1 {
            self.count_resumed(staged.is_some(), resume.is_some());
        }
        let mut pages = self.backend.list(&folder.path, resume).await?;
        let mut first = resume.is_none();
        let mut forget = first && staged.is_some();
        let mut page = pages.next().await?;
        loop {
            let next = match &page {
                Some(_) => pages.next().await?,
                None => None,
            };
            let last = next.is_none();
            forget |= first && !last;
            let page_now = page.take().unwrap_or_default();
            let staged = self.stage(listing, page_now, (first, last), forget);
            hand.rows += staged.found + 1;
            hand.pages.push((listing.clone(), staged));
            // A page that cost a request is not kept waiting for others: it may have to be fetched
            // again.
            if hand.rows >= TOGETHER || !self.local {
                self.hand_over(hand);
            }
            if last {
                return Ok(());
            }
            (first, forget) = (false, false);
            page = next;
            self.hold(hand).await;
        }
    }

    fn count_resumed(&self, staged: bool, resumed: bool) {
        let side = &self.progress.sides[self.side as usize];
        side.again.fetch_add(u64::from(staged && !resumed), Relaxed);
        side.gone_on.fetch_add(u64::from(resumed), Relaxed);
    }

    /// What a page becomes in the store.
    fn stage(
        &self,
        listing: &Listing,
        page: Page,
        (first, last): (bool, bool),
        forget: bool,
    ) -> Staged {
        let folder = &listing.work.row;
        let own = self.own.as_ref();
        let of_ours = |name: &[u8]| {
            names::is_ours(&self.job, &folder.path, name)
                || own.is_some_and(|own| own.is(&folder.path, name))
        };
        // It says that there is a folder, which is known already.
        let is_marker = |entry: &Entry| {
            !self.compare.markers
                && entry.name.is_empty()
                && entry.kind == Kind::File
                && entry.size == 0
        };
        // When it was written there says nothing of when the source was modified.
        let timeless = self.timeless;
        let mut entries = page.entries;
        entries.retain(|entry| !of_ours(&entry.name) && !is_marker(entry));
        if timeless {
            entries.iter_mut().for_each(|entry| entry.modified = None);
        }
        // In the order of the table.
        entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        self.progress.listed(self.side, entries.len(), last);
        if !last {
            listing.work.reached.page(page.cursor.clone());
        }
        let excludes =
            |entry: &Entry| self.side == Side::Leader && self.filter.excludes(&folder.path, entry);
        // Packed at once, while the cache has them, unless their names may still be asked for.
        let pack = first && last && self.release.is_none();
        let mut files = Packed::default();
        let found = entries.len();
        let rest = entries.extract_if(.., |entry| {
            let plain = pack && is_plain(entry) && !excludes(entry);
            if plain {
                files.add(entry);
            }
            !plain
        });
        let rows = rest.map(|entry| Row {
            excluded: excludes(&entry),
            entry,
        });
        Staged {
            rows: rows.collect(),
            found,
            files,
            cursor: page.cursor,
            forget,
            first,
            last,
        }
    }

    fn hand_over(&self, hand: &mut Hand) {
        let Hand {
            mut pages,
            missing,
            rows,
        } = std::mem::take(hand);
        if pages.is_empty() && missing.is_empty() {
            return;
        }
        let ends = !missing.is_empty() || pages.iter().any(|(_, staged)| staged.last);
        let when = if ends { When::Apart } else { When::Later };
        let (side, words, compare) = (self.side, self.words.clone(), self.compare);
        let release = self.release(&pages);
        if self.release.is_some() {
            pages.iter_mut().for_each(|(_, staged)| pack(staged));
        }
        let settled = Arc::new(std::sync::OnceLock::new());
        let told = settled.clone();
        let write = move |transaction: &Transaction<'_>| {
            let _ = told.set(publish_all(
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
                let _ = words.send(Word::Settled(side, settled));
            }
            if let Some((place, names)) = release {
                place.send(names);
            }
        });
    }

    /// What can be copied once it is durable, if whoever copies has room for it: what is passed
    /// over comes after the plan.
    fn release(
        &self,
        pages: &[(Listing, Staged)],
    ) -> Option<(OwnedPermit<Vec<Released>>, Vec<Released>)> {
        let place = self.release.clone()?.try_reserve_owned().ok()?;
        let resumable = self.backend.capabilities().resumable_listing;
        // A listing that cannot be gone on with may be forgotten, and its names come again.
        let lasting = |(_, staged): &&(Listing, Staged)| resumable || staged.first && staged.last;
        let released = |(listing, staged): &(Listing, Staged)| Released {
            folder: listing.work.row.id,
            names: staged
                .rows
                .iter()
                .filter(|row| row.entry.kind != Kind::Folder && !row.excluded)
                .map(|row| row.entry.name.clone())
                .collect(),
        };
        let released = pages.iter().filter(lasting).map(released);
        let released: Vec<Released> = released.filter(|some| !some.names.is_empty()).collect();
        (!released.is_empty()).then_some((place, released))
    }
}

/// Puts the plain files of a folder together, if all of it is here.
fn pack(staged: &mut Staged) {
    if !(staged.first && staged.last) {
        return;
    }
    let files = &mut staged.files;
    staged.rows.retain(|row| {
        let plain = is_plain(&row.entry) && !row.excluded;
        if plain {
            files.add(&row.entry);
        }
        !plain
    });
}

/// Writes pages; which folders have ended with them.
fn publish_all(
    transaction: &Transaction<'_>,
    (side, compare): (Side, &Compare),
    pages: &[(Listing, Staged)],
    missing: &[Listing],
) -> rusqlite::Result<Vec<(Option<LeaseId>, u64)>> {
    let mut ended = Vec::new();
    let mut listed: Vec<(FolderId, u64)> = Vec::new();
    let mut settled: Vec<(FolderId, Settled)> = Vec::new();
    let mut settle = |listing: &Listing, state: Settled| match listing.lease {
        Some(_) => {
            settled.push((listing.work.row.id, state));
            Ok(())
        }
        None => folders::settle_ahead(transaction, listing.work.row.id, state),
    };
    for (listing, staged) in pages {
        let row = &listing.work.row;
        let mut subfolders = row.subfolders;
        match side {
            Side::Leader => subfolders = publish::source(transaction, row, staged)?,
            Side::Follower => {
                let alike = publish::destination(transaction, row, staged, compare)?;
                if staged.last {
                    settle(listing, (Dst::Successful, alike))?;
                }
            }
        }
        if staged.last {
            ended.push((listing.lease, subfolders));
            listed.push((row.id, subfolders));
        }
    }
    for listing in missing {
        settle(listing, (Dst::Missing, false))?;
        ended.push((listing.lease, listing.work.row.subfolders));
    }
    match side {
        Side::Leader => {
            let files = pages.iter().filter(|(_, staged)| staged.files.len() > 0);
            let files = files.map(|(listing, staged)| (listing.work.row.id, &staged.files));
            put_files(transaction, &files.collect::<Vec<_>>())?;
            folders::listed(transaction, &listed)?;
        }
        Side::Follower => folders::settle(transaction, &settled)?,
    }
    Ok(ended)
}
