//! Counting the result of a plan on two threads: nothing else runs meanwhile, and the user waits.

use super::{ALL_FOLDERS, Count, FolderRange, PAGE, StateReader, Summary, Totals};
use crate::error::Result;
use crate::status::{Comparison, Status};
use crate::store::{FolderId, ROOT};
use rusqlite::OptionalExtension;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Number of parts for each of two ways to cut the folders.
const PARTS: i64 = 8;

impl StateReader {
    /// Counts the result of the plan. `store_totals` receives the totals of folders piece by piece.
    pub(crate) fn count(
        &self,
        compare: &Comparison,
        store_totals: impl Fn(Totals) + Sync,
    ) -> Result<Summary> {
        let (store_totals, path) = (&store_totals, self.store.path());
        let (ranges, next) = (self.ranges()?, AtomicUsize::new(0));
        let count = |state: &StateReader| -> Result<Summary> {
            let mut summary = Summary::default();
            while let Some(folders) = ranges.get(next.fetch_add(1, Relaxed)) {
                summary.add(&state.count_folders(compare, folders.clone(), store_totals)?);
            }
            Ok(summary)
        };
        let [mut summary, other] = std::thread::scope(|scope| -> Result<[Summary; 2]> {
            let other = scope.spawn(|| count(&StateReader::open(path)?));
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

    /// Returns all folders in ranges for the threads to take one after the other. Folders are
    /// mostly in folders with small ids, files everywhere, so the ranges are cut both by the
    /// parents of the first folders and by the folders themselves.
    fn ranges(&self) -> Result<Vec<FolderRange>> {
        let mut statement = self.read.prepare_cached(
            "SELECT parent, id FROM folder WHERE id = (SELECT max(id) FROM folder) * ? / ?",
        )?;
        let mut cuts = vec![ALL_FOLDERS.start, ALL_FOLDERS.end];
        for part in 1..PARTS {
            let bounds = statement.query_row([part, PARTS], |row| Ok([row.get(0)?, row.get(1)?]));
            cuts.extend(
                bounds
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

    /// Counts the plain files that are identical on both sides, without reading each of them.
    fn count_identical(
        &self,
        folders: FolderRange,
        store_totals: &impl Fn(Totals),
    ) -> Result<Count> {
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
            // The root has no parent.
            if parent >= ROOT {
                totals.add_below(parent, (entries, bytes));
            }
            if totals.len() > PAGE {
                store_totals(totals.take_complete());
            }
        }
        store_totals(totals);
        Ok(count)
    }

    /// Returns the number of the destination's rows.
    fn destination_rows(&self, folders: FolderRange) -> Result<i64> {
        let query = "SELECT count(*) FROM destination WHERE parent >= ? AND parent < ?";
        let range = [folders.start, folders.end];
        Ok(self.read.query_row(query, range, |row| row.get(0))?)
    }

    fn count_folders(
        &self,
        compare: &Comparison,
        folders: FolderRange,
        store_totals: &impl Fn(Totals),
    ) -> Result<Summary> {
        let mut summary = Summary::default();
        let pass = self.pass()?;
        let mut totals = Totals::default();
        let mut matched = 0;
        let mut statuses: HashMap<Status, Count> = HashMap::new();
        self.scan_folders(compare, folders.clone(), |pair, status| {
            statuses.entry(status).or_default().add(pair.entry.size);
            summary.source.add(pair.entry.size);
            matched += i64::from(pair.existing.is_some());
            if pair.copied == pass {
                summary.copied.add(pair.entry.size);
            }
            totals.add(pair, status);
            if totals.len() > PAGE {
                store_totals(totals.take_complete());
            }
        })?;
        store_totals(totals);
        let identical = self.count_identical(folders.clone(), store_totals)?;
        if identical.entries > 0 {
            statuses.entry(Status::Same).or_default().join(identical);
            summary.source.join(identical);
        }
        // If all rows matched, nothing is at the destination only.
        if self.destination_rows(folders.clone())? != matched {
            self.extra_in(folders, |extra| {
                let count = statuses.entry(Status::NotOnSrc).or_default();
                count.add(extra.size);
                Ok(())
            })?;
        }
        let named = statuses
            .into_iter()
            .map(|(status, count)| (status.word().into(), count));
        summary.statuses = named.collect();
        Ok(summary)
    }
}
