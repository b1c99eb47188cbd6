//! Further names of files: given when the first name is there.

use super::Copy;
use super::tasks::{Record, touch, write_record};
use crate::error::Result;
use crate::names;
use crate::progress::Phase;
use crate::state::{State, leader, status};
use crate::status::Status;
use crate::store::{FolderId, Pair, When, read_pairs};
use headworks_storage::{Error, ErrorKind, Folder};
use rusqlite::Connection;

const PAGE: usize = 1024;

impl Copy<'_> {
    pub(super) async fn link_files(&self) -> Result<()> {
        if !self.job.compare.destination.hard_links {
            return Ok(());
        }
        self.job.progress.enter(Phase::Links, 0, 0);
        let state = self.job.state()?;
        let mut after: (FolderId, Vec<u8>) = (0, Vec::new());
        while let Some(pairs) = linked_page(&state, &mut after)? {
            for pair in pairs {
                self.heed().await?;
                self.link(&state, pair).await?;
            }
        }
        self.settled().await
    }

    async fn link(&self, state: &State, pair: Pair) -> Result<()> {
        let read = state.connection();
        let status = status(read, &self.job.compare, &pair)?;
        if !status.is_work() || pair.failure.is_some() {
            return Ok(());
        }
        let Some((parent, first)) = leader(read, &pair)? else {
            return Ok(());
        };
        let folder: Vec<u8> =
            read.query_row("SELECT path FROM folder WHERE id = ?", [parent], |row| {
                row.get(0)
            })?;
        let folder = Folder::from_bytes(folder);
        let temp = names::temp(&self.job.id, &pair.entry.name);
        let name = &pair.entry.name;
        let record = match self.is_there(read, parent, &first)? {
            false => {
                let words = "its first name was not copied";
                Record::Failed(Error::new(ErrorKind::Other, "link", &pair.path(), words))
            }
            true => match self
                .job
                .destination
                .hard_link((&folder, &first), &pair.folder, name, &temp)
                .await
            {
                Ok(entry) => Record::Done(entry, None),
                Err(error) => Record::Failed(error),
            },
        };
        let pass = self.pass;
        // The first name's row did not know that it is one of several.
        let inode = match &record {
            Record::Done(entry, _) => entry.inode,
            _ => None,
        };
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            write_record(transaction, &pair, &record, pass, 1)?;
            if let Some(inode) = inode {
                let mut update = transaction.prepare_cached(
                    "UPDATE destination SET device = ?, inode = ? WHERE parent = ? AND name = ?",
                )?;
                let (device, number) = (inode.device.cast_signed(), inode.number.cast_signed());
                update.execute(rusqlite::params![device, number, parent, first])?;
            }
            touch(transaction, pair.parent)
        };
        self.job.writer.post(When::Synced, write, || {});
        self.job.progress.did(1, 0);
        Ok(())
    }

    /// Whether a name is at the destination, as the source has it.
    fn is_there(&self, read: &Connection, parent: FolderId, name: &[u8]) -> Result<bool> {
        let pair = crate::state::find_pair(read, parent, name)?;
        Ok(pair.is_some_and(|pair| self.job.compare.status(&pair) == Status::Same))
    }
}

/// Source entries that share their file with others, some at a time.
fn linked_page(state: &State, after: &mut (FolderId, Vec<u8>)) -> Result<Option<Vec<Pair>>> {
    loop {
        let pairs = read_pairs(state.connection(), after, PAGE)?;
        let Some(last) = pairs.last() else {
            return Ok(None);
        };
        *after = (last.parent, last.entry.name.clone());
        let linked: Vec<Pair> = pairs
            .into_iter()
            .filter(|pair| pair.entry.inode.is_some())
            .collect();
        if !linked.is_empty() {
            return Ok(Some(linked));
        }
    }
}
