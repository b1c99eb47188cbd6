//! Everything known about one path.

use super::{Explanation, StateReader, class, status};
use crate::error::Result;
use crate::store::{FolderId, Pair, find_pair, folder_at};
use headworks_storage::{Entry, Folder, display};
use rusqlite::{OptionalExtension, params};

impl StateReader {
    /// Explains a path.
    ///
    /// # Errors
    /// When the state file cannot be read.
    pub fn explain(&self, path: &[u8]) -> Result<Explanation> {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let cut = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let (folder, name) = path.split_at(cut);
        let title = display(path).to_string();
        let parent = folder_at(&self.read, &Folder::from_bytes(folder.to_vec()))?;
        let mut lines = vec![title];
        let Some(parent) = parent else {
            lines.push(
                "the folder it would be in is not on the source, not listed yet, or excluded"
                    .into(),
            );
            self.explain_above(folder, &mut lines)?;
            let known = false;
            return Ok(Explanation { known, lines });
        };
        let known = match find_pair(&self.read, parent, name)? {
            Some(pair) => {
                self.explain_pair(&pair, &mut lines)?;
                true
            }
            None => self.explain_extra(parent, name, &mut lines)?,
        };
        self.explain_failures(parent, name, &mut lines)?;
        Ok(Explanation { known, lines })
    }

    /// Explains why nothing is known below a folder, if one above it failed.
    fn explain_above(&self, folder: &[u8], lines: &mut Vec<String>) -> Result<()> {
        let mut path = folder.strip_suffix(b"/").unwrap_or(folder);
        while !path.is_empty() {
            let cut = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
            let (above, name) = path.split_at(cut);
            if let Some(parent) = folder_at(&self.read, &Folder::from_bytes(above.to_vec()))? {
                let before = lines.len();
                self.explain_failures(parent, name, lines)?;
                if lines.len() > before {
                    lines.insert(before, format!("ancestor {}:", display(path)));
                    break;
                }
            }
            path = above.strip_suffix(b"/").unwrap_or(above);
        }
        Ok(())
    }

    fn explain_failures(
        &self,
        parent: FolderId,
        name: &[u8],
        lines: &mut Vec<String>,
    ) -> Result<()> {
        let mut statement = self
            .read
            .prepare("SELECT phase, cause, attempts FROM failure WHERE parent = ? AND name = ?")?;
        let mut rows = statement.query(params![parent, name])?;
        while let Some(row) = rows.next()? {
            let (phase, cause, attempts): (String, String, u32) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            lines.push(format!(
                "failed in phase: {phase}, after {attempts} attempts: {cause}"
            ));
        }
        Ok(())
    }

    fn explain_pair(&self, pair: &Pair, lines: &mut Vec<String>) -> Result<()> {
        let compare = self.compare()?;
        let status = status(&self.read, &compare, pair)?;
        let class = class(pair, status, self.pass()?);
        let describe = |entry: &Entry| {
            let time = entry.modified.map_or("unknown".into(), crate::clock);
            format!("{:?}, {} bytes, modified {time}", entry.kind, entry.size)
        };
        lines.push(format!("status: {status}; class: {}", class.word()));
        lines.push(format!("source: {}", describe(&pair.entry)));
        match &pair.existing {
            Some(existing) => lines.push(format!("destination: {}", describe(existing))),
            None => lines.push("destination: no entry of that name".into()),
        }
        let query = "SELECT sha256 FROM hash WHERE path = ?";
        let hash: Option<Vec<u8>> = self
            .read
            .query_row(query, [pair.path()], |row| row.get(0))
            .optional()?;
        if let Some(hash) = hash {
            lines.push(format!("sha256: {}", hex::encode(hash)));
        }
        let query = "SELECT done FROM part WHERE parent = ? AND name = ?";
        let part: Option<i64> = self
            .read
            .query_row(query, params![pair.parent, pair.entry.name], |row| {
                row.get(0)
            })
            .optional()?;
        if let Some(done) = part {
            lines.push(format!(
                "in progress: {done} bytes are durable at the destination"
            ));
        }
        Ok(())
    }

    /// Explains a name that is not on the source; returns `false` if it is unknown.
    fn explain_extra(
        &self,
        parent: FolderId,
        name: &[u8],
        lines: &mut Vec<String>,
    ) -> Result<bool> {
        let query = "SELECT count(*) FROM destination WHERE parent = ? AND name = ?";
        let count: i64 = self
            .read
            .query_row(query, params![parent, name], |row| row.get(0))?;
        lines.push(match count {
            0 => "neither on the source nor at the destination".into(),
            _ => "status: not_on_src (at the destination only; a copy keeps it unless --delete is given)".into(),
        });
        Ok(count > 0)
    }
}
