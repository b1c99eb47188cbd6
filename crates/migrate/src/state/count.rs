//! Adding up what a plan found, on two threads: nothing else goes on meanwhile, and somebody waits for it.

use super::{Count, Folders, PAGE, State, Summary, Totals};
use crate::error::Result;
use crate::status::{Compare, Status};
use crate::store::{FolderId, ROOT};
use std::collections::HashMap;

impl State {
    /// What the plan found, counted anew; `keep` is given the totals of folders, some at a time.
    pub(crate) fn count(&self, compare: &Compare, keep: impl Fn(Totals) + Sync) -> Result<Summary> {
        // Folders are mostly in those with small numbers, files in all: each thread gets some of both.
        let query = "SELECT parent + 1, id + 1 FROM folder
             WHERE id = (SELECT max(id) / 2 FROM folder) OR id = 1 ORDER BY id DESC";
        let (first, middle): (FolderId, FolderId) = self
            .read
            .query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?)))?;
        let (keep, path) = (&keep, self.store.path());
        let [mut summary, other] = std::thread::scope(|scope| -> Result<[Summary; 2]> {
            let count = || State::open(path)?.count_folders(compare, first..middle, keep);
            let other = scope.spawn(count);
            let mut summary = self.count_folders(compare, ROOT..first, keep)?;
            summary.add(&self.count_folders(compare, middle..FolderId::MAX, keep)?);
            match other.join() {
                Ok(other) => Ok([summary, other?]),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })?;
        summary.add(&other);
        summary.failed_folders = self.failed_folders()?;
        Ok(summary)
    }

    /// The plain files that the destination has just so: nobody has to look at each of them.
    fn alike(&self, folders: Folders) -> Result<Count> {
        let query = "SELECT coalesce(sum(p.entries), 0), coalesce(sum(p.bytes), 0)
             FROM files p JOIN folder f ON f.id = p.folder
             WHERE p.folder >= ? AND p.folder < ? AND f.alike = 1 AND f.dst = 1";
        let count = self
            .read
            .query_row(query, [folders.start, folders.end], |row| {
                Ok(Count {
                    entries: row.get::<_, i64>(0)?.cast_unsigned(),
                    bytes: row.get::<_, i64>(1)?.cast_unsigned(),
                })
            });
        Ok(count?)
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
        let alike = self.alike(folders.clone())?;
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
