//! TOML, with every syntax error at once.

use std::path::PathBuf;
use std::sync::Arc;

use ::toml::de::{DeTable, DeValue, Error};

use crate::config::node::{Node, Table, Value};
use crate::config::origin::Origin;
use crate::config::problem::Problem;

/// Turns byte offsets into origins.
struct Lines<'a> {
    starts: Vec<usize>,
    origin: &'a dyn Fn(usize) -> Origin,
    problems: Vec<Problem>,
}

impl<'a> Lines<'a> {
    fn new(text: &str, origin: &'a dyn Fn(usize) -> Origin) -> Lines<'a> {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
        let starts = std::iter::once(0)
            .chain(newlines.map(|(at, _)| at + 1))
            .collect();
        Lines {
            starts,
            origin,
            problems: Vec::new(),
        }
    }

    fn at(&self, offset: usize) -> Origin {
        (self.origin)(self.starts.partition_point(|start| *start <= offset))
    }

    fn table(&mut self, table: &DeTable<'_>) -> Table {
        let mut out = Table::new();
        for (key, value) in table {
            // A list of tables has no line of its own worth naming: its key's is the first header.
            let origin = self.at(key.span().start);
            let value = self.value(value.get_ref(), &origin);
            out.insert(key.get_ref().to_string(), Node::new(origin, value));
        }
        out
    }

    fn value(&mut self, value: &DeValue<'_>, origin: &Origin) -> Value {
        match value {
            DeValue::String(text) => Value::Str(text.to_string()),
            DeValue::Boolean(value) => Value::Bool(*value),
            DeValue::Datetime(moment) => Value::Str(moment.to_string()),
            DeValue::Integer(n) => match i64::from_str_radix(n.as_str(), n.radix()) {
                Ok(number) => Value::Int(number),
                Err(_) => self.out_of_range(origin),
            },
            DeValue::Float(n) => match n.as_str().parse() {
                Ok(number) => Value::Float(number),
                Err(_) => self.out_of_range(origin),
            },
            DeValue::Array(list) => {
                let mut out = Vec::with_capacity(list.len());
                for item in list {
                    let origin = self.at(item.span().start);
                    let value = self.value(item.get_ref(), &origin);
                    out.push(Node::new(origin, value));
                }
                Value::List(out)
            }
            DeValue::Table(table) => Value::Table(self.table(table)),
        }
    }

    fn out_of_range(&mut self, origin: &Origin) -> Value {
        let text = "the number is too large";
        self.problems.push(Problem::new(origin.clone(), "", text));
        Value::Int(0)
    }

    /// The message only: a snippet of the line could show a secret.
    fn syntax(&mut self, error: &Error) {
        let at = error.span().map_or(0, |span| span.start);
        let text = format!("not valid TOML: {}", error.message().replace('\n', ", "));
        self.problems.push(Problem::new(self.at(at), "", text));
    }
}

pub(super) fn parse(path: &Arc<PathBuf>, text: &str) -> (Table, Vec<Problem>) {
    let origin = |line| Origin::line(path, line);
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut lines = Lines::new(text, &origin);
    let table = lines.table(table.get_ref());
    for error in &errors {
        lines.syntax(error);
    }
    (table, lines.problems)
}

/// A TOML value written where only text is possible, such as an environment variable.
pub(in crate::config) fn value(text: &str, origin: &Origin) -> Option<Value> {
    let value = DeValue::parse(text).ok()?;
    let origin_of = |_| origin.clone();
    let mut lines = Lines::new(text, &origin_of);
    let value = lines.value(value.get_ref(), origin);
    lines.problems.is_empty().then_some(value)
}
