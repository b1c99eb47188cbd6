//! The untyped tree that every source is read into.
//!
//! Files, environment and flags all become [`Node`]s with an origin, so that one deserializer and
//! one set of messages serves them all.

use std::collections::BTreeMap;

use super::origin::Origin;

/// Keys in a stable order. The order of the file matters only for line numbers, which nodes carry.
pub(crate) type Table = BTreeMap<String, Node>;

/// A value and its origin.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) origin: Origin,
    pub(crate) value: Value,
}

/// An untyped value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A string that was written as one.
    Str(String),
    /// Characters without a type (environment, flags, INI, YAML), converted to the expected type.
    Text(String),
    List(Vec<Node>),
    Table(Table),
}

impl Node {
    pub(crate) fn new(origin: Origin, value: Value) -> Node {
        Node { origin, value }
    }

    pub(crate) fn text(origin: Origin, text: impl Into<String>) -> Node {
        Node::new(origin, Value::Text(text.into()))
    }

    /// The kind of the value for messages, without any part of the value: it may be a secret.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Bool(_) => "true or false",
            Value::Int(_) => "an integer",
            Value::Float(_) => "a decimal number",
            Value::Str(_) => "a string",
            Value::Text(_) => "other text",
            Value::List(_) => "a list",
            Value::Table(_) => "a table",
        }
    }

    /// The node at `path` below this one.
    pub(crate) fn at(&self, path: &[String]) -> Option<&Node> {
        let Some((first, rest)) = path.split_first() else {
            return Some(self);
        };
        match &self.value {
            Value::Table(table) => table.get(first)?.at(rest),
            Value::List(list) => list.get(first.parse::<usize>().ok()?)?.at(rest),
            _ => None,
        }
    }
}

/// Inserts `node` at `path`, creating tables on the way; replaces what was there before.
pub(crate) fn put(table: &mut Table, path: &[&str], node: Node) {
    match path {
        [] => {}
        [key] => {
            table.insert((*key).to_owned(), node);
        }
        [key, rest @ ..] => {
            let empty = || Node::new(node.origin.clone(), Value::Table(Table::new()));
            let child = table.entry((*key).to_owned()).or_insert_with(empty);
            if !matches!(child.value, Value::Table(_)) {
                *child = empty();
            }
            if let Value::Table(inner) = &mut child.value {
                put(inner, rest, node);
            }
        }
    }
}

impl Node {
    /// Whether the value is untyped text.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.value, Value::Text(_))
    }
}
