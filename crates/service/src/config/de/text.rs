//! Untyped text (environment, flags, INI, YAML) converted to the expected type.

use crate::config::files;
use crate::config::node::{Node, Value};
use crate::config::origin::Origin;

/// Accepts the common spellings of INI files: yes/no, on/off, 1/0.
pub(super) fn bool(text: &str) -> Option<bool> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

pub(super) fn int(text: &str) -> Option<i64> {
    text.trim().replace('_', "").parse().ok()
}

pub(super) fn float(text: &str) -> Option<f64> {
    text.trim().replace('_', "").parse().ok()
}

/// Parses `["a", "b"]` as TOML, and anything else as `a, b`.
pub(super) fn list(text: &str, origin: &Origin) -> Option<Vec<Node>> {
    let text = text.trim();
    if text.starts_with('[') {
        return match files::toml_value(text, origin)? {
            Value::List(list) => Some(list),
            _ => None,
        };
    }
    let parts = text.split(',').map(str::trim).filter(|p| !p.is_empty());
    Some(parts.map(|p| Node::text(origin.clone(), p)).collect())
}

/// Parses `{ a = 1 }` as TOML.
pub(super) fn table(text: &str, origin: &Origin) -> Option<Value> {
    match files::toml_value(text.trim(), origin)? {
        table @ Value::Table(_) => Some(table),
        _ => None,
    }
}
