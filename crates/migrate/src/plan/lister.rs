//! Lists a folder, and hands what is in it to the store.

use super::publish::{self, Staged};
use super::side::Work;
use crate::filter::Filter;
use crate::names;
use crate::progress::Progress;
use crate::status::Dst;
use crate::store::{Row, When, Writer};
use headworks_core::Side;
use headworks_core::rounds::LeaseId;
use headworks_pool::{Handler, Health, Notice, Report, Run};
use headworks_storage::{Backend, Entry, Error, ErrorKind, Fault, Kind, Page};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::mpsc::UnboundedSender;

/// A folder to list.
#[derive(Clone)]
pub(super) struct Listing {
    pub(super) lease: LeaseId,
    pub(super) work: Arc<Work>,
    pub(super) attempt: u32,
}

/// What the driver hears.
pub(super) enum Word {
    /// Durable: the folders of these leases have ended, and have so many subfolders.
    Settled(Side, Vec<(LeaseId, u64)>),
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
    /// Whether both sides can have the object that stands for a folder.
    pub(super) markers: bool,
}

impl Handler<Listing> for Lister {
    async fn run(&self, run: &mut Run<'_, Listing>) -> Report {
        let listing = run.payload.clone();
        let error = match self.list(&listing).await {
            Ok(()) => return Report::done(),
            Err(error) => error,
        };
        if let Fault::Overload(wait) = error.fault() {
            self.progress.overloaded(self.side);
            return Report::retry_in(wait).target(Health::Overloaded(wait));
        }
        if self.side == Side::Follower && error.kind() == ErrorKind::NotFound {
            // Not an error: the whole folder is missing. For the root that is the normal case.
            self.settle_missing(&listing);
            return Report::done();
        }
        // Rounds retry, with a budget of their own: to the pool the attempt is all there is.
        let _ = self.words.send(Word::Failed(self.side, listing, error));
        Report::failed()
    }

    fn notice(&self, notice: Notice<Listing>) {
        if let Notice::Ended { how, .. } = notice
            && how != headworks_pool::How::Failed
        {
            let _ = self.words.send(Word::Returned);
        }
    }
}

impl Lister {
    async fn list(&self, listing: &Listing) -> Result<(), Error> {
        let folder = &listing.work.row;
        if folder.path.is_root() {
            let entry = self.backend.stat(&folder.path, None).await?;
            let side = self.side;
            self.writer
                .post(When::Now, move |tx| publish::root(tx, side, entry), || {});
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
            self.publish(
                listing,
                page.take().unwrap_or_default(),
                (first, last),
                forget,
            );
            if last {
                return Ok(());
            }
            (first, forget) = (false, false);
            page = next;
        }
    }

    fn count_resumed(&self, staged: bool, resumed: bool) {
        let side = &self.progress.sides[self.side as usize];
        side.again.fetch_add(u64::from(staged && !resumed), Relaxed);
        side.gone_on.fetch_add(u64::from(resumed), Relaxed);
    }

    fn publish(&self, listing: &Listing, page: Page, (first, last): (bool, bool), forget: bool) {
        let folder = &listing.work.row;
        let of_ours = |name: &[u8]| names::is_ours(&self.job, &folder.path, name);
        // It says that there is a folder, which is known already.
        let is_marker = |entry: &Entry| {
            !self.markers && entry.name.is_empty() && entry.kind == Kind::File && entry.size == 0
        };
        let rows = page
            .entries
            .into_iter()
            .filter(|entry| !of_ours(&entry.name) && !is_marker(entry));
        let rows: Vec<Row> = rows
            .map(|entry| {
                let excluded =
                    self.side == Side::Leader && self.filter.excludes(&folder.path, &entry);
                Row { entry, excluded }
            })
            .collect();
        self.progress.listed(self.side, &rows, last);
        let staged = Staged {
            rows,
            cursor: page.cursor,
            forget,
            first,
            last,
        };
        if !last {
            listing.work.reached.page(staged.cursor.clone());
        }
        let (side, work, lease) = (self.side, listing.work.clone(), listing.lease);
        let found = Arc::new(Mutex::new(0));
        let told = found.clone();
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            let subfolders = match side {
                Side::Leader => publish::source(transaction, &work.row, &staged)?,
                Side::Follower => publish::destination(transaction, &work.row, &staged)?,
            };
            *told.lock().unwrap_or_else(PoisonError::into_inner) = subfolders;
            Ok(())
        };
        let words = self.words.clone();
        let when = if last { When::Now } else { When::Later };
        self.writer.post(when, write, move || {
            if last {
                let subfolders = *found.lock().unwrap_or_else(PoisonError::into_inner);
                let _ = words.send(Word::Settled(side, vec![(lease, subfolders)]));
            }
        });
    }

    fn settle_missing(&self, listing: &Listing) {
        let (lease, row) = (listing.lease, &listing.work.row);
        let (id, subfolders) = (row.id, row.subfolders);
        let words = self.words.clone();
        self.writer.post(
            When::Now,
            move |transaction| publish::settle(transaction, id, Dst::Missing),
            move || drop(words.send(Word::Settled(Side::Follower, vec![(lease, subfolders)]))),
        );
    }
}
