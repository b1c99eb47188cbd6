//! From text to tables, with errors that say where and what to write instead.

use super::file::File;
use super::place::{key_at, place, table_over};
use crate::error::SimError;
use toml::de::DeTable;

pub(super) fn read(file: &str, text: &str) -> Result<File, SimError> {
    let table = match DeTable::parse(text) {
        Ok(table) => table,
        Err(error) => {
            return Err(SimError::Syntax {
                place: place(file, text, error.span().map_or(0, |span| span.start)),
                problem: error.message().trim().replace('\n', ", "),
            });
        }
    };
    toml::from_str(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        let key = match error.message().starts_with("missing field") {
            true => table_over(table.get_ref(), &span),
            false => key_at(table.get_ref(), span.start),
        };
        explain(file, text, span.start, key, error.message())
    })
}

fn explain(file: &str, text: &str, offset: usize, key: Option<String>, message: &str) -> SimError {
    let place = place(file, text, offset);
    let message = message.trim();
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    if let (true, [wrong, right @ ..]) = (message.starts_with("unknown field"), quoted.as_slice()) {
        return SimError::UnknownKey {
            place,
            key: inside(key.as_deref(), wrong),
            way_out: way_out(wrong, right),
        };
    }
    if let (true, [missing]) = (message.starts_with("missing field"), quoted.as_slice()) {
        return SimError::Value {
            place,
            key: inside(key.as_deref(), missing),
            problem: "is missing; add it".to_owned(),
        };
    }
    let problem = match (message.starts_with("unknown variant"), quoted.as_slice()) {
        (true, [wrong, right @ ..]) => {
            format!("unknown value `{wrong}`; {}", way_out(wrong, right))
        }
        _ => message.replace('\n', ", "),
    };
    SimError::Value {
        place,
        key: key.unwrap_or_else(|| "file".to_owned()),
        problem,
    }
}

/// A key in its table; the error may point at the key itself or at the table.
fn inside(outer: Option<&str>, key: &str) -> String {
    match outer {
        None => key.to_owned(),
        Some(outer) if outer == key || outer.ends_with(&format!(".{key}")) => outer.to_owned(),
        Some(outer) => format!("{outer}.{key}"),
    }
}

/// The nearest right word, or all that there are.
pub(super) fn way_out(wrong: &str, right: &[&str]) -> String {
    let near = right
        .iter()
        .map(|right| (strsim::damerau_levenshtein(wrong, right), right))
        .filter(|(distance, right)| *distance <= right.len().div_ceil(3))
        .min();
    match near {
        Some((_, right)) => format!("did you mean `{right}`?"),
        None if right.is_empty() => "nothing can be set here".to_owned(),
        None => format!("there are `{}`", right.join("`, `")),
    }
}
