//! Filters: which entries are left out of a job.

use crate::error::{Error, Result};
use crate::preserve::Preserve;
use globset::{Candidate, GlobBuilder, GlobSet, GlobSetBuilder};
use headworks_storage::{Entry, Folder, Kind, OwnerMap};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

/// The entries that take part in a job. Stored with the job.
///
/// A pattern without a slash matches names at any depth; one with a slash matches whole paths from
/// the root. `*` and `?` do not match a slash, `**` does. An excluded folder excludes everything
/// below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Filters {
    /// If not empty, every entry but a folder must match one of these.
    pub include: Vec<String>,
    /// Excludes entries that match one of these.
    pub exclude: Vec<String>,
    /// Excludes smaller files.
    pub min_size: Option<u64>,
    /// Excludes larger files.
    pub max_size: Option<u64>,
    /// Excludes entries, other than folders, that were modified more recently than this before the
    /// job began.
    pub min_age: Option<Duration>,
    /// Excludes entries, other than folders, that were modified longer ago than this before the job
    /// began.
    pub max_age: Option<Duration>,
    /// Copies devices, pipes and sockets where possible.
    pub specials: bool,
    /// The attributes that are copied and compared.
    #[serde(default)]
    pub preserve: Preserve,
    /// Other owners for the entries at the destination.
    #[serde(default)]
    pub owners: OwnerMap,
}

/// Formats the filters as on the command line.
impl fmt::Display for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = |flag: &str, pattern: &String| format!("--{flag} '{pattern}'");
        let bytes = |flag: &str, bytes: u64| format!("--{flag} {bytes}");
        let age = |flag: &str, age: Duration| format!("--{flag} {}s", age.as_secs());
        let include = self.include.iter().map(|text| pattern("include", text));
        let exclude = self.exclude.iter().map(|text| pattern("exclude", text));
        let others = [
            self.min_size.map(|least| bytes("min-size", least)),
            self.max_size.map(|most| bytes("max-size", most)),
            self.min_age.map(|least| age("min-age", least)),
            self.max_age.map(|most| age("max-age", most)),
            self.specials.then(|| "--specials".to_owned()),
            (self.preserve != Preserve::default()).then(|| format!("--preserve={}", self.preserve)),
            (!self.owners.is_empty()).then(|| self.owners.to_string()),
        ];
        let flags: Vec<String> = include
            .chain(exclude)
            .chain(others.into_iter().flatten())
            .collect();
        match flags.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&flags.join(" ")),
        }
    }
}

/// Compiled filters.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    filters: Filters,
    include: GlobSet,
    exclude: GlobSet,
    began: i64,
}

/// Compiles patterns into a set.
pub(crate) fn globs<S: AsRef<str>>(patterns: &[S]) -> Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let pattern = pattern.as_ref();
        let wrong =
            |e: globset::Error| Error::BadOption(format!("invalid pattern `{pattern}`: {e}"));
        let trimmed = pattern.trim_end_matches('/');
        // It would match every entry.
        if trimmed.is_empty() {
            let message =
                format!("empty pattern `{pattern}`: name what it is to match, or leave it out");
            return Err(Error::BadOption(message));
        }
        let anchored = match trimmed.strip_prefix('/') {
            Some(path) => path.to_owned(),
            None if trimmed.contains('/') => trimmed.to_owned(),
            None => format!("**/{trimmed}"),
        };
        let glob = GlobBuilder::new(&anchored).literal_separator(true).build();
        set.add(glob.map_err(wrong)?);
    }
    set.build().map_err(|e| Error::BadOption(e.to_string()))
}

pub(crate) fn matches(set: &GlobSet, path: &[u8]) -> bool {
    !set.is_empty() && set.is_match_candidate(&Candidate::new(OsStr::from_bytes(path)))
}

/// Returns whether a folder or one of its ancestors matches.
pub(crate) fn covers(set: &GlobSet, folder: &Folder) -> bool {
    let bytes = folder.as_bytes();
    let slashes = bytes.iter().enumerate().filter(|(_, b)| **b == b'/');
    !set.is_empty()
        && slashes
            .map(|(at, _)| &bytes[..at])
            .any(|path| matches(set, path))
}

impl Filter {
    pub(crate) fn new(filters: &Filters, began: i64) -> Result<Filter> {
        Ok(Filter {
            include: globs(&filters.include)?,
            exclude: globs(&filters.exclude)?,
            filters: filters.clone(),
            began,
        })
    }

    pub(crate) fn filters(&self) -> &Filters {
        &self.filters
    }

    pub(crate) fn excludes(&self, folder: &Folder, entry: &Entry) -> bool {
        let path = || folder.join(&entry.name);
        if !self.exclude.is_empty() && matches(&self.exclude, &path()) {
            return true;
        }
        if entry.kind == Kind::Folder {
            return false;
        }
        if !self.include.is_empty() && !matches(&self.include, &path()) {
            return true;
        }
        self.excludes_size(entry) || self.excludes_age(entry)
    }

    fn excludes_size(&self, entry: &Entry) -> bool {
        let Filters {
            min_size, max_size, ..
        } = self.filters;
        entry.kind == Kind::File
            && (min_size.is_some_and(|min| entry.size < min)
                || max_size.is_some_and(|max| entry.size > max))
    }

    fn excludes_age(&self, entry: &Entry) -> bool {
        let Some(modified) = entry.modified else {
            return false;
        };
        let age = i128::from(self.began) - i128::from(modified);
        let nanos = |age: Duration| i128::try_from(age.as_nanos()).unwrap_or(i128::MAX);
        let Filters {
            min_age, max_age, ..
        } = self.filters;
        min_age.is_some_and(|min| age < nanos(min)) || max_age.is_some_and(|max| age > nanos(max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excluded(filters: &Filters, path: &[u8], kind: Kind, size: u64) -> bool {
        let cut = path.iter().rposition(|&b| b == b'/').map_or(0, |at| at + 1);
        let folder = Folder::from_bytes(path[..cut].to_vec());
        let mut entry = Entry::new(&path[cut..], kind);
        entry.size = size;
        Filter::new(filters, 0).unwrap().excludes(&folder, &entry)
    }

    #[test]
    fn patterns_are_for_names_or_for_whole_paths() {
        let filters = Filters {
            exclude: vec!["*.tmp".into(), "/top".into(), "a/*/c".into()],
            ..Filters::default()
        };
        let out = |path: &[u8]| excluded(&filters, path, Kind::File, 1);
        assert!(out(b"x/y/z.tmp") && out(b"z.tmp") && out(b"top") && out(b"a/\xff/c"));
        assert!(!out(b"x/top") && !out(b"a/b/d/c") && !out(b"z.tmpx"));
    }

    #[test]
    fn includes_are_for_files_only() {
        let filters = Filters {
            include: vec!["*.jpg".into()],
            min_size: Some(10),
            ..Filters::default()
        };
        assert!(!excluded(&filters, b"folder", Kind::Folder, 0));
        assert!(excluded(&filters, b"a.txt", Kind::File, 50));
        assert!(!excluded(&filters, b"a.jpg", Kind::File, 50));
        assert!(excluded(&filters, b"a.jpg", Kind::File, 5));
    }

    #[test]
    fn a_folder_is_covered_by_those_above_it() {
        let set = globs(&["cache"]).unwrap();
        assert!(covers(&set, &Folder::from_bytes(b"a/cache/b".to_vec())));
        assert!(!covers(&set, &Folder::from_bytes(b"a/cached/b".to_vec())));
    }
}
