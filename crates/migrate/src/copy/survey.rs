//! The extent of a deletion: every entry below it is counted, and excluded entries are protected.
//!
//! A plan does not list folders that only the destination has. They are listed here before they are
//! removed: a limit that counted such a folder as one entry would not limit anything.

use super::CopyOptions;
use crate::error::Result;
use crate::filter::{Filter, covers, globs, matches};
use crate::job::Job;
use crate::queries::StateReader;
use globset::GlobSet;
use headworks_core::Backoff;
use headworks_storage::{Backend, Entry, ErrorKind, Fault, Folder, Kind};
use std::sync::Arc;
use std::time::Duration;

/// Counts of the entries at and below an entry of the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    /// Entries that would be removed, including folders.
    pub(crate) entries: u64,
    /// Excluded entries. They stay, and so do the folders that contain them.
    pub(crate) protected: u64,
    /// Entries inside that were made or changed since the plan began: nobody has seen them in it.
    pub(crate) unseen: u64,
}

/// Counts what a deletion would remove. Read-only.
pub(crate) struct Surveyor {
    destination: Arc<dyn Backend>,
    /// `None` if excluded entries are removed like others.
    protection: Option<Protection>,
    /// When the plan began, less the step in which the destination keeps times.
    plan_began: i64,
    /// The same, less the step in which the destination notes changes.
    changed_before: i64,
    attempts: u32,
    backoff: Backoff,
}

/// The job's filters, followed by the rules of `review` in their order.
struct Protection {
    filter: Arc<Filter>,
    rules: Vec<(bool, GlobSet)>,
}

impl Protection {
    fn covers(&self, folder: &Folder, entry: &Entry) -> bool {
        let path = folder.join(&entry.name);
        let mut excluded = self.filter.excludes(folder, entry);
        for (excludes, set) in &self.rules {
            if covers(set, folder) || matches(set, &path) {
                excluded = *excludes;
            }
        }
        excluded
    }
}

/// A folder of the traversal, and whether it stays because it contains a protected entry.
struct SurveyedFolder {
    path: Folder,
    parent: Option<usize>,
    stays: bool,
}

impl Surveyor {
    pub(crate) fn new(job: &Job, state: &StateReader, options: &CopyOptions) -> Result<Surveyor> {
        let protection = match options.delete_excluded {
            true => None,
            false => Some(Protection {
                filter: job.filter.clone(),
                rules: load_rules(state)?,
            }),
        };
        let capabilities = job.destination.capabilities();
        let began = state.plan_began()?;
        let less = |step: Duration| {
            let step = i64::try_from(step.as_nanos()).unwrap_or(i64::MAX);
            began.saturating_sub(step.saturating_sub(1))
        };
        let step = capabilities.modified.unwrap_or_default();
        // Object stores keep modification times as metadata, but upload times in seconds.
        let change_step = match capabilities.folders {
            true => step,
            false => step.max(Duration::from_secs(1)),
        };
        Ok(Surveyor {
            destination: job.destination.clone(),
            protection,
            plan_began: less(step),
            changed_before: less(change_step),
            attempts: job.settings.attempts,
            backoff: job.settings.backoff,
        })
    }

    /// Whether a filter keeps an entry from being deleted.
    pub(crate) fn protects(&self, folder: &Folder, entry: &Entry) -> bool {
        let protection = self.protection.as_ref();
        protection.is_some_and(|protection| protection.covers(folder, entry))
    }

    /// Whether an entry was made or changed since the plan began. All times are by the clock of the
    /// destination, where it has one of its own. The modification time alone would not do: programs
    /// such as `rsync` and `tar` set it to that of the original.
    fn is_unseen(&self, entry: &Entry) -> bool {
        entry.modified > Some(self.plan_began) || entry.changed > Some(self.changed_before)
    }

    /// Counts an entry with everything in it.
    pub(crate) async fn survey(
        &self,
        folder: &Folder,
        entry: &Entry,
    ) -> headworks_storage::Result<Survey> {
        let mut found = Survey::default();
        if self.protects(folder, entry) {
            found.protected = 1;
            return Ok(found);
        }
        found.entries = 1;
        if entry.kind != Kind::Folder {
            return Ok(found);
        }
        let mut folders_seen = vec![SurveyedFolder {
            path: folder.child(&entry.name),
            parent: None,
            stays: false,
        }];
        let mut at = 0;
        while at < folders_seen.len() {
            let path = folders_seen[at].path.clone();
            let (inside, folders) = self.survey_folder(&path).await?;
            found.entries += inside.entries;
            found.protected += inside.protected;
            found.unseen += inside.unseen;
            let mut kept = (inside.protected > 0).then_some(at);
            while let Some(level) = kept.filter(|level| !folders_seen[*level].stays) {
                folders_seen[level].stays = true;
                found.entries -= 1;
                kept = folders_seen[level].parent;
            }
            folders_seen.extend(folders.into_iter().map(|path| SurveyedFolder {
                path,
                parent: Some(at),
                stays: false,
            }));
            at += 1;
        }
        Ok(found)
    }

    /// Returns the counts of a folder's entries, and its subfolders.
    async fn survey_folder(
        &self,
        folder: &Folder,
    ) -> headworks_storage::Result<(Survey, Vec<Folder>)> {
        self.with_retries(async || {
            let (mut found, mut folders) = (Survey::default(), Vec::new());
            self.each_page(folder, |entries| {
                for entry in entries {
                    if self.protects(folder, &entry) {
                        found.protected += 1;
                        continue;
                    }
                    found.entries += 1;
                    found.unseen += u64::from(self.is_unseen(&entry));
                    if entry.kind == Kind::Folder {
                        folders.push(folder.child(&entry.name));
                    }
                }
            })
            .await?;
            Ok((found, folders))
        })
        .await
    }

    /// Returns all entries of a folder.
    pub(crate) async fn children(&self, folder: &Folder) -> headworks_storage::Result<Vec<Entry>> {
        self.with_retries(async || {
            let mut children = Vec::new();
            self.each_page(folder, |entries| children.extend(entries))
                .await?;
            Ok(children)
        })
        .await
    }

    async fn each_page(
        &self,
        folder: &Folder,
        mut each: impl FnMut(Vec<Entry>),
    ) -> headworks_storage::Result<()> {
        let mut listing = match self.destination.list(folder, None).await {
            // The folder disappeared since the plan, with everything in it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            listing => listing?,
        };
        loop {
            let page = match listing.next().await {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                page => page?,
            };
            let Some(mut page) = page else { return Ok(()) };
            // In an object store, an object without a name is the marker of the folder itself.
            page.entries.retain(|entry| !entry.name.is_empty());
            each(page.entries);
        }
    }

    /// Retries calls that fail temporarily.
    pub(crate) async fn with_retries<T>(
        &self,
        mut call: impl AsyncFnMut() -> headworks_storage::Result<T>,
    ) -> headworks_storage::Result<T> {
        let mut attempt = 1;
        loop {
            let error = match call().await {
                Err(error) if attempt < self.attempts => error,
                other => return other,
            };
            let pause = match error.fault() {
                Fault::Temporary => self.backoff.delay(attempt, fastrand::u64(..)),
                Fault::Overload(wait) => wait,
                Fault::Permanent | Fault::Fatal => return Err(error),
            };
            attempt += 1;
            tokio::time::sleep(pause).await;
        }
    }
}

fn load_rules(state: &StateReader) -> Result<Vec<(bool, GlobSet)>> {
    let query = "SELECT verb, pattern FROM rule WHERE verb IN ('exclude', 'include') ORDER BY id";
    let mut statement = state.connection().prepare(query)?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let rows: Vec<(String, String)> = rows.collect::<rusqlite::Result<_>>()?;
    rows.iter()
        .map(|(verb, pattern)| Ok((verb == "exclude", globs(&[pattern])?)))
        .collect()
}
