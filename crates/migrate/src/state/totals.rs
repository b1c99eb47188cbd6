//! What a plan found at and below each folder.

use crate::status::Status;
use crate::store::{FolderId, Pair};
use rusqlite::{Connection, params};

/// What is in a folder.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    entries: i64,
    bytes: i64,
    work: i64,
    work_bytes: i64,
    trouble: i64,
}

/// The totals of some folders, in the order of their numbers.
#[derive(Debug, Default)]
pub(crate) struct Totals(Vec<(FolderId, Total)>);

impl Totals {
    /// Adds an entry; entries of one folder come one after the other.
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
        if status.is_work() {
            total.work += 1;
            total.work_bytes += size;
        }
        total.trouble += i64::from(status.is_trouble());
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// All but the last, which may go on.
    pub(super) fn split(&mut self) -> Totals {
        let last = self.0.pop();
        Totals(std::mem::replace(&mut self.0, last.into_iter().collect()))
    }

    pub(crate) fn write(&self, connection: &Connection) -> rusqlite::Result<()> {
        let mut insert = connection.prepare_cached("INSERT INTO total VALUES (?,?,?,?,?,?)")?;
        for (folder, total) in &self.0 {
            insert.execute(params![
                folder,
                total.entries,
                total.bytes,
                total.work,
                total.work_bytes,
                total.trouble
            ])?;
        }
        Ok(())
    }
}

/// Adds what is in each folder to the one above it, the deepest first. Plain files that the destination has just so have no part in
/// the total of their own folder: whoever wants that adds them ([`State::total`](super::State::total)), so that most folders need no row.
pub(crate) fn roll_up(connection: &Connection) -> rusqlite::Result<()> {
    let deepest: i64 =
        connection.query_row("SELECT coalesce(max(depth), 0) FROM folder", [], |row| {
            row.get(0)
        })?;
    let mut add = connection.prepare_cached(
        "INSERT INTO total
         SELECT f.parent, coalesce(sum(t.entries), 0) + coalesce(sum(p.entries), 0),
             coalesce(sum(t.bytes), 0) + coalesce(sum(p.bytes), 0),
             coalesce(sum(t.work), 0), coalesce(sum(t.work_bytes), 0), coalesce(sum(t.trouble), 0)
         FROM folder f LEFT JOIN total t ON t.folder = f.id
             LEFT JOIN files p ON p.folder = f.id AND f.alike = 1 AND f.dst = 1
         WHERE f.depth = ? GROUP BY f.parent
         ON CONFLICT (folder) DO UPDATE SET
             entries = entries + excluded.entries, bytes = bytes + excluded.bytes,
             work = work + excluded.work, work_bytes = work_bytes + excluded.work_bytes,
             trouble = trouble + excluded.trouble",
    )?;
    for depth in (1..=deepest).rev() {
        add.execute([depth])?;
    }
    Ok(())
}
