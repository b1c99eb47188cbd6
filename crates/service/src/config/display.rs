//! Values as `config show` prints them.

use std::fmt;

use serde::Serialize;

use super::de::{Path, dotted};
use super::node::Node;
use super::origin::Origin;
use super::section::SectionSpec;

/// One value and its origin, for display.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DisplayValue {
    /// The dotted key, such as `admin.listen`.
    pub key: String,
    /// The value in TOML; `None` if unset. Secrets are masked.
    pub value: Option<toml::Value>,
    /// The origin of the value.
    pub origin: Origin,
    /// Whether a change takes effect only after a restart.
    pub restart: bool,
}

impl fmt::Display for DisplayValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} = {value}", self.key),
            None => write!(f, "# {} is not set", self.key),
        }
    }
}

impl Serialize for DisplayValue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut out = serializer.serialize_struct("Shown", 3)?;
        out.serialize_field("key", &self.key)?;
        out.serialize_field("value", &self.value)?;
        out.serialize_field("origin", &self.origin.to_string())?;
        out.end()
    }
}

/// The values of a section; tables and lists of tables are flattened to their leaves.
pub(super) fn flatten(spec: &SectionSpec, values: &toml::Table, node: &Node) -> Vec<DisplayValue> {
    let mut out = Vec::new();
    for key in spec.keys {
        let start = out.len();
        let mut path = vec![key.name.to_owned()];
        match values.get(key.name) {
            Some(value) => leaves(spec, &mut path, value, node, &mut out),
            None => out.push(display_value(spec, &path, None, node)),
        }
        for value in &mut out[start..] {
            value.restart = key.restart;
        }
    }
    out
}

fn leaves(
    spec: &SectionSpec,
    path: &mut Path,
    value: &toml::Value,
    node: &Node,
    out: &mut Vec<DisplayValue>,
) {
    let children: Vec<(String, &toml::Value)> = match value {
        toml::Value::Table(table) => table.iter().map(|(k, v)| (k.clone(), v)).collect(),
        toml::Value::Array(list) if list.iter().any(toml::Value::is_table) => {
            let numbered = list.iter().enumerate();
            numbered.map(|(n, v)| (n.to_string(), v)).collect()
        }
        _ => Vec::new(),
    };
    if children.is_empty() {
        out.push(display_value(spec, path, Some(value.clone()), node));
    }
    for (step, child) in children {
        path.push(step);
        leaves(spec, path, child, node, out);
        path.pop();
    }
}

fn display_value(
    spec: &SectionSpec,
    path: &[String],
    value: Option<toml::Value>,
    node: &Node,
) -> DisplayValue {
    DisplayValue {
        key: dotted(spec.name, path),
        value,
        origin: origin(path, node),
        restart: false,
    }
}

/// The origin of the value, or of the text that contains it (`[..]` in a variable).
fn origin(path: &[String], node: &Node) -> Origin {
    let (mut here, mut written) = (node, Origin::Default);
    for step in path {
        match here.at(std::slice::from_ref(step)) {
            Some(child) => (here, written) = (child, child.origin.clone()),
            None if here.is_text() => return written,
            None => return Origin::Default,
        }
    }
    written
}
