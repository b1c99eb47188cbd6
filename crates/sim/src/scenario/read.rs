//! Parses a scenario file, with errors that name the place and a remedy.

use super::file::File;
use super::location::{key_at, place, table_over};
use crate::error::SimError;
use std::io;
use std::path::Path;
use toml::de::DeTable;

/// Maximum size of a scenario file.
const LARGEST: u64 = 16 << 20;

/// Reads a file as text. Devices and pipes are rejected, because they may never end.
pub(super) fn text(path: &Path) -> Result<String, SimError> {
    let file = path.display().to_string();
    let bytes = bytes(path).map_err(|source| SimError::Read {
        file: file.clone(),
        source,
    })?;
    String::from_utf8(bytes).map_err(|error| {
        let readable = error.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(&error.as_bytes()[..readable]);
        SimError::NotText {
            place: place(&file, &before, readable),
        }
    })
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() && !about.is_dir() {
        return Err(io::Error::other("not a regular file"));
    }
    if about.len() > LARGEST {
        return Err(io::Error::other("larger than 16 MiB"));
    }
    std::fs::read(path)
}

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
            remedy: remedy(wrong, right),
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
            format!("unknown value `{wrong}`; {}", remedy(wrong, right))
        }
        _ => plain(message),
    };
    SimError::Value {
        place,
        key: key.unwrap_or_else(|| "file".to_owned()),
        problem,
    }
}

/// Type names of the parser and their descriptions for users.
const TYPE_NAMES: [(&str, &str); 10] = [
    (
        "internally tagged enum Arrivals",
        "a table as in { kind = \"poisson\", rate = 1.0 }",
    ),
    (
        "internally tagged enum Distribution",
        "a table as in { kind = \"uniform\", low = 1, high = 9 }",
    ),
    ("u64", "a whole number, 0 or more"),
    ("u32", "a whole number, 0 to 4294967295"),
    ("u16", "a whole number, 0 to 65535"),
    ("u8", "a whole number, 0 to 255"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a sequence", "a list, as in [[loads]]"),
    ("a string", "a string in quotes"),
];

fn plain(message: &str) -> String {
    let message = message.replace('\n', ", ");
    if message.contains("overflow") || message.contains("as i128") || message.contains("as u128") {
        return "number out of range; write a smaller one".to_owned();
    }
    let Some((found, expected)) = message.rsplit_once(", expected ") else {
        return message;
    };
    let found = found.replace("floating point", "number");
    let known = TYPE_NAMES.iter().find(|(word, _)| *word == expected);
    let expected = match known {
        Some((_, words)) => words,
        None if expected.starts_with("struct ") => "a table",
        None => expected,
    };
    format!("{found}, expected {expected}")
}

/// The full name of a key. The error may point at the key itself or at its table.
fn inside(outer: Option<&str>, key: &str) -> String {
    match outer {
        None => key.to_owned(),
        Some(outer) if outer == key || outer.ends_with(&format!(".{key}")) => outer.to_owned(),
        Some(outer) => format!("{outer}.{key}"),
    }
}

/// Suggests the closest valid word, or lists all of them.
pub(super) fn remedy(wrong: &str, right: &[&str]) -> String {
    let near = right
        .iter()
        .map(|right| (strsim::damerau_levenshtein(wrong, right), right))
        .filter(|(distance, right)| *distance <= right.len().div_ceil(3))
        .min();
    match near {
        Some((_, right)) => format!("did you mean `{right}`?"),
        None if right.is_empty() => "no keys are allowed here".to_owned(),
        None => format!("valid: `{}`", right.join("`, `")),
    }
}
