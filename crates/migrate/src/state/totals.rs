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

/// What is added to a total that is there.
const ADD: &str = "ON CONFLICT (folder) DO UPDATE SET
     entries = entries + excluded.entries, bytes = bytes + excluded.bytes,
     work = work + excluded.work, work_bytes = work_bytes + excluded.work_bytes,
     trouble = trouble + excluded.trouble";

/// Adds the plain files that need no look; then what is in each folder to the one above it, the deepest first.
pub(crate) fn roll_up(connection: &Connection) -> rusqlite::Result<()> {
    let alike = format!(
        "INSERT INTO total SELECT p.folder, p.entries, p.bytes, 0, 0, 0
         FROM files p JOIN folder f ON f.id = p.folder WHERE f.alike = 1 AND f.dst = 1 {ADD}"
    );
    connection.execute(&alike, [])?;
    let deepest: i64 =
        connection.query_row("SELECT coalesce(max(depth), 0) FROM folder", [], |row| {
            row.get(0)
        })?;
    let add = format!(
        "INSERT INTO total
         SELECT f.parent, sum(t.entries), sum(t.bytes), sum(t.work), sum(t.work_bytes), sum(t.trouble)
         FROM folder f JOIN total t ON t.folder = f.id WHERE f.depth = ? GROUP BY f.parent {ADD}"
    );
    let mut add = connection.prepare_cached(&add)?;
    for depth in (1..=deepest).rev() {
        add.execute([depth])?;
    }
    Ok(())
}
