//! What is at the destination only, and what stands in the way.
//!
//! Only below folders that were listed on both sides: what is unknown is never touched.

use super::record::touch;
use super::{Copy, Delete};
use crate::error::{Error, Result};
use crate::names::QUARANTINE;
use crate::progress::Phase;
use crate::status::{Dst, Status};
use crate::store::{FolderId, When, move_below, path_of, read_pairs};
use headworks_storage::{ErrorKind, Folder, failpoint};
use rusqlite::params;

/// Rows that are read at once.
const PAGE: usize = 4096;

impl Copy<'_> {
    pub(super) async fn delete_extra(&self) -> Result<()> {
        if self.options.delete == Delete::Keep {
            return Ok(());
        }
        let state = self.job.state()?;
        let mut count = 0;
        state.extra(|_| {
            count += 1;
            Ok(())
        })?;
        if let Delete::Permanent { limit } = self.options.delete
            && count > limit
        {
            let words =
                format!("{count} entries are to be deleted, more than the limit of {limit}");
            return Err(Error::Preflight(words));
        }
        self.job.progress.enter(Phase::Delete, count, 0);
        let mut after = (0, Vec::new());
        loop {
            let page = state.extra_page(&after, FolderId::MAX)?;
            let Some(last) = page.last() else { break };
            after = (last.parent, last.name.clone());
            for extra in &page {
                self.heed().await?;
                let folder = path_of(state.connection(), extra.parent)?;
                self.put_away(&folder, extra.parent, &extra.name, None)
                    .await?;
                self.job.progress.did(1, 0);
            }
        }
        self.settled().await
    }

    /// Where the destination has a folder and the source a file, or the reverse, the destination's goes.
    pub(super) async fn clear_conflicts(&self) -> Result<()> {
        if self.options.delete == Delete::Keep {
            return Ok(());
        }
        let state = self.job.state()?;
        let mut after = (0, Vec::new());
        loop {
            let pairs = read_pairs(state.connection(), &after, PAGE)?;
            let Some(last) = pairs.last() else { break };
            after = (last.parent, last.entry.name.clone());
            for pair in &pairs {
                let status = self.job.compare.status(pair);
                if status == Status::TypeConflict && pair.there.is_some() {
                    self.heed().await?;
                    self.put_away(&pair.folder, pair.parent, &pair.entry.name, pair.child)
                        .await?;
                }
            }
        }
        self.settled().await
    }

    /// Moves or removes one, and forgets it; what is below it on the source is then missing.
    async fn put_away(
        &self,
        folder: &Folder,
        parent: FolderId,
        name: &[u8],
        below: Option<FolderId>,
    ) -> Result<()> {
        let done = match self.options.delete {
            Delete::Quarantine => self.quarantine(folder, name).await,
            _ => self.job.destination.remove(folder, name).await,
        };
        failpoint::hit("after-put-away");
        match done {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::Storage {
                    side: "destination",
                    error,
                });
            }
            _ => {}
        }
        let name = name.to_vec();
        let counter = match self.options.delete {
            Delete::Quarantine => "quarantined",
            _ => "deleted",
        };
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            let mut delete = transaction
                .prepare_cached("DELETE FROM destination WHERE parent = ? AND name = ?")?;
            // As often as it is forgotten, however often it was tried.
            if delete.execute(params![parent, name])? > 0 {
                let more = "INSERT INTO meta VALUES (?, 1) ON CONFLICT (key) DO UPDATE SET value = value + 1";
                transaction.prepare_cached(more)?.execute([counter])?;
            }
            if let Some(below) = below {
                move_below(transaction, below, Dst::Conflict, Dst::Missing)?;
            }
            touch(transaction, parent)
        };
        self.job.writer.post(When::Synced, write, || {});
        Ok(())
    }

    /// To the same path below a folder of this pass; a name that is taken there gets a number.
    async fn quarantine(&self, folder: &Folder, name: &[u8]) -> headworks_storage::Result<()> {
        let destination = &self.job.destination;
        let mut place = Folder::root().child(QUARANTINE);
        destination.make_folder(&place).await?;
        let pass = format!("pass-{}", self.pass);
        for level in std::iter::once(pass.as_bytes()).chain(folder.names()) {
            place = place.child(level);
            destination.make_folder(&place).await?;
        }
        let mut taken = 0;
        let mut new = name.to_vec();
        loop {
            match destination.rename(folder, name, (&place, &new)).await {
                Err(error) if error.kind() == ErrorKind::Exists => {
                    taken += 1;
                    new = format!("{taken}").into_bytes();
                    new.push(b'-');
                    new.extend(name.iter().take(240));
                }
                other => return other,
            }
        }
    }
}
