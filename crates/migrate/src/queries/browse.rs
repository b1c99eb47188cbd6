//! Small pages of a state file, for a display while the file changes.

use super::{FailedEntry, Outcome, StateReader, status};
use crate::error::Result;
use crate::progress::Round;
use crate::queries::Count;
use crate::status::Status;
use crate::store::{EntryKey, FolderId, Pair, meta, path_of, read_folder};
use headworks_storage::Folder;
use headworks_storage::display;
use rusqlite::{OptionalExtension, params};

/// The totals of a plan at and below a folder.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FolderTotal {
    pub(crate) found: Count,
    pub(crate) work: Count,
    pub(crate) trouble: u64,
}

/// An entry of a folder.
#[derive(Clone, Debug)]
pub(crate) struct BrowsedEntry {
    pub(crate) path: Vec<u8>,
    pub(crate) name: Vec<u8>,
    pub(crate) status: &'static str,
    /// Its id, if it is a folder that can be opened.
    pub(crate) folder: Option<FolderId>,
    pub(crate) total: Option<FolderTotal>,
}

impl StateReader {
    /// Returns a page of the source's entries of a folder.
    pub(crate) fn browse_source(
        &self,
        folder: FolderId,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<BrowsedEntry>> {
        let compare = self.compare()?;
        let mut listed = Vec::new();
        for pair in read_folder(&self.read, folder, after, limit)? {
            let status = status(&self.read, &compare, &pair)?;
            let total = match pair.child {
                Some(child) => self.total(child)?,
                None => Some(total_of(&pair, status)),
            };
            listed.push(BrowsedEntry {
                path: pair.path(),
                status: status.word(),
                folder: pair.child,
                total,
                name: pair.entry.name,
            });
        }
        Ok(listed)
    }

    /// Returns a page of a folder's entries that only the destination has.
    pub(crate) fn browse_extra(
        &self,
        folder: FolderId,
        after: &[u8],
        limit: usize,
    ) -> Result<Vec<BrowsedEntry>> {
        let path = path_of(&self.read, folder)?;
        let extra = self.extra_limited((folder, after.to_vec()), folder, limit)?;
        let listed = extra.into_iter().map(|extra| BrowsedEntry {
            path: path.join(&extra.name),
            name: extra.name,
            status: Status::NotOnSrc.word(),
            folder: None,
            total: Some(FolderTotal {
                found: Count {
                    entries: 1,
                    bytes: extra.size,
                },
                ..FolderTotal::default()
            }),
        });
        Ok(listed.collect())
    }

    /// Returns the totals at and below a folder, if the plan is finished.
    pub(crate) fn total(&self, folder: FolderId) -> Result<Option<FolderTotal>> {
        let mut statement = self.read.prepare_cached(
            "SELECT coalesce(t.entries, 0) + coalesce(p.entries, 0),
                 coalesce(t.bytes, 0) + coalesce(p.bytes, 0),
                 coalesce(t.work, 0), coalesce(t.work_bytes, 0), coalesce(t.trouble, 0)
             FROM folder f LEFT JOIN total t ON t.folder = f.id
                 LEFT JOIN files p ON p.folder = f.id AND f.alike = 1 AND f.dst = 1
             WHERE f.id = ? AND (t.folder IS NOT NULL OR f.subfolders = 0 AND p.folder IS NOT NULL)",
        )?;
        let total = statement.query_row([folder], |row| {
            let number = |at| row.get::<_, i64>(at).map(i64::cast_unsigned);
            let count = |at| -> rusqlite::Result<Count> {
                Ok(Count {
                    entries: number(at)?,
                    bytes: number(at + 1)?,
                })
            };
            Ok(FolderTotal {
                found: count(0)?,
                work: count(2)?,
                trouble: number(4)?,
            })
        });
        Ok(total.optional()?)
    }

    /// Returns a page of failures, each with its key.
    pub(crate) fn failed_page(
        &self,
        after: (FolderId, &[u8]),
        limit: usize,
    ) -> Result<Vec<(EntryKey, FailedEntry)>> {
        let mut statement = self.read.prepare_cached(
            "SELECT coalesce(f.path, x''), x.name, x.phase, x.kind, x.cause, x.attempts, x.parent
             FROM failure x LEFT JOIN folder f ON f.id = x.parent
             WHERE (x.parent, x.name) > (?, ?) AND x.kind <> 'Kept' ORDER BY x.parent, x.name LIMIT ?",
        )?;
        let rows = statement.query_map(params![after.0, after.1, limit as i64], |row| {
            let name: Vec<u8> = row.get(1)?;
            let path = Folder::from_bytes(row.get(0)?).join(&name);
            let failed = FailedEntry {
                path: display(&path).to_string(),
                phase: row.get(2)?,
                kind: row.get(3)?,
                cause: row.get(4)?,
                attempts: row.get(5)?,
            };
            Ok(((row.get(6)?, name), failed))
        })?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    pub(crate) fn failure_count(&self) -> Result<u64> {
        let query = "SELECT count(*) FROM failure WHERE kind <> 'Kept'";
        let count: i64 = self.read.query_row(query, [], |row| row.get(0))?;
        Ok(count.cast_unsigned())
    }

    /// Returns the outcome of the last finished copy.
    pub(crate) fn last_outcome(&self) -> Option<Outcome> {
        let json: Option<String> = meta(&self.read, "outcome").ok()?;
        serde_json::from_str(&json?).ok()
    }

    /// Returns the rounds of both sides, derived from the rows of folders.
    pub(crate) fn rounds(&self) -> Result<[Vec<Round>; 2]> {
        let mut statement = self.read.prepare(
            "SELECT count(*), sum(src <> 0), sum(src = 2), sum(dst <> 0), sum(dst = 2)
             FROM folder GROUP BY depth ORDER BY depth",
        )?;
        let rows = statement.query_map([], |row| {
            let number = |at| row.get::<_, i64>(at).map(i64::cast_unsigned);
            let declared = number(0)?;
            let round = |ended: u64, failed| Round {
                declared,
                ended,
                failed,
                closed: ended == declared,
            };
            Ok((round(number(1)?, number(2)?), round(number(3)?, number(4)?)))
        })?;
        let both: Vec<(Round, Round)> = rows.collect::<rusqlite::Result<_>>()?;
        let (source, destination) = both.into_iter().unzip();
        Ok([source, destination])
    }
}

fn total_of(pair: &Pair, status: Status) -> FolderTotal {
    let count = Count {
        entries: 1,
        bytes: pair.entry.size,
    };
    FolderTotal {
        found: count,
        work: if status.needs_copy() {
            count
        } else {
            Count::default()
        },
        trouble: u64::from(status.is_problem()),
    }
}
