//! Adding up what a plan found, on two threads: nothing else goes on meanwhile, and somebody waits
//! for it.

use super::{ALL, Count, Folders, PAGE, State, Summary, Totals};
use crate::error::Result;
use crate::status::{Compare, Status};
use crate::store::{FolderId, ROOT};
use rusqlite::OptionalExtension;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// How often folders are cut, in each of two ways.
const PARTS: i64 = 8;

impl State {
    /// What the plan found, counted anew; `keep` is given the totals of folders, some at a time.
    pub(crate) fn count(&self, compare: &Compare, keep: impl Fn(Totals) + Sync) -> Result<Summary> {
        let (keep, path) = (&keep, self.store.path());
        let (ranges, next) = (self.ranges()?, AtomicUsize::new(0));
        let count = |state: &State| -> Result<Summary> {
            let mut summary = Summary::default();
            while let Some(folders) = ranges.get(next.fetch_add(1, Relaxed)) {
                summary.add(&state.count_folders(compare, folders.clone(), keep)?);
            }
            Ok(summary)
        };
        let [mut summary, other] = std::thread::scope(|scope| -> Result<[Summary; 2]> {
            let other = scope.spawn(|| count(&State::open(path)?));
            let summary = count(self)?;
            match other.join() {
                Ok(other) => Ok([summary, other?]),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        summary.add(&other);
        summary.failed_folders = self.failed_folders()?;
        Ok(summary)
    }

    /// All folders, in parts that the threads take one after the other. Folders are mostly in those
    /// with small numbers, files in all: so it is cut by what is in the first parts of the table as
    /// well as by the table itself.
    fn ranges(&self) -> Result<Vec<Folders>> {
        let mut statement = self.read.prepare_cached(
            "SELECT parent, id FROM folder WHERE id = (SELECT max(id) FROM folder) * ? / ?",
        )?;
        let mut cuts = vec![ALL.start, ALL.end];
        for part in 1..PARTS {
            let place = statement.query_row([part, PARTS], |row| Ok([row.get(0)?, row.get(1)?]));
            cuts.extend(
                place
                    .optional()?
                    .into_iter()
                    .flatten()
                    .map(|cut: FolderId| cut + 1),
            );
        }
        cuts.sort_unstable();
        cuts.dedup();
        Ok(cuts.windows(2).map(|cut| cut[0]..cut[1]).collect())
    }

    /// The plain files that the destination has just so: nobody has to look at each of them.
    fn alike(&self, folders: Folders, keep: &impl Fn(Totals)) -> Result<Count> {
        let mut statement = self.read.prepare_cached(
            "SELECT f.parent, p.entries, p.bytes FROM files p JOIN folder f ON f.id = p.folder
             WHERE p.folder >= ? AND p.folder < ? AND f.alike = 1 AND f.dst = 1 ORDER BY p.folder",
        )?;
        let mut rows = statement.query([folders.start, folders.end])?;
        let mut count = Count::default();
        let mut totals = Totals::default();
        while let Some(row) = rows.next()? {
            let (parent, entries, bytes): (FolderId, i64, i64) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            count.join(Count {
                entries: entries.cast_unsigned(),
                bytes: bytes.cast_unsigned(),
            });
            // The root is below nothing.
            if parent >= ROOT {
                totals.add_below(parent, (entries, bytes));
            }
            if totals.len() > PAGE {
                keep(totals.split());
            }
        }
        keep(totals);
        Ok(count)
    }

    /// Rows of the destination.
    fn there(&self, folders: Folders) -> Result<i64> {
        let query = "SELECT count(*) FROM destination WHERE parent >= ? AND parent < ?";
        let range = [folders.start, folders.end];
        Ok(self.read.query_row(query, range, |row| row.get(0))?)
    }

    fn count_folders(
        &self,
        compare: &Compare,
        folders: Folders,
        keep: &impl Fn(Totals),
    ) -> Result<Summary> {
        let mut summary = Summary::default();
        let pass = self.pass()?;
        let mut totals = Totals::default();
        let mut matched = 0;
        let mut statuses: HashMap<Status, Count> = HashMap::new();
        self.scan_folders(compare, folders.clone(), |pair, status| {
            statuses.entry(status).or_default().add(pair.entry.size);
            summary.source.add(pair.entry.size);
            matched += i64::from(pair.there.is_some());
            if pair.copied == pass {
                summary.copied.add(pair.entry.size);
            }
            totals.add(pair, status);
            if totals.len() > PAGE {
                keep(totals.split());
            }
        })?;
        keep(totals);
        let alike = self.alike(folders.clone(), keep)?;
        if alike.entries > 0 {
            statuses.entry(Status::Same).or_default().join(alike);
            summary.source.join(alike);
        }
        // Otherwise nothing is at the destination only.
        if self.there(folders.clone())? != matched {
            self.extra_in(folders, |extra| {
                let count = statuses.entry(Status::NotOnSrc).or_default();
                count.add(extra.size);
                Ok(())
            })?;
        }
        let words = statuses
            .into_iter()
            .map(|(status, count)| (status.word().into(), count));
        summary.statuses = words.collect();
        Ok(summary)
    }
}
