//! The serde deserializer over one node of the tree.

use serde::de::{DeserializeSeed, Visitor};

use super::access::{Entries, List, Variant};
use super::error::Error;
use super::paths::resolve_path;
use super::{Findings, Path, Unknown, text};
use crate::config::node::{Node, Table, Value};
use crate::config::problem::suggest;

/// One node, its path, and the findings to add unknown keys to.
pub(super) struct Reader<'a> {
    node: &'a Node,
    path: Path,
    findings: &'a Findings,
}

impl<'a> Reader<'a> {
    pub(super) fn new(node: &'a Node, path: Path, findings: &'a Findings) -> Reader<'a> {
        Reader {
            node,
            path,
            findings,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the node and adds its path to an error.
    pub(super) fn read<'de, T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        let path = self.path.clone();
        seed.deserialize(self).map_err(|error| error.at(&path))
    }

    /// The child at `step`, unless an earlier round left it out.
    fn child(&self, step: String, node: &'a Node) -> Option<Reader<'a>> {
        let mut path = self.path.clone();
        path.push(step);
        let kept = !self.findings.skipped.contains(&path);
        kept.then(|| Reader::new(node, path, self.findings))
    }

    fn list<'de, V: Visitor<'de>>(&self, list: &'a [Node], visitor: V) -> Result<V::Value, Error> {
        let items = list.iter().enumerate();
        let items: Vec<_> = items
            .filter_map(|(n, item)| self.child(n.to_string(), item))
            .collect();
        visitor.visit_seq(List {
            items: items.into_iter(),
        })
    }

    fn table<'de, V: Visitor<'de>>(&self, table: &'a Table, visitor: V) -> Result<V::Value, Error> {
        let entries = table.iter();
        let entries = entries.filter_map(|(k, v)| Some((k.clone(), self.child(k.clone(), v)?)));
        let entries: Vec<_> = entries.collect();
        visitor.visit_map(Entries {
            entries: entries.into_iter(),
            value: None,
        })
    }

    fn note_unknown(&self, table: &Table, known: &'static [&'static str]) {
        let mut unknown = self.findings.unknown.borrow_mut();
        for (key, node) in table
            .iter()
            .filter(|(key, _)| !known.contains(&key.as_str()))
        {
            let mut path = self.path.clone();
            path.push(key.clone());
            let origin = node.origin.clone();
            unknown.insert(path, Unknown { origin, known });
        }
    }

    fn integer(&self, min: i128, max: i128) -> Result<i128, Error> {
        let what = if (min, max) == (i64::MIN.into(), i64::MAX.into()) {
            "an integer".to_owned()
        } else if max > i64::MAX.into() {
            format!("an integer, {min} or more")
        } else {
            format!("an integer from {min} to {max}")
        };
        let number = match &self.node.value {
            Value::Int(number) => Some(*number),
            Value::Text(text) => text::int(text),
            _ => None,
        };
        match number.map(i128::from) {
            Some(number) if (min..=max).contains(&number) => Ok(number),
            Some(number) => Err(Error::new(format!("expected {what}, found {number}"))),
            None => Err(Error::expected(what, self.node).with_example("10")),
        }
    }
}

macro_rules! integers {
    ($($method:ident $type:ty => $visit:ident $as:ty;)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let number = self.integer(<$type>::MIN.into(), <$type>::MAX.into())?;
            visitor.$visit(number as $as)
        }
    )*};
}

impl<'de> serde::Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Int(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Str(text) | Value::Text(text) => visitor.visit_str(text),
            Value::List(list) => self.list(list, visitor),
            Value::Table(table) => self.table(table, visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let value = match &self.node.value {
            Value::Bool(value) => Some(*value),
            Value::Text(text) => text::bool(text),
            _ => None,
        };
        visitor.visit_bool(
            value
                .ok_or_else(|| Error::expected("true or false", self.node).with_example("true"))?,
        )
    }

    integers! {
        deserialize_i8 i8 => visit_i64 i64;
        deserialize_i16 i16 => visit_i64 i64;
        deserialize_i32 i32 => visit_i64 i64;
        deserialize_i64 i64 => visit_i64 i64;
        deserialize_u8 u8 => visit_u64 u64;
        deserialize_u16 u16 => visit_u64 u64;
        deserialize_u32 u32 => visit_u64 u64;
        deserialize_u64 u64 => visit_u64 u64;
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let number = match &self.node.value {
            Value::Float(number) => Some(*number),
            Value::Int(number) => Some(*number as f64),
            Value::Text(text) => text::float(text),
            _ => None,
        };
        visitor.visit_f64(
            number.ok_or_else(|| Error::expected("a number", self.node).with_example("0.5"))?,
        )
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Str(text) | Value::Text(text) => {
                visitor.visit_str(&resolve_path::<V::Value>(text, &self.node.origin)?)
            }
            _ => Err(Error::expected("a string in quotes", self.node).with_example("\"text\"")),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            // An empty variable or flag unsets an optional key.
            Value::Text(text) if text.is_empty() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::List(list) => self.list(list, visitor),
            Value::Text(text) => match text::list(text, &self.node.origin) {
                Some(list) => self.in_place(&Value::List(list), |r| r.deserialize_seq(visitor)),
                None => Err(Error::expected("a list", self.node)),
            },
            _ => Err(Error::expected("a list", self.node).remedy("put it in [ ]")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Table(table) => self.table(table, visitor),
            Value::Text(text) => match text::table(text, &self.node.origin) {
                Some(table) => self.in_place(&table, |r| r.deserialize_map(visitor)),
                None => Err(Error::expected("a table such as { a = 1 }", self.node)),
            },
            _ => Err(Error::expected("a table", self.node)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match &self.node.value {
            Value::Table(table) => {
                self.note_unknown(table, fields);
                let entries = table
                    .iter()
                    .filter(|(key, _)| fields.contains(&key.as_str()));
                let entries = entries
                    .filter_map(|(k, v)| Some((k.clone(), self.child(k.clone(), v)?)))
                    .collect::<Vec<_>>();
                visitor.visit_map(Entries {
                    entries: entries.into_iter(),
                    value: None,
                })
            }
            Value::Text(text) => match text::table(text, &self.node.origin) {
                Some(t) => self.in_place(&t, |r| r.deserialize_struct(name, fields, visitor)),
                None => Err(Error::expected("a table such as { a = 1 }", self.node)),
            },
            _ => Err(Error::expected("a table", self.node)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let (name, content) = match &self.node.value {
            Value::Str(name) | Value::Text(name) => (name.clone(), None),
            Value::Table(table) if table.len() == 1 => {
                let (name, node) = table.iter().next().expect("the table has one entry");
                (name.clone(), self.child(name.clone(), node))
            }
            _ => return Err(Error::expected(choice(variants), self.node)),
        };
        if !variants.contains(&name.as_str()) {
            let error = Error::new(format!("expected {}, found `{name}`", choice(variants)));
            return Err(match suggest(&name, variants) {
                near if near.starts_with("did you") => error.remedy(near),
                _ => error,
            });
        }
        visitor.visit_enum(Variant { name, content })
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}

impl Reader<'_> {
    /// Continues with `value` as if it had been written in place of this node.
    fn in_place<T>(
        &self,
        value: &Value,
        read: impl FnOnce(Reader<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let node = Node::new(self.node.origin.clone(), value.clone());
        read(Reader::new(&node, self.path.clone(), self.findings))
    }
}

fn choice(variants: &[&str]) -> String {
    let quoted: Vec<_> = variants.iter().map(|v| format!("`{v}`")).collect();
    format!("one of {}", quoted.join(", "))
}
