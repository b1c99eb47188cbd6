//! What is at the destination only, and what stands in the way.
//!
//! Only below folders that were listed on both sides: what is unknown is never touched.

use super::tasks::touch;
use super::{Copy, Delete};
use crate::error::{Error, Result};
use crate::names::QUARANTINE;
use crate::progress::Phase;
use crate::status::{Dst, Status};
use crate::store::FolderId;
use crate::store::When;
use headworks_storage::{ErrorKind, Folder, Kind};
use rusqlite::params;

impl Copy<'_> {
    pub(super) async fn delete_extra(&self) -> Result<()> {
        if self.options.delete == Delete::Keep {
            return Ok(());
        }
        let mut extra: Vec<(FolderId, Vec<u8>)> = Vec::new();
        let state = self.job.state()?;
        state.extra(|parent, name, _, _| {
            extra.push((parent, name.to_vec()));
            Ok(())
        })?;
        if let Delete::Permanent { limit } = self.options.delete
            && extra.len() as u64 > limit
        {
            let words = format!(
                "{} entries are to be deleted, more than the limit of {limit}",
                extra.len()
            );
            return Err(Error::Preflight(words));
        }
        self.job
            .progress
            .enter(Phase::Delete, extra.len() as u64, 0);
        for (parent, name) in extra {
            self.heed().await?;
            let query = "SELECT path FROM folder WHERE id = ?";
            let folder: Vec<u8> = state
                .connection()
                .query_row(query, [parent], |row| row.get(0))?;
            self.put_away(&Folder::from_bytes(folder), parent, &name, None)
                .await?;
            self.job.progress.did(1, 0);
        }
        self.settled().await
    }

    /// Where the destination has a folder and the source a file, or the reverse, the destination's goes.
    pub(super) async fn clear_conflicts(&self) -> Result<()> {
        if self.options.delete == Delete::Keep {
            return Ok(());
        }
        let mut conflicts = Vec::new();
        let state = self.job.state()?;
        state.scan(&self.job.compare, |pair, status| {
            if status == Status::TypeConflict && pair.there.is_some() {
                let below =
                    (pair.entry.kind == Kind::Folder).then(|| pair.folder.child(&pair.entry.name));
                conflicts.push((
                    pair.parent,
                    pair.folder.clone(),
                    pair.entry.name.clone(),
                    below,
                ));
            }
            Ok(())
        })?;
        for (parent, folder, name, below) in conflicts {
            self.heed().await?;
            self.put_away(&folder, parent, &name, below).await?;
        }
        self.settled().await
    }

    /// Moves or removes one, and forgets it; what is below it on the source is then missing.
    async fn put_away(
        &self,
        folder: &Folder,
        parent: FolderId,
        name: &[u8],
        below: Option<Folder>,
    ) -> Result<()> {
        let done = match self.options.delete {
            Delete::Quarantine => self.quarantine(folder, name).await,
            _ => self.job.destination.remove(folder, name).await,
        };
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
        let write = move |transaction: &rusqlite::Transaction<'_>| {
            let mut delete = transaction
                .prepare_cached("DELETE FROM destination WHERE parent = ? AND name = ?")?;
            delete.execute(params![parent, name])?;
            if let Some(below) = &below {
                let mut end = below.as_bytes().to_vec();
                end.push(0xff);
                let mut update = transaction.prepare_cached(
                    "UPDATE folder SET dst = ? WHERE dst = ? AND path >= ? AND path < ?",
                )?;
                update.execute(params![
                    Dst::Missing as i64,
                    Dst::Conflict as i64,
                    below.as_bytes(),
                    end
                ])?;
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
