//! Hard links: further names are linked after the first name is copied.

use super::CopyRun;
use super::record::{Record, mark_touched, write_record};
use super::tasks::precondition;
use crate::error::Result;
use crate::names;
use crate::progress::Phase;
use crate::queries::{StateReader, first_link, status};
use crate::status::Status;
use crate::store::{CommitMode, FolderId, Pair, find_pair, path_of};
use headworks_storage::{Error, ErrorKind};
use rusqlite::{Connection, params};

const PAGE: i64 = 1024;

impl CopyRun<'_> {
    pub(super) async fn link_files(&self) -> Result<()> {
        if !self.job.compare.destination.hard_links {
            return Ok(());
        }
        self.job.progress.enter(Phase::Links, 0, 0);
        let state = self.job.state()?;
        let mut after: LinkKey = (i64::MIN, i64::MIN, 0, Vec::new());
        while let Some(pairs) = linked_page(&state, &mut after)? {
            for pair in pairs {
                self.apply_control().await?;
                self.link(&state, pair).await?;
            }
        }
        self.drain().await
    }

    async fn link(&self, state: &StateReader, pair: Pair) -> Result<()> {
        let read = state.connection();
        let status = status(read, &self.job.compare, &pair)?;
        if !status.needs_copy() || pair.failure.is_some() {
            return Ok(());
        }
        let Some((parent, first)) = first_link(read, &pair)? else {
            return Ok(());
        };
        let folder = path_of(read, parent)?;
        let temp = names::temp(&self.job.id, &pair.entry.name);
        let name = &pair.entry.name;
        let record = match self.is_copied(read, parent, &first)? {
            false => {
                let cause = "the first name of this file was not copied";
                Record::Failed(Error::new(ErrorKind::Other, "link", &pair.path(), cause))
            }
            true => match self
                .job
                .destination
                .hard_link(
                    (&folder, &first),
                    &pair.folder,
                    name,
                    &temp,
                    &precondition(&pair),
                )
                .await
            {
                Ok(entry) => Record::Done(self.copier.as_listed(entry), None, None),
                Err(error) => Record::Failed(error),
            },
        };
        let pass = self.pass;
        // The row of the first name did not know that it has several links.
        let inode = match &record {
            Record::Done(entry, ..) => entry.inode,
            _ => None,
        };
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            write_record(transaction, &pair, &record, pass, 1)?;
            if let Some(inode) = inode {
                let mut update = transaction.prepare_cached(
                    "UPDATE destination SET device = ?, inode = ? WHERE parent = ? AND name = ?",
                )?;
                let (device, number) = (inode.device.cast_signed(), inode.number.cast_signed());
                update.execute(params![device, number, parent, first])?;
            }
            mark_touched(transaction, pair.parent)
        };
        self.job.writer.post(CommitMode::AfterSync, write, || {});
        self.job.progress.add_done(1, 0);
        Ok(())
    }

    /// Returns whether the destination has a name as the source has it.
    fn is_copied(&self, read: &Connection, parent: FolderId, name: &[u8]) -> Result<bool> {
        let pair = find_pair(read, parent, name)?;
        Ok(pair.is_some_and(|pair| self.job.compare.status(&pair) == Status::Same))
    }
}

/// The key of a row in the `link` table.
type LinkKey = (i64, i64, FolderId, Vec<u8>);

/// Returns the next page of source entries that share an inode with others.
fn linked_page(state: &StateReader, after: &mut LinkKey) -> Result<Option<Vec<Pair>>> {
    let read = state.connection();
    let mut statement = read.prepare_cached(
        "SELECT device, inode, parent, name FROM link
         WHERE (device, inode, parent, name) > (?, ?, ?, ?) ORDER BY device, inode, parent, name LIMIT ?",
    )?;
    let page = params![after.0, after.1, after.2, after.3, PAGE];
    let rows = statement.query_map(page, |row| {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    })?;
    let keys: Vec<LinkKey> = rows.collect::<rusqlite::Result<_>>()?;
    let Some(last) = keys.last() else {
        return Ok(None);
    };
    *after = last.clone();
    let mut pairs = Vec::new();
    for (_, _, parent, name) in &keys {
        pairs.extend(find_pair(read, *parent, name)?);
    }
    Ok(Some(pairs))
}
