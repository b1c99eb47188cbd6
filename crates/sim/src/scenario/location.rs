//! Maps keys to places in a file and back.

use crate::error::{FileLocation, SimError};
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// An invalid key, found while the scenario is built, before its place is known.
#[derive(Debug)]
pub(super) struct InvalidKey {
    pub(super) key: String,
    pub(super) problem: String,
}

impl InvalidKey {
    pub(super) fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        InvalidKey {
            key: key.into(),
            problem: problem.into(),
        }
    }

    /// The same error, below another key.
    pub(super) fn below(self, outer: &str) -> Self {
        InvalidKey {
            key: format!("{outer}.{}", self.key),
            ..self
        }
    }

    pub(super) fn at(self, file: &str, text: &str) -> SimError {
        let at = DeTable::parse(text)
            .ok()
            .and_then(|table| find(table.get_ref(), &self.key))
            .unwrap_or(0..0);
        SimError::Value {
            place: place(file, text, at.start),
            key: self.key,
            problem: self.problem,
        }
    }
}

pub(super) fn place(file: &str, text: &str, offset: usize) -> FileLocation {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rfind('\n').map_or(0, |at| at + 1);
    FileLocation {
        file: file.to_owned(),
        line: before.matches('\n').count() as u64 + 1,
        column: before[line..].chars().count() as u64 + 1,
    }
}

/// The place of a key like `loads[2].arrivals.rate`. If it is missing, the place of the innermost
/// table that should contain it.
fn find(table: &DeTable<'_>, key: &str) -> Option<Range<usize>> {
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let (name, index) = match first.split_once('[') {
        Some((name, index)) => (name, index.trim_end_matches(']').parse::<usize>().ok()),
        None => (first, None),
    };
    let (found, value) = table.iter().find(|(key, _)| key.get_ref() == name)?;
    let (span, value) = match (index, value.get_ref()) {
        (Some(index), DeValue::Array(array)) => {
            let element = array.get(index)?;
            (element.span(), element.get_ref())
        }
        (_, value) => (found.span(), value),
    };
    let inner = match value {
        DeValue::Table(table) if !rest.is_empty() => find(table, rest),
        _ => None,
    };
    Some(inner.unwrap_or(span))
}

/// The innermost key at an offset, with its tables.
pub(super) fn key_at(table: &DeTable<'_>, offset: usize) -> Option<String> {
    let mut best = None;
    visit(table, "", &mut |path, span| {
        if span.contains(&offset) && best.as_ref().is_none_or(|(width, _)| span.len() <= *width) {
            best = Some((span.len(), path.to_owned()));
        }
    });
    best.map(|(_, path)| path)
}

/// The table with exactly that range; `None` for the whole file.
pub(super) fn table_over(table: &DeTable<'_>, wanted: &Range<usize>) -> Option<String> {
    let mut found = None;
    visit(table, "", &mut |path, span| {
        if span == *wanted {
            found = Some(path.to_owned());
        }
    });
    found
}

fn visit(table: &DeTable<'_>, outer: &str, see: &mut impl FnMut(&str, Range<usize>)) {
    for (key, value) in table {
        let path = if outer.is_empty() {
            key.get_ref().to_string()
        } else {
            format!("{outer}.{}", key.get_ref())
        };
        see(&path, key.span());
        visit_value(value, &path, see);
    }
}

fn visit_value(value: &Spanned<DeValue<'_>>, path: &str, see: &mut impl FnMut(&str, Range<usize>)) {
    see(path, value.span());
    match value.get_ref() {
        DeValue::Table(table) => visit(table, path, see),
        DeValue::Array(array) => {
            for (index, element) in array.iter().enumerate() {
                visit_value(element, &format!("{path}[{index}]"), see);
            }
        }
        _ => {}
    }
}
