//! The totals of a plan at and below each folder.

use crate::status::Status;
use crate::store::{FolderId, Pair, ROOT};
use rusqlite::{Connection, OptionalExtension, params};

/// The totals of one folder.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    entries: i64,
    bytes: i64,
    work: i64,
    work_bytes: i64,
    trouble: i64,
}

/// The totals of some folders, ordered by id.
#[derive(Debug, Default)]
pub(crate) struct Totals(Vec<(FolderId, Total)>);

impl Totals {
    /// Adds an entry. The entries of one folder are consecutive.
    pub(super) fn add(&mut self, pair: &Pair, status: Status) {
        if self
            .0
            .last()
            .is_none_or(|(folder, _)| *folder != pair.parent)
        {
            self.0.push((pair.parent, Total::default()));
        }
        let Some((_, total)) = self.0.last_mut() else {
            return;
        };
        let size = pair.entry.size.cast_signed();
        total.entries += 1;
        total.bytes += size;
        if status.needs_copy() {
            total.work += 1;
            total.work_bytes += size;
        }
        total.trouble += i64::from(status.is_problem());
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Takes all totals but the last, which may grow.
    pub(super) fn take_complete(&mut self) -> Totals {
        let last = self.0.pop();
        Totals(std::mem::replace(&mut self.0, last.into_iter().collect()))
    }

    /// Adds identical plain files to the totals of the parent of their folder. Folders come ordered
    /// by id, so those of one parent are mostly consecutive. The total of their own folder does not
    /// contain them, and [`StateReader::total`](super::StateReader::total) adds them, so most
    /// folders need no row.
    pub(super) fn add_below(&mut self, parent: FolderId, (entries, bytes): (i64, i64)) {
        if self.0.last().is_none_or(|(folder, _)| *folder != parent) {
            self.0.push((parent, Total::default()));
        }
        if let Some((_, total)) = self.0.last_mut() {
            total.entries += entries;
            total.bytes += bytes;
        }
    }

    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        self.0
            .iter()
            .try_for_each(|(folder, total)| total.add_to(connection, *folder))
    }
}

impl Total {
    /// Adds these totals to a folder's row.
    fn add_to(&self, connection: &Connection, folder: FolderId) -> rusqlite::Result<()> {
        let mut add = connection.prepare_cached(
            "INSERT INTO total VALUES (?,?,?,?,?,?)
             ON CONFLICT (folder) DO UPDATE SET
                 entries = entries + excluded.entries, bytes = bytes + excluded.bytes,
                 work = work + excluded.work, work_bytes = work_bytes + excluded.work_bytes,
                 trouble = trouble + excluded.trouble",
        )?;
        add.execute(params![
            folder,
            self.entries,
            self.bytes,
            self.work,
            self.work_bytes,
            self.trouble
        ])
        .map(drop)
    }
}

/// Adds the totals of each folder to its parent. A parent has a smaller id, because it was listed
/// first, so the folder with the highest id is complete.
pub(crate) fn roll_up(connection: &Connection) -> rusqlite::Result<()> {
    let mut highest = connection.prepare_cached(
        "SELECT t.folder, f.parent, t.entries, t.bytes, t.work, t.work_bytes, t.trouble
         FROM total t JOIN folder f ON f.id = t.folder
         WHERE t.folder < ? ORDER BY t.folder DESC LIMIT 1",
    )?;
    let mut before = FolderId::MAX;
    loop {
        let found = highest.query_row([before], |row| {
            let total = Total {
                entries: row.get(2)?,
                bytes: row.get(3)?,
                work: row.get(4)?,
                work_bytes: row.get(5)?,
                trouble: row.get(6)?,
            };
            Ok((row.get(0)?, row.get(1)?, total))
        });
        let Some((folder, parent, total)) = found.optional()? else {
            return Ok(());
        };
        if folder != ROOT {
            total.add_to(connection, parent)?;
        }
        before = folder;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    /// Returns the entries and bytes of a folder's total.
    fn total(connection: &Connection, folder: FolderId) -> Option<(i64, i64)> {
        let query = "SELECT entries, bytes FROM total WHERE folder = ?";
        let found = connection.query_row(query, [folder], |row| Ok((row.get(0)?, row.get(1)?)));
        found.optional().unwrap()
    }

    #[test]
    fn an_entry_counts_once_in_every_ancestor() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::create(&dir.path().join("state")).unwrap();
        let connection = store.write().unwrap();
        // 1 has 2 and 3, 2 has 4 and 6, 4 has 5.
        for (id, parent) in [(1, 0), (2, 1), (3, 1), (4, 2), (5, 4), (6, 2)] {
            let add =
                "INSERT INTO folder (id, parent, name, depth, path) VALUES (?, ?, x'', 0, x'')";
            connection.execute(add, [id, parent]).unwrap();
        }
        // Folder 4 has no total of its own, and folder 2 gets one from each of two threads.
        let some = |entries| Total {
            entries,
            bytes: 10 * entries,
            ..Total::default()
        };
        let mut below = Totals::default();
        below.add_below(2, (1, 10));
        below.add_below(2, (1, 10));
        assert_eq!(below.len(), 1);
        below.write(&connection).unwrap();
        let totals = Totals(vec![(1, some(1)), (2, some(100)), (5, some(1000))]);
        totals.write(&connection).unwrap();
        roll_up(&connection).unwrap();
        let found = [1, 2, 3, 4, 5, 6].map(|folder| total(&connection, folder));
        let [all, two, three] = [1103, 1102, 1000].map(|entries| Some((entries, 10 * entries)));
        assert_eq!(found, [all, two, None, three, three, None]);
        assert_eq!(total(&connection, 0), None, "the root is below nothing");
    }
}
