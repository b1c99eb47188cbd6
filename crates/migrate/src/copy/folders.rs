//! Making folders, parents first, and setting their attributes after everything else.

use super::CopyRun;
use super::tasks::{FolderWork, Task, TaskKind};
use crate::error::Result;
use crate::progress::Phase;
use crate::status::DstState;
use crate::store::{ENTRY, plain_files, read_entry};
use headworks_storage::Folder;
use rusqlite::{Connection, params};

const BATCH: usize = 64;
const PAGE: usize = 4096;

impl CopyRun<'_> {
    pub(super) async fn make_folders(&self) -> Result<()> {
        let state = self.job.state()?;
        let read = state.connection();
        let missing: i64 = read.query_row(
            "SELECT count(*) FROM folder WHERE dst = ?",
            [DstState::Missing as i64],
            |row| row.get(0),
        )?;
        self.job
            .progress
            .enter(Phase::Folders, missing.cast_unsigned(), 0);
        if missing == 0 {
            return Ok(());
        }
        let deepest: i64 =
            read.query_row("SELECT coalesce(max(depth), 0) FROM folder", [], |row| {
                row.get(0)
            })?;
        for depth in 0..=deepest {
            let mut after = 0;
            let mut any = false;
            loop {
                let mut page = missing_page(read, depth, after)?;
                let Some(last) = page.last() else { break };
                after = last.id;
                any = true;
                if !self.job.compare.destination.folders {
                    self.mark_implied(read, &mut page)?;
                }
                self.submit_folders(page, TaskKind::Make).await?;
            }
            // A depth must be complete before the next one starts: parents must exist.
            if any {
                self.pool.idle().await;
            }
        }
        self.drain().await
    }

    /// Marks the folders that will exist because an entry is written into them.
    fn mark_implied(&self, read: &Connection, page: &mut [FolderWork]) -> Result<()> {
        let query = "SELECT name FROM source WHERE parent = ? AND excluded = 0 AND kind IN (0, 1)";
        let mut statement = read.prepare_cached(query)?;
        for folder in page {
            let mut rows = statement.query([folder.id])?;
            while let Some(row) = rows.next()?
                && !folder.implied
            {
                let name = row.get_ref(0)?.as_blob().unwrap_or_default();
                folder.implied = self.job.compare.destination.name_problem(name).is_none();
            }
            folder.implied |= plain_files(read, folder.id)?.iter().any(|file| {
                self.job
                    .compare
                    .destination
                    .name_problem(&file.name)
                    .is_none()
            });
        }
        Ok(())
    }

    async fn submit_folders(
        &self,
        page: Vec<FolderWork>,
        kind: fn(Vec<FolderWork>) -> TaskKind,
    ) -> Result<()> {
        for batch in page.chunks(BATCH) {
            let make_task = |slot| Task {
                kind: kind(batch.to_vec()),
                attempt: 0,
                _slot: slot,
            };
            self.submit(make_task).await?;
        }
        Ok(())
    }

    /// Sets the attributes of folders, deepest first, so that a folder is complete before its
    /// permissions may lock us out.
    pub(super) async fn set_folder_attributes(&self) -> Result<()> {
        let state = self.job.state()?;
        let read = state.connection();
        let count =
            |query: &str| -> Result<i64> { Ok(read.query_row(query, [], |row| row.get(0))?) };
        let touched = count("SELECT count(*) FROM folder WHERE touched = 1")?;
        self.job
            .progress
            .enter(Phase::FolderTimes, touched.cast_unsigned(), 0);
        let mut before = i64::MAX;
        loop {
            let page = self.unset_attributes_page(read, before)?;
            let Some((last, folders)) = page else { break };
            before = last;
            self.submit_folders(folders, TaskKind::SetAttributes)
                .await?;
        }
        self.drain().await
    }

    /// Returns the folders whose attributes must be set, because something was written into them or
    /// they differ, and the last folder that was considered.
    fn unset_attributes_page(
        &self,
        read: &Connection,
        before: i64,
    ) -> Result<Option<(i64, Vec<FolderWork>)>> {
        let query = format!(
            "SELECT {ENTRY_S}, f.id, f.parent, f.path, f.touched, d.name IS NULL, {ENTRY_D}
             FROM folder f
             JOIN source s ON s.parent = f.parent AND s.name = f.name
             LEFT JOIN destination d ON d.parent = f.parent AND d.name = f.name
             WHERE f.id < ? AND f.dst = 1 AND s.excluded = 0 ORDER BY f.id DESC LIMIT ?",
            ENTRY_S = ENTRY.replace('@', "s."),
            ENTRY_D = ENTRY.replace('@', "d."),
        );
        let mut statement = read.prepare_cached(&query)?;
        let mut rows = statement.query(params![before, PAGE as i64])?;
        let mut last = None;
        let mut folders = Vec::new();
        while let Some(row) = rows.next()? {
            let entry = read_entry(row, 0)?;
            let id: i64 = row.get(11)?;
            last = Some(id);
            let touched: bool = row.get(14)?;
            let nothing: bool = row.get(15)?;
            let differs = match nothing {
                true => true,
                false => self
                    .job
                    .compare
                    .difference(&entry, &read_entry(row, 16)?)
                    .needs_copy(),
            };
            if touched || differs {
                folders.push(FolderWork {
                    id,
                    parent: row.get(12)?,
                    path: Folder::from_bytes(row.get(13)?),
                    entry,
                    implied: false,
                });
            }
        }
        Ok(last.map(|last| (last, folders)))
    }
}

fn missing_page(read: &Connection, depth: i64, after: i64) -> Result<Vec<FolderWork>> {
    let query = format!(
        "SELECT {}, f.id, f.parent, f.path FROM folder f
         JOIN source s ON s.parent = f.parent AND s.name = f.name
         WHERE f.depth = ? AND f.id > ? AND f.dst = 3 AND s.excluded = 0
         ORDER BY f.id LIMIT ?",
        ENTRY.replace('@', "s.")
    );
    let mut statement = read.prepare_cached(&query)?;
    let rows = statement.query_map(params![depth, after, PAGE as i64], |row| {
        Ok(FolderWork {
            entry: read_entry(row, 0)?,
            id: row.get(11)?,
            parent: row.get(12)?,
            path: Folder::from_bytes(row.get(13)?),
            implied: false,
        })
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}
