//! Reads configuration files into the tree and records the line of every value.
//!
//! The file extension selects the format: `.yaml` and `.yml`, `.ini`, `.conf` and `.cfg`, and TOML
//! for everything else. TOML is the native format. The other two exist so that the file of a
//! predecessor can be read, through the alias tables of the sections.

mod ini;
mod toml;
mod yaml;

use std::path::{Path, PathBuf};
use std::string::FromUtf8Error;
use std::sync::Arc;

use super::node::{Node, Table};
use super::origin::Origin;
use super::problem::Problem;
use crate::bounded_file;

pub(super) use self::toml::value as toml_value;
pub use self::yaml::is_plain_yaml;

/// The content of a file before it is matched against the known keys.
pub(super) enum Content {
    /// Sections in the native format.
    Sections(Table),
    /// Keys of a file of a program that Headworks replaces, each with the header above it, if any.
    Legacy(Vec<LegacyKey>),
}

/// A key of a predecessor's file.
pub(super) struct LegacyKey {
    pub(super) header: Option<String>,
    pub(super) name: String,
    pub(super) node: Node,
}

/// Reads the file at `path`. Returns what could be read and the problems with the rest.
pub(super) fn read(path: &Path) -> (Content, Vec<Problem>) {
    let nothing = || Content::Sections(Table::new());
    let whole = |text: String| vec![Problem::new(Origin::whole_file(path), "", text)];
    let bytes = match bounded_file::read(path) {
        Ok(bytes) => bytes,
        Err(cause) => return (nothing(), whole(format!("cannot read the file: {cause}"))),
    };
    match String::from_utf8(bytes) {
        Ok(text) => parse(path, &text),
        Err(error) => (nothing(), vec![not_text(path, &error)]),
    }
}

fn not_text(path: &Path, error: &FromUtf8Error) -> Problem {
    let readable = &error.as_bytes()[..error.utf8_error().valid_up_to()];
    let line = 1 + readable.iter().filter(|byte| **byte == b'\n').count();
    let origin = Origin::line(&Arc::new(path.to_path_buf()), line);
    Problem::new(origin, "", "not UTF-8 text").remedy("save the file as UTF-8")
}

/// Parses `text` in the format that the extension of `path` selects.
pub(super) fn parse(path: &Path, text: &str) -> (Content, Vec<Problem>) {
    let shared: Arc<PathBuf> = Arc::new(path.to_path_buf());
    let extension = path.extension().and_then(|e| e.to_str()).unwrap_or("");
    match extension.to_ascii_lowercase().as_str() {
        "yaml" | "yml" => {
            let (keys, problems) = yaml::parse(&shared, text);
            (Content::Legacy(keys), problems)
        }
        "ini" | "conf" | "cfg" => {
            let (keys, problems) = ini::parse(&shared, text);
            (Content::Legacy(keys), problems)
        }
        _ => {
            let (table, problems) = toml::parse(&shared, text);
            (Content::Sections(table), problems)
        }
    }
}
