//! Pages of a plan and of its failures, read on demand.

use crate::error::Result;
use crate::queries::{BrowsedEntry, StateReader};
use crate::store::FolderId;
use headworks_service::panel::{Cell, Cursor, Page, Row, Unit};
use headworks_storage::{display, from_display};
use serde::{Deserialize, Serialize};

/// Rows per page.
const PAGE: usize = 50;

pub(super) const PLAN_COLUMNS: [(&str, Unit); 7] = [
    ("entry", Unit::Count),
    ("status", Unit::Count),
    ("entries", Unit::Count),
    ("bytes", Unit::Bytes),
    ("to copy", Unit::Count),
    ("bytes to copy", Unit::Bytes),
    ("skipped or unknown", Unit::Count),
];

pub(super) const FAILURE_COLUMNS: [(&str, Unit); 5] = [
    ("entry", Unit::Count),
    ("phase", Unit::Count),
    ("cause", Unit::Count),
    ("attempts", Unit::Count),
    ("next step", Unit::Count),
];

/// The position of a page in a plan or in the failures.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct BrowseCursor {
    pub(super) job: String,
    folder: FolderId,
    after: Vec<u8>,
    /// Whether the page lists entries that only the destination has.
    extra: bool,
}

impl BrowseCursor {
    pub(super) fn folder(job: &str, folder: FolderId) -> BrowseCursor {
        BrowseCursor {
            job: job.to_owned(),
            folder,
            after: Vec::new(),
            extra: false,
        }
    }

    pub(super) fn first_failure(job: &str) -> BrowseCursor {
        BrowseCursor::folder(job, -1)
    }

    pub(super) fn cursor(&self) -> Cursor {
        Cursor(serde_json::to_string(self).unwrap_or_default())
    }

    fn next_page(&self, folder: FolderId, after: &[u8]) -> Cursor {
        let after = after.to_vec();
        BrowseCursor {
            folder,
            after,
            ..self.clone()
        }
        .cursor()
    }
}

/// Returns the id of an entry of a job. Names that are not UTF-8 must survive the round trip.
pub(super) fn entry_id(job: &str, path: &[u8]) -> String {
    serde_json::to_string(&(job, display(path).to_string())).unwrap_or_default()
}

pub(super) fn parse_entry(id: &str) -> Option<(String, Vec<u8>)> {
    let (job, path): (String, String) = serde_json::from_str(id).ok()?;
    Some((job, from_display(&path)?))
}

/// Returns a pattern that matches only this path.
pub(super) fn pattern_for(path: &[u8]) -> Option<String> {
    let path = std::str::from_utf8(path).ok()?;
    let mut pattern = String::from("/");
    for letter in path.chars() {
        match letter {
            '*' | '?' | '[' | ']' | '{' | '}' => pattern.extend(['[', letter, ']']),
            '\\' => pattern.push_str("\\\\"),
            _ => pattern.push(letter),
        }
    }
    Some(pattern)
}

/// Returns a page of a folder: the source's entries, then those that only the destination has.
pub(super) fn folder(state: &StateReader, at: &BrowseCursor) -> Result<Page> {
    let mut rows = Vec::new();
    let mut extra = at.clone();
    if !at.extra {
        let listed = state.browse_source(at.folder, &at.after, PAGE)?;
        rows.extend(listed.iter().map(|entry| row(at, entry)));
        if let Some(last) = listed.last().filter(|_| listed.len() == PAGE) {
            let next = Some(at.next_page(at.folder, &last.name));
            return Ok(Page { rows, next });
        }
        extra = BrowseCursor {
            extra: true,
            after: Vec::new(),
            ..at.clone()
        };
    }
    let only = state.browse_extra(at.folder, &extra.after, PAGE)?;
    rows.extend(only.iter().map(|entry| row(at, entry)));
    let last = only.last().filter(|_| only.len() == PAGE);
    let next = last.map(|last| extra.next_page(at.folder, &last.name));
    Ok(Page { rows, next })
}

fn row(at: &BrowseCursor, entry: &BrowsedEntry) -> Row {
    let total = entry.total.unwrap_or_default();
    let (found, work) = (total.found, total.work);
    let number = |number: u64| Cell::Number(number as f64);
    Row {
        id: entry_id(&at.job, &entry.path),
        cells: vec![
            Cell::Text(display(&entry.name).to_string()),
            Cell::from(entry.status),
            if entry.folder.is_some() {
                number(found.entries)
            } else {
                Cell::Empty
            },
            number(found.bytes),
            number(work.entries),
            number(work.bytes),
            number(total.trouble),
        ],
        children: entry
            .folder
            .map(|folder| BrowseCursor::folder(&at.job, folder).cursor()),
    }
}

pub(super) fn failures(state: &StateReader, at: &BrowseCursor) -> Result<Page> {
    let failed = state.failed_page((at.folder, &at.after), PAGE)?;
    let rows = failed.iter().map(|((..), failed)| Row {
        id: serde_json::to_string(&(&at.job, &failed.path)).unwrap_or_default(),
        cells: vec![
            Cell::Text(failed.path.clone()),
            Cell::Text(failed.phase.clone()),
            Cell::Text(failed.cause.clone()),
            Cell::Number(f64::from(failed.attempts)),
            Cell::from(failed.next_step()),
        ],
        children: None,
    });
    let rows = rows.collect();
    let last = failed.last().filter(|_| failed.len() == PAGE);
    let next = last.map(|((parent, name), _)| at.next_page(*parent, name));
    Ok(Page { rows, next })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{globs, matches};

    #[test]
    fn an_id_brings_any_name_back() {
        for path in [&b"plain/a b"[..], b"\xff\xfe\n\t\r\"'\\x41", b""] {
            let id = entry_id("/a/job.db", path);
            assert_eq!(parse_entry(&id), Some(("/a/job.db".into(), path.to_vec())));
        }
        assert_eq!(parse_entry("nonsense"), None);
    }

    #[test]
    fn a_pattern_for_a_path_matches_only_it() {
        for path in ["a/[b]*?/{c}", "x", "back\\slash"] {
            let set = globs(&[pattern_for(path.as_bytes()).unwrap()]).unwrap();
            assert!(matches(&set, path.as_bytes()), "{path}");
            assert!(!matches(&set, format!("up/{path}").as_bytes()));
            assert!(!matches(&set, b"a/b/c"));
        }
        assert_eq!(pattern_for(b"\xff"), None);
    }
}
